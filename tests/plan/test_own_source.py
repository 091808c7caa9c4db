"""--source for every operation: the user's kernel replaces one launch, and the chapter's kernels stay for the
others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudabench import operations
from cudabench.devices.protocol import Linked
from cudabench.errors import UsageError
from cudabench.measure.gpu_run import load_module
from cudabench.plan import cases, chapters
from cudabench.plan.cases import Request
from cudabench.records.plan import Operation
from cudabench.source.files import parse_text, without_kernels
from tests.ladders import needs_compiler

OPERATIONS = [operations.get(name) for name in operations.SUMMARIES]


def rung(operation: Operation) -> str:
    """Return the chapter with only the kernel of the plain rung, renamed `mine`."""
    text = chapters.read_chapter(operation.source).text
    only = without_kernels(text, {operation.plain.function})
    return re.sub(rf"\b{operation.plain.function}\b", "mine", only)


def spoilt(operation: Operation) -> str:
    """Return the same text with an empty kernel body."""
    text = rung(operation)
    (kernel,) = parse_text(text, "").kernels
    body = text.index("{", text.index("(", text.index("mine(", kernel.start)))
    return text[: body + 1] + "}" + text[kernel.end :]


def size(operation: Operation) -> tuple[int, ...]:
    """Return a small awkward size."""
    return {1: (37,), 2: (37, 41), 3: (37, 41, 43)}[len(operation.dimensions)]


@pytest.mark.sampled(18)
@needs_compiler
@pytest.mark.parametrize(("text", "code"), [(rung, 0), (spoilt, 3)])
@pytest.mark.parametrize(
    "operation",
    [pytest.param(each, id=each.name, marks=pytest.mark.slow if each.name == "solve" else ()) for each in OPERATIONS],
)
def test_a_users_kernel_is_verified(
    cudabench: Callable[..., Any], operation: Operation, text: Callable[[Operation], str], code: int
) -> None:
    """In every operation, a correct kernel of a user passes and an empty one is wrong."""
    Path("mine.cu").write_text(text(operation))
    ran = cudabench(
        operation.name, "--source", "mine.cu", "-s", *size(operation), "-d", "sim", "--no-cpu", "--json", "-"
    )
    (result,) = ran.json["results"]
    assert (ran.code, result["kernel"], result["status"]) == (code, "mine", "wrong" if code else "ok")


def own(tmp_path: Path, name: str, text: str, *kernels: str, **request: Any) -> Any:
    """Return the case of a user's file with this text."""
    path = tmp_path / "own.cu"
    path.write_text(text)
    operation = operations.get(name)
    options = {option.name: option.default for option in operation.options}
    (case,) = cases.build(
        operation, Request(source=str(path), kernels=kernels, size=size(operation), options=options, **request)
    )
    return case


@pytest.mark.parametrize(
    ("name", "parameters", "taken"),
    [
        ("transpose", "const float *in, float *out, int ny, int nx", ("in", "out", 37, 41)),
        ("transpose", "float *dst, const float *src, int rows, int cols", ("out", "in", 37, 41)),
        ("transpose", "float *d_idata, float *d_odata, int width, int height", ("in", "out", 41, 37)),
        ("transpose", "float *y, const float *x, int nx, int ny", ("out", "in", 41, 37)),
        ("transpose", "float *a, float *b, int p, int q", ("in", "out", 41, 37)),
        ("vecadd", "float *z, const float *x, const float *y, int n", ("c", "a", "b", 37)),
        ("vecadd", "float *c, const float *b, const float *a, int count", ("c", "b", "a", 37)),
        ("matmul", "const float *B, const float *A, float *C, int M, int N, int K", ("b", "a", "c", 37, 43, 41)),
    ],
)
def test_parameters_are_bound_by_their_names(
    tmp_path: Path, name: str, parameters: str, taken: tuple[Any, ...]
) -> None:
    """A parameter takes the argument of its name or meaning; else an array goes by const, and the rest by place."""
    case = own(tmp_path, name, f"__global__ void mine({parameters}) {{}}")
    assert case.launches[0].arguments == taken


@pytest.mark.parametrize(
    ("parameters", "pairs"),
    [
        ("const float *in, float *out, int p, int q", "p as nx, q as ny"),
        ("const float *in, float *out, int m, int n", "m as ny, n as nx"),
        ("float *a, float *b, int nx, int ny", "a as in, b as out"),
        ("const float *in, float *out, int nx, int ny", ""),
    ],
)
def test_a_wrong_kernel_says_what_it_was_called_with(
    cudabench: Callable[..., Any], parameters: str, pairs: str
) -> None:
    """If names do not tell the arguments and the result is wrong, a warning names the pairs that were chosen."""
    Path("mine.cu").write_text(f"__global__ void mine({parameters}) {{}}")
    ran = cudabench("transpose", "--source", "mine.cu", "-s", 3, 4, "-d", "sim", "--no-cpu")
    assert ran.code == 3
    assert (f"called with {pairs}, by" in " ".join(ran.err.split())) is bool(pairs)
    assert ("called with" in ran.err) is bool(pairs)


@needs_compiler
def test_a_limit_of_the_checks_is_not_a_cause(cudabench: Callable[..., Any]) -> None:
    """A wrong kernel with too many threads for the search of races between blocks does not name that as the cause."""
    Path("mine.cu").write_text(
        "__global__ void mine(const float *in, float *out, int nx, int ny) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "  if (i < nx && j < ny) out[j * nx + i] = in[j * nx + i]; }\n"
    )
    ran = cudabench("transpose", "--source", "mine.cu", "-s", 1024, 2048, "-d", "sim", "--no-cpu", "--on", "none")
    said = ran.out + ran.err
    assert (ran.code, "wrong elements" in said) == (3, True), said
    assert "perhaps because" not in said


SUM = 'extern "C" __global__ void mine(double *partial, int n) {}'


def test_each_launch_names_its_source(tmp_path: Path) -> None:
    """The replaced launch comes from the user's file, the other launches from the chapter with all macros."""
    case = own(tmp_path, "pi", SUM)
    assert [(launch.function, launch.unit is None) for launch in case.launches] == [
        ("mine", True),
        ("pi_finish", False),
    ]
    mine, chapter = case.parts
    assert (mine.source.builtin, mine.defines) == (False, {})
    assert (chapter.source.name, chapter.function) == ("kernels_cu/pi.cu", "pi_finish")
    assert chapter.defines == {"T": "float", "BDIMX": "256", "BDIMY": "1"}
    assert "pi_block" not in chapter.source.text


def test_a_later_launch_can_be_replaced(tmp_path: Path) -> None:
    """A function with the name of a launch replaces that launch, even if it is not the rung's first."""
    text = 'extern "C" __global__ void pi_finish(const double *partial, float *out, int blocks, int n) {}'
    case = own(tmp_path, "pi", text)
    assert [(launch.function, launch.unit is None) for launch in case.launches] == [
        ("pi_block", False),
        ("pi_finish", True),
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "kernel", "parameters", "message"),
    [
        ("pi", "steps", "float *partial, int n", r"pi_steps of steps takes \(double\* partial, int n\)"),
        ("solve", "fused", "float *ab, int n", r"solve_fused of fused takes \(T\* ab, const T\* peak"),
        ("distance", "single-pass", "const float *a, const float *b, float *partial, int n", "distance_single_pass of"),
        ("matvec", "short", "const float *A, const float *x, float *y, int r, int c, int p", "matvec_short of short"),
        ("vecadd", "naive", "const float *a, const float *b, float *c, float n", "vecadd cannot call mine"),
    ],
)
def test_parameters_are_checked_against_the_rung(
    tmp_path: Path, name: str, kernel: str, parameters: str, message: str
) -> None:
    """A user's function must have the parameters of the launch that it replaces."""
    with pytest.raises(UsageError, match=message):
        own(tmp_path, name, f'extern "C" __global__ void mine({parameters}) {{}}', kernel)


def test_a_rungs_own_parameters_are_taken(tmp_path: Path) -> None:
    """For a rung with special parameters, the user's function takes those parameters."""
    parameters = "const float *A, const float *x, float *y, int rows, int cols, int pitch, int lanes"
    case = own(tmp_path, "matvec", f'extern "C" __global__ void mine({parameters}) {{}}', "short")
    assert (case.launches[0].function, len(case.launches[0].arguments)) == ("mine", 7)


def test_constants_of_a_users_file_shape_the_launch(tmp_path: Path) -> None:
    """A user's file with another TILE gets the grid for that tile; a TILE that is not a number is ignored."""
    head = 'extern "C" __global__ void mine(const float *in, float *out, int nx, int ny) {}\n'
    plain = own(tmp_path, "transpose", head, "tile-rows")
    smaller = own(tmp_path, "transpose", "#define TILE 8\n" + head, "tile-rows")
    strange = own(tmp_path, "transpose", "#define TILE blockDim.x\n" + head, "tile-rows")
    given = own(tmp_path, "transpose", head, "tile-rows", defines={"TILE": "16"})
    assert [case.grid for case in (plain, smaller, strange, given)] == [(2, 2, 1), (6, 5, 1), (2, 2, 1), (3, 3, 1)]


@pytest.mark.slow
@needs_compiler
def test_a_copy_of_a_chapter_with_its_header(cudabench: Callable[..., Any]) -> None:
    """A user's copy of a chapter runs with its copy of the header, and the launch uses the header's constants."""
    for name in ("transpose_fast.cu", "vectors.cuh"):
        Path(name).write_text(chapters.read_chapter(name).text)
    words = ["transpose", "--source", "transpose_fast.cu", "-k", "vector", "-s", 5, 70, "-d", "sim", "--no-cpu"]
    ran = cudabench(*words, "--json", "-")
    (result,) = ran.json["results"]
    assert (ran.code, result["chosen"]["VTILE_Y"]) == (0, "8")
    assert {(row["file"], "to.at[0] = *from" in row["source"]) for row in result["access"]} == {
        ("", False), ("vectors.cuh", False), ("vectors.cuh", True),
    }  # fmt: skip
    header = Path("vectors.cuh")
    header.write_text(header.read_text().replace("(16 / (int)sizeof(T))", "(8 / (int)sizeof(T))"))
    assert cudabench(*words).code != 0


@needs_compiler
def test_a_detour_is_marked(cudabench: Callable[..., Any]) -> None:
    """`list` and the table mark kernels that are detours, and mark nothing in a ladder without detours."""
    marked = [k.name for k in operations.get("transpose").kernels if k.detour]
    assert marked == ["copy-col", "naive-col", "naive-col-unroll", "diagonal-row", "diagonal-col", "ragged"]
    listed = [line.split()[1] for line in cudabench("list", "transpose").out.splitlines() if "(detour)" in line]
    assert listed == marked
    assert "etour" not in cudabench("list", "vecadd").out
    ran = cudabench("transpose", "-k", "copy-col", "-k", "smem", "-s", 33, 31, "-d", "sim", "--no-cpu")
    assert [line.split()[1] for line in ran.out.splitlines() if line.rstrip().endswith("detour")] == ["copy-col"]


def test_a_gpu_loads_a_module_for_each_source(tmp_path: Path) -> None:
    """Each source is compiled once with its functions, and each function is found in its module."""
    loaded = []

    class Device:
        def load(self, text: Any, defines: Any, names: Any) -> Any:
            loaded.append((text.name.rsplit("/", 1)[-1], list(names)))

            class Module:
                def function(self, name: str) -> tuple[str, str]:
                    return (text.name.rsplit("/", 1)[-1], name)

            return Module()

    module = load_module(Device(), own(tmp_path, "pi", SUM))  # type: ignore[arg-type]
    assert loaded == [("own.cu", ["mine"]), ("pi.cu", ["pi_finish"])]
    assert isinstance(module, Linked)
    assert (module.function("mine"), module.function("pi_finish")) == (("own.cu", "mine"), ("pi.cu", "pi_finish"))
