"""The input and the result of a compile, in the same records for all compilers and devices.

This module imports nothing heavy, because `cudabench list` reads sources without NumPy or a compiler.
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

    `registers`, `local_bytes`, `spill_stores` and `spill_loads` are per thread; `shared_bytes` (static shared memory)
    and `barriers` are per block. All are in bytes, except for the counts `registers`, `barriers` and `max_threads`.
    `max_threads`: the most threads in a block that `__launch_bounds__` allows; None without it. `constant_bytes` is 0
    if the compiler does not report it (CUDA 13).
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
    """A compiled source file; `log`: the compiler's warnings.

    `ptx`: the PTX, in which files have the names that the caller gave; '' if nvcc compiled directly to machine code.
    `cubin`: the machine code, or None if only PTX was requested. `lowered`: the entry (mangled name) of each requested
    C++ name, such as '_Z1fIfLi32EEvPT_' for 'f<float,32>'. `backend`, `version`: the compiler, and its version as
    (major, minor). `resources`: ptxas' report, keyed by entry; empty without a cubin, and if PyCUDA ran nvcc (then the
    driver can report the resources).
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
        """The lines of the PTX, always as the same tuple object, because caches use it as their key."""
        return tuple(self.ptx.splitlines())

    def entry(self, name: str) -> str:
        """Return the entry (mangled name) of a kernel; if it is unknown, the name itself."""
        return self.lowered.get(name, name)


@dataclass(frozen=True)
class Job:
    """A text to compile, with its options, which `of` explains. Hashable, so that equal jobs are compiled only once.

    `older`: whether to add features that CUDA removed from the language.
    """

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

        `filename`: the source's name in error messages and line information; files in its folder can be included.
        `defines`: macros and their values; an empty value means `-DNAME`. `names`: C++ expressions of the requested
        kernels, such as 'f', 'ns::f', 'f<float, 32>', and 'f(float*, int)' for an overload; their template instances
        are made. `std`: the language, such as 'c++20'; if it is empty, C++17 is tried, then C++20. `debug`: whether to
        compile without optimisation.
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
        """The options that are the same for NVRTC and nvcc."""
        return [f"-arch={'sm' if self.machine_code else 'compute'}_{self.arch}", "-G" if self.debug else "-lineinfo"]

    @property
    def language(self) -> list[str]:
        """The option -std in a list; an empty list for the compiler's default."""
        return [f"-std={self.std}"] if self.std else []

    @property
    def macros(self) -> str:
        """The defines as #define lines. They come after CUDA's headers, because a macro like `T` would break headers.

        As with -D, a name without a value is 1. With `older`, the features that CUDA removed come before the defines.
        """
        return (stand_ins.read("removed.h") if self.older else "") + "".join(
            f"#define {name} {value or '1'}\n" for name, value in self.defines
        )


@dataclass(frozen=True)
class Text:
    """The text for one attempt to compile: the source, and headers that are given as texts.

    `headers`: texts that replace files, keyed by the name in #include. `bare`: whether the host code was removed; then
    functions without `__device__` are compiled for the device. `emptied`: the missing headers that are empty or a
    stand-in here. `hosts`: the host functions whose bodies were removed.
    """

    source: str
    headers: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False
    emptied: tuple[str, ...] = ()
    hosts: tuple[Host, ...] = ()


@dataclass(eq=False)
class Refused(Exception):
    """A compiler did not accept a text; `log`: what the compiler printed. The caller decides whether the user's code is
    wrong.

    `emptied`: the missing headers that were treated as empty. `of_host`: whether host code was refused or a header was
    missing. `by_assembler`: whether ptxas refused it. `places`: a function that returns the (source file, line) of
    each line of the refused PTX.
    """

    log: str
    emptied: tuple[str, ...] = ()
    of_host: bool = False
    by_assembler: bool = False
    places: Callable[[], Mapping[int, tuple[str, int]]] = dict
