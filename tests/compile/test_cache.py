"""The cache of compiles on disk: a second process does not compile again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile import cache, compiler, nvrtc, stand_ins
from cudabench.compile.compiler import compile_cubin, compile_ptx, nvrtc_version

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")

TEXT = "__global__ void g(T *a) { a[0] = 1; }\n"
INCLUDES = '#include "x.h"\n__global__ void g(float *a) { a[0] = X; }\n'


class Counted:
    """Counts the compiles of NVRTC's library."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compiles = 0
        inner = nvrtc.Library.compile

        def compile(*arguments: object, **options: object) -> nvrtc.NvrtcResult:
            self.compiles += 1
            return inner(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(nvrtc.Library, "compile", compile)

    def during(self, work: Callable[[], object]) -> int:
        """Return how many compiles a call makes in a process that has compiled nothing before."""
        compiler._compile.cache_clear()
        before = self.compiles
        work()
        return self.compiles - before


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty cache."""
    monkeypatch.setenv("CUDABENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "compiled"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Count NVRTC's compiles."""
    return Counted(monkeypatch)


def test_the_second_process_compiles_nothing(folder: Path, counted: Counted) -> None:
    """The cache returns an equal record: PTX, machine code, log, names and resources."""
    text = TEXT.replace("{", "{ int unused;")
    compiler._compile.cache_clear()
    first = compile_cubin(text, "u.cu", defines={"T": "float"}, names=["g"])
    assert counted.during(lambda: compile_cubin(text, "u.cu", defines={"T": "float"}, names=["g"])) == 0
    assert compile_cubin(text, "u.cu", defines={"T": "float"}, names=["g"]) == first
    assert "warning" in first.log
    assert first.cubin
    assert first.resources["_Z1gPf"].registers > 0
    assert [path.suffix for path in folder.iterdir()] == [".compiled"]


def test_headers_of_the_package(
    folder: Path, counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change in a header that the package supplies in place of a missing header makes the compile run again."""
    headers = tmp_path / "headers"
    headers.mkdir()
    assert stand_ins.FOLDER in cache._FOLDERS
    monkeypatch.setattr(cache, "_FOLDERS", (headers,))
    for content, compiles in (("one", 1), ("one", 0), ("three", 1)):
        (headers / "torch.h").write_text(content)
        os.utime(headers / "torch.h", (1, 1))
        cache.mark_of.cache_clear()
        assert counted.during(lambda: compile_cubin(TEXT, "u.cu", defines={"T": "int"})) == compiles


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "change",
    [{"defines": {"T": "int"}}, {"arch": "sm_80"}, {"filename": "v.cu"}, {"source": TEXT + "\n"}, {"names": ["g"]}],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_the_compile_changes_the_entry(
    folder: Path, counted: Counted, change: dict[str, object]
) -> None:
    """The key of an entry includes the text, the file name, defines, architecture and requested names."""
    job: dict[str, object] = {"source": TEXT, "filename": "u.cu", "defines": {"T": "float"}}
    assert counted.during(lambda: compile_ptx(**job)) == 1  # type: ignore[arg-type]
    assert counted.during(lambda: compile_ptx(**{**job, **change})) == 1  # type: ignore[arg-type]
    assert counted.during(lambda: compile_ptx(**job)) == 0  # type: ignore[arg-type]


def test_headers_of_the_users_own(folder: Path, counted: Counted, tmp_path: Path) -> None:
    """A change in a header, in a header that it includes, or a new header in an earlier folder makes the compile run
    again."""
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "far" / "x.h").write_text('#include "y.h"\n')
    (tmp_path / "far" / "y.h").write_text("#define X 1\n")

    def ptx() -> str:
        return compile_ptx(INCLUDES, "u.cu", include_dirs=["near", "far"]).ptx

    assert counted.during(ptx) == 1
    assert counted.during(ptx) == 0
    (tmp_path / "far" / "y.h").write_text("#define X 2\n")
    assert counted.during(ptx) == 1
    (tmp_path / "near" / "x.h").write_text("#define X 3\n")
    assert counted.during(ptx) == 1
    compiler._compile.cache_clear()
    assert "0f40400000" in ptx() or "1077936128" in ptx()  # 3.0f


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "line",
    [
        '#define H "x.h"\n#include H',
        '#define H "x.h"\n#include \\\n H',
        '#if __has_include("x.h")\n#include "x.h"\n#endif',
        "#define I(x) #x\n# /* */ include /* */ I(x.h)",
    ],
)
def test_what_the_text_does_not_show_is_not_kept(folder: Path, counted: Counted, tmp_path: Path, line: str) -> None:
    """A compile is not cached if a macro gives a header's name or __has_include tests for a header."""
    (tmp_path / "x.h").write_text("#define X 1\n")
    source = line + "\n" + INCLUDES.split("\n", 1)[1]
    for _ in range(2):
        assert counted.during(lambda: compile_ptx(source, "u.cu", include_dirs=["."])) == 1


@pytest.mark.slow
def test_a_damaged_entry_is_compiled_again(folder: Path, counted: Counted) -> None:
    """An entry that is cut short, overwritten or of another form is compiled again."""
    job = {"source": TEXT, "filename": "u.cu", "defines": {"T": "float"}}
    assert counted.during(lambda: compile_ptx(**job)) == 1  # type: ignore[arg-type]
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    for damage in (b"", b"\xff\xff", whole[:-1], whole.replace(b".entry", b".entrx"), whole.split(b"\n")[0] + b"\n{}"):
        entry.write_bytes(damage)
        assert counted.during(lambda: compile_ptx(**job)) == 1  # type: ignore[arg-type]
        assert entry.read_bytes() == whole


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_an_entry_that_never_ends(folder: Path, counted: Counted, make: Callable[[Path], object]) -> None:
    """A pipe or device in place of an entry is not opened, and a regular file replaces it."""
    assert counted.during(lambda: compile_ptx(TEXT, "t.cu", defines={"T": "float"})) == 1
    (entry,) = folder.iterdir()
    entry.unlink()
    make(entry)
    assert counted.during(lambda: compile_ptx(TEXT, "t.cu", defines={"T": "float"})) == 1
    assert entry.is_file()
    assert not entry.is_symlink()


def test_a_cache_that_cannot_be_written(folder: Path, counted: Counted, tmp_path: Path) -> None:
    """A cache that cannot be written does not stop a compile."""
    (tmp_path / "cache").write_text("in the way")
    for _ in range(2):
        assert counted.during(lambda: compile_ptx(TEXT, "u.cu", defines={"T": "float"})) == 1


def test_off(folder: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDABENCH_CACHE=off writes no cache."""
    monkeypatch.setenv("CUDABENCH_CACHE", "off")
    for _ in range(2):
        assert counted.during(lambda: compile_ptx(TEXT, "u.cu", defines={"T": "float"})) == 1
    assert not folder.exists()
    assert not Path("off").exists()


def test_the_oldest_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache over its size limit loses the entries that were unused for longest; an entry that was just read stays."""
    for at in range(4):
        compile_ptx(TEXT + f"// {at}\n", "u.cu", defines={"T": "float"})
        for path in folder.iterdir():
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**9))
    ages = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    size = sum(path.stat().st_size for path in ages)
    assert cache.read("compiled", ages[0].stem) is not None
    monkeypatch.setattr(cache, "MOST_BYTES", size)
    compile_ptx(TEXT + "// one more\n", "u.cu", defines={"T": "float"})
    left = set(folder.iterdir())
    assert ages[0] in left
    assert not {ages[1], ages[2]} & left
    assert sum(path.stat().st_size for path in left) <= size * 3 // 4
