"""Limits for foreign code: expressions, compilers and kernels have a time limit, a memory limit and restricted file
access."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.compile import compiler, limits, nvrtc, toolkit
from cudabench.compile.compiler import compile_cubin, compile_ptx
from cudabench.compile.record import Refused
from cudabench.devices import cuda, nvml
from cudabench.errors import CompilerError
from cudabench.measure.timing import timing_warnings
from cudabench.records.plan import Settings
from cudabench.results import stats
from cudabench.symbols import readable
from cudabench.system import limited_process
from cudabench.userkernel import expressions
from cudabench.userkernel.expressions import ExpressionError
from tests.ladders import needs_compiler

EMPTY = "__global__ void k(float *x, int n) { if (n > 4) x[0] = 1; }\n"
RUN = ("-g", 1, "-b", 32, "--arg", "x=float32[32]:ones", "--arg", "n=32", "-d", "sim", "--no-cpu")
MACROS = "#define A0 x[0] += 1;\n" + "".join(f"#define A{i + 1} {f'A{i} ' * 8}\n" for i in range(12))
linux = pytest.mark.skipif(not limited_process.FORKS, reason="needs Linux' processes")


# Work in a process ----------------------------------------------------------------------------------------------------


@linux
def test_a_value_comes_back_whole() -> None:
    """A confined call returns numbers and arrays of any layout unchanged and writable."""
    arrays = [np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4).T, np.zeros((0, 3)), np.array(True)]
    value, pair = limited_process.call(lambda: (arrays, (1, "x")), seconds=30, memory=1 << 30)
    assert pair == (1, "x")
    for got, wanted in zip(value, arrays, strict=True):
        assert got.dtype == wanted.dtype
        assert np.array_equal(got, wanted)
    value[0][0, 0] = 7
    assert arrays[0][0, 0] == 0


@linux
def test_bounds_of_a_call_hold() -> None:
    """A confined call distinguishes the time limit, the memory limit and a raised exception, and leaves no process."""
    before = _children()
    with pytest.raises(limited_process.TimeLimitReached):
        limited_process.call(lambda: time.sleep(60), seconds=0.1, memory=1 << 30)
    with pytest.raises(limited_process.MemoryLimitReached):
        limited_process.call(lambda: np.ones(1 << 28), seconds=30, memory=1 << 28)
    with pytest.raises(limited_process.MemoryLimitReached):
        limited_process.call(lambda: os.kill(os.getpid(), 9), seconds=30, memory=1 << 30)
    with pytest.raises(ZeroDivisionError):
        limited_process.call(lambda: 1 // 0, seconds=30, memory=1 << 30)
    assert _children() <= before


def _children() -> set[str]:
    """Return the child processes of this process."""
    return {*Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@linux
def test_a_command_ends_with_all_that_it_started() -> None:
    """A command over its time limit is killed, with the child that keeps its pipe open."""
    start = time.monotonic()
    with pytest.raises(limited_process.TimeLimitReached):
        limited_process.run(["sh", "-c", "sleep 60 & sleep 60"], seconds=0.2, memory=1 << 30)
    assert time.monotonic() - start < 30
    assert limited_process.run(["sh", "-c", "echo out; exit 3"], seconds=30, memory=1 << 30).returncode == 3


# Expressions ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@linux
@pytest.mark.parametrize(
    "text",
    [
        "np.diff(x,n=10**9)",
        "np.convolve(x,x)",
        "np.percentile(x,np.ones(10**8))",
        "np.i0(np.ones(10**9))",
        "np.round(x,-10**9)",
        "+".join(["np.sort(np.outer(x[:9999],x[:9999]))"] * 20),
    ],
)
def test_an_expression_has_its_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """An expression that would take minutes is stopped with an error."""
    monkeypatch.setattr(expressions, "EXPRESSION_S", 0.2)
    x = np.ones(2_000_000)
    start = time.monotonic()
    with pytest.raises(ExpressionError, match=r"took over 0.2 s|GB"):
        expressions.parse(text, "--expect", ["x"], arrays=True).evaluate({"x": x})
    assert time.monotonic() - start < 30


@pytest.mark.slow
@linux
def test_an_expression_has_its_memory() -> None:
    """Six nested np.stack calls, each small, exceed the memory limit together."""
    text = "x"
    for _ in range(6):
        text = f"np.stack([{text},{text}])"
    with pytest.raises(ExpressionError, match=r"memory|GB"):
        expressions.parse(text, "--expect", ["x"], arrays=True).evaluate({"x": np.ones(1_000_000)}, limit=1 << 28)


def test_a_rounding_has_its_digits() -> None:
    """Rounding to a billion digits is refused instead of computed."""
    for text in ("round(n,-10**9)", "round(n,10**9)"):
        with pytest.raises(ExpressionError, match="at most 400 digits"):
            expressions.parse(text, "--grid", ["n"]).evaluate({"n": 5})
    assert expressions.parse("round(n/3,2)", "--grid", ["n"]).evaluate({"n": 5}) == 1.67


@pytest.mark.parametrize("text", ["a*x+x0", "np.sum(x)", "np.maximum(x,0)*2", "x-np.mean(x)"])
def test_what_is_cheap_pays_for_no_process(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Plain arithmetic on ordinary arrays runs in this process, with the same value as in another process."""
    values = {"x": np.arange(1000.0), "x0": np.ones(1000), "a": 2.5}
    parsed = expressions.parse(text, "--expect", values, arrays=True)
    assert not expressions.may_be_slow(parsed.tree, values)
    here = parsed.evaluate(values)
    monkeypatch.setattr(expressions, "CHEAP_STEPS", 0)
    assert np.array_equal(parsed.evaluate(values), here)


# Compilers ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_compiler
def test_a_compile_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A macro that expands to billions of statements is stopped with an error, and the next compile works."""
    monkeypatch.setenv(limits.VARIABLE, "1")
    start = time.monotonic()
    with pytest.raises(limits.CompilerStopped, match=r"bomb.cu: NVRTC took over 1 s and was stopped"):
        compile_cubin(MACROS + "__global__ void k(float *x) { A12 }", "bomb.cu", backend="nvrtc")
    assert time.monotonic() - start < 30
    monkeypatch.delenv(limits.VARIABLE)
    assert ".entry" in compile_ptx(EMPTY, "after.cu", backend="nvrtc").ptx


@linux
@pytest.mark.parametrize(
    ("script", "raised", "said"),
    [
        ("sleep 60 & sleep 60", limits.CompilerStopped, "k.cu: nvcc took over 0.5 s and was stopped"),
        ("ulimit -v; exit 1", Refused, f"{limits.COMPILE_BYTES >> 10}"),
        ("echo std::bad_alloc; exit 1", limits.CompilerStopped, "k.cu: nvcc ran out of its 4 GiB of memory"),
        ("kill -SEGV $$", Refused, "CompileError"),
        ("echo Segmentation fault; exit 139", Refused, "nvcc crashed"),
    ],
)
def test_the_nvcc_that_pycuda_starts_has_its_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, raised: Any, said: str
) -> None:
    """PyCUDA's nvcc has the time and memory limits of every compiler; afterwards PyCUDA's function to start programs is
    restored."""

    class CompileError(Exception):
        def __init__(self, msg: str, stdout: bytes, stderr: bytes) -> None:
            self.msg, self.stdout, self.stderr = msg, stdout, stderr

    def never(*command: Any, **options: Any) -> Any:
        raise AssertionError("started without limits")

    def build(text: str, nvcc: str, **settings: Any) -> bytes:  # as PyCUDA's compile does
        status, out, err = pycuda.call_capture_output([nvcc, "--cubin"], cwd=str(tmp_path), error_on_nonzero=False)
        if status:
            raise CompileError("CompileError", out, err)
        return bytes(out)

    driver: Any = types.ModuleType("pycuda.driver")
    driver.Error = driver.MemoryError = driver.CompileError = CompileError
    pycuda: Any = types.ModuleType("pycuda.compiler")
    pycuda.call_capture_output, pycuda.compile = never, build
    package: Any = types.ModuleType("pycuda")
    package.compiler, package.driver = pycuda, driver
    for module in (package, pycuda, driver):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\n{script}\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(toolkit, "nvcc", lambda: str(nvcc))
    monkeypatch.setenv(limits.VARIABLE, "0.5")
    start = time.monotonic()
    with pytest.raises((CompilerError, Refused)) as caught:
        cuda._pycuda_cubin(EMPTY, [], [], "sm_90", "k.cu")
    assert caught.type is raised
    assert said in (caught.value.log if raised is Refused else str(caught.value))
    assert time.monotonic() - start < 30
    assert pycuda.call_capture_output is never


@needs_compiler
@linux
def test_a_crash_of_the_compiler_is_a_failed_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If NVRTC's process crashes, the compile fails with the signal's name, and the next compile has a new process."""

    def dying(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    for number in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(nvrtc.Library, "compile_text", dying)
            with pytest.raises(CompilerError, match=r"k.cu: NVRTC crashed .*SIGSEGV"):
                compile_ptx(EMPTY + f"// {number}", "k.cu", backend="nvrtc")
    assert compile_ptx(EMPTY, "k.cu", backend="nvrtc").ptx


@needs_compiler
def test_attempts_at_a_file_share_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All attempts to compile a text (each language, whole and in part) share one time limit."""
    now, attempts = [0.0], []

    def refuses(self: Any, job: Any, text: Any, *_: Any, **__: Any) -> Any:
        attempts.append(text)
        now[0] += 0.4 * limits.compile_seconds()
        raise Refused("k.cu(2): error: a lambda is not allowed here\n\n1 error detected.")

    monkeypatch.setattr(compiler.nvrtc.Nvrtc, "compile", refuses)
    monkeypatch.setattr(compiler.time, "monotonic", lambda: now[0])
    with pytest.raises(CompilerError, match="lambda"):
        compile_ptx(f"int host = 1;\n{EMPTY}", "k.cu", backend="nvrtc")
    assert len(attempts) == 3


@pytest.mark.slow
@needs_compiler
@linux
def test_a_compiler_out_of_memory_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If NVRTC runs out of memory, the error says so and the compile is not repeated."""
    asked = []
    inner = nvrtc.Library.compile

    def counted(*arguments: Any, **options: Any) -> nvrtc.NvrtcResult:
        asked.append(arguments)
        return inner(*arguments, **options)

    monkeypatch.setattr(nvrtc.Library, "compile", counted)
    monkeypatch.setattr(limits, "COMPILE_BYTES", 60 << 20)
    with pytest.raises(CompilerError, match=r"NVRTC ran out of its \d+ GiB of memory"):
        compile_ptx(MACROS + "__global__ void k(float *x) { A7 }\nint main() { return 0; }", "k.cu", backend="nvrtc")
    assert len(asked) == 1


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan"])
def test_a_time_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A time limit that is not a positive number of seconds is refused."""
    monkeypatch.setenv(limits.VARIABLE, text)
    with pytest.raises(Exception, match=r"is not a time"):
        limits.compile_seconds()


# Which files a source may read ----------------------------------------------------------------------------------------

SECRET = "a word that nobody shall read;\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for sources, next to a folder with a secret file."""
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "secret.h").write_text(SECRET)
    (tmp_path / "else" / "fine.h").write_text("#define FINE 1\n")
    (source / "link.h").symlink_to(tmp_path / "else" / "secret.h")
    monkeypatch.chdir(source)
    return source


@pytest.mark.sampled(8)
@needs_compiler
@pytest.mark.parametrize(
    "lines",
    [
        '#include "{secret}"',
        "#include <{secret}>",
        '#define F "{secret}"\n#include F',
        "#define G(x) #x\n#include G({secret})",
        '#include "../else/secret.h"',
        '#include "link.h"',
        '#inc\\\nlude "{secret}"',
        '%:include "{secret}"',
        '#include "/etc/passwd"',
    ],
)
@pytest.mark.parametrize("backend", ["nvrtc", None])
def test_no_line_of_a_foreign_file_is_shown(tree: Path, lines: str, backend: Any) -> None:
    """However a source includes a file outside its folder, no message has a word of that file."""
    text = lines.format(secret=tree.parent / "else" / "secret.h") + "\n" + EMPTY
    try:
        said = compile_cubin(text, str(tree / "k.cu"), include_dirs=[str(tree)], backend=backend).log
    except CompilerError as error:
        said = str(error)
        assert "absolute path" in said or "outside the source's folder" in said
    else:
        assert (
            ".." in lines or "link" in lines
        )  # a relative include that no kernel needs is left out; an absolute path is refused
    said = said.replace(str(tree.parent), "")  # the path may contain one of these words
    for word in ("nobody", "shall", "root:", "/bin"):
        assert word not in said


@pytest.mark.slow
@needs_compiler
def test_what_is_normal_still_works(tree: Path) -> None:
    """An include with '..', or of an absolute path in an -I folder, works, and messages show its lines."""
    fine, bad = tree.parent / "else" / "fine.h", tree.parent / "else" / "bad.h"
    bad.write_text("#error nobody reads this in vain\n")
    for line, folders in (('#include "../else/fine.h"', []), (f'#include "{fine}"', [str(fine.parent)])):
        text = f"{line}\n__global__ void k(float *x) {{ x[0] = FINE; }}\n"
        assert compile_ptx(text, str(tree / "k.cu"), include_dirs=folders).ptx
    with pytest.raises(CompilerError, match="nobody"):
        compile_ptx(f'#include "{bad}"\n{EMPTY}', str(tree / "k.cu"), include_dirs=[str(bad.parent)])


@needs_compiler
@linux
@pytest.mark.parametrize("name", ["/dev/zero", "../pipe.h"])
def test_an_include_takes_text_from_files_only(tree: Path, name: str) -> None:
    """An endless device and a pipe without a writer are refused as includes, with or without -I."""
    os.mkfifo(tree.parent / "pipe.h")
    with pytest.raises(CompilerError, match=r"k.cu:1: error: .* is not a regular file"):
        compile_ptx(f'#include "{name}"\n{EMPTY}', str(tree / "k.cu"), include_dirs=["/dev"])


COMPUTED = "#define STR(x) #x\n#define S(x) STR(x)\n#define E\n#define F()\n#define R /\n#define D ../else\n"


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    "lines",
    [
        '#define Q "{secret}"\n#define P Q\n#include P',
        "#define P {secret}\n#include S(P)",
        "#include S(E{secret})",
        "#include S(F(){secret})",
        "#define O(x) STR({folder}/x)\n#include O(secret.h)",
        "#define L <\n#define G >\n#include L {secret} G",
        "#include S(R{folder}/secret.h)",
        '#if __has_include("{secret}")\n#error it is there\n#endif',
        '#define Q "{secret}"\n#if __has_include(Q)\n#error it is there\n#endif',
        "#if __has_include(S({secret}))\n#error it is there\n#endif",
        '__device__ const int bytes[] = {{\n#embed "{secret}"\n}};',
        '__device__ const int bytes[] = {{\n#embed "../else/secret.h"\n}};',
        "__device__ const int bytes[] = {{\n#embed S(D/secret.h)\n}};",
    ],
)
def test_a_path_that_macros_make_is_none_from_the_root(tree: Path, lines: str) -> None:
    """An absolute path that macros build is not included, tested for existence, or embedded."""
    folder = tree.parent / "else"
    text = COMPUTED + lines.format(secret=folder / "secret.h", folder=folder) + "\n" + EMPTY
    with pytest.raises(CompilerError, match=r"absolute path|embedded from outside|unrecognized preprocessing") as said:
        compile_ptx(text, str(tree / "k.cu"))
    assert "it is there" not in str(said.value)


@needs_compiler
def test_a_path_that_macros_make_from_here_is_included(tree: Path) -> None:
    """A relative path that a macro builds is included; a comment after the macro is not part of the path."""
    text = COMPUTED.replace("STR(x)\n", "STR(x) // a/b\n") + "#define H S(D/fine.h)\n#if __has_include(H)\n#include H\n"
    text += "#endif\n#include S(../else/fine.h)\n__global__ void k(float *x) { x[0] = FINE; }\n"
    assert compile_ptx(text, str(tree / "k.cu")).ptx


# The simulator --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_compiler
def test_the_timeout_holds_in_the_simulator(cudabench: Callable[..., Any]) -> None:
    """--timeout stops an endless kernel, which fails with its line and the option; the next kernel runs."""
    Path("k.cu").write_text(
        "__global__ void forever(float *x, int n) {\n"
        "  for (int i = 0; x[n] < 2; i++)\n    x[threadIdx.x] = i & 1;\n}\n" + EMPTY
    )
    line = ("run", "k.cu", "-k", "all", *RUN[:4], "--arg", "x=float32[64]:ones", "--arg", "n=40", *RUN[-3:])
    start = time.monotonic()
    ran = cudabench(*line, "--timeout", 1, "--json", "r.json", "-q")
    assert time.monotonic() - start < 60
    assert ran.code == 1
    first, second = json.loads(Path("r.json").read_text())["results"]
    assert (first["status"], second["status"]) == ("failed", "ok")
    assert "k.cu:" in first["reason"]
    assert "--timeout" in first["reason"]


# Messages -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_compiler
def test_ptxas_names_a_line_of_the_source() -> None:
    """An error of ptxas in inline assembly names the source line."""
    text = '__global__ void k(float *x) {\n  float y;\n  asm volatile("foo.rn %0;" : "=f"(y));\n  x[0] = y;\n}\n'
    with pytest.raises(CompilerError, match=r"^k.cu:3: error: .*") as caught:
        compile_cubin(text, "k.cu", backend="nvrtc")
    assert "aborted" not in str(caught.value)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z1kPf", "k"),
        ("_ZN2ns3bigEPf", "ns::big"),
        ("_Z5tableIfLi22EEvPT_", "table"),
        ("_ZL4flag", "flag"),
        ("_ZN12_GLOBAL__N_11fEv", "f"),
        ("_Z", "_Z"),
    ],
)
def test_names_are_as_in_the_source(symbol: str, name: str) -> None:
    """Mangled names in a message are demangled."""
    assert readable(f"Function '{symbol}' is large") == f"Function '{name}' is large"


def test_another_process_on_the_gpu_is_named() -> None:
    """Another process on the GPU is named in a separate warning, and in the dispersion warning."""
    samples = [1e-4, 1e-4, 2e-4, 2e-4, 1e-4, 2e-4]
    timing = stats.summarize(samples, "cold")
    alone = timing_warnings(timing, 1.0, Settings())
    both = timing_warnings(timing, 1.0, Settings(), ["python3 (process 4711)"])
    assert [one.code for one in alone] == ["dispersion"]
    assert "something else uses the GPU" in alone[0].message
    assert [one.code for one in both] == ["shared-gpu", "dispersion"]
    assert all("python3 (process 4711)" in one.message for one in both)


class Nvml(types.ModuleType):
    """NVML with processes of these ids on the GPU."""

    NVMLError = RuntimeError

    def __init__(self, *pids: int) -> None:
        super().__init__("pynvml")
        self.pids = pids

    def nvmlDeviceGetComputeRunningProcesses(self, _: object) -> list[types.SimpleNamespace]:  # noqa: N802 (NVML's)
        """Return the processes on the GPU."""
        return [types.SimpleNamespace(pid=pid) for pid in self.pids]


def test_processes_of_other_numbers_are_not_named() -> None:
    """A process on the GPU is named if NVML uses the same process ids as this machine; in a container, with other ids,
    it is only counted."""
    found = []
    for pids in ((os.getpid(),), (os.getpid(), os.getppid()), (9999991,), (9999991, os.getppid()), ()):
        found.append(nvml.Board(Nvml(*pids), object()).other_processes())
    name = (
        Path(f"/proc/{os.getppid()}/comm").read_text().strip()
        if limited_process.FORKS
        else "another user's or container's"
    )
    assert found[:3] == [[], [f"{name} (process {os.getppid()})"], []]
    assert found[3:] == [[f"another process, one of 9999991, {os.getppid()} outside this container"], []]
