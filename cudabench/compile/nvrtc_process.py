"""The process that NVRTC compiles in. A script of its own: it imports nothing of this package, so that it starts fast.

    python -I -S nvrtc_process.py SECONDS BYTES

takes requests on standard input and answers each on standard output, marshalled behind their length. A compile that
lasts longer than SECONDS ends the process, and its address space has at most BYTES besides those of the library.

Each compile is a process' first, a copy of one that has loaded the library: what NVRTC makes of a text depends on what
it compiled before. After two texts without optimisation one with it came out with its arrays in local memory (13.5).
"""

import contextlib
import marshal
import os
import signal
import sys
from typing import IO, Any

LENGTH = 8  # bytes in front of each message


def put(stream: IO[bytes], message: Any) -> None:
    """Write a message of plain values."""
    content = marshal.dumps(message)
    stream.write(len(content).to_bytes(LENGTH, "little") + content)
    stream.flush()


def get(stream: IO[bytes]) -> Any:
    """Read a message; EOFError where the other end has gone."""
    head = stream.read(LENGTH)
    length = int.from_bytes(head, "little")
    content = stream.read(length) if len(head) == LENGTH else b""
    if len(head) < LENGTH or len(content) < length:
        raise EOFError
    return marshal.loads(content)


class Failed(Exception):
    """A call of NVRTC failed: with the log of a compile, or NVRTC's name for the error."""


class Compiler:
    """The functions of the library that make one program."""

    def __init__(self, path: str) -> None:
        import ctypes

        self.c = ctypes
        folder = os.path.dirname(path)
        # The wheels of 13.0 open their second library by its bare name and have no path to it beside them, so that it
        # must be there by that name already, or in a folder of the system.
        for name in sorted(os.listdir(folder)) if folder else ():
            if name.startswith("libnvrtc-builtins.so."):
                with contextlib.suppress(OSError):
                    ctypes.CDLL(os.path.join(folder, name))
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return ptx, log, cubin and the entry of each expression, all as bytes, or log and fault of a refusal.

        `request` has source and filename as bytes, the folder that relative names start from,
        options and expressions as lists of bytes, headers as a mapping of
        bytes, and machine_code.
        """
        lib, program = self.library, self.c.c_void_p()
        headers, expressions, options = request["headers"], request["expressions"], request["options"]
        texts = (self.c.c_char_p * len(headers))(*headers.values())
        titles = (self.c.c_char_p * len(headers))(*headers)
        log = b""
        try:
            self.check(
                lib.nvrtcCreateProgram(
                    self.c.byref(program), request["source"], request["filename"], len(headers), texts, titles
                )
            )
            for expression in expressions:
                self.check(lib.nvrtcAddNameExpression(program, expression))
            status = lib.nvrtcCompileProgram(program, len(options), (self.c.c_char_p * len(options))(*options))
            log = self.fetch(program, lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog).partition(b"\0")[0]
            self.check(status)
            ptx = self.fetch(program, lib.nvrtcGetPTXSize, lib.nvrtcGetPTX).partition(b"\0")[0]
            cubin = None
            if request["machine_code"]:
                cubin = self.fetch(program, lib.nvrtcGetCUBINSize, lib.nvrtcGetCUBIN)
            lowered = {}
            for expression in expressions:
                entry = self.c.c_char_p()
                self.check(lib.nvrtcGetLoweredName(program, expression, self.c.byref(entry)))
                lowered[expression] = entry.value or b""
            return {"ptx": ptx, "log": log, "cubin": cubin, "lowered": lowered}
        except Failed as failed:
            return {"log": log, "fault": str(failed)}
        finally:
            lib.nvrtcDestroyProgram(self.c.byref(program))

    def fetch(self, program: Any, size_of: Any, bytes_of: Any) -> bytes:
        """Return what a pair of functions tells of a program."""
        size = self.c.c_size_t()
        self.check(size_of(program, self.c.byref(size)))
        buffer = self.c.create_string_buffer(size.value)
        self.check(bytes_of(program, buffer))
        return buffer.raw

    def check(self, status: int) -> None:
        """Raise Failed for a status other than success."""
        if status:
            raise Failed((self.library.nvrtcGetErrorString(status) or b"an unknown error").decode())


def _bounded(nbytes: int) -> None:
    """Bound what the process may take from now on."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm") as stream:
            now = int(stream.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = now + nbytes if hard == resource.RLIM_INFINITY else min(now + nbytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _ends_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: in a compile too


def _answer(compiler: Compiler, request: dict[str, Any], seconds: int) -> dict[str, Any]:
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)  # the parent ends it first; this is for one that is gone or stopped
    try:
        return compiler.compile(request)
    except MemoryError:
        return {"log": b"", "fault": "NVRTC_ERROR_OUT_OF_MEMORY"}
    finally:
        if hasattr(signal, "alarm"):
            signal.alarm(0)


def _fork() -> int | None:
    """Return the copy's number, 0 in the copy itself, and None where there can be none."""
    try:
        return os.fork() if hasattr(os, "fork") else None
    except OSError:
        return None


def _end_as(status: int) -> None:
    """End as a copy of this process has ended, which says what went wrong."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def main(seconds: int, nbytes: int) -> None:
    """Compile until standard input ends."""
    _ends_with_parent()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library itself prints is no answer
    compiler = None
    while True:
        try:
            request = get(requests)
        except EOFError:
            return
        if compiler is None:
            try:
                compiler = Compiler(request["library"])
            except OSError as error:
                put(answers, {"unloadable": str(error)})
                continue
            _bounded(nbytes)
        with contextlib.suppress(OSError):
            os.chdir(request["folder"])  # what relative names mean
        copy = _fork()
        if copy is None:
            put(answers, _answer(compiler, request, seconds))
        elif copy == 0:
            _ends_with_parent()
            put(answers, _answer(compiler, request, seconds))
            os._exit(0)
        else:
            _, status = os.waitpid(copy, 0)
            if status:
                _end_as(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
