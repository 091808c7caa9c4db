"""The C++ parser that reads source files, and texts that crash or block it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudabench.errors import CudabenchError
from cudabench.source.choose_kernel import find_kernel
from cudabench.source.files import parse_text, read_file
from cudabench.system import limited_process

FORKED = pytest.mark.skipif(
    not limited_process.FORKS, reason="no process can be forked here: the parse is without bounds"
)
DOUBLING = "#define M0 x\n" + "".join(f"#define M{n + 1} M{n} + M{n}\n" for n in range(40)) + "int x, y = M40;\n"
HOSTILE = {
    "minuses": "int x = " + "-" * 1_000_000 + "1;",
    "stars": "int " + "*" * 1_000_000 + "x;",
    "additions": "int x = 1" + "+1" * 200_000 + ";",
    "choices": "int x = " + "1?1:" * 200_000 + "1;",
    "brackets": "int x = " + "(" * 200_000 + ";",
    "structs": "struct {" * 100_000,
    "blocks": "void f() " + "{" * 300_000,
    "pointers to functions": "int " + "(*" * 200_000 + "x;",
    "macros": DOUBLING,
    "macro arguments": "#define F(x) x x x x\nint y = " + "F(" * 30 + "1" + ")" * 30 + ";",
    "template instances": "template <int n> struct S { S<n + 1> s; }; S<0> s;",
    "constants": "constexpr int f(int n) { for (;;) n++; return n; } constexpr int x = f(1);",
    "itself": '#include "hostile.cu"\n' * 3,
    "arguments": "__global__ void f(" + "int, " * 100_000 + "int) {}",
}


@pytest.mark.slow
@FORKED
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text(name: str, tmp_path: Path) -> None:
    """A text that crashes or blocks the parser is read or refused with one message, and the next parse works."""
    path = tmp_path / "hostile.cu"
    path.write_text(HOSTILE[name] + "\n__global__ void k(int *x) {}\n")
    started = time.monotonic()
    said = ""
    try:
        read_file(path)
    except CudabenchError as error:
        said = str(error)
    assert said == "" or said.startswith(f"{path}: ")
    assert "\n" not in said
    assert time.monotonic() - started < 120
    assert [kernel.name for kernel in parse_text("__global__ void after() {}", "t.cu").kernels] == ["after"]


@pytest.mark.sampled(3)
@FORKED
@pytest.mark.parametrize("name", ["minuses", "stars", "structs"])
def test_what_kills_the_parser_is_refused(name: str) -> None:
    """A text that the parser cannot read gives one message, and no crash report on standard error."""
    code = (
        "import sys\nfrom cudabench.source.files import parse_text\nfrom cudabench.errors import CudabenchError\n"
        "try: parse_text(sys.stdin.read(), 'h.cu')\nexcept CudabenchError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], input=HOSTILE[name], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    assert ran.stdout.startswith("h.cu: ") or (ran.stdout == "" and name != "minuses")
    assert ran.stdout.count("\n") <= 1


@pytest.mark.parametrize("line", ['#include "/dev/zero"', "#define Z </dev/zero>\n#include Z", '#include "zero"'])
def test_devices_are_not_included(line: str, tmp_path: Path) -> None:
    """A device file is not included, under any name."""
    (tmp_path / "zero").symlink_to("/dev/zero")
    path = tmp_path / "a.cu"
    path.write_text(f"{line}\n__global__ void k(int *x) {{}}\n")
    with pytest.raises(CudabenchError, match=r"zero|absolute path"):
        read_file(path)


def test_types_behind_a_missing_header_are_not_int() -> None:
    """After a missing header, an unknown type keeps its name and does not become int."""
    (kernel,) = parse_text('#include "none.h"\n__global__ void k(foo_t *p, foo_t x, int n) {}', "t.cu").kernels
    assert [(one.type, one.pointer) for one in kernel.parameters] == [("foo_t", True), ("foo_t", False), ("int", False)]


def test_a_struct_with_an_unknown_member_has_no_layout() -> None:
    """A struct with an unknown member has no layout, nor has a struct that contains it; other structs have one."""
    file = parse_text("struct A { int n; foo_t x; }; struct B { A a; }; struct C { char c; double d; };", "t.cu")
    assert set(file.layouts) == {"C"}
    assert [(name, at) for name, at, _ in file.layouts["C"].members] == [("c", 0), ("d", 8)]


def test_places_are_characters() -> None:
    """Positions are in characters, although the parser counts bytes, also after non-ASCII letters."""
    text = (
        "// Größe in µm. 漢字 🎉\n__global__ void erste(float *x) {}\n\n"
        "/* Zweite – Ärger. */\n__global__ void b(int n) {}\n"
    )
    first, second = parse_text(text, "t.cu").kernels
    assert text[first.start : first.end] == first.text == "__global__ void erste(float *x) {}"
    assert text[second.start : second.end] == second.text == "__global__ void b(int n) {}"
    assert (first.comment, second.comment) == ("Größe in µm. 漢字 🎉", "Zweite – Ärger.")


def test_layouts_are_those_of_64_bit_linux() -> None:
    """Struct layouts are those of 64-bit Linux on every machine."""
    file = parse_text("struct P { char c; long l; long double *q; };", "t.cu")
    assert [(name, at) for name, at, _ in file.layouts["P"].members] == [("c", 0), ("l", 8), ("q", 16)]
    assert file.layouts["P"].size == 24


def test_no_toolkit_of_the_machine_is_read() -> None:
    """The parser does not find the machine's headers, so a file reads the same everywhere."""
    text = "#if __has_include(<stdio.h>) || __has_include(<cuda_runtime.h>)\n__global__ void k() {}\n#endif\n"
    assert parse_text(text, "t.cu").kernels == ()


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("template <class T> __global__ void k(T x, const T *y) {}", "k<double>", ["double x", "const double* y"]),
        (
            "template <class... T> __global__ void k(int n, T... x) {}",
            "k<int, char *>",
            ["int n", "int x0", "char* x1"],
        ),
        (
            "template <class T> struct A { using E = T[4]; using V = const T *; };\n"
            "template <class T> __global__ void k(typename A<T>::V v, typename A<T>::E &e) {}",
            "k<float>",
            ["const float* v", "float (&)[4] e"],
        ),
        ("template <class T, int n = 2> __global__ void k(T x) {}", "k<int>", ["int x"]),
        ("namespace a { template <int n> __global__ void k(float (*x)[n]) {} }", "a::k<7>", ["float (*)[7] x"]),
    ],
)
def test_instances(text: str, name: str, expected: list[str]) -> None:
    """An instance of a template has the parameter types that C++ gives it."""
    assert [str(one) for one in find_kernel(parse_text(text, "t.cu"), name).parameters] == expected
