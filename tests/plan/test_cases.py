"""From request to launches: selection of kernels, geometry, and every mistake that is found before a kernel runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench import operations
from cudabench.errors import CudabenchError, UsageError
from cudabench.measure import run
from cudabench.operations import transpose
from cudabench.plan import cases, chapters
from cudabench.plan.cases import Request
from cudabench.records.plan import Case
from cudabench.source.files import parse_text, without_kernels

TRANSPOSE = operations.get("transpose")


def names(*wanted: str) -> list[str]:
    """Return the names of the kernels that a selection matches."""
    return [kernel.name for kernel, _ in cases.select_kernels(TRANSPOSE, wanted)]


def test_original_ids() -> None:
    """The ids 0 to 4 are those of the original program."""
    assert [kernel.name for kernel in TRANSPOSE.kernels[:5]] == [
        "copy-row",
        "naive-row",
        "smem",
        "smem-pad",
        "smem-unroll-pad",
    ]


def test_selection() -> None:
    """A name, id, glob or 'all' selects kernels; no selection means the whole ladder; a kernel named twice runs
    once."""
    ladder = [kernel.name for kernel in TRANSPOSE.kernels]
    assert names("smem-pad") == names("3") == names("transpose_smem_pad") == ["smem-pad"]
    assert names("smem*") == ["smem", "smem-pad", "smem-unroll-pad"]
    assert names() == names("all") == ladder
    assert names("3", "smem-pad", "0") == ["smem-pad", "copy-row"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("smem-pda", "Did you mean 'smem-pad'"),
        ("99", "ids are 0 to"),
        ("zz*", "No kernel of transpose matches 'zz*'"),
    ],
)
def test_unknown_kernel(wanted: str, message: str) -> None:
    """The error for an unknown kernel names it, and suggests existing kernels."""
    with pytest.raises(UsageError, match=message.replace("*", r"\*")):
        names(wanted)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(block=(64, 32)), "2048 threads; CUDA allows 1024 a block, such as 64 x 16"),
        (Request(block=(0, 8)), "each dimension must be at least 1"),
        (Request(block=(-32, 8)), "each dimension must be at least 1"),
        (Request(block=(2048,)), "2048 threads"),
        (Request(size=(0, 5)), "out of range"),
        (Request(size=(5, -1)), "out of range"),
        (Request(size=(1, 2, 3)), "takes ROWS COLS"),
        (Request(size=(2**31, 1)), "out of range"),
        (Request(dtype="float23"), "Did you mean 'float32'"),
        (Request(kernels=("naive-row",), grid=(1, 1)), "it takes 128 x 512; leave --grid out"),
        (Request(kernels=("naive-row",), grid=(0, 1)), "each dimension must be at least 1"),
        (Request(kernels=("naive-row",), size=(10**6, 1), block=(32, 1)), "CUDA allows at most 65535"),
        (Request(kernels=("naive-row",), grid=(128, 65536)), "CUDA allows at most 65535"),
    ],
)
def test_bad_request(request_: Request, message: str) -> None:
    """Each mistake gives one message with the value, the rule and the repair."""
    with pytest.raises(UsageError, match=message):
        cases.build(TRANSPOSE, request_)


def test_only_what_is_asked_for_is_compiled() -> None:
    """A case compiles only the requested kernels of its chapter, with all their launches; a whole ladder compiles the
    whole chapter."""

    def kernels(case: Case) -> list[str]:
        return [kernel.name for kernel in parse_text(case.source.text, "").kernels]

    operation = operations.get("pi")
    (fused,) = cases.build(operation, Request(kernels=("fused",)))
    assert sorted(kernels(fused)) == sorted(launch.function for launch in fused.launches)
    assert {case.source for case in cases.build(operation, Request())} == {chapters.read_chapter(operation.source)}
    two = cases.build(TRANSPOSE, Request(kernels=("smem", "swizzle")))
    assert [kernels(case) for case in two] == [["transpose_smem", "transpose_swizzle"]] * 2


@pytest.mark.slow
def test_what_is_compiled_apart_is_compiled_once() -> None:
    """Kernels with different constants are compiled as separate texts; no kernel is in two texts, and together they are
    the chapter."""
    built = cases.build(operations.get("matmul"), Request(size=(96,)))
    texts: dict[str, set[str]] = {}
    by_file: dict[str, list[str]] = {}
    for case in built:
        if not case.skip_reason:
            own = {kernel.name for kernel in parse_text(case.source.text, "").kernels}
            assert {launch.function for launch in case.launches} <= own
            texts[case.source.text] = own
            by_file.setdefault(case.source.name, []).append(case.source.text)
    assert 1 < len(texts) < len(built)
    assert sum(map(len, texts.values())) == len(set().union(*texts.values()))
    for name, parts in by_file.items():
        chapter = chapters.read_chapter(name.removeprefix("kernels_cu/")).text
        whole = without_kernels(chapter, set().union(*(texts[part] for part in parts)))
        assert run.source_listing(parts) == run.source_listing([whole])


def test_grid_is_honoured() -> None:
    """A grid that covers the problem is launched as given."""
    (case,) = cases.build(TRANSPOSE, Request(kernels=("naive-row",), size=(64, 64), grid=(5, 9)))
    assert case.grid == case.launches[0].grid == (5, 9, 1)


def test_one_number_is_a_square() -> None:
    """--size 64 means 64 x 64."""
    (case,) = cases.build(TRANSPOSE, Request(kernels=("0",), size=(64,)))
    assert case.problem.size == {"rows": 64, "cols": 64}


def test_block_reaches_the_compiler() -> None:
    """The block and the element type become macros, and --define overrides the padding that the host chooses."""
    (case,) = cases.build(TRANSPOSE, Request(kernels=("smem-pad",), block=(16, 4), dtype="float64"))
    assert {"T": "double", "BDIMX": "16", "BDIMY": "4"}.items() <= case.defines.items()
    (own,) = cases.build(TRANSPOSE, Request(kernels=("smem-pad",), defines={"IPAD": "7"}))
    assert own.defines["IPAD"] == "7"


@pytest.mark.parametrize(
    ("block", "pad"), [((32, 32), 1), ((32, 8), 4), ((16, 16), 2), ((8, 8), 4), ((64, 4), 8), ((32, 1), 0)]
)
def test_padding_of_float(block: tuple[int, int], pad: int) -> None:
    """For 4-byte elements the padding is the textbook's 1 at 32 x 32, and avoids bank conflicts for other blocks."""
    assert transpose.padding((*block, 1), 4) == pad


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([4, 8]))
def test_padding_frees_powers_of_two(bx: int, by: int, itemsize: int) -> None:
    """With the chosen padding, every power-of-two block of whole warps has no bank conflict."""
    from cudabench.simulator.count.banks import both

    threads = np.arange(bx * by)
    if threads.size % 32:
        return
    row = max(bx, 128 // itemsize)
    pad = transpose.padding((bx, by, 1), itemsize)
    for element in (threads, threads % by * bx + threads // by):
        addresses = ((element + element // row * pad) * itemsize).reshape(-1, 32)
        taken, ideal = both(addresses, itemsize)
        assert (taken == ideal).all()


# A user's file -------------------------------------------------------------------------------------------------------

OWN = """
__global__ void mine(const float *in, float *out, int nx, int ny) { out[0] = in[0]; }
"""


def file(tmp_path: Path, text: str) -> str:
    """Write a source file and return its path."""
    path = tmp_path / "own.cu"
    path.write_text(text)
    return str(path)


def test_own_kernel_gets_one_element_a_thread(tmp_path: Path) -> None:
    """A function that is not a rung gets a grid with one thread per input element, and its own function name."""
    (case,) = cases.build(TRANSPOSE, Request(source=file(tmp_path, OWN), size=(64, 100), block=(32, 8)))
    assert (case.kernel, case.id, case.grid) == ("mine", None, (4, 8, 1))
    assert not case.source.builtin


def test_own_kernel_stands_for_a_rung(tmp_path: Path) -> None:
    """With --kernel, the file's only function gets the name and geometry of that rung."""
    (case,) = cases.build(
        TRANSPOSE, Request(source=file(tmp_path, OWN), kernels=("naive-col",), size=(64, 100), block=(32, 8))
    )
    assert (case.kernel, case.id, case.function, case.grid) == ("naive-col", 6, "mine", (2, 13, 1))


def test_own_kernel_beside_rungs(tmp_path: Path) -> None:
    """A user's function and built-in rungs run in one ladder."""
    both = cases.build(TRANSPOSE, Request(source=file(tmp_path, OWN), kernels=("mine", "naive-row", "vector")))
    assert [(case.kernel, case.source.builtin) for case in both] == [
        ("mine", False),
        ("naive-row", True),
        ("vector", True),
    ]


def test_swapped_pointers_are_told_apart_by_const(tmp_path: Path) -> None:
    """For a signature `(T *out, const T *in, ...)`, const decides which pointer is the input."""
    text = "__global__ void mine(float *b, const float *a, int nx, int ny) {}"
    (case,) = cases.build(TRANSPOSE, Request(source=file(tmp_path, text)))
    assert case.launches[0].arguments[:2] == ("out", "in")


@pytest.mark.parametrize(
    "parameters",
    [
        "const float *in, float *out, int n",
        "const double *in, double *out, int nx, int ny",
        "float a, float *b, int c, int d",
    ],
)
def test_other_parameters_are_refused(tmp_path: Path, parameters: str) -> None:
    """A kernel with other parameters is refused with both signatures and its line."""
    text = f"\n__global__ void mine({parameters}) {{}}"
    with pytest.raises(UsageError, match=r"own\.cu:2: transpose cannot call mine\(.*its kernels take \(const T\* in"):
        cases.build(TRANSPOSE, Request(source=file(tmp_path, text)))


def test_two_kernels_must_be_named(tmp_path: Path) -> None:
    """For a file with two kernels, the error lists both."""
    with pytest.raises(UsageError, match="choose one with --kernel: mine, other"):
        cases.build(TRANSPOSE, Request(source=file(tmp_path, OWN + OWN.replace("mine", "other"))))


def test_missing_source() -> None:
    """The error for a missing file names it."""
    with pytest.raises(CudabenchError, match=r"nope\.cu: no such file"):
        cases.build(TRANSPOSE, Request(source="nope.cu"))


def test_defines() -> None:
    """NAME=VALUE and NAME define macros; other words are refused."""
    assert cases.parse_defines(["A=1", "B", "C=x=y"]) == {"A": "1", "B": "1", "C": "x=y"}
    with pytest.raises(UsageError, match="does not name a macro"):
        cases.parse_defines(["2x=1"])


def test_limits_themselves_are_allowed() -> None:
    """The largest grid and block are launched; a larger z is refused."""
    at = {"kernels": ("naive-row",), "size": (65535, 1)}
    (case,) = cases.build(TRANSPOSE, Request(block=(1024, 1), grid=(1, 65535), **at))  # type: ignore[arg-type]
    assert (case.grid, case.threads) == ((1, 65535, 1), 1024)
    with pytest.raises(UsageError, match="has z = 1024; CUDA allows at most 64"):
        cases.build(TRANSPOSE, Request(block=(1, 1, 1024), **at))  # type: ignore[arg-type]
