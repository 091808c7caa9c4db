"""Where outputs go: whether a place can be written, before anything runs, and writing that leaves no half file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cudabench.errors import CudabenchError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it, so that a reader sees the old one or the new one, whole.

    Raises CudabenchError where it cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise CudabenchError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise CudabenchError(f"{path} cannot be written: {error.strerror}.") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_target(path: Path, option: str = "--json") -> None:
    """Raise CudabenchError where the file that an option names cannot be written, before anything runs."""
    if path.is_dir():
        raise CudabenchError(f"{option} {path} is a directory: name a file in it.")
    if not path.parent.is_dir():
        raise CudabenchError(f"{option} {path}: the folder {path.parent} does not exist; make it first.")
    if not os.access(path.parent, os.W_OK):
        raise CudabenchError(f"{option} {path}: no permission to write in {path.parent.resolve()}.")
