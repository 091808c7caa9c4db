"""The CUDA runtime for programs: the behaviour of its calls, and an entry point for every function."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cudabench.compile import toolkit
from cudabench.system import native

pytestmark = [
    pytest.mark.skipif(toolkit.nvcc() is None, reason="needs nvcc and a C++ compiler"),
    pytest.mark.skipif(native.library() is None, reason="needs the native engine"),
]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a program from its source with `cudabench exec`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cudabench", "exec", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def exported(library: Path) -> set[str]:
    """Return the names of the CUDA functions that a library exports."""
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        assert section is not None
        symbols = list(section.iter_symbols())  # type: ignore[attr-defined]
    return {one.name for one in symbols if one["st_shndx"] != "SHN_UNDEF" and one.name.lstrip("_").startswith("cuda")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["runtime.cu", "graphs.cu"])
def test_calls_do_as_on_a_gpu(name: str) -> None:
    """A program that checks the runtime's calls passes, without a hazard."""
    done = run(HERE / name)
    assert "PASSED" in done.stdout, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["managed.cu", "conditions.cu"])
def test_rare_parts_do_as_on_a_gpu(name: str) -> None:
    """Managed variables have one address on host and device, can be passed as symbols, and outlast a reset. Graphs have
    branches and loops, whose conditions kernels set."""
    done = run(HERE / name)
    assert "PASSED" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "early"], 3, ["sees 1", "then 7", "host-read-before-wait", "waits.cu:18"]),
        (["--", "small"], 3, ["sees 1", "then 7", "host-read-before-wait"]),
        (["--", "waited"], 0, ["sees 7", "then 7"]),
        (["--", "spin"], 0, ["saw 7"]),
        (["--", "beside"], 0, ["beside 51"]),
        (["--", "order"], 0, ["order 123"]),
        (["--schedule", "reverse", "--", "order"], 0, ["order 321"]),
    ],
)
def test_queues_run_when_somebody_waits(words: list[str], code: int, said: list[str]) -> None:
    """A queued copy runs when the host waits for it; a read before the wait is a finding; a host that spins without a
    call still sees the data; a launch reads what the host writes to managed memory before the wait."""
    done = run(HERE / "waits.cu", *words)
    text = done.stdout + done.stderr
    assert [one for one in said if one not in text] == [], text
    assert done.returncode == code


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--schedule", "reverse")])
def test_launches_go_on_until_one_fails(options: tuple[str, ...]) -> None:
    """The host goes on after a launch. Launches run and print in their order; after one that fails none runs, and the
    next call that waits returns its error."""
    done = run(HERE / "waits.cu", *options, "--", "ahead")
    lines = done.stdout.splitlines()
    printed = [line for line in lines if line.startswith("launch ")]
    assert printed == [f"launch {number} after {number - 1}" for number in range(1, 1502)]
    said = [line for line in lines if line.startswith(("launched ", "waited ", "copied "))]
    assert said == ["launched 0", "waited 700", "copied 700"]
    assert done.returncode == 3, done.stderr


def test_no_name_is_absent() -> None:
    """The runtime exports every function of the toolkit's runtime, if only to return that it is not supported."""
    headers = toolkit.headers()
    found = sorted(headers.parent.glob("lib*/libcudart.so.13")) if headers else []
    if not found:
        pytest.skip("the toolkit has no libcudart.so.13")
    for name in native.RUNTIMES:
        assert exported(found[0]) <= exported(native.runtimes() / name)


@pytest.mark.slow
def test_a_call_that_is_lacking_is_named(tmp_path: Path) -> None:
    """A call that the runtime lacks returns cudaErrorNotSupported, and the final report has the number of calls."""
    source = tmp_path / "lacks.cu"
    source.write_text(
        "#include <cstdio>\n"
        "int main() { cudaIpcMemHandle_t handle; int *d; cudaMalloc(&d, 4);\n"
        '  for (int i = 0; i < 3; i++) printf("%d ", cudaIpcGetMemHandle(&handle, d));\n'
        "  cudaFree(d); }\n"
    )
    done = run(source)
    assert "801 801 801" in done.stdout
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "cudaIpcGetMemHandle" in line]
    assert "3" in line


@pytest.mark.slow
def test_a_call_that_is_lacking_is_named_after_a_crash(tmp_path: Path) -> None:
    """If a program ends by a signal after a call that the runtime lacks, the report names the call."""
    source = tmp_path / "crash.cu"
    source.write_text(
        "#include <cstdlib>\n"
        "int main() { cudaIpcMemHandle_t handle; cudaIpcGetMemHandle(&handle, nullptr); abort(); }\n"
    )
    done = run(source)
    assert "lacks cudaIpcGetMemHandle: it was called once" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_program_alone_has_no_device(tmp_path: Path) -> None:
    """Without `cudabench exec` the runtime finds no device, and prints once that the program needs `cudabench exec`."""
    source = tmp_path / "alone.cu"
    source.write_text("int main() { int count; return cudaGetDeviceCount(&count) + count; }\n")
    built = subprocess.run(
        [str(toolkit.nvcc()), "-cudart", "shared", "-o", tmp_path / "alone", source], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    environment = {**os.environ, "LD_LIBRARY_PATH": str(native.runtimes())}
    done = subprocess.run([tmp_path / "alone"], capture_output=True, text=True, env=environment)
    assert done.returncode == 100
    assert done.stderr.count("cudabench exec") == 1
