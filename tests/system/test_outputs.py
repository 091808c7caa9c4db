"""Output files: a regular file is replaced as a whole; a device, pipe or link is written through and stays."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from cudabench import operations
from cudabench.errors import CudabenchError
from cudabench.operations import images
from cudabench.system.outputs import check_target, is_file, write_whole, write_with
from tests import fleets
from tests.cli.test_hostile_options import TREE
from tests.conftest import Ran
from tests.results.test_compare import RECORDED

ROOT = Path(__file__).resolve().parents[2]
Runner = Callable[..., Ran]

as_a_user = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")


class Reader:
    """Reads everything that is written to a named pipe."""

    def __init__(self, path: Path) -> None:
        self.content = b""
        self._thread = threading.Thread(target=self._read, args=(path,), daemon=True)
        self._thread.start()

    def _read(self, path: Path) -> None:
        self.content = path.read_bytes()

    def done(self) -> bytes:
        """Return the content after the writer has closed the pipe."""
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()
        return self.content


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Return a named pipe."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def is_null_device() -> bool:
    """Return whether /dev/null is still the null device."""
    found = os.stat("/dev/null")
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3)


# Writing -------------------------------------------------------------------------------------------------------------


def test_device_stays_a_device() -> None:
    """Writing to /dev/null leaves the device unchanged, also for root."""
    check_target(Path("/dev/null"))
    assert not is_file(Path("/dev/null"))
    write_whole(Path("/dev/null"), b"x" * 100000)
    assert is_null_device()


def test_full_disk() -> None:
    """A full disk gives one message; the check before the run does not detect it."""
    check_target(Path("/dev/full"))
    with pytest.raises(CudabenchError, match=r"^/dev/full cannot be written: No space left on device; make room"):
        write_whole(Path("/dev/full"), b"x")


def test_pipe(pipe: Path) -> None:
    """The check does not open a pipe, writing does not replace it, and its reader gets the whole content."""
    check_target(pipe)  # opening the pipe would block forever
    reader = Reader(pipe)
    content = os.urandom(1 << 20)  # more than a pipe holds
    write_whole(pipe, content)
    assert reader.done() == content
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_pipe_takes_what_seeks(pipe: Path) -> None:
    """A writer that seeks or asks for the position, like NumPy's, can write into a pipe."""
    reader = Reader(pipe)
    write_with(pipe, lambda stream: np.save(stream, np.arange(1000)))
    assert reader.done().startswith(b"\x93NUMPY")


def test_link_stays_a_link(tmp_path: Path) -> None:
    """Writing through a link replaces its target, keeps the target's permissions, and keeps the link."""
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "real.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("far/real.json")
    check_target(link)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(tmp_path / "far") == ["real.json"]


def test_link_to_nowhere(tmp_path: Path) -> None:
    """Writing through a link creates its missing target; a target in a missing folder is refused."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "new.json")
    check_target(link)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "new.json").read_text() == "new"
    astray = tmp_path / "astray"
    astray.symlink_to(tmp_path / "no" / "where.json")
    with pytest.raises(CudabenchError, match=r"the folder \S+/no does not exist"):
        check_target(astray)


def test_links_in_a_circle(tmp_path: Path) -> None:
    """Links that point to each other give one message."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for attempt in (check_target, lambda path: write_whole(path, b"x")):
        with pytest.raises(CudabenchError, match="links lead in a circle"):
            attempt(tmp_path / "a")


def test_permissions(tmp_path: Path) -> None:
    """A new file has the permissions of the umask; a replaced file keeps its permissions."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "new", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    write_whole(tmp_path / "new", b"")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


@pytest.mark.parametrize("length", [255, 256, 300])
def test_long_names(tmp_path: Path, length: int) -> None:
    """A name of 255 characters is written; a longer name is refused with a message that shortens it."""
    path = tmp_path / ("x" * length)
    if length <= 255:
        check_target(path)
        write_whole(path, b"x")
        assert path.read_bytes() == b"x"
        return
    for attempt in (check_target, lambda path: write_whole(path, b"x")):
        with pytest.raises(CudabenchError, match="too long; give it a shorter name") as caught:
            attempt(path)
        assert len(str(caught.value)) < 200


def test_directories(tmp_path: Path) -> None:
    """A directory as the file, and a missing folder, are refused by the check and by writing."""
    with pytest.raises(CudabenchError, match=r"--json .* is a directory: name a file in it"):
        check_target(tmp_path)
    with pytest.raises(CudabenchError, match="Is a directory"):
        write_whole(tmp_path, b"")
    with pytest.raises(CudabenchError, match="does not exist; make it first"):
        check_target(tmp_path / "no" / "r.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(CudabenchError, match="a part of its path is a file"):
        check_target(tmp_path / "file" / "r.json")


@as_a_user
def test_no_permission(tmp_path: Path) -> None:
    """A folder or file without write permission is refused by the check."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    with pytest.raises(CudabenchError, match=r"no permission to write in .*; name another folder"):
        check_target(locked / "r.json")
    with pytest.raises(CudabenchError, match="Permission denied; name a place that you may write"):
        write_whole(locked / "r.json", b"")
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "kept").chmod(0o444)
    with pytest.raises(CudabenchError, match="no permission to write it"):
        check_target(tmp_path / "kept")


def test_refused_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place where os.access denies writing is refused with one message, also for root."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(CudabenchError, match=r"no permission to write in .*; name another folder"):
        check_target(tmp_path / "r.json")
    (tmp_path / "kept").write_text("kept")
    with pytest.raises(CudabenchError, match="no permission to write it"):
        check_target(tmp_path / "kept")


def test_what_goes_wrong_leaves_the_old_file(tmp_path: Path) -> None:
    """If creating the content fails, the old file stays, no other file is left, and the error is raised."""
    path = tmp_path / "old"
    path.write_text("old")

    def breaks(stream: object) -> None:
        raise ValueError("no such picture")

    with pytest.raises(ValueError, match="no such picture"):
        write_with(path, breaks)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["old"]


# The options ---------------------------------------------------------------------------------------------------------

OWN = ("--grid", 1, "--block", 32, "--arg", "x=float32[4]:ones", "--arg", "n=4", "--device", "sim")
RUN = ("transpose", "smem-pad", "--size", 32, "--device", "sim", "--no-cpu")


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[str]:
    """Write a results file, kernels and a fleet, and return the results file's name; check /dev/null afterwards."""
    (tmp_path / "run.json").write_text(RECORDED.text())
    (tmp_path / "k.cu").write_text("__global__ void k(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n")
    (tmp_path / "main.cu").write_text(
        "__global__ void k() {}\nint main() { k<<<1, 1>>>(); cudaDeviceSynchronize(); }\n"
    )
    fleets.write(tmp_path / "shards", *(fleets.document(number, {"a": 1e-3}) for number in range(3)))
    yield "run.json"
    assert is_null_device()


def commands(output: object) -> dict[str, tuple[object, ...]]:
    """Return a command line for each output option, with this output."""
    return {
        "transpose --json": (*RUN, "--quiet", "--json", output),
        "transpose --report": (*RUN, "--quiet", "--report", output),
        "run --json": ("run", "k.cu", *OWN, "--quiet", "--json", output),
        "run --report": ("run", "k.cu", *OWN, "--quiet", "--report", output),
        "run --save": ("run", "k.cu", *OWN, "--expect", "x=2*x0", "--save", f"x={output}"),
        "exec --json": ("exec", "main.cu", "--quiet", "--json", output),
        "exec --report": ("exec", "main.cu", "--quiet", "--report", output),
        "check --json": ("check", "k.cu", *OWN, "--quiet", "--json", output),
        "check --report": ("check", "k.cu", *OWN, "--quiet", "--report", output),
        "diff --json": ("diff", "k.cu", "k.cu", "--arch", "sm_90", "--quiet", "--json", output),
        "diff --report": ("diff", "k.cu", "k.cu", "--arch", "sm_90", "--quiet", "--report", output),
        "diff -o": ("diff", "k.cu", "k.cu", "--arch", "sm_90", "--to", "markdown", "-o", output),
        "ceilings --json": ("ceilings", "--only", "host-to-device-pinned", "-d", "sim", "--quiet", "--json", output),
        "fleet --json": ("fleet", "report", "shards", "--quiet", "--json", output),
        "fleet -o": ("fleet", "report", "shards", "-o", output),
        "fleet --plot": ("fleet", "report", "shards", "--plot", output),
        "report -o": ("report", "run.json", "-o", output),
        "compare -o": ("compare", "run.json", "run.json", "--to", "markdown", "-o", output),
        "sweep --json": ("sweep", "transpose", "-k", *RUN[1:-1], "--block", "32", "8", "--quiet", "--json", output),
        "sweep --report": ("sweep", "transpose", "-k", *RUN[1:-1], "--block", "32", "8", "--quiet", "--report", output),
        "explain --report": ("explain", *RUN[:4], "--quiet", "--report", output),
        "explain --save": ("explain", "k.cu", *OWN, "--save", f"x={output}"),
        "explain --json": ("explain", *RUN[:4], "--quiet", "--json", output),
        "compare --json": ("compare", "run.json", "run.json", "--quiet", "--json", output),
        "export -o": ("export", "run.json", "--to", "csv", "-o", output),
        "schema -o": ("schema", "-o", output),
        "plot -o": ("plot", "run.json", "-o", output),
        "grayscale --save": ("grayscale", "naive", "--size", 8, 8, "--device", "sim", "--no-cpu", "--save", output),
    }


OPTIONS = list(commands(""))
NEEDS_GPU = {"ab"}
WRITING = {"--json", "--report", "--save", "--plot", "-o"}


def test_every_option_that_writes_is_here() -> None:
    """OPTIONS has every output option of all commands; operations, which share their options, have two entries."""
    found = {
        f"{words[0]} {option.opts[0]}"
        for words, command in TREE.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.is_flag and option.opts[0] in WRITING
        if words[0] not in NEEDS_GPU and (words[-1] not in operations.SUMMARIES or words[-1] == "transpose")
    }
    assert found | {"grayscale --save"} == {*OPTIONS}


def slow_of(*options: str) -> list[Any]:
    """Return all options as parameters, some of them slow."""
    return [pytest.param(option, marks=pytest.mark.slow if option in options else ()) for option in OPTIONS]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("option", slow_of("fleet --plot", "plot -o"))
def test_options_write_to_a_device(cudabench: Runner, recorded: str, option: str) -> None:
    """Every output option can write to /dev/null."""
    ran = cudabench(*commands("/dev/null")[option])
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("option", slow_of("fleet --plot"))
def test_options_on_a_full_disk(cudabench: Runner, recorded: str, option: str) -> None:
    """On a full disk every output option ends with one message and exit code 1."""
    ran = cudabench(*commands("/dev/full")[option])
    assert ran.code == 1
    said = [line for line in (ran.out + ran.err).splitlines() if "cannot be written: No space left on device" in line]
    assert len(said) == 1


@pytest.mark.sampled(18)
@pytest.mark.parametrize("option", OPTIONS)
def test_options_write_into_a_pipe(cudabench: Runner, recorded: str, pipe: Path, option: str) -> None:
    """Every output option writes into a pipe once, completely."""
    reader = Reader(pipe)
    ran = cudabench(*commands(pipe)[option])
    assert (ran.code, ran.err) == (0, "")
    content = reader.done()
    if "json" in option or "schema" in option:
        json.loads(content)  # one document in total, not one per kernel
    assert content
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("x" * 300 + ".png", "File name too long; give it a shorter name."),
        ("no/where.png", "the folder no does not exist; make it first."),
        (".", "is a directory"),
    ],
    ids=["long", "nowhere", "folder"],
)
def test_options_refuse(cudabench: Runner, recorded: str, option: str, output: str, message: str) -> None:
    """Every output option refuses an unwritable place with one message and exit code 1; a plot without a suffix is exit
    code 2."""
    ran = cudabench(*commands(output)[option])
    if option in ("plot -o", "fleet --plot") and output == ".":
        assert (ran.code, "needs the ending" in ran.err) == (2, True)
        return
    assert ran.code == 1
    assert message in ran.err
    assert len([line for line in ran.err.splitlines() if line]) == 1


@pytest.mark.slow
def test_standard_output_by_name(tmp_path: Path) -> None:
    """--json /dev/stdout writes to standard output, whether it is a pipe or a file."""
    words = [sys.executable, "-m", "cudabench", *map(str, RUN), "--json", "/dev/stdout"]
    piped = subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    assert json.loads(piped.stdout)["schema"] == "cudabench/1"
    with open(tmp_path / "out.json", "wb") as stream:
        inode = os.fstat(stream.fileno()).st_ino
        subprocess.run(words, cwd=ROOT, stdout=stream, stderr=subprocess.DEVNULL, check=True)
    assert json.loads((tmp_path / "out.json").read_bytes())["results"]
    assert (tmp_path / "out.json").stat().st_ino == inode


def test_descriptor_by_name(tmp_path: Path) -> None:
    """/dev/fd/N continues at the descriptor's position, like the shell's >>."""
    with open(tmp_path / "log", "wb") as stream:
        stream.write(b"first\n")
        stream.flush()
        write_whole(Path(f"/dev/fd/{stream.fileno()}"), b"second\n")
    assert (tmp_path / "log").read_text() == "first\nsecond\n"
    with pytest.raises(CudabenchError, match="Bad file descriptor"):
        check_target(Path("/dev/fd/987"))


def test_pictures_keep_the_format_of_their_name(tmp_path: Path) -> None:
    """A picture's format follows from the given name, also through a link; an unknown suffix is refused."""
    from PIL import Image

    (tmp_path / "link.png").symlink_to("target.bin")
    images.save({"save": str(tmp_path / "link.png")}, np.zeros((2, 3, 3), np.uint8))
    with Image.open(tmp_path / "target.bin") as picture:
        assert (picture.format, picture.size) == ("PNG", (3, 2))
    with pytest.raises(CudabenchError, match=r"'.xyz' is not the ending of a picture format"):
        images.size({"save": str(tmp_path / "a.xyz")})
