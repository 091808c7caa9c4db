"""Runs a command, or a function in a forked process, with limits of time and memory.

A user's input may need more than the machine has: a compile that never ends, an expression over billions of elements.
Python cannot stop such work from inside, so the work runs in a separate process, which can be ended.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cudabench.system import interrupts

Result = TypeVar("Result")

# True on Linux. On other systems it is not safe to fork a process that has several threads.
FORKS = hasattr(os, "memfd_create")
# The result of a forked process contains arrays. Each array starts at a multiple of this many bytes in the file.
_ALIGNED = 64
# This shell text sets the memory limit and then starts the command, so that the limit also holds for the command's
# children.
LIMITED = '{ ulimit -Sc 0; ulimit -Sv "$0" || ulimit -Sv "$(ulimit -Hv)"; } 2> /dev/null; exec "$@"'
UNKNOWN_MEMORY = 16 << 30  # the assumed bytes of memory, if the system does not report them


class TimeLimitReached(Exception):
    """The time limit was reached."""


class MemoryLimitReached(Exception):
    """The memory limit was reached, or the process was killed. The argument is the exit status of the process, -N for
    signal N."""


def limit_memory(nbytes: int) -> None:
    """Limit the address space of this process to this number of bytes, if the system has such a limit."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)
        most = nbytes if limit[1] == resource.RLIM_INFINITY else min(nbytes, limit[1])
        resource.setrlimit(resource.RLIMIT_AS, (most, limit[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def run(
    command: Sequence[str],
    *,
    seconds: float,
    memory: int,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, in `folder` if it is given; return its exit status and output.

    `memory`: the limit of the address space of each process in bytes. After `seconds`, ends the command and its
    children and raises TimeLimitReached. Raises OSError for an unknown command.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    with started(
        [*(("/bin/sh", "-c", LIMITED, str(memory >> 10)) if os.name == "posix" else ()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
        text=True,
        errors="replace",
        start_new_session=os.name == "posix",
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TimeLimitReached from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextlib.contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Context that starts a process with Popen's options, which must ask for a new session, and waits for the process
    at the end.

    An exception in the context, or one that a signal raises while the process starts, ends the process and its
    children.
    """
    process: subprocess.Popen[Any] | None = None
    try:
        with interrupts.delayed():
            process = subprocess.Popen(command, **options)
        yield process
    except BaseException:
        if process is not None:
            end_group(process)
        raise
    finally:
        if process is not None:
            with process:
                pass  # leaving the block waits for the process and closes its streams


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process that was started in its own session, and its children."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def call(function: Callable[[], Result], *, seconds: float, memory: int) -> Result:
    """Call a function in a forked process, and return its value or raise its exception in this process.

    `memory`: how many bytes of address space the forked process may use in addition to what this process uses. The
    value is pickled; arrays in it are mapped into this process, not copied. Changes that the function makes to other
    objects are lost. Raises TimeLimitReached or MemoryLimitReached at a limit. If the system cannot fork safely, the
    function is called here, without limits.
    """
    if not FORKS:
        return function()
    ended_read, ended_write = os.pipe()
    result = os.memfd_create("cudabench-result")
    child = 0
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        # Delay signals: if a signal raises an exception inside Python's own hooks for a fork, the exception is lost.
        with interrupts.delayed(), warnings.catch_warnings():
            # Python warns that other threads may hold locks. The child uses none of these locks, so the warning is
            # suppressed.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
            if child == 0:
                _compute(function, result, memory)
            os.close(ended_write)
            ended_write = -1
        in_time = _readable(ended_read, seconds)
        with interrupts.delayed():
            status, child = _end(child), 0
        if not in_time:
            raise TimeLimitReached
        value: Result = _unpacked(result, status)
        return value
    finally:
        if child:
            _end(child)
        for file in (ended_read, ended_write, result):
            if file >= 0:
                os.close(file)


def _end(child: int) -> int:
    """Kill a forked process, unless it has ended already, and return its status."""
    with contextlib.suppress(ProcessLookupError):
        # If the child has ended already, it is a zombie until `waitpid`, so no other process can have the child's id.
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _readable(file: int, seconds: float) -> bool:
    """Wait until the other end of a pipe is closed; return False if that takes more than `seconds`."""
    import selectors

    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _compute(function: Callable[[], Any], result: int, memory: int) -> None:
    """Compute the function's value in the forked child, write it to the file `result`, and exit; never returns."""
    status = 1
    try:
        gc.disable()  # the child must not finalize the parent's objects
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent()
        limit_memory(_address_space() + memory)
        with contextlib.suppress(OSError):
            devnull = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):  # libraries print messages to these streams when they crash
                os.dup2(devnull, stream)
        faulthandler.disable()  # the exit status tells the parent about a crash
        try:
            answer: tuple[bool, Any] = (True, function())
        except MemoryError:
            raise
        except Exception as error:
            answer = (False, error)
        _pack(answer, result)
        status = 0
    except MemoryError:
        status = errno.ENOMEM
    finally:
        # End without the parent's exit handlers, and without writing the parent's buffered output again.
        os._exit(status)


def _pack(value: Any, file: int) -> None:
    """Write a value to a file: first a list of lengths, then the pickle and the arrays' buffers, each of the length in
    the list."""
    import pickle

    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    pieces = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    with open(file, "wb", closefd=False) as stream:
        pickle.dump([piece.nbytes for piece in pieces], stream)
        for piece in pieces:
            stream.seek(_aligned(stream.tell()))
            stream.write(piece)


def _unpacked(file: int, status: int) -> Any:
    import mmap
    import pickle

    if ended := os.waitstatus_to_exitcode(status):
        raise MemoryLimitReached(ended)
    mapped = memoryview(mmap.mmap(file, 0, mmap.MAP_PRIVATE))
    with open(file, "rb", closefd=False) as stream:
        stream.seek(0)
        lengths = pickle.load(stream)
        offset = stream.tell()
    pieces = []
    for length in lengths:
        offset = _aligned(offset)
        pieces.append(mapped[offset : offset + length])
        offset += length
    succeeded, value = pickle.loads(pieces[0], buffers=pieces[1:])
    if not succeeded:
        raise value
    return value


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNED) * _ALIGNED


def _address_space() -> int:
    """Return how many bytes of address space this process uses; 0 if unknown."""
    try:
        with open("/proc/self/statm") as stream:
            return int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def die_with_parent() -> None:
    """Ask the system to kill this child process when its parent ends; only Linux can do that."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG: kill this process when its parent dies


def host_memory() -> int:
    """Return how many bytes of memory are available: the free memory of this machine or, if that is less, the
    container's limit."""
    limits = []
    try:
        limits += [int(kib) << 10 for kib in re.findall(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text())]
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # the system is not Linux, or the limit is 'max'
        pass
    if not limits:
        try:
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, ValueError, OSError):
            limits.append(UNKNOWN_MEMORY)
    return min(limits)
