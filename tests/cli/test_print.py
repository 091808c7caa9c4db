"""`--print KEY` prints one value of one result, for a shell script, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.errors import UsageError
from cudabench.records import file as results
from cudabench.records.values import ANY, check_key, keys, value, written
from tests.conftest import Ran
from tests.results.test_compare import RECORDED

Runner = Callable[..., Ran]

ONE = ("transpose", "smem-pad", "--size", 33, 127, "--device", "sim", "--no-cpu")
simulated = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


# Keys ----------------------------------------------------------------------------------------------------------------


def test_every_key_of_a_measured_result() -> None:
    """Each key gives the value that the results file has under it, and each single value of the file has a key."""
    (result, *_) = RECORDED.results
    document = json.loads(results.ResultsFile({}, {}, {}, [], [result]).text())["results"][0]

    def leaves(found: object, before: str) -> dict[str, object]:
        if isinstance(found, dict):
            return {key: v for name, item in found.items() for key, v in leaves(item, f"{before}.{name}").items()}
        return {} if isinstance(found, list) else {before[1:]: found}

    wanted = leaves(document, "")
    for key, expected in wanted.items():
        if expected is not None:
            check_key(key)
            assert value(result, key) == expected, key
    assert {"time.median_s", "bandwidth_gbps", "status", "size.rows", "occupancy.fraction"} <= set(wanted)
    assert {"time.samples_s", "warnings", "access", "block"}.isdisjoint(keys())
    assert f"size.{ANY}" in keys()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("bandwith_gbps", "Did you mean 'bandwidth_gbps'?"),
        ("time.medain_s", "Did you mean 'time.median_s'?"),
        ("time", "--print time is several values: name a single value, such as time.median_s"),
        ("access", "--print access is a list; --json writes it whole."),
        ("time.samples_s", "is not a key of a result"),
        ("", "is not a key of a result"),
    ],
)
def test_keys_that_are_none(key: str, message: str) -> None:
    """An unknown key, or a key of several values, is refused with a hint to a valid key."""
    with pytest.raises(UsageError) as caught:
        check_key(key)
    assert message in str(caught.value)


def test_written() -> None:
    """Numbers are printed in full precision; text is printed in one line without control codes."""
    assert written(0.1 + 0.2) == "0.30000000000000004"
    assert written(134217728) == "134217728"
    assert written("a\nb\x1b[2J") == r"a\nb\x1b[2J"


# The command line ----------------------------------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize(
    ("key", "text"), [("status", "ok"), ("size.cols", "127"), ("verification.mismatches", "0"), ("kernel", "smem-pad")]
)
def test_one_value_and_nothing_else(cudabench: Runner, key: str, text: str) -> None:
    """Standard output is the value and a newline."""
    ran = cudabench(*ONE, "--print", key)
    assert (ran.code, ran.out, ran.err) == (0, f"{text}\n", "")


@simulated
def test_beside_a_results_file(cudabench: Runner) -> None:
    """The value is the one in the results file of the same run."""
    ran = cudabench(*ONE, "--print", "instructions", "--json", "r.json")
    assert int(ran.out) == json.loads(Path("r.json").read_text())["results"][0]["instructions"]


@simulated
def test_run(cudabench: Runner, tmp_path: Path) -> None:
    """`run` has --print too: a wrong result prints its status, and a missing value is an error."""
    (tmp_path / "k.cu").write_text("__global__ void k(float *y) { y[threadIdx.x] = 1; }\n")
    words = ("run", "k.cu", "--grid", 1, "--block", 32, "--arg", "y=float32[32]:empty", "--device", "sim", "--no-cpu")
    assert cudabench(*words, "--print", "registers", "--expect", "y=1").out.strip().isdigit()
    ran = cudabench(*words, "--expect", "y=2", "--print", "status")
    assert (ran.code, ran.out) == (3, "wrong\n")
    null = cudabench(*words, "--print", "verification.mismatches")
    assert (null.code, null.out) == (1, "")
    assert "verification.mismatches of k is missing" in null.err


@simulated
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((*ONE, "--print", "bandwith"), 2, "Did you mean 'bandwidth_gbps'?"),
        ((*ONE, "--print", "bandwidth_gbps"), 5, "--print bandwidth_gbps needs a GPU"),
        ((*ONE, "--print", "time.median_s"), 5, "needs a GPU"),
        ((*ONE, "--print", "size.n"), 2, "'n' is unknown; use one of rows, cols."),
        ((*ONE, "--print", "status", "--json", "-"), 2, "both write to standard output"),
        (
            ("transpose", "-k", "smem*", "--size", 33, 127, "--device", "sim", "--print", "status"),
            2,
            "prints one result",
        ),
        (("transpose", "--size", 33, 127, "--device", "sim", "--print", "status"), 2, "15 results, of copy-row"),
    ],
)
def test_refusals(cudabench: Runner, words: tuple[object, ...], code: int, text: str) -> None:
    """An unknown key, several results, or a value that the simulator does not have gives one error and no output."""
    ran = cudabench(*words)
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
