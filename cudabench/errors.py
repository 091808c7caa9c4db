"""The errors that users see, each with its exit code.

Each message is one sentence that names the wrong value, the rule that it breaks, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_WRONG = 3
EXIT_THRESHOLD = 4
EXIT_UNUSABLE = 5
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
# The dynamic loader prints one of these messages when there is not enough memory.
NO_MEMORY = ("failed to map segment", "Cannot allocate memory", "cannot allocate memory")


_OF_STATUS = {"wrong": EXIT_WRONG, "failed": EXIT_FAILED}
_GRAVEST = (EXIT_TERMINATED, EXIT_WRONG, EXIT_FAILED, EXIT_UNUSABLE, EXIT_USAGE, EXIT_THRESHOLD)


def most_serious(codes: Iterable[int]) -> int:
    """Return the most serious of several exit codes: a wrong result is more serious than a failed kernel, and a failed
    kernel is more serious than a missed threshold. Without codes, return EXIT_OK."""
    present = {*codes}
    return next((code for code in _GRAVEST if code in present), max(present, default=EXIT_OK))


def exit_code(statuses: Iterable[str], *, missed: bool = False) -> int:
    """Return the exit code for results with these statuses; `missed`: whether a result missed a threshold."""
    distinct = {*statuses}
    skipped = [EXIT_UNUSABLE] if distinct == {"skipped"} else []
    return most_serious([*(_OF_STATUS.get(status, EXIT_OK) for status in distinct), *skipped, EXIT_THRESHOLD * missed])


class CudabenchError(Exception):
    """Base class of all errors shown to users; the exit code is 1 unless a subclass sets another exit code."""

    exit_code = EXIT_FAILED


class UsageError(CudabenchError):
    """The command line requests something invalid: exit code 2."""

    exit_code = EXIT_USAGE


def refuse(*rules: tuple[object, str]) -> None:
    """Raise UsageError for the first broken rule. Each rule is a pair: a value that is true if the rule is broken, and
    the message."""
    for broken, sentence in rules:
        if broken:
            raise UsageError(sentence)


class BlockDoesNotFit(UsageError):
    """A multiprocessor of the card or architecture cannot hold even one block of a launch, or the card cannot hold all
    blocks of a launch that synchronises its grid."""


class CompilerError(CudabenchError):
    """The compiler reported an error in a source file; the message shows the user's file name and line."""


class DeviceError(CudabenchError):
    """A CUDA call failed while a kernel ran."""


class OutOfMemory(CudabenchError):
    """The device has too little memory for the arrays of the problem."""


class DeviceUnusable(CudabenchError):
    """The requested device, or a package that it needs, is missing: exit code 5."""

    exit_code = EXIT_UNUSABLE


class NotEnoughMemory(DeviceUnusable):
    """A library cannot be loaded within the memory limit of this process."""


class UnsupportedFeature(CudabenchError):
    """The kernel uses features that the simulator lacks: exit code 5."""

    exit_code = EXIT_UNUSABLE


class NeedsArchitecture(CompilerError, UnsupportedFeature):
    """The kernel uses instructions of another generation of GPUs: exit code 5."""

    exit_code = EXIT_UNUSABLE


def no_such_file(path: str | Path, kind: str, label: str | None = None) -> CudabenchError:
    """Return the error for a missing file. The error suggests a file of the same folder: of the files that match the
    pattern `kind`, such as '*.cu', the one with the most similar name.

    `label`: the file's name in the message, by default its path.
    """
    return CudabenchError(f"{label or path}: no such file.{did_you_mean_file(path, kind)}")


def did_you_mean_file(path: str | Path, kind: str, known: Iterable[str] = ()) -> str:
    """Return ' Did you mean ...?' with the file of the same folder that has the most similar name, or ''.

    `kind`: the pattern that suggested names match, such as '*.cu'; `known`: files that are never suggested.
    """
    from pathlib import Path

    path, excluded = Path(path), set(map(Path, known))
    siblings = [entry.name for entry in path.parent.glob(kind) if entry not in excluded] if path.parent.is_dir() else []
    return did_you_mean(path.name, siblings)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' with the known word that is most similar, or ''."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
