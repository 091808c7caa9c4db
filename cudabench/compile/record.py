"""A compiler's request and result, in one record for all compilers and devices.

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
    """The resources of a compiled kernel.

    Per thread: registers, local memory and spills; per block: static shared memory and barriers. All but `registers`,
    `barriers` and `max_threads` are bytes. `max_threads` is the block that `__launch_bounds__` allows, None without it.
    `constant_bytes` is 0 if the compiler does not report it (CUDA 13).
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
    """A compiled source file, with the compiler's warnings.

    `ptx` is empty if nvcc compiled directly to machine code; `cubin` is that machine code, or None if only PTX was
    requested. `lowered` maps each requested C++ name to its entry: 'f<float,32>' to '_Z1fIfLi32EEvPT_'. The PTX names
    source files by the caller's names. `version` is the compiler's, as (major, minor). `resources` has ptxas' report
    by entry; it is empty without a cubin, and if PyCUDA ran nvcc (then the driver knows them).
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
        """The lines of the PTX, split once, because caches use this tuple as their key."""
        return tuple(self.ptx.splitlines())

    def entry(self, name: str) -> str:
        """Return the entry of a kernel; by default its name in the source."""
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
        """Return a job. Raises UsageError for a bad architecture, macro or language.

        `filename` is the source's name in diagnostics and line information; files in its folder can be included. A
        define with an empty value is a bare `-DNAME`. `names` are C++ expressions of kernels: 'f', 'ns::f',
        'f<float, 32>', and 'f(float*, int)' for an overload; templates are instantiated for them. `std` is the
        language, such as 'c++20'; by default C++17 and, if that is refused, C++20. `debug`: without optimisation.
        """
        match = re.fullmatch(r"(?:sm|compute)_(\d{2,3}[af]?)", arch)
        if match is None:
            raise UsageError(
                f"'{arch}' is not a GPU architecture: write 'sm_' and the compute capability, such as sm_90."
            )
        for name, value in (defines or {}).items():
            if not re.fullmatch(r"[^\W\d]\w*(\([\w,\s.]*\))?", name) or "\n" in str(value):
                raise UsageError(f"'{name}={value}' is not a macro: write NAME=VALUE, such as TILE=32.")
        if std not in ("", *LANGUAGES):
            raise UsageError(f"--std {std} is unknown to CUDA: use one of {', '.join(LANGUAGES)}.")
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
        """The option for the language; empty for the compiler's default."""
        return [f"-std={self.std}"] if self.std else []

    @property
    def macros(self) -> str:
        """The defines as text, to put before the source but after CUDA's headers, many of which `-DT=float` breaks.

        As with -D, a bare name is 1. With `older`, features that CUDA removed come before them.
        """
        return (stand_ins.read("removed.h") if self.older else "") + "".join(
            f"#define {name} {value or '1'}\n" for name, value in self.defines
        )


@dataclass(frozen=True)
class Text:
    """A compiler's input in a try: the source, headers that replace files, stand-ins of missing headers (`emptied`).

    `headers` are by their #include name and replace files. hosts: host functions that are only declared. bare: without
    host code, so that functions without `__device__` are for the device.
    """

    source: str
    headers: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False
    emptied: tuple[str, ...] = ()
    hosts: tuple[Host, ...] = ()


@dataclass(eq=False)
class Refused(Exception):
    """A compiler's refusal, with its log. The caller decides whether it is the user's fault.

    `emptied` are missing headers that were treated as empty. `of_host`: host code was refused or a header not found.
    `by_assembler`: ptxas refused. `places` maps lines of the refused PTX to the source's file and line.
    """

    log: str
    emptied: tuple[str, ...] = ()
    of_host: bool = False
    by_assembler: bool = False
    places: Callable[[], Mapping[int, tuple[str, int]]] = dict
