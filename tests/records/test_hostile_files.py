"""Mutated results files, arrays and profiles: the tool reads them, or refuses them with one message."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudabench import cli
from tests.cli.test_hostile_argv import KERNEL, check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

VALUES: Any = st.one_of(
    st.sampled_from(
        [None, True, -1, 0, -1e308, 1e308, "nan", "inf", "", "=1+1", "$\\frac$", "\ud800", "\x1b]0;x", [], {}, [[]]]
    ),
    st.text(max_size=5),
    st.floats(),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutated(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a document with another value at a path; `...` deletes the value."""
    copy = deepcopy(document)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copy


@pytest.fixture
def measured(cudabench: Callable[..., Any]) -> Any:
    """Return a results document with timed results of an H200 and a simulated result."""
    assert cudabench("blur", "-k", "naive", "--size", 9, 9, "-d", "sim", "-q", "--json", "sim.json").code == 0
    simulated = json.loads(Path("sim.json").read_text())
    timed = json.loads((Path(__file__).parents[1] / "data" / "h200.json").read_text())
    timed["results"] = [*timed["results"][:2], *simulated["results"]]
    return {**timed, "settings": {**timed["settings"], **simulated["settings"]}}


READERS = (
    ("compare", "a.json", "b.json"),
    ("compare", "b.json", "a.json"),
    *(
        ("export", "b.json", "--to", kind)
        for kind in ("csv", "markdown", "junit", "sarif", "bencher", "github-benchmark")
    ),
    ("plot", "b.json", "-o", "p.svg"),
)


@pytest.mark.slow
@FEW
@given(data=st.data())
def test_a_mutated_results_file(cudabench: Callable[..., Any], measured: Any, data: st.DataObject) -> None:
    """Every reader of a results file reads or refuses a file with a value of another type, size or meaning."""
    path = data.draw(st.sampled_from(list(places(measured))))
    document = mutated(measured, path, data.draw(st.one_of(st.just(...), VALUES)))
    Path("a.json").write_text(json.dumps(measured))
    Path("b.json").write_text(json.dumps(document))
    line = data.draw(st.sampled_from(READERS))
    check([*line, repr(path)], cudabench(*line))


@pytest.mark.slow
@pytest.mark.parametrize("line", [READERS[0], READERS[2], READERS[-1]], ids=lambda line: line[0])
@pytest.mark.parametrize("path", [("device", "peak_gbps"), ("results", 0, "bytes"), ("results", 0, "time", "median_s")])
def test_a_number_that_no_float_holds(
    cudabench: Callable[..., Any], measured: Any, line: tuple[str, ...], path: tuple[Any, ...]
) -> None:
    """A JSON integer of 401 digits is refused with the file's name."""
    Path("a.json").write_text(json.dumps(measured))
    Path("b.json").write_text(json.dumps(mutated(measured, path, 10**400)))
    ran = cudabench(*line)
    check([*line], ran)
    assert "b.json is not a cudabench results file: it has a number of 401 digits" in ran.err


def test_a_card_with_a_number_that_no_float_holds(cudabench: Callable[..., Any]) -> None:
    """A card file for --on with an integer of 401 digits is refused."""
    card = json.loads((Path(cli.__file__).parent.parent / "cards" / "h200.json").read_text())
    Path("c.json").write_text(json.dumps(mutated(card, ("ceilings", 0, "value"), 10**400)))
    ran = cudabench("explain", "vecadd", "vector", "--on", "c.json", "-d", "sim")
    check(["explain"], ran)
    assert ran.code == 1
    assert "a number of 401 digits" in ran.err


@pytest.mark.slow
@FEW
@given(data=st.data())
def test_a_damaged_results_file(cudabench: Callable[..., Any], measured: Any, data: st.DataObject) -> None:
    """A results file with lost, inserted or changed bytes is read or refused."""
    content = bytearray(json.dumps(measured).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    Path("a.json").write_text(json.dumps(measured))
    Path("b.json").write_bytes(content)
    line = data.draw(st.sampled_from(READERS))
    check([*line], cudabench(*line))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"bytes": 648', '"bytes": ' + "9" * 5000),
        ('"options": {', '"options": -1e308, "x": {'),
        ('"kernel": "naive"', '"kernel": "$\\\\frac$"'),
        ('"kernel": "naive"', '"kernel": "\\ud800"'),
        ('"tool": {', '"x": ' + "[" * 100000 + '], "tool": {'),
    ],
    ids=["digits", "options", "mathtext", "surrogate", "depth"],
)
def test_results_that_were_called_a_defect(cudabench: Callable[..., Any], old: str, new: str) -> None:
    """Files that once caused an internal error are read, or refused with the file's name."""
    assert cudabench("blur", "-k", "naive", "--size", 9, 9, "-d", "sim", "-q", "--json", "a.json").code == 0
    text = Path("a.json").read_text()
    assert old in text
    Path("b.json").write_text(text.replace(old, new))
    for line in READERS:
        ran = cudabench(*line)
        check([*line], ran)
        assert ran.code in (0, 4) or "b.json" in ran.err or "share no measurement" in ran.err


@pytest.mark.slow
@FEW
@given(data=st.data())
def test_a_damaged_array(cudabench: Callable[..., Any], data: st.DataObject) -> None:
    """An .npy file with changed bytes is read as an array, or refused with one message."""
    Path("k.cu").write_text(KERNEL)
    np.save("x.npy", np.arange(8, dtype=np.float32))
    content = bytearray(Path("x.npy").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 100))
        content[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"9" * 12, b"(", b"'O'", b"-1", b"PK\x03\x04"]))
        )
    Path("x.npy").write_bytes(content)
    line = ["run", "k.cu", "-g", "1", "-b", "32", "--arg", "x=@x.npy", "--arg", "n=4", "-d", "sim", "--no-cpu"]
    check(line, cudabench(*line))


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\x93NUMPY\x09\x09", b"\x80\x04\x95", b""])
def test_a_file_that_is_no_array(cudabench: Callable[..., Any], start: bytes) -> None:
    """A broken archive, an unknown version, a pickle and an empty file are refused with the file's name."""
    Path("k.cu").write_text(KERNEL)
    Path("x.npy").write_bytes(start + b"abc" * bool(start))
    ran = cudabench("run", "k.cu", "-g", 1, "-b", 32, "--arg", "x=@x.npy", "--arg", "n=4", "-d", "sim")
    check(["run"], ran)
    assert ran.code == 1
    assert "x=@x.npy cannot be read as a .npy file" in ran.err or "x=@x.npy is an archive" in ran.err


PROFILE = """
file = "k.cu"
device = "sim"
timeout = 5
no-cpu = true
[k]
grid = "cdiv(n,32)"
block = 32
arg = ["x=float32[n]:ones", "n=4"]
expect = ["x=2*x0"]
"""


@FEW
@given(data=st.data())
def test_a_damaged_profile(cudabench: Callable[..., Any], data: st.DataObject) -> None:
    """A profile with changed words, numbers or brackets runs or is refused."""
    Path("k.cu").write_text(KERNEL)
    text = PROFILE
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(
            st.sampled_from([*'[]="{}\n#\\é', "true", "1e999", "9" * 30, "[[", "nan", "[k]"])
        )  # fmt: skip
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 6)) :]
    Path("t.toml").write_text(text)
    line = ["run", "--profile", "t.toml"]
    check([*line, text], cudabench(*line))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        (PROFILE.replace('grid = "cdiv(n,32)"', "grid = true"), "[k] grid is True: write text or a number"),
        (PROFILE.replace("no-cpu = true", 'no-cpu = "yes"'), "no-cpu is yes: write true or false"),
        (PROFILE.replace("block = 32", "block = " + "9" * 5000), "thousands of digits"),
        (PROFILE.replace("block = 32", "block = 0x" + "f" * 5000), "20000 bits"),
        (PROFILE.replace("timeout = 5", "timeout = true"), "timeout is True"),
    ],
    ids=["depth", "flag", "no flag", "digits", "hexadecimal", "number"],
)
def test_profiles_that_were_called_a_defect(cudabench: Callable[..., Any], text: str, said: str) -> None:
    """Profiles that once caused an internal error are refused with a message that names the place."""
    Path("k.cu").write_text(KERNEL)
    Path("t.toml").write_text(text)
    ran = cudabench("run", "--profile", "t.toml")
    check(["run"], ran)
    assert ran.code in (1, 2)
    assert said in ran.err
    assert len(ran.err) < 400


# Hostile values for any key: empty text, invalid numbers, other types, terminal codes, paths, devices, and
# expressions, arrays, launches and lists that are far too large.
EVIL_VALUES = (
    '""', '"\\u001b[2J\\n::error::x\\u202e"', "-1", "0", "1e999", "nan", "9" * 40, "true", "[]",
    '["=", "a=", "=a", "a=b=c"]',
    "{}", "{a = 1}", "[[1]]", "[{a = 1}]", "1979-05-27", '"../../../etc/passwd"', '"/dev/zero"', '["x=@/dev/zero"]',
    '["x=@/etc/passwd"]', '"n**n**n**n"', '["x=float32[9**9**9]:ones"]', '["x=full(9**9**9)"]',
    '["k<<<9**9**9,1>>>(x,n)"]', '["k<<<1,32>>>(x,n)", "none<<<1,1>>>()"]', '["table=float32[99999999999]:ones"]',
    '["x=tensormap(x)"]', '"().__class__.__bases__"', '"' + "[" * 3000 + '"', '"sim:sm_999"', '"c++20; rm -rf /"',
)  # fmt: skip
KEYS = [
    max(param.opts, key=len).removeprefix("--")
    for param in cli.make_command("run").params
    if isinstance(param, click.Option)
]


@pytest.mark.sampled(36)
@pytest.mark.parametrize("key", KEYS)
def test_a_key_with_any_value(cudabench: Callable[..., Any], key: str) -> None:
    """Every key of a profile with a hostile value ends soon, with a message."""
    Path("k.cu").write_text(KERNEL)
    table = tomllib.loads(PROFILE)
    for value in EVIL_VALUES[:: 1 if key in ("arg", "const", "step", "expect", "where", "grid") else 2]:
        common = {name: json.dumps(one) for name, one in table.items() if name not in ("k", key)}
        own = {name: json.dumps(one) for name, one in table["k"].items() if name != key}
        (own if key in table["k"] else common)[key] = value
        lines = [f"{name} = {one}" for name, one in common.items()] + ["[k]"] + [f"{n} = {v}" for n, v in own.items()]
        Path("t.toml").write_text("\n".join(lines))
        ran = cudabench("run", "--profile", "t.toml")
        check(["run", key, value], ran)
        assert not any(line.lstrip().startswith("::") for line in (ran.out + ran.err).splitlines())
        assert "root:" not in ran.out + ran.err
        assert all(len(word) < 500 for word in ran.err.split()), (key, value)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", ["{up}/y", "../y", "sub/../../y", "link/y", "/dev/null"])
@pytest.mark.parametrize("option", ["json", "save"])
def test_a_profile_writes_beside_itself_only(
    cudabench: Callable[..., Any], tmp_path: Path, name: str, option: str
) -> None:
    """An output outside the profile's folder, also through a link, is refused before a kernel runs; the command line
    may name it."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    (inner / "sub").mkdir(parents=True)
    outer.mkdir()
    (inner / "link").symlink_to(outer)
    Path("k.cu").write_text(KERNEL)
    path = name.format(up=outer)
    value = f"json = '{path}'\n" if option == "json" else f"save = ['x={path}']\n"
    profile = inner / "t.toml"
    profile.write_text(value + PROFILE.replace('"k.cu"', '"../k.cu"'))
    ran = cudabench("run", "--profile", profile)
    assert ran.code == 2
    assert "outside the profile's folder" in ran.err
    assert not [*outer.iterdir()]
    profile.write_text(PROFILE.replace('"k.cu"', '"../k.cu"'))
    typed = ["--json", outer / "y"] if option == "json" else ["--save", f"x={outer / 'y'}"]
    assert cudabench("run", "--profile", profile, *typed).code == 0
    assert [path.name for path in outer.iterdir()] == ["y"]


def test_a_profile_writes_below_its_folder(cudabench: Callable[..., Any], tmp_path: Path) -> None:
    """Outputs that a profile names are written relative to the profile's folder, from any working directory."""
    (tmp_path / "inner" / "sub").mkdir(parents=True)
    Path("k.cu").write_text(KERNEL)
    outputs = 'json = "r.json"\nsave = ["x=sub/x.npy"]\n'
    Path("inner/t.toml").write_text(outputs + PROFILE.replace('"k.cu"', '"../k.cu"'))
    assert cudabench("run", "--profile", "inner/t.toml").code == 0
    assert Path("inner/r.json").is_file()
    assert np.array_equal(np.load("inner/sub/x.npy"), np.full(4, 2, np.float32))


READING = {
    "--arg": ("run", "k.cu", "-g", 1, "-b", 32, "--arg", "x=@{path}", "--arg", "n=4", "-d", "sim"),
    "--expect": (
        *("run", "k.cu", "-g", 1, "-b", 32, "--arg", "x=float32[4]:ones", "--arg", "n=4", "--expect", "x=@{path}"),
        *("-d", "sim"),
    ),
    "--profile": ("run", "--profile", "{path}"),
    "FILE.cu": ("run", "{path}", "-g", 1, "-b", 32, "-d", "sim"),
    "--source": ("blur", "-k", "naive", "--source", "{path}", "-d", "sim"),
    "--on": ("explain", "blur", "naive", "--on", "{path}"),
    "--image": ("blur", "-k", "naive", "--image", "{path}", "-d", "sim"),
    "compare": ("compare", "{path}", "{path}"),
    "export": ("export", "{path}", "--to", "csv"),
    "report": ("report", "{path}", "-o", "r.html"),
    "plot": ("plot", "{path}", "-o", "p.svg"),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("name", ["./fifo", "/dev/zero"])
@pytest.mark.parametrize("line", READING.values(), ids=READING)
def test_what_never_ends_is_not_read(cudabench: Callable[..., Any], line: tuple[Any, ...], name: str) -> None:
    """A pipe without a writer and an endless device are refused by name, wherever the tool reads a file.

    If the tool opened one of them, the test would never end.
    """
    Path("k.cu").write_text(KERNEL)
    os.mkfifo("fifo")
    ran = cudabench(*(str(word).format(path=name) for word in line))
    check([*map(str, line)], ran)
    assert ran.code in (1, 2)
    kind = "device" if name.startswith("/dev") else "pipe"
    assert f"it is a {kind}, not a regular file" in ran.err
    assert name.removeprefix("./") in ran.err


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="needs /dev/fd")
def test_what_the_shell_has_opened_is_read(cudabench: Callable[..., Any]) -> None:
    """`compare <(command) FILE` works: the tool reads the pipe that the shell passes as /dev/fd."""
    text = (Path(__file__).parents[1] / "data" / "h200.json").read_bytes()
    Path("a.json").write_bytes(text)
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as stream:
            stream.write(text)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        ran = cudabench("compare", f"/dev/fd/{reader}", "a.json")
    finally:
        os.close(reader)
        thread.join()
    assert ran.code == 0, ran.err
