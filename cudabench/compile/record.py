"""What is asked of a compiler, and what it answers: one record, whichever compiler and whichever device.

Loads nothing heavy: `list` reads sources without NumPy or a compiler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from cudabench.compile import stand_ins
from cudabench.errors import UsageError

if TYPE_CHECKING:
    from cudabench.source.device_part import Host

Backend = Literal["nvrtc", "nvcc"]
LANGUAGES = ("c++11", "c++14", "c++17", "c++20")


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel needs.

    Per thread: registers, local memory and spills; per block: static shared memory and barriers. All but `registers`,
    `barriers` and `max_threads` are bytes. `max_threads` is the block that `__launch_bounds__` allows, None without it.
    `constant_bytes` is 0 where the compiler does not report it (CUDA 13).
    """

    registers: int
    shared_bytes: int = 0
    local_bytes: int = 0
    constant_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    barriers: int = 0
    max_threads: int | None = None


@dataclass(frozen=True)
class Compiled:
    """A source file compiled, with the compiler's warnings.

    `ptx` is empty where nvcc went straight to machine code; `cubin` is that machine code, None where only PTX was asked
    for. `lowered` maps each C++ name that was asked for to its entry: 'f<float,32>' to '_Z1fIfLi32EEvPT_'. Where the
    PTX names a source file, it has the name that the caller gave. `version` is the compiler's, as (major, minor).
    `resources` has, by entry, what ptxas reports; it is empty without a cubin, and where PyCUDA ran nvcc (the driver
    then knows).
    """

    ptx: str
    log: str
    lowered: Mapping[str, str] = field(default_factory=dict)
    backend: Backend = "nvrtc"
    version: tuple[int, int] = (0, 0)
    cubin: bytes | None = None
    resources: Mapping[str, Resources] = field(default_factory=dict)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines of the PTX, cut once: what is found in them is remembered by this very tuple."""
        return tuple(self.ptx.splitlines())

    def entry(self, name: str) -> str:
        """Return the entry of a kernel; one that was not asked for by its C++ name is called as in the source."""
        return self.lowered.get(name, name)


@dataclass(frozen=True)
class Job:
    """What to compile; hashable, because a ladder compiles the same chapter once for each of its kernels."""

    source: str
    filename: str
    arch: str
    defines: tuple[tuple[str, str], ...]
    include_dirs: tuple[str, ...]
    names: tuple[str, ...]
    std: str = ""
    machine_code: bool = False
    debug: bool = False
    older: bool = False

    @classmethod
    def of(
        cls,
        source: str,
        filename: str,
        *,
        arch: str = "sm_90",
        defines: Mapping[str, str] | None = None,
        include_dirs: Sequence[str] = (),
        names: Sequence[str] = (),
        std: str = "",
        machine_code: bool = False,
        debug: bool = False,
    ) -> Job:
        """Return what is to be compiled. Raises UsageError for a bad architecture, macro or language.

        `filename` is what diagnostics and line information call the source; where it has a folder, files in that can
        be included. A define with an empty value is a bare `-DNAME`. `names` are C++ expressions of kernels: 'f',
        'ns::f', 'f<float, 32>', and 'f(float*, int)' for one of several overloads; templates are instantiated for
        them. `std` is the language, such as 'c++20'; left out, it is C++17 and, where that is refused, C++20. `debug`:
        without optimisation.
        """
        match = re.fullmatch(r"(?:sm|compute)_(\d{2,3}[af]?)", arch)
        if match is None:
            raise UsageError(f"'{arch}' is no GPU architecture: write 'sm_' and the compute capability, such as sm_90.")
        for name, value in (defines or {}).items():
            if not re.fullmatch(r"[^\W\d]\w*(\([\w,\s.]*\))?", name) or "\n" in str(value):
                raise UsageError(f"'{name}={value}' is no macro: write NAME=VALUE, such as TILE=32.")
        if std not in ("", *LANGUAGES):
            raise UsageError(f"--std {std} is no language of CUDA's: use one of {', '.join(LANGUAGES)}.")
        beside = os.path.dirname(filename)
        folders = [beside] if os.path.isdir(beside) else []
        folders += [os.fspath(folder) for folder in include_dirs]
        return cls(
            source=source,
            filename=filename,
            arch=match[1],
            defines=tuple((name, str(value)) for name, value in (defines or {}).items()),
            include_dirs=tuple(dict.fromkeys(folders)),
            names=tuple(dict.fromkeys(names)),
            std=std,
            machine_code=machine_code,
            debug=debug,
        )

    @property
    def options(self) -> list[str]:
        """The options that NVRTC and nvcc share."""
        return [f"-arch={'sm' if self.machine_code else 'compute'}_{self.arch}", "-G" if self.debug else "-lineinfo"]

    @property
    def language(self) -> list[str]:
        """The option for the language, none for the compiler's own."""
        return [f"-std={self.std}"] if self.std else []

    @property
    def macros(self) -> str:
        """The defines as text, to stand before the source but behind CUDA's headers, of which `-DT=float` breaks many.

        As with -D, a bare name is 1. Before them stands what CUDA took away from the language, where `older` is set.
        """
        return (stand_ins.read("removed.h") if self.older else "") + "".join(
            f"#define {name} {value or '1'}\n" for name, value in self.defines
        )


@dataclass(frozen=True)
class Text:
    """What a compiler is given in a try: the source, headers in place of files or of what is nowhere (`emptied`).

    `headers` are by the name that an #include gives them; they win over files. hosts: functions for the host that are
    declared only. bare: no host code is left, so that what stands without `__device__` is meant for the device.
    """

    source: str
    headers: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False
    emptied: tuple[str, ...] = ()
    hosts: tuple[Host, ...] = ()


@dataclass(eq=False)
class Refused(Exception):
    """A compiler's refusal, with its log: whether it is the user's fault is for the caller to judge.

    `emptied` are headers that were nowhere and taken as empty; `of_host` says that host code was refused or a header
    not found, `by_assembler` that it is ptxas' refusal. `places` gives the source's file and line by the line of the
    PTX that ptxas refused.
    """

    log: str
    emptied: tuple[str, ...] = ()
    of_host: bool = False
    by_assembler: bool = False
    places: Callable[[], Mapping[int, tuple[str, int]]] = dict
