"""`cudabench setup-gpu`: its steps, how they run, and each refusal. The real build is among the slow tests."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudabench.devices import probe
from cudabench.devices import pycuda_build as build
from cudabench.errors import DeviceUnusable, UsageError
from tests.conftest import Ran

ROOT = Path(__file__).resolve().parents[2]
Runner = Callable[..., Ran]
NO_DRIVER = probe.Component("driver", problem="this machine lacks an NVIDIA driver", repair="install NVIDIA's driver")
DRIVER = probe.Component("driver", version="580.1 (CUDA 13.0)", device_count=1)

# A fake pip: it records its arguments and environment, and writes headers for --target.
FAKE_PIP = """
import json, os, pathlib, sys
home = pathlib.Path(os.environ["HOME"])
settings = home / ".aksetup-defaults.py"
with open(sys.argv[1], "a") as log:
    log.write(json.dumps({"words": sys.argv[2:], "settings": settings.read_text() if settings.exists() else None,
                          "work": os.environ["work"], "config": os.environ.get("XDG_CONFIG_HOME")}) + "\\n")
if "--target" in sys.argv:
    include = pathlib.Path(sys.argv[sys.argv.index("--target") + 1], "nvidia", "cu13", "include")
    include.mkdir(parents=True)
    (include / "cuda.h").write_text("CUresult cuInit(unsigned int);\\n#define cuCtxCreate cuCtxCreate_v4\\n")
    (include / "cudaProfiler.h").write_text("CUresult cuProfilerStart(void);\\n")
"""


@pytest.fixture
def where(tmp_path: Path) -> build.Environment:
    """Return an environment whose fake pip writes its log to pip.log."""
    fake = tmp_path / "fake pip.py"
    fake.write_text(FAKE_PIP)
    return build.Environment(
        sys.executable, sys.prefix, "venv", installer=(sys.executable, str(fake), str(tmp_path / "pip.log"))
    )


def calls(tmp_path: Path) -> list[dict[str, str]]:
    """Return the calls of the fake pip."""
    return [json.loads(line) for line in (tmp_path / "pip.log").read_text().splitlines()]


@pytest.mark.parametrize("as_script", [False, True], ids=["steps", "dry-run"])
def test_build_is_carried_out(
    where: build.Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_script: bool
) -> None:
    """The headers are installed first, the libcuda stub has the driver's names, and PyCUDA is built with both, without
    cuRAND.

    The printed script does the same as the steps.
    """
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    work = tmp_path / "a work 'folder'"
    work.mkdir()
    steps = build.build_steps(where, None, again=False)
    if as_script:
        monkeypatch.setenv("TMPDIR", str(work))
        text = build.script([*steps, build.Step("look", "", 'cp -r "$work" "$TMPDIR/kept"')])
        subprocess.run(["sh", "-c", text], check=True)
        left = [path.name for path in work.iterdir()]
        assert left == ["kept"], "the temporary folder is gone"
        work = work / "kept"
    else:
        for step in steps:
            build.run_step(step, work)
    headers, pycuda = calls(tmp_path)
    assert "--no-deps" in headers["words"]
    assert headers["words"][-2:] == list(build.HEADERS)
    assert any(word.startswith("pycuda") for word in pycuda["words"])
    assert "--target" not in pycuda["words"]
    values: dict[str, object] = {}
    monkeypatch.setenv("work", "/w")
    exec(pycuda["settings"], values)
    assert values["CUDA_ENABLE_CURAND"] is False
    assert values["CUDA_INC_DIR"] == ["/w/cuda/nvidia/cu13/include"]
    assert values["CUDADRV_LIB_DIR"] == ["/w/lib"]
    assert pycuda["config"] == str(tmp_path / "home" / ".config"), "pip keeps the user's own settings"
    names = subprocess.run(["nm", "-D", work / "lib" / "libcuda.so"], capture_output=True, text=True, check=True).stdout
    assert {"cuInit", "cuCtxCreate_v4", "cuProfilerStart"} <= {line.split()[-1] for line in names.splitlines()}


def test_find_links_is_all_there_is(where: build.Environment, tmp_path: Path) -> None:
    """With --find-links no step uses an index; the folder may have any name."""
    folder = tmp_path / "wheels $(touch gone)"
    steps = [*build.build_steps(where, str(folder), again=True), build.nvcc_step(where, str(folder), (13, 5))]
    installs = [shlex.split(line) for step in steps for line in step.script.splitlines() if "fake pip" in line]
    assert len(installs) == 4
    for words in installs:
        assert words[words.index("--no-index") + 1 :][:2] == ["--find-links", str(folder)]
    assert "nvidia-cuda-nvcc==13.5.*" in installs[-1]
    assert [("--force-reinstall" in words, "--no-deps" in words) for words in installs[1:3]] == [
        (True, True),
        (False, False),
    ]


def test_consent_reaches_pip() -> None:
    """Where the system's packages own Python, pip gets the user's consent as an option; elsewhere it does not."""
    for managed in (True, False):
        one = build.Environment("python3", "/usr", "system", managed, ("python3", "-m", "pip", "install"))
        text = build.build_steps(one, None, again=False)[-1].script
        assert ("--break-system-packages" in text) is managed


@pytest.mark.parametrize(
    ("kind", "managed", "said"),
    [("conda", False, "conda install"), ("system", True, "managed by the system"), ("system", False, "no virtual env")],
)
def test_foreign_environments_are_refused(kind: str, managed: bool, said: str) -> None:
    """An environment that is not a virtual environment is refused, with the command that makes one."""
    one = build.Environment("python3", "/opt/it", kind, managed)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"/opt/it.*--yes") as caught:
        build.refuse_foreign(one)
    assert said.replace("no virtual env", "is not a virtual environment") in str(caught.value)


def test_venv_is_taken() -> None:
    """A virtual environment is accepted without --yes."""
    build.refuse_foreign(build.Environment("python3", "/venv", "venv"))


def test_environment_without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pip, uv installs; without both, ensurepip installs pip first; without all three, setup-gpu refuses."""
    monkeypatch.setattr(build, "find_spec", lambda name: None if name == "pip" else object())
    monkeypatch.setattr(build.shutil, "which", lambda name: "/bin/uv" if name == "uv" else None)
    assert build.environment().installer[:3] == ("/bin/uv", "pip", "install")
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    assert build.build_steps(build.environment(), None, again=False)[0].script.endswith("-m ensurepip")
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(DeviceUnusable, match="neither pip nor ensurepip"):
        build.environment()


def test_no_compiler_and_no_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing compiler or Python.h is reported before any download."""
    with monkeypatch.context() as patch:
        patch.setenv("CXX", "no-such-compiler -m64")
        with pytest.raises(DeviceUnusable, match=r"needs no-such-compiler -m64, which is missing: .*apt install g\+\+"):
            build.refuse_without_compiler()
    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(DeviceUnusable, match=f"{tmp_path} lacks: .*-dev"):
        build.refuse_without_compiler()
    (tmp_path / "Python.h").touch()
    build.refuse_without_compiler()
    monkeypatch.setattr(build.sys, "platform", "darwin")
    with pytest.raises(DeviceUnusable, match="darwin"):
        build.refuse_without_compiler()


@pytest.mark.parametrize(
    ("driver", "nvrtc", "taken"),
    [
        ("580.1 (CUDA 13.0)", (13, 5), True),  # a driver of the same major version runs newer machine code
        ("CUDA 13.7", (13, 0), True),
        ("550.54 (CUDA 12.4)", (13, 5), False),
        ("550.54 (CUDA 12.4)", (12, 4), False),  # the headers are version 13.0
        ("580.1 (CUDA 13.0)", (14, 0), False),
        (None, None, True),
    ],
)
def test_old_drivers_are_refused(driver: str | None, nvrtc: tuple[int, int] | None, taken: bool) -> None:
    """A driver of an earlier major CUDA version than the compiler is refused, since it cannot run the compiler's
    code."""
    if taken:
        build.refuse_old_driver(driver, nvrtc)
    else:
        with pytest.raises(DeviceUnusable, match="update it"):
            build.refuse_old_driver(driver, nvrtc)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "WARNING: Retrying after 'NewConnectionError: Failed to establish a new connection'",
            "index cannot be reached",
        ),
        ("ERROR: No matching distribution found for numpy>=1.24", "numpy>=1.24 cannot be found"),
        ("  x.cpp:1:10: fatal error: cuda.h: No such file or directory", "cuda.h is missing"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "2 GB"),
        ("ERROR: Could not install packages: [Errno 13] Permission denied: '/usr'", "is read-only"),
        (
            "building\nError: There is a GPU, but PyCUDA is not installed.\n",
            "There is a GPU, but PyCUDA is not installed",
        ),
        ("one\nsrc/a.cpp:3:1: error: 'x' was not declared", "'x' was not declared; the whole log"),
        ("", "without a message"),
    ],
)
def test_reasons(log: str, said: str) -> None:
    """The reason of a failed step is one clause with the repair, taken from the step's output."""
    assert said in build.reason(log)


def test_failed_step(tmp_path: Path) -> None:
    """A failed step gives its name, its reason and its exit code; later commands of the step do not run."""
    with pytest.raises(build.StepFailed, match="PyCUDA: no luck") as caught:
        build.run_step(build.Step("PyCUDA", "", "echo 'error: no luck'; false; echo not reached"), tmp_path)
    assert caught.value.exit_code == 1
    assert "not reached" not in caught.value.log
    with pytest.raises(build.StepFailed) as caught:
        build.run_step(build.Step("first kernel", "", "echo 'Error: It is wrong.'; exit 3"), tmp_path)
    assert (caught.value.exit_code, str(caught.value)) == (3, "first kernel: It is wrong.")


def test_extra_of_the_package() -> None:
    """setup-gpu installs the requirements of the extra `gpu`; the copy for a checkout that is not installed has the
    same."""
    tomllib = pytest.importorskip("tomllib")

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(build.gpu_extra()) == sorted(build.GPU_EXTRA)
    assert sorted(one.replace(" ", "") for one in project["optional-dependencies"]["gpu"]) == sorted(build.GPU_EXTRA)


def test_without_a_driver(cudabench: Runner, monkeypatch: pytest.MonkeyPatch, where: build.Environment) -> None:
    """Without a driver, PyCUDA is built and no kernel runs, and the last line says so; --dry-run runs nothing."""
    carried: list[str] = []

    def run_step(step: build.Step, work: Path) -> tuple[float, str]:
        carried.append(step.title)
        return 0.0, ""

    monkeypatch.setattr(probe, "driver", lambda: NO_DRIVER)
    monkeypatch.setattr(build, "state", lambda python: ("2026.1", "") if carried else (None, "ModuleNotFoundError"))
    monkeypatch.setattr(build, "run_step", run_step)
    monkeypatch.setattr(build, "environment", lambda: where)
    monkeypatch.setattr(build, "refuse_without_compiler", lambda: None)
    dry = cudabench("setup-gpu", "--dry-run", "--nvcc")
    assert (dry.code, carried) == (0, [])
    assert "vecadd" not in dry.out
    assert subprocess.run(["sh", "-n"], input=dry.out, text=True, check=False).returncode == 0
    ran = cudabench("setup-gpu")
    assert (ran.code, ran.err) == (0, "")
    assert carried == ["CUDA's headers", "names of libcuda", "PyCUDA"]
    assert ran.out.splitlines()[-1] == (
        "Kernels were not run, because this machine lacks an NVIDIA driver: "
        "run 'cudabench setup-gpu' again on the machine with the GPU."
    )
    assert cudabench("setup-gpu", "--find-links", "nowhere").code == 2


@pytest.mark.parametrize("driver", [NO_DRIVER, DRIVER], ids=["no driver", "driver"])
def test_a_foreign_environment_waits_for_yes(
    cudabench: Runner, monkeypatch: pytest.MonkeyPatch, where: build.Environment, driver: probe.Component
) -> None:
    """Outside a virtual environment setup-gpu installs nothing without --yes, with a driver and without."""
    monkeypatch.setattr(probe, "driver", lambda: driver)
    monkeypatch.setattr(build, "state", lambda python: (None, "ModuleNotFoundError"))
    monkeypatch.setattr(build, "run_step", lambda *all: pytest.fail("nothing is to run"))
    monkeypatch.setattr(build, "environment", lambda: replace(where, kind="system", managed=True))
    ran = cudabench("setup-gpu")
    assert (ran.code, ran.out) == (2, "")
    assert "is managed by the system's packages" in ran.err
    assert "--yes installs here anyway" in ran.err
    assert cudabench("setup-gpu", "--dry-run").code == 0


def test_second_call_only_checks(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """If PyCUDA loads, nothing is installed; the first kernel runs again, and its bandwidth is printed."""
    first = {"device": {"name": "NVIDIA H200\x1b[2J"}, "results": [{"bandwidth_gbps": 3705.4, "status": "ok"}]}
    check = build.Step("first kernel", "vecadd", f"echo {shlex.quote(json.dumps(first))} > $work/first.json")
    monkeypatch.setattr(probe, "driver", lambda: DRIVER)
    monkeypatch.setattr(build, "state", lambda python: ("2026.1", ""))
    monkeypatch.setattr(build, "check_step", lambda python: check)
    ran = cudabench("setup-gpu")
    assert ran.code == 0, ran.err
    assert "PyCUDA 2026.1 is in" in ran.out
    assert "1/1 first kernel" in ran.out
    assert "ran on NVIDIA H200\\x1b[2J and was verified: 3705 GB/s" in ran.out


def test_an_environment_that_means_harm(
    cudabench: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: build.Environment
) -> None:
    """Control codes in names of folders and versions are escaped, a compiler with an unmatched quotation mark is
    refused, a log's long line is cut, and a folder of wheels stays one word of the script."""
    evil = "x\x1b[2J\n::error::y"
    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", problem=evil, repair="none"))
    monkeypatch.setattr(build, "state", lambda python: (evil, ""))
    monkeypatch.setattr(build, "environment", lambda: replace(where, prefix=f"/opt/{evil}"))
    ran = cudabench("setup-gpu")
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out
    assert not any(line.startswith("::") for line in ran.out.splitlines())
    monkeypatch.setenv("CXX", 'g++ "')
    with pytest.raises(UsageError, match="quotation marks do not match"):
        build.refuse_without_compiler()
    assert len(build.reason("error: " + "no " * 9999)) < 500
    wheels = tmp_path / "it's\n$(touch owned); touch owned #"
    wheels.mkdir()
    (step, *_) = build.build_steps(replace(where, installer=("echo",)), str(wheels), again=False)
    said = subprocess.run(["sh", "-euc", step.script], cwd=tmp_path, env={"work": "w"}, capture_output=True, text=True)
    assert str(wheels) in said.stdout
    assert not (tmp_path / "owned").exists()


def test_broken_pycuda_is_built_anew(
    cudabench: Runner, monkeypatch: pytest.MonkeyPatch, where: build.Environment
) -> None:
    """A PyCUDA that does not load is built again; if it still does not load, the error gives the loader's message."""
    ran_steps: list[str] = []

    def run_step(step: build.Step, work: Path) -> tuple[float, str]:
        ran_steps.append(step.script)
        return 61.0, ""

    monkeypatch.setattr(probe, "driver", lambda: NO_DRIVER)
    monkeypatch.setattr(probe, "pycuda", lambda: probe.Component("PyCUDA", version="2026.1"))
    monkeypatch.setattr(build, "state", lambda python: (None, "ImportError: libcurand.so.10: not there"))
    monkeypatch.setattr(build, "refuse_without_compiler", lambda: None)
    monkeypatch.setattr(build, "run_step", run_step)
    monkeypatch.setattr(build, "environment", lambda: where)
    ran = cudabench("setup-gpu")
    assert "does not load (ImportError: libcurand.so.10: not there), so it is built again" in ran.out
    assert "3/3 PyCUDA: built here, in one to five minutes ... 61 s" in ran.out
    assert "--force-reinstall" in ran_steps[-1]
    assert ran.code == 5
    assert "libcurand.so.10" in ran.err


def test_state_of_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyCUDA counts as installed if it loads or lacks only the driver; otherwise the reason is returned."""
    package = tmp_path / "pycuda"
    package.mkdir()
    (package / "__init__.py").write_text("VERSION_TEXT = '2026.1'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for body, version in (
        ("", "2026.1"),
        ("raise ImportError('libcuda.so.1: cannot open shared object file')", "2026.1"),
        ("raise ImportError('libcurand.so.10: cannot open shared object file')", None),
        ("import os; os.abort()", None),
    ):
        (package / "_driver.py").write_text(body + "\n")
        found, why = build.state(sys.executable)
        assert found == version
        assert bool(why) == bool(body)


def test_info_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has only the driver, `info` recommends setup-gpu."""
    monkeypatch.setattr(probe, "find_spec", lambda name: None)
    assert "cudabench setup-gpu" in (probe.pycuda().repair or "")


@pytest.mark.build
def test_the_build(tmp_path: Path) -> None:
    """In a fresh environment PyCUDA builds against the wheels' headers, and it loads."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", ROOT], check=True)
    ran = subprocess.run(
        [tmp_path / "venv" / "bin" / "cudabench", "setup-gpu", "-v"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert build.state(str(python))[0], ran.stdout


@pytest.mark.gpu
def test_first_kernel_on_a_gpu() -> None:
    """On a machine with PyCUDA, setup-gpu runs a kernel, verifies it, and prints its bandwidth."""
    ran = subprocess.run(
        [sys.executable, "-m", "cudabench", "setup-gpu"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=dict(os.environ),
    )
    assert ran.returncode == 0, ran.stderr
    assert "and was verified:" in ran.stdout
