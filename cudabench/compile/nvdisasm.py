"""Runs nvdisasm, NVIDIA's disassembler, once for each cubin; it needs no GPU and no driver.

nvdisasm is in the wheel nvidia-cuda-nvdisasm and in every toolkit. A run takes at least half a second even for a small
cubin. So the output is cached in the user's cache folder under a hash of the cubin, and runs can be in the background.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from cudabench.compile import cache, limits, sass
from cudabench.compile import cubin as cubin_file
from cudabench.errors import DeviceUnusable

T = TypeVar("T")
INSTALL = "install it with `pip install nvidia-cuda-nvdisasm`"
_TIMEOUT = 120
_OPTIONS = ("-c", "-gp")  # -gp: print PTX line numbers


@functools.lru_cache(maxsize=1)
def path() -> str | None:
    """Return the path of nvdisasm in a wheel or a toolkit, else on PATH; None if there is none."""
    from cuda import pathfinder

    tool: str | None = pathfinder.find_nvidia_binary_utility("nvdisasm")
    return tool or shutil.which("nvdisasm")


@functools.lru_cache(maxsize=64)
def functions(cubin: bytes, entry: str) -> tuple[sass.Function, ...]:
    """Return the machine code of a kernel and of its subroutines, parsed; empty if the cubin lacks the kernel.

    Raises DeviceUnusable if nvdisasm is not installed or refuses the cubin, CompilerStopped if --timeout ends.
    """
    return remembered(
        "listed", cubin, entry, lambda: sass.functions(entry, listed(cubin, entry)), Path(__file__).parent
    )


def remembered(kind: str, cubin: bytes, entry: str, make: Callable[[], T], *folders: Path) -> T:
    """Return `make()`, which depends on nvdisasm's text of a kernel; the cache keeps it under `kind`.

    folders: the folders of the package, besides this one, whose files make it.
    """
    tool = path()
    name = None if tool is None else _name(tool, cubin)
    if name is not None:
        name = hashlib.sha256(f"{name} {entry} {cache.version(Path(__file__).parent, *folders)}".encode()).hexdigest()
    return cache.remembered(kind, name, make)


@functools.lru_cache(maxsize=64)
def listed(cubin: bytes, entry: str) -> tuple[sass.Instruction | str, ...]:
    """Return the instructions and labels of a kernel and of its subroutines; errors as for `functions`."""
    return tuple(sass.listed(sass.section(begin(cubin).result(), entry), cubin_file.code(cubin)).get(entry, ()))


@functools.lru_cache(maxsize=16)
def begin(cubin: bytes) -> Future[str]:
    """Start to disassemble a cubin in the background; the Future gives nvdisasm's text, with PTX lines, or an error."""
    return _pool().submit(_text, cubin, limits.seconds_left())


@functools.lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="nvdisasm")


def _text(cubin: bytes, seconds: float | None) -> str:
    tool = path()
    if tool is None:
        raise DeviceUnusable(f"nvdisasm is missing, so machine code cannot be read: {INSTALL}.")
    name = _name(tool, cubin)
    with contextlib.suppress(zlib.error, UnicodeDecodeError):
        cached = cache.read("sass", name)
        if cached is not None:
            return zlib.decompress(cached).decode()
    text = _run(tool, cubin, seconds)
    cache.write("sass", name, zlib.compress(text.encode(), 1))
    return text


def _run(tool: str, cubin: bytes, seconds: float | None) -> str:
    with _named(cubin) as (file, descriptors):
        try:
            done = subprocess.run(
                [tool, *_OPTIONS, file],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=min(_TIMEOUT, seconds or _TIMEOUT),
                pass_fds=descriptors,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            if isinstance(error, subprocess.TimeoutExpired) and seconds is not None and seconds < _TIMEOUT:
                raise limits.timed_out("nvdisasm read the machine code") from None
            raise DeviceUnusable(f"{tool} cannot be run ({error}): {INSTALL}.") from None
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise DeviceUnusable(f"nvdisasm refuses the machine code ({why[0] if why else done.returncode}): {INSTALL}.")
    return done.stdout


@contextlib.contextmanager
def _named(content: bytes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (path of a temporary file with these bytes, file descriptors that a child process must inherit to read it).

    On Linux the file is in memory only, because a process that uses a GPU ends without deleting its files.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
            file = Path(folder, "kernel.cubin")
            file.write_bytes(content)
            yield str(file), ()
        return
    with os.fdopen(os.memfd_create("kernel.cubin"), "wb") as stream:
        stream.write(content)
        stream.flush()
        yield f"/proc/self/fd/{stream.fileno()}", (stream.fileno(),)


def _name(tool: str, cubin: bytes) -> str | None:
    """Return the name under which a cubin's disassembly is cached; None if the tool's file cannot be inspected."""
    try:
        file = os.stat(tool)
    except OSError:
        return None
    return hashlib.sha256(cubin + repr((_OPTIONS, file.st_size, file.st_mtime_ns)).encode()).hexdigest()


# a forked child process has no copy of the pool's threads, so it must make a new pool
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin.cache_clear)
    os.register_at_fork(after_in_child=_pool.cache_clear)
