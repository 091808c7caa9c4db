"""The results file: its schema, writing it so that nothing is ever half there, reading it back.

Schema history
1  first version
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cudabench import __version__
from cudabench.errors import CudabenchError
from cudabench.model import DeviceInfo, Result

SCHEMA = "cudabench/1"


@dataclass
class ResultsFile:
    """Everything that one run leaves behind; `write` may be called after every kernel."""

    settings: Mapping[str, Any]
    tool: Mapping[str, Any]
    host: Mapping[str, Any]
    device: DeviceInfo | None = None
    results: list[Result] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the file's content as plain values."""
        return {
            "schema": SCHEMA,
            "tool": {"name": "cudabench", "version": __version__, **self.tool},
            "host": dict(self.host),
            "device": asdict(self.device) if self.device else None,
            "settings": dict(self.settings),
            "results": [_plain(result) for result in self.results],
        }

    def text(self) -> str:
        """Return the file's text: one line a value, but lists of samples on one line."""
        return _dump(self.document()) + "\n"

    def write(self, path: Path) -> None:
        """Write the file beside its place and rename it, so that a reader sees the old one or the new one, whole."""
        try:
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        except OSError as error:
            raise CudabenchError(f"{path} cannot be written: {error.strerror}.") from error
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(self.text())
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


def check_target(path: Path) -> None:
    """Raise CudabenchError where a results file cannot be written, before anything runs."""
    if path.is_dir():
        raise CudabenchError(f"--json {path} is a directory: name a file in it.")
    if not path.parent.is_dir():
        raise CudabenchError(f"--json {path}: the folder {path.parent} does not exist; make it first.")
    if not os.access(path.parent, os.W_OK):
        raise CudabenchError(f"--json {path}: no permission to write in {path.parent.resolve()}.")


def _plain(result: Result) -> dict[str, Any]:
    """Return a result under the keys of the schema, in its order."""
    values = asdict(result)
    if values["time"]:
        values["time"]["samples_s"] = [float(f"{sample:.7g}") for sample in values["time"]["samples_s"]]
    return values


def _dump(value: Any, indent: str = "") -> str:
    """Return JSON with short lists on one line: a thousand samples would otherwise be a thousand lines."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        rows = (f"{inner}{json.dumps(str(key))}: {_dump(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(i, Mapping) for i in value):
        return "[\n" + ",\n".join(f"{inner}{_dump(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    """Return a value with NaN and infinities as text, which JSON lacks."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
