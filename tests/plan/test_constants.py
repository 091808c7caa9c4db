"""The constants of the chapters: read from the source, set by --define for host and device, refused if invalid."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench import operations
from cudabench.errors import UsageError
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.plan import cases, chapters, constants
from cudabench.plan.cases import Request
from cudabench.plan.constants import Constants, Macro, NotANumber
from cudabench.records.plan import Case, Kernel, Operation, Settings
from tests.ladders import needs_compiler, simulator

OPERATIONS = [operations.get(name) for name in operations.SUMMARIES]
SETTABLE = [
    pytest.param(operation, kernel, name, id=f"{operation.name}-{kernel.name}-{name}")
    for operation in OPERATIONS
    for kernel in operation.kernels
    for name in kernel.constants
]
KERNELS = [
    pytest.param(operation, kernel, id=f"{operation.name}-{kernel.name}")
    for operation in OPERATIONS
    for kernel in operation.kernels
]
TRIED = (*range(1, 10), 12, 16, 20, 24, 32, 40, 64, 96, 128, 256, 512, 1024)
AWKWARD = (67, 70, 133)  # the first sizes for an operation of two or three dimensions
DEVICE = simulator(assembled=False)


def build(operation: Operation, kernel: Kernel, **request: Any) -> Case:
    """Return a kernel's case at an awkward size."""
    size = AWKWARD[: len(operation.dimensions)] if len(operation.dimensions) > 1 else (2**14 + 77,)
    size = (70,) if operation.name == "solve" else size
    options = {option.name: option.default for option in operation.options}
    asked: dict[str, Any] = {"size": size, "options": options, "kernels": (kernel.name,)}
    asked["dtype"] = kernel.dtypes[0] if kernel.dtypes else None
    (case,) = cases.build(operation, Request(**(asked | request)))
    return case


def legal(operation: Operation, kernel: Kernel, name: str) -> list[int]:
    """Return the tried values that the kernel accepts, except its default."""
    problem = build(operation, kernel).problem
    block = (*kernel.block, 1, 1)[:3]
    own = cases.geometry(operation, kernel, problem, block)[name]  # type: ignore[arg-type]
    taken = []
    for value in TRIED:
        try:
            build(operation, kernel, defines={name: str(value)})
        except UsageError:
            continue
        taken.append(value)
    return [value for value in taken if value != own]


# Every constant of every kernel -------------------------------------------------------------------------------------


def together(operation: Operation, kernel: Kernel) -> list[dict[str, str]]:
    """Return values for all constants of a kernel, alternately the least and the greatest accepted, in as few cases as
    possible."""
    groups: list[dict[str, str]] = []
    for at, name in enumerate(kernel.constants):
        taken = legal(operation, kernel, name)
        assert taken, f"{kernel.name} takes no other value of {name}"
        value = str(taken[-(at % 2)])
        for group in groups:
            with suppress(UsageError):
                build(operation, kernel, defines=group | {name: value})
                group[name] = value
                break
        else:
            groups.append({name: value})
    return groups


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("operation", "kernel"), [one for one in KERNELS if one.values[1].constants])
def test_other_values_are_right(operation: Operation, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the least or greatest accepted value of each constant, a kernel is right."""
    monkeypatch.setenv("CUDABENCH_COMPILE_TIMEOUT", "600")  # a busy machine is slow
    groups = together(operation, kernel)
    assert {name for group in groups for name in group} == {*kernel.constants}
    for group in groups:
        case = build(operation, kernel, defines=group)
        assert case.defines.items() >= group.items()
        run = SimulatedRun(operation, case.problem, Settings(cpu=False, timeout=600), DEVICE, disassemble=False)
        result = run.measure(case)
        assert (group, result.status, result.reason) == (group, "ok", None)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("operation", "kernel", "name"), SETTABLE)
@pytest.mark.parametrize("text", ["-1", "1000000", "1 +", "4.5", "nothing"])
def test_what_is_no_value_is_refused(operation: Operation, kernel: Kernel, name: str, text: str) -> None:
    """A value out of range, or one that is not a whole number, is a usage error that names constant and value."""
    with pytest.raises(UsageError, match=rf"--define {name}={text.replace('+', '[+]')}") as refused:
        build(operation, kernel, defines={name: text})
    assert refused.value.exit_code == 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_constant_is_some_kernels(operation: Operation) -> None:
    """Every constant that a chapter lets a user set has a rule in a kernel, or is set by an option."""
    macros = [chapters.macros(chapters.read_chapter(name)) for name in chapters.names(operation)]
    settable = {name for chapter in macros for name, macro in chapter.items() if macro.guarded}
    problem = build(operation, operation.kernels[0]).problem
    by_option = {"T", "BDIMX", "BDIMY", *operation.defines(problem)}
    ruled = {name for kernel in operation.kernels for name in kernel.constants}
    assert settable - by_option == ruled


# Host and device use the same constants -----------------------------------------------------------------------------


@pytest.mark.parametrize(("stages", "nbytes"), [(None, 3), (2, 2), (4, 4)])
def test_shared_memory_follows_the_stages(stages: int | None, nbytes: int) -> None:
    """With another number of stages, the launch gets the shared memory that these stages need."""
    matmul = operations.get("matmul")
    defines = {} if stages is None else {"STAGES": str(stages)}
    (case,) = cases.build(matmul, Request(kernels=("warp-tile",), size=(64, 64, 64), defines=defines))
    assert case.dynamic_shared_bytes == nbytes * 16 * (2 * 64 + 4 + 4 * 64) * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("matmul -k warp-tile -D STAGES=1", "STAGES=1 is refused: warp-tile takes 2 to 16"),
        ("matmul -k warp-tile -D STAGES=16", "388 KiB of shared memory"),
        ("matmul -k vector -D TM=6", "takes a multiple of 4 from 1 to 32"),
        ("matmul -k warp-tile -D WTM=32 -D WTN=16", "512 registers per thread, but there are 255"),
        ("matmul -k warp-tile -D WARPS_N=3", "a divisor of the block's 8 warps"),
        ("matmul -k warp-tile -D WARPS_N=0", "takes 1 to 8"),
        ("matmul -k warp-tile -D WTK=0", "takes 1 to 128"),
        ("transpose -k swizzle -D TILE=24", "a power of two"),
        ("transpose -k tile-rows -D TILE=128", "64 KiB of shared memory, but a block has 48 KiB"),
        ("solve -k blocked -D WIDEST=16 -D PANEL=128", "256 or more"),
        ("blur -k strip --radius 7 --channels 4 -D BYTES=4", "reaches over all 32 lanes"),
        ("matmul -D STAGE=4", "is not a constant of matmul: .*Did you mean 'STAGES'"),
        ("matmul -D WTILE_M=64", "follows from other constants and cannot be set"),
        ("blur -D RADIUS=3", "--radius sets RADIUS"),
        ("transpose -D BDIMX=8", "--block sets BDIMX"),
        ("pi -D T=double", "--dtype sets T"),
        ("vecadd -D VEC=2", "it has no constants"),
    ],
)
def test_refusals_at_the_shell(cudabench: Callable[..., Any], words: str, message: str) -> None:
    """A value that a kernel cannot take ends with exit code 2 and the rule."""
    ran = cudabench(*words.split(), "-s", 64, "-d", "sim", "-q")
    assert ran.code == 2
    assert re.search(message, " ".join(ran.err.split()))


def test_a_ladder_leaves_out_what_cannot_take_a_constant() -> None:
    """A constant goes to the kernels that have it; a kernel that cannot take the value is skipped, and the others
    run."""
    ladder = cases.build(operations.get("transpose"), Request(size=(64, 64), defines={"TILE": "24"}))
    assert [case.kernel for case in ladder if case.skip_reason] == ["swizzle"]
    assert [case.kernel for case in ladder if "TILE" in case.defines] == ["tile-rows"]


# Reading C's arithmetic ---------------------------------------------------------------------------------------------

TEXT = """
#ifndef STAGES
#define STAGES (sizeof(T) == 4 ? 3 : 2)  // steps (of three)
#endif
#ifndef OTHER
#endif
#define PLAIN 4 /* no
#define HIDDEN 5 */
#define VEC (16 / (int)sizeof(T))
#define SQUARE(x) ((x) * (x))
#define BOTH(a, b) (SQUARE(a) + b)
#define LONG 1 + \\
    2
#define HEX 0x10u
#define SHIFTED (1 << 2 + 3 >> 1)
#define NEGATIVE (-7 / 2)
#define REST (-7 % 4)
#define LAZY (0 && 1 / 0 || 1)
#define NEVER (1 / 0)
#define CIRCLE (ROUND + 1)
#define ROUND (CIRCLE)
#define CODE { return; }
"""


def of(text: str, itemsize: int = 4, **defines: str) -> Constants:
    """Return the constants of a text."""
    return Constants(constants.read_macros(text), defines, itemsize)


def test_macros_are_read() -> None:
    """The reader finds names, parameters and guards; it skips comments and macros of several lines."""
    macros = constants.read_macros(TEXT)
    assert macros["STAGES"] == Macro("(sizeof(T) == 4 ? 3 : 2)", None, True)
    assert macros["SQUARE"] == Macro("((x) * (x))", ("x",), False)
    assert "HIDDEN" not in macros
    assert "LONG" not in macros
    assert [name for name, macro in macros.items() if macro.guarded] == ["STAGES"]


def test_values() -> None:
    """Values follow C: casts, sizeof, division towards zero, and short-circuit evaluation."""
    values = of(TEXT)
    assert [values[name] for name in ("STAGES", "VEC", "HEX", "NEGATIVE", "REST", "LAZY", "SHIFTED")] == [
        3,
        4,
        16,
        -3,
        -3,
        1,
        16,
    ]
    assert (of(TEXT, 8)["STAGES"], of(TEXT, 8)["VEC"], of(TEXT, STAGES="2 * 3")["STAGES"]) == (2, 2, 6)
    assert (values.call("SQUARE", 5), values.call("BOTH", 2, 3)) == (25, 7)


@pytest.mark.parametrize("name", ["NEVER", "CIRCLE", "CODE", "SQUARE"])
def test_what_has_no_value(name: str) -> None:
    """A macro that is not a number, or is defined by itself, raises NotANumber."""
    with pytest.raises(NotANumber):
        of(TEXT)[name]


def test_macros_of_macros_are_bounded() -> None:
    """A chain of macros is evaluated once per macro, and a value over 128 bits raises NotANumber."""
    doubled = "#define A0 1\n" + "".join(f"#define A{at + 1} A{at}+A{at}\n" for at in range(50))
    assert of(doubled)["A50"] == 1 << 50
    squared = "#define A0 9\n" + "".join(f"#define A{at + 1} A{at}*A{at}\n" for at in range(50))
    with pytest.raises(NotANumber, match="over 128 bits"):
        of(squared)["A50"]


def test_a_long_chain_and_a_wrong_call() -> None:
    """A chain of 99 macros, or a macro call with the wrong number of arguments, raises NotANumber."""
    chain = "#define A0 1\n" + "".join(f"#define A{at + 1} A{at}\n" for at in range(99))
    assert of(chain)["A60"] == 1
    with pytest.raises(NotANumber):
        of(chain)["A99"]
    add = of("#define ADD(a, b) a + b\n")
    assert add.evaluate("ADD(1, 2)") == 3
    for text, passed in (("ADD(1)", 1), ("ADD(1, 2, 3)", 3)):
        with pytest.raises(NotANumber, match=f"ADD is called with {passed} arguments"):
            add.evaluate(text)


EXPRESSION = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "&", "|", "^", "<", ">=", "==", "!="]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        inner.map(lambda text: f"(-{text})"),
        inner.map(lambda text: f"(~+{text})"),  # the + makes a number: Python warns about ~ of a comparison
    ),
    max_leaves=12,
)


@given(EXPRESSION)
def test_arithmetic_is_pythons(text: str) -> None:
    """For operators that agree in C and Python, the values agree."""
    assert of("").evaluate(text) == int(eval(text))


@given(st.lists(st.sampled_from(["+", "-", "*", "&", "|", "<", "=="]), min_size=1, max_size=4), st.integers(1, 5))
def test_precedence(operators: list[str], first: int) -> None:
    """Without brackets the operators have C's precedence, which differs from Python's for ==, & and |."""
    numbers = count(first)
    text = str(next(numbers)) + "".join(f" {operator} {next(numbers)}" for operator in operators)
    order = [("*",), ("+", "-"), ("<",), ("==",), ("&",), ("|",)]
    words = text.split()
    for level in order:
        at = 1
        while at < len(words):
            if words[at] in level:
                words[at - 1 : at + 2] = [f"({' '.join(words[at - 1 : at + 2])})"]
            else:
                at += 2
    assert of("").evaluate(text) == int(eval(words[0]))
