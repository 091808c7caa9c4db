"""Reads and writes picture files with Pillow, which is imported only if an option names a picture."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.records.plan import Option
from cudabench.system import outputs
from cudabench.system.reading import check_regular

OPTIONS = (
    Option("image", str, None, "FILE", "Use this picture, in its size."),
    Option("save", str, None, "FILE", "Save the resulting picture."),
)


def load(options: Mapping[str, Any], mode: str | None = None) -> np.ndarray | None:
    """Return the picture of --image as a uint8 array of shape (rows, columns, channels), or None without the option.

    `mode`: 'RGB' for three channels, 'L' for one channel; by default a grey picture has one channel and a coloured
    picture has three.
    """
    path = options.get("image")
    return _load(str(path), mode) if path else None


def size(options: Mapping[str, Any], mode: str | None = None) -> tuple[int, ...] | None:
    """Return the size (rows, columns) of the picture of --image, or None without the option.

    Raises CudabenchError if the file of --save could not be written later: its folder is missing, or the ending of its
    name is unknown.
    """
    if options.get("save"):
        path = Path(options["save"])
        outputs.check_target(path, "--save")
        _format(path)
    picture = load(options, mode)
    return None if picture is None else picture.shape[:2]


def save(options: Mapping[str, Any], array: np.ndarray) -> None:
    """Write an array of shape (rows, columns) or (rows, columns, channels) as a picture if --save requests it. Floats
    are levels of 0 to 255."""
    if not options.get("save"):
        return
    levels = array if array.dtype == np.uint8 else np.clip(np.rint(array), 0, 255).astype(np.uint8)
    if levels.ndim == 3 and levels.shape[2] == 1:
        levels = levels[:, :, 0]
    path = Path(options["save"])
    picture, format_name = _pillow().fromarray(levels), _format(path)
    try:
        outputs.write_with(path, lambda stream: picture.save(stream, format=format_name), f"--save {path}")
    except (ValueError, KeyError) as error:
        raise CudabenchError(f"--save {path}: the picture cannot be written as {format_name} ({error}).") from error


def _format(path: Path) -> str:
    """Return the name of Pillow's format for the ending of a file's name; PNG for a device or pipe without an ending.

    Raises CudabenchError for an unknown ending.
    """
    formats = _pillow().registered_extensions()
    format_name = formats.get(path.suffix.lower()) or ("PNG" if not path.suffix and not outputs.is_file(path) else None)
    if format_name is None:
        raise CudabenchError(f"--save {path}: '{path.suffix}' is not the ending of a picture format; use .png or .jpg.")
    return str(format_name)


@lru_cache(maxsize=1)
def _load(path: str, mode: str | None) -> np.ndarray:
    pillow = _pillow()
    from PIL import ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about large pictures, which are expected here
            check_regular(path)
            with pillow.open(path) as picture:
                upright = ImageOps.exif_transpose(picture)
                chosen_mode = mode or ("L" if upright.mode in ("1", "L", "LA", "I", "I;16", "F") else "RGB")
                array = np.array(upright.convert(chosen_mode))
    except FileNotFoundError:
        raise CudabenchError(f"--image {path} does not exist.") from None
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise CudabenchError(f"--image {path}: Pillow cannot read it as a picture ({error}).") from error
    return array if array.ndim == 3 else array[:, :, np.newaxis]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise CudabenchError("--image and --save need Pillow: pip install 'cudabench[image]'") from None
    return Image
