"""The builder and loader of the native engine: when it builds, which library it loads, and its error messages."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.errors import DeviceUnusable, UsageError
from cudabench.system import native
from tests.conftest import Ran

Runner = Callable[..., Ran]
COMPILES = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
needs_compiler = pytest.mark.skipif(not COMPILES, reason="there is no C++ compiler")
ANSWER = 'extern "C" __attribute__((visibility("default"))) int answer() { return %d; }\n'
SIMD = 'extern "C" __attribute__((visibility("default"))) int JOIN(width_, LEVEL)() { return WIDTH; }\n'
WIDTHS = (
    "#define PASTE(a, b) a##b\n#define JOIN(a, b) PASTE(a, b)\n#if defined(__AVX512F__)\n#define WIDTH 64\n"
    "#elif defined(__AVX2__)\n#define WIDTH 32\n#else\n#define WIDTH 16\n#endif\n"
)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small engine of one file in place of the package's engine, with a separate cache and no installed library."""
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "answer.cpp").write_text(ANSWER % 42)
    monkeypatch.setattr(native, "source_folder", lambda: folder)
    monkeypatch.setattr(native, "INSTALLED", tmp_path / "installed")
    monkeypatch.setattr(native, "_attempts", {})
    monkeypatch.setenv("CUDABENCH_CACHE", str(tmp_path / "cache"))
    for name in ("CXX", "CUDABENCH_ENGINE", native.LIBRARY_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    native._print_once.cache_clear()
    return folder


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that fails, and appends each call to a file."""
    calls = tmp_path / "calls"
    failing = tmp_path / "failing"
    failing.write_text(f'#!/bin/sh\necho called >> "{calls}"\necho "answer.cpp:1: error: nothing works" >&2\nexit 1\n')
    failing.chmod(0o755)
    monkeypatch.setenv("CXX", str(failing))
    return calls


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the attempts of this process, like a new command."""
    monkeypatch.setattr(native, "_attempts", {})


@needs_compiler
def test_builds_once(source: Path, tmp_path: Path) -> None:
    """The library works, and the builder compiles it again only if a source, a header or an option changes."""
    made = native.build(tmp_path / "made")
    assert ctypes.CDLL(str(made)).answer() == 42
    first = made.stat().st_mtime_ns
    assert native.build(made.parent).stat().st_mtime_ns == first
    keys = [native.key()]
    (source / "other.hpp").write_text("#pragma once\n")
    keys.append(native.key())
    (source / "answer.cpp").write_text(ANSWER % 43)
    keys.append(native.key())
    assert len({*keys, native.key(sanitize=True)}) == 4
    assert ctypes.CDLL(str(shutil.copy(native.build(made.parent), tmp_path / "copy.so"))).answer() == 43
    assert not [path for path in made.parent.iterdir() if path.name not in (native.NAME, ".lock")]


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize(
    ("features", "everywhere", "widths"),
    [
        ({"sse2"}, False, [16]), ({"avx2", "fma"}, False, [32]), ({"avx2", "fma"}, True, [16, 32, 64]),
        (None, False, [16, 32, 64]),
    ],
)  # fmt: skip
def test_levels(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    features: set[str] | None, everywhere: bool, widths: list[int],
) -> None:  # fmt: skip
    """A library for this processor is compiled once, for the highest level of x86-64 that the processor has.

    For a library for other machines too, or if the processor's features are unknown, each file whose name ends with
    _simd is compiled for all levels, and all files have the macros of these levels.
    """
    monkeypatch.setattr(native, "_features", lambda: features)
    (source / "wide_simd.cpp").write_text(WIDTHS + SIMD)
    told = "".join(
        f"#ifdef HAVE_{name.upper()}\n" + ANSWER.replace("answer", name) % 1 + "#endif\n" for name in native.LEVELS
    )
    (source / "levels.cpp").write_text(told)
    made = ctypes.CDLL(str(native.build(tmp_path / "made", everywhere=everywhere)))
    widths = widths if platform.machine() == "x86_64" else [16]
    levels = [*native.LEVELS][: len(widths)]
    assert [made[f"width_{level}"]() for level in levels] == widths
    for level in native.LEVELS:
        assert hasattr(made, f"width_{level}") == (level in levels)
        assert hasattr(made, level) == (level in levels and level != "base")


@needs_compiler
def test_a_fault_in_the_sources(source: Path, tmp_path: Path) -> None:
    """The error quotes the compiler's error, its log has the whole output, and the builder leaves no file behind."""
    (source / "answer.cpp").write_text("int answer() { return nothing; }\n")
    with pytest.raises(native.NotBuilt, match=r"failed \(answer.cpp:1.*error.*nothing") as failed:
        native.build(tmp_path / "made")
    assert "return nothing" in failed.value.log
    assert [path.name for path in (tmp_path / "made").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("CXX", "no-such-compiler", "there is no no-such-compiler, which CXX names: install"),
        ("CXX", "'g++", "whose quotation marks do not match"),
        ("PATH", "", "there is no C\\+\\+ compiler: install"),
    ],
)
def test_no_compiler(source: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str) -> None:
    """Without a compiler there is no library, and one sentence says what to install."""
    monkeypatch.setenv(variable, value)
    assert native.library() is None
    with pytest.raises(native.NotBuilt, match=said):
        native.build(source.parent / "made")
    assert native.unavailable_text() == str(native.unavailable())
    assert "install" in native.unavailable_text() or "name" in native.unavailable_text()


@needs_compiler
def test_two_processes_build_once(source: Path, tmp_path: Path) -> None:
    """Of two processes that need the same library one compiles, and the other waits for it."""
    code = (
        "import sys; from pathlib import Path; from cudabench.system import native\n"
        "print(native.build(Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    calls = tmp_path / "calls"
    counting = tmp_path / "counting"
    counting.write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\nexec c++ "$@"\n')
    counting.chmod(0o755)
    words = [sys.executable, "-c", code, str(tmp_path / "made"), str(source)]
    root = Path(native.__file__).parents[2]
    both = [subprocess.Popen(words, cwd=root, env={**os.environ, "CXX": str(counting)}) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert len([line for line in calls.read_text().splitlines() if " answer.cpp " in line]) == 1


@pytest.mark.slow
@needs_compiler
def test_by_hand(tmp_path: Path) -> None:
    """The builder runs as a program, also as a single file: it prints the path, or prints the compiler's error and
    exits with 1."""
    (tmp_path / "cudabench" / "system").mkdir(parents=True)
    (tmp_path / "native").mkdir()
    alone = shutil.copy(native.__file__, tmp_path / "cudabench" / "system")
    (tmp_path / "native" / "answer.cpp").write_text(ANSWER % 42)

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", alone, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert Path(ran().stdout.strip()) == tmp_path / "cudabench" / "_native" / native.NAME
    assert ctypes.CDLL(ran("here").stdout.strip()).answer() == 42
    assert (tmp_path / "here" / native.NAME).exists()
    (tmp_path / "native" / "answer.cpp").write_text("wrong\n")
    failed = ran("here")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "answer.cpp:1" in failed.stderr


def test_a_failure_is_remembered(
    source: Path, compiler: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next command does not call a compiler that failed, unless the compiler or the sources changed; each command
    prints the reason."""

    def calls() -> int:
        fresh(monkeypatch)
        assert native.library() is None
        assert native.library() is None
        return len(compiler.read_text().splitlines())

    first = calls()
    assert "error: nothing works" in native.unavailable_text()
    assert calls() == first
    (source / "answer.cpp").write_text(ANSWER % 43)
    second = calls()
    assert second > first
    time.sleep(0.01)
    Path(os.environ["CXX"]).touch()
    assert calls() > second
    err = capsys.readouterr().err
    assert err.count("Building the simulator's native engine") == 1
    assert err.count("runs without its native engine") == 1


@needs_compiler
def test_where_it_is_looked_for(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The loader takes a named library first, then the installed library if it has these sources, then that of the
    cache, which it builds."""

    def path() -> Path:
        fresh(monkeypatch)
        found = native.library()
        assert found is not None
        return Path(found._name)

    cached = path()
    assert cached.is_relative_to(tmp_path / "cache")
    assert path() == cached
    assert native.build(native.INSTALLED).parent == path().parent == native.INSTALLED
    named = native.build(tmp_path / "named")
    monkeypatch.setenv(native.LIBRARY_VARIABLE, str(named))
    assert path() == named
    monkeypatch.delenv(native.LIBRARY_VARIABLE)
    (source / "answer.cpp").write_text(ANSWER % 43)
    assert path().is_relative_to(tmp_path / "cache")


def test_a_named_library_of_other_sources(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A named library of other sources is an error: the loader does not use another library in its place."""
    (tmp_path / "old.so").write_bytes(b"of other sources")
    monkeypatch.setenv(native.LIBRARY_VARIABLE, str(tmp_path / "old.so"))
    with pytest.raises(DeviceUnusable, match=r"old\.so is not a library of this version's sources: build it"):
        native.library()


def test_without_a_cache(source: Path, monkeypatch: pytest.MonkeyPatch, compiler: Path) -> None:
    """Without a cache the loader does not build."""
    monkeypatch.setenv("CUDABENCH_CACHE", "off")
    assert native.library() is None
    assert "CUDABENCH_CACHE is off" in native.unavailable_text()
    assert not compiler.exists()


def test_a_folder_that_cannot_be_written(source: Path, monkeypatch: pytest.MonkeyPatch, compiler: Path) -> None:
    """If the cache is not a folder, there is no library, and the loader does not call the compiler."""
    (source.parent / "cache").write_text("a file")
    assert native.library() is None
    assert "cannot be written" in native.unavailable_text()
    assert not compiler.exists()


def test_the_engine_that_is_asked_for(source: Path, monkeypatch: pytest.MonkeyPatch, compiler: Path) -> None:
    """CUDABENCH_ENGINE=numpy neither loads nor builds a library; CUDABENCH_ENGINE=native fails without a library."""
    monkeypatch.setenv("CUDABENCH_ENGINE", "numpy")
    assert native.library() is None
    assert native.unavailable_text() == "CUDABENCH_ENGINE is numpy: unset it"
    assert not compiler.exists()
    monkeypatch.setenv("CUDABENCH_ENGINE", "native")
    with pytest.raises(DeviceUnusable, match=r"native engine is missing: .*nothing works"):
        native.library()
    monkeypatch.setenv("CUDABENCH_ENGINE", "nmpy")
    with pytest.raises(UsageError, match="CUDABENCH_ENGINE=nmpy is not an engine: set it to native or numpy"):
        native.library()


def test_commands_say_so(source: Path, monkeypatch: pytest.MonkeyPatch, compiler: Path, cudabench: Runner) -> None:
    """A run without the native engine works and prints one line; a run that demands it exits with 5; `info` gives the
    reason."""
    words = ["vecadd", "-k", "naive", "--size", 64, "-d", "sim", "--no-cpu"]
    ran = cudabench(*words)
    assert ran.code == 0
    assert ran.err.count("The simulator runs without its native engine") == 1
    (engine,) = [part for part in cudabench("info", "--json").json["parts"] if part["name"] == "engine"]
    assert "nothing works" in engine["problem"]
    assert engine["repair"]
    monkeypatch.setenv("CUDABENCH_ENGINE", "native")
    assert cudabench(*words).code == 5


@pytest.mark.engine
@needs_compiler
def test_the_engine_of_this_checkout(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's sources compile and load, and `info` names the compiler."""
    monkeypatch.setenv("CUDABENCH_ENGINE", "native")
    assert native.sources()
    assert native.library() is not None, native.unavailable_text()
    (engine,) = [part for part in cudabench("info", "--json").json["parts"] if part["name"] == "engine"]
    assert engine["version"].startswith(("native (g++ ", "native (clang++ "))


@pytest.mark.long
@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("nm"), reason="needs x86-64 and nm")
def test_inline_functions_run_on_any_machine(tmp_path: Path) -> None:
    """Each inline function in a file for AVX2 or AVX-512 is also in a file for any machine, which the linker takes
    first."""

    def inline(level: str) -> set[str]:
        found: set[str] = set()
        for path in native.sources():
            if path.stem.endswith("_simd"):
                made = str(tmp_path / f"{path.stem}.o")
                options = [*native.OPTIONS, "-DHAVE_AVX2", "-DHAVE_AVX512", *native.LEVELS[level], f"-DLEVEL={level}"]
                subprocess.run([*native.compiler(), *options, "-c", str(path), "-o", made], check=True)
                names = subprocess.run(["nm", "--defined-only", made], capture_output=True, text=True, check=True)
                found |= {name for _, kind, name in map(str.split, names.stdout.splitlines()) if kind in "WVu"}
        return found

    base = inline("base")
    assert inline("avx2") <= base
    assert inline("avx512") <= base


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has levels")
def test_a_library_of_another_processor(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader does not load a library built for a processor with more instructions: it builds the library again."""
    monkeypatch.setattr(native, "_features", lambda: {"avx2", "fma"})
    native.build(native.INSTALLED)
    assert native.library() is not None
    monkeypatch.setattr(native, "_features", lambda: {"sse2"})
    fresh(monkeypatch)
    assert str(native.unavailable()).startswith("it is not built yet")
    assert native.library() is not None
    native.build(native.INSTALLED, everywhere=True)
    fresh(monkeypatch)
    assert native.unavailable() is None
