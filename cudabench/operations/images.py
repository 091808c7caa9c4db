"""Pictures in and out, with Pillow, which is imported only when a picture is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.records.planned import Option
from cudabench.system import outputs
from cudabench.system.reading import check_regular

OPTIONS = (
    Option("image", str, None, "FILE", "Take this picture; the size is its own."),
    Option("save", str, None, "FILE", "Keep the resulting picture."),
)


def load(options: Mapping[str, Any], mode: str | None = None) -> np.ndarray | None:
    """Return the picture that the options name, rows x columns x channels of uint8, or None where they name none.

    `mode` is 'RGB' for three channels or 'L' for one; without it a picture without colours has one channel.
    """
    path = options.get("image")
    return _load(str(path), mode) if path else None


def check_target(options: Mapping[str, Any]) -> None:
    """Raise CudabenchError where the picture could not be saved: no folder, or an ending that means no format."""
    if not options.get("save"):
        return
    path = Path(options["save"])
    outputs.check_target(path, "--save")
    _format(path)


def save(options: Mapping[str, Any], array: np.ndarray) -> None:
    """Write rows x columns (x channels) as a picture where the options say so; floats are grey levels of 0 to 255."""
    if not options.get("save"):
        return
    levels = array if array.dtype == np.uint8 else np.clip(np.rint(array), 0, 255).astype(np.uint8)
    if levels.ndim == 3 and levels.shape[2] == 1:
        levels = levels[:, :, 0]
    path = Path(options["save"])
    picture, kind = _pillow().fromarray(levels), _format(path)
    try:
        outputs.write_with(path, lambda stream: picture.save(stream, format=kind), f"--save {path}")
    except (ValueError, KeyError) as error:
        raise CudabenchError(f"--save {path}: the picture cannot be written as {kind} ({error}).") from error


def _format(path: Path) -> str:
    """Return Pillow's name of the format that a name's ending means; what is no file and has no ending gets PNG.

    Raises CudabenchError for another ending.
    """
    known = _pillow().registered_extensions()
    kind = known.get(path.suffix.lower()) or ("PNG" if not path.suffix and not outputs.is_file(path) else None)
    if kind is None:
        raise CudabenchError(f"--save {path}: no picture format ends in '{path.suffix}'; use .png or .jpg.")
    return str(kind)


@lru_cache(maxsize=1)
def _load(path: str, mode: str | None) -> np.ndarray:
    pillow = _pillow()
    from PIL import ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large pictures are what this is for
            check_regular(path)
            with pillow.open(path) as picture:
                upright = ImageOps.exif_transpose(picture)
                picked = mode or ("L" if upright.mode in ("1", "L", "LA", "I", "I;16", "F") else "RGB")
                array = np.array(upright.convert(picked))
    except FileNotFoundError:
        raise CudabenchError(f"--image {path}: no such file.") from None
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise CudabenchError(f"--image {path}: Pillow cannot read it as a picture ({error}).") from error
    return array if array.ndim == 3 else array[:, :, np.newaxis]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise CudabenchError("--image and --save need Pillow: pip install 'cudabench[image]'") from None
    return Image
