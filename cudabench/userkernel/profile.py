"""`--profile FILE.toml`: a file with saved options of `run`. Each kernel has a table whose keys are option names.

Keys above the tables apply to all kernels. Paths are relative to the profile's folder. A profile can write files only
in this folder or below it, because a profile from another person must not overwrite other files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudabench.errors import CudabenchError, UsageError, did_you_mean, refuse
from cudabench.system.reading import content
from cudabench.userkernel.request import name_of

OUTPUTS = ("json", "report", "save", "image-out", "plot")  # options that name an output file
MOST_BYTES = 4 << 20  # the largest size of a profile
LISTS = ("arg", "expect", "const", "define", "save", "include", "step")  # options that may be given several times
SHOWN = 60  # a message shows at most this many characters of a value
DIMENSIONS = ("grid", "block")
EXAMPLE = '[saxpy] with grid = "cdiv(n,256)", block = 256 and arg = ["n=1048576", ...]'


@dataclass(frozen=True)
class Profile:
    """The content of a profile; `common`: the options for all kernels; `tables`: the options of each kernel by name."""

    path: str
    common: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]

    def of(self, kernel: str) -> dict[str, Any]:
        """Return the options of a kernel: its table's options, and the common options that the table does not set."""
        if self.tables and kernel not in self.tables:
            raise UsageError(
                f"{self.path} lacks a table for the kernel '{kernel}'; it has {', '.join(self.tables)}."
                f"{did_you_mean(kernel, self.tables)}"
            )
        return merged(self.common, self.tables.get(kernel, {}))


def load_profile(path: str, known: Mapping[str, bool]) -> Profile:
    """Read a profile; `known`: the options that a profile may contain, each with whether it is a flag."""
    document = _toml(path)
    common: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for key, value in document.items():
        # A table `[arg]` holds the values of the option --arg, by name; it is not about a kernel called arg.
        if isinstance(value, dict) and key not in LISTS:
            tables[key] = {name: _value(path, f"[{key}] ", name, item, known) for name, item in value.items()}
        else:
            common[key] = _value(path, "", key, value, known)
    return Profile(path, common, tables)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options; those in `above` replace those in `below`.

    For an option that takes several NAME=VALUE, a value in `above` replaces only the value with the same NAME.
    """
    result = dict(below)
    for key, value in above.items():
        if key in LISTS and key in below and key != "step":
            texts = (*below[key], *value)
            result[key] = tuple({text if key == "include" else name_of(text): text for text in texts}.values())
        else:
            result[key] = value
    return result


def _toml(path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    too_large = f"has over {MOST_BYTES >> 20} MiB: a profile must be smaller."
    data = content(path, "*.toml", "a .toml file", MOST_BYTES, too_large, f"--profile {path}")
    try:
        return dict(tomllib.loads(data.decode("utf-8-sig")))
    except UnicodeDecodeError:
        raise CudabenchError(f"--profile {path} is not UTF-8 text.") from None
    except RecursionError:
        raise CudabenchError(f"--profile {path} is not a profile: it is nested too deeply.") from None
    except tomllib.TOMLDecodeError as error:
        raise CudabenchError(f"--profile {path} is not TOML: {str(error).rstrip('.')}; write {EXAMPLE}.") from None
    except ValueError:  # Python refuses to convert a number with more digits than its limit
        raise CudabenchError(
            f"--profile {path} has a number with thousands of digits: write a smaller number."
        ) from None


def _value(path: str, table: str, key: str, value: Any, known: Mapping[str, bool]) -> Any:
    """Convert a key's value to the form of command-line values: a text, a tuple of texts, or a bool for a flag."""
    where = f"{path}: {table}{key}"
    if key not in known:
        raise UsageError(
            f"{where} is not an option of run.{did_you_mean(key, known)} It has {', '.join(sorted(known))}."
        )
    folder, single, flag = Path(path).parent, isinstance(value, str), isinstance(value, bool)
    if key in LISTS:
        texts = [f"{name}={_text(item, where)}" for name, item in value.items()] if isinstance(value, dict) else value
        if not isinstance(texts, Sequence):
            raise UsageError(f'{where} is {_short_text(value)}: write a list of texts, as in arg = ["n=4096"].')
        return tuple(
            _relative_to_profile(folder, key, _text(text, where), where) for text in ([texts] if single else texts)
        )
    if key in DIMENSIONS and isinstance(value, list):
        return ",".join(_text(item, where) for item in value)
    wanted = "true or false" if known[key] else "text or a number"
    refuse(
        (known[key] != flag, f"{where} is {_short_text(value)}: write {wanted}."),
        (isinstance(value, (dict, list)), f"{where} is {_short_text(value)}: write one value."),
    )
    text = value if flag else _text(value, where)
    if key in OUTPUTS and text != "-":
        _check_inside(folder, text, where, f"--{key} {text}")
    return str(folder / text) if key in ("file", *OUTPUTS) and text != "-" else text


def _text(value: Any, where: str) -> str:
    large = isinstance(value, int) and abs(value) >> 64
    refuse(
        (
            isinstance(value, bool) or not isinstance(value, (str, int, float)),
            f"{where} holds {_short_text(value)}, neither text nor number.",
        ),
        (large, f"{where} holds a number of {large and value.bit_length()} bits; at most 64 are allowed."),
    )
    return str(value)


def _short_text(value: Any) -> str:
    try:
        text = str(value)
    except ValueError:  # the number has thousands of digits, more than Python prints
        return "a number that is too long to show"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _check_inside(folder: Path, text: str, where: str, option: str) -> None:
    """Raise UsageError if a file to write is outside of the profile's folder, after symbolic links are resolved."""
    root, target = os.path.realpath(folder), os.path.realpath(folder / text)
    if os.path.commonpath([root, target]) != root:
        raise UsageError(
            f"{where} names {text}, outside the profile's folder, where a profile may not write: give {option} on the "
            "command line if you want this."
        )


def _relative_to_profile(folder: Path, key: str, text: str, where: str) -> str:
    """Make the file in NAME=@FILE, in NAME=FILE of --save, or the folder of --include relative to `folder`."""
    if key == "save":
        name, _, file = (part.strip() for part in text.partition("="))
        _check_inside(folder, file, where, f"--save {name}={file}")
        return f"{name}={folder / file}"
    if key == "include":
        return str(folder / text)
    match = re.fullmatch(r"(\s*\w+\s*=\s*@)(.+)", text, re.S)
    return f"{match[1]}{folder / match[2].strip()}" if match else text
