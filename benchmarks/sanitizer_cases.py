"""Compare compute-sanitizer with `cudabench check` on kernels with a known fault, and on correct ones:

    python benchmarks/sanitizer_cases.py prepare FOLDER             # anywhere: the arguments of all cases
    python benchmarks/sanitizer_cases.py card FOLDER CARD.json [SECONDS [CASE ...]]     # GPU, nvcc, compute-sanitizer
    python benchmarks/sanitizer_cases.py ours OURS.json [CASE ...]  # anywhere: the simulator
    python benchmarks/sanitizer_cases.py table CARD.json OURS.json  # anywhere

sanitizer_cases.toml lists the cases; their kernels are in sanitizer/*.cu. Of cudabench's requirements `card` needs only
NumPy. It runs each kernel plainly and under each of the four tools; every run is a separate process with its own time
limit, and kernels that may hang run last. CARD.json is written after every run; cases in it are not run again, and no
run starts after SECONDS (500). A CASE is a name or the beginning of one (`barriers.`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # makes this checkout importable if cudabench is not installed

SANITIZER = ["compute-sanitizer", "--target-processes", "all", "--print-limit", "20", "--show-backtrace", "device"]
TOOLS = {
    "plain": [],
    "memcheck": [*SANITIZER, "--tool", "memcheck"],
    "racecheck": [*SANITIZER, "--tool", "racecheck"],
    "synccheck": [*SANITIZER, "--tool", "synccheck"],
    "initcheck": [*SANITIZER, "--tool", "initcheck"],
}
LIMITS = {"plain": 6, "tool": 20, "hangs": 8}  # time limits of one kernel in seconds, by the kind of run
START = 45  # time limit of a process in seconds, in addition to its kernel's limit
AT_ONCE = {False: 12, True: 6}  # how many processes run at once, by whether a kernel may hang
# matches lines of the output that are not findings
NOTES = r"COMPUTE-SANITIZER|SUMMARY|Target application|rint(ing)?[ -]limit|n.t terminate|detached|^$"

Case = dict[str, Any]


# Without a GPU -------------------------------------------------------------------------------------------------------


def cases(only: Sequence[str] = ()) -> dict[str, Case]:
    """Return the cases, keyed by FILE.KERNEL."""
    import tomllib

    tables = tomllib.loads((HERE / "sanitizer_cases.toml").read_text())
    found = {f"{file}.{kernel}": case for file, group in tables.items() for kernel, case in group.items()}
    return {name: case for name, case in found.items() if not only or name.startswith(tuple(only))}


def source_of(name: str) -> str:
    """Return the file of a case's kernel."""
    return str(HERE / "sanitizer" / f"{name.partition('.')[0]}.cu")


def prepare(folder: Path) -> None:
    """Write FOLDER/cases.json with the launches, and the arrays of each case before and after as CASE.npz."""
    from cudabench.userkernel import plan
    from cudabench.userkernel.request import UserRequest

    folder.mkdir(parents=True, exist_ok=True)
    launches = {}
    for name, case in cases().items():
        request = UserRequest(
            file=source_of(name),
            kernels=(name.partition(".")[2],),
            arguments=tuple(case["arg"]),
            expect=tuple(case.get("expect", ())),
            grid=case["grid"],
            block=case["block"],
            shared=case.get("shared"),
        )
        series = plan.build([request])
        operation, problem, launch = series.make(), series.cases[0].problem, series.cases[0].launches[0]
        inputs = operation.inputs(problem)
        size = {
            buffer.name: int(np.prod(buffer.shape)) * np.dtype(buffer.dtype).itemsize
            for buffer in operation.buffers(problem)
        }
        launches[name] = {
            "grid": launch.grid,
            "block": launch.block,
            "shared": launch.shared_bytes,
            "cooperative": case.get("cooperative", False),
            "hangs": case.get("hangs", False),
            # An array is written as [name, bytes], and a number as its bytes in hexadecimal.
            "arguments": [
                [argument, size[argument]] if isinstance(argument, str) else argument.tobytes().hex()
                for argument in launch.arguments
            ],
        }
        kept = {f"before:{key}": held for key, held in inputs.items()}
        kept |= {f"after:{key}": held for key, held in operation.reference(problem, inputs).items()}
        np.savez(folder / f"{name}.npz", **kept)  # type: ignore[arg-type]
    (folder / "cases.json").write_text(json.dumps(launches, indent=1))
    print(f"{len(launches)} cases in {folder}")


def ours(target: Path, only: Sequence[str]) -> None:
    """Write the hazards that `cudabench check` finds in each case in the simulator."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases(only).items():
            out = Path(folder) / f"{name}.json"
            command = ["check", source_of(name), f"--kernel={name.partition('.')[2]}", "--device=sim", f"--json={out}"]
            command += [f"--{key}={case[key]}" for key in ("grid", "block", "shared") if key in case]
            command += [f"--{key}={value}" for key in ("arg", "expect") for value in case.get(key, ())]
            command = [sys.executable, "-m", "cudabench", *command, "--quiet", "--timeout=60"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent)
            result = json.loads(out.read_text())["results"][0] if out.exists() else {}
            found[name] = {
                "exit": done.returncode,
                "status": result.get("status"),
                "reason": result.get("reason") or done.stderr.strip()[-300:],
                "hazards": [
                    [hazard[key] for key in ("kind", "line", "count", "message")]
                    for hazard in result.get("hazards", ())
                ],
                "warnings": [
                    warning["message"] for warning in result.get("warnings", ()) if warning["code"] != "unverified"
                ],
            }
            print(f"{case['is']:<6}{name:<36}{done.returncode}  {verdict(found[name])[:90]}", flush=True)
            target.write_text(json.dumps(found, indent=1))


# On a card -----------------------------------------------------------------------------------------------------------


def launch(folder: Path, name: str, limit: int) -> None:
    """Launch one case and print a line `RESULT {...}`: the driver's error, or checksums of the arrays and which are
    right."""
    case = json.loads((folder / "cases.json").read_text())[name]
    with np.load(folder / f"{name}.npz") as kept:
        held = {key: np.ascontiguousarray(kept[key]) for key in kept.files}
    cuda = ctypes.CDLL("libcuda.so.1")

    def say(what: dict[str, Any]) -> None:
        print("RESULT", json.dumps(what), flush=True)

    def call(function: str, *arguments: Any) -> None:
        code = getattr(cuda, function)(*arguments)
        if code:
            word = ctypes.c_char_p()
            cuda.cuGetErrorName(code, ctypes.byref(word))
            say({"error": (word.value or str(code).encode()).decode(), "at": function})
            os._exit(3)

    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    file, _, kernel = name.partition(".")
    image = (folder / f"{file}.cubin").read_bytes()
    mangled = re.search(rb"\.text\.(_Z%d%s\w*)" % (len(kernel), kernel.encode()), image)
    assert mangled, f"{file}.cubin has no {kernel}"
    call("cuModuleLoadData", ctypes.byref(module), image)
    call("cuModuleGetFunction", ctypes.byref(function), module, mangled[1])
    if case["shared"] > 48 << 10:
        # 8: the attribute that allows this many bytes of dynamic shared memory
        call("cuFuncSetAttribute", function, 8, case["shared"])
    places: dict[str, tuple[ctypes.c_uint64, int]] = {}
    values: list[Any] = []
    for argument in case["arguments"]:
        if isinstance(argument, str):
            values.append(ctypes.create_string_buffer(bytes.fromhex(argument), 8))
            continue
        array, size = argument
        places[array] = (address := ctypes.c_uint64()), size
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        if (before := held.get(f"before:{array}")) is not None:
            assert before.nbytes == size
            call("cuMemcpyHtoD_v2", address, before.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(size))
        values.append(address)
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    print("LAUNCHED", flush=True)
    signal.alarm(limit)  # the alarm ends this process even while the driver waits for the kernel
    geometry = [ctypes.c_uint(number) for number in (*case["grid"], *case["block"], case["shared"])]
    if case["cooperative"]:
        call("cuLaunchCooperativeKernel", function, *geometry, None, pointers)
    else:
        call("cuLaunchKernel", function, *geometry, None, pointers, None)
    call("cuCtxSynchronize")
    signal.alarm(0)
    result: dict[str, Any] = {"crc": {}, "right": {}}
    for array, (address, size) in places.items():
        got = np.zeros(size, np.uint8)
        call("cuMemcpyDtoH_v2", got.ctypes.data_as(ctypes.c_void_p), address, ctypes.c_size_t(size))
        result["crc"][array] = zlib.crc32(got.tobytes())
        if (after := held.get(f"after:{array}")) is not None:
            result["right"][array] = bool(np.allclose(got.view(after.dtype), after.reshape(-1), rtol=1e-5, atol=1e-6))
    say(result)


def run(folder: Path, name: str, tool: str, hangs: bool) -> Case:
    """Run one case under one tool in a separate process group, and kill the group at the end."""
    limit = LIMITS["plain" if tool == "plain" else "hangs" if hangs else "tool"]
    command = [*TOOLS[tool], sys.executable, str(Path(__file__).resolve()), "launch", str(folder), name, str(limit)]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        killed = False
        try:
            process.wait(limit + START)
        except subprocess.TimeoutExpired:
            killed = True
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
        output.seek(0)
        raw = output.read()
    found = re.search(r"^RESULT (.*)$", raw, re.M)
    return {
        "exit": process.returncode,
        "seconds": round(time.monotonic() - start, 1),
        "killed": killed,
        "launched": "LAUNCHED" in raw,
        "result": json.loads(found[1]) if found else None,
        "messages": messages(raw),
        "raw": raw[:4000],
    }


def messages(raw: str) -> list[list[Any]]:
    """Return a tool's distinct messages, each as [text, lines of the source, how often the message occurs]."""
    found: list[tuple[str, list[str]]] = []
    for line in raw.splitlines():
        head, equals, body = line.partition("=========")
        if head or not equals:
            continue
        text = body.strip()
        if not body.startswith("   ") and not re.search(NOTES, text):
            found.append((re.sub(r" at .*", "", text), re.findall(r"\.cu:(\d+)", text)))
        elif found and body.startswith("   "):
            message, lines = found[-1]
            lines += re.findall(r"\.cu:(\d+)", text)[: 2 - len(lines)]
            for word in ("misaligned", "out of bounds"):
                if word in text and word not in message:
                    found[-1] = f"{message}, {word}", lines
    counts = Counter((text, tuple(map(int, lines[: 2 if "Race" in text else 1]))) for text, lines in found)
    return [[text, list(lines), times] for (text, lines), times in counts.most_common()]


def compile_all(folder: Path, files: Iterable[str]) -> None:
    """Compile the kernels' files to FOLDER/FILE.cubin, all at the same time."""
    command = ["nvcc", "-cubin", "-arch=sm_90", "-lineinfo", "-std=c++17", "-o"]
    making = {file: subprocess.Popen([*command, folder / f"{file}.cubin", source_of(file)]) for file in files}
    for file, process in making.items():
        if process.wait():
            print(f"nvcc refused {file}.cu", flush=True)


def card(folder: Path, target: Path, seconds: float, only: Sequence[str]) -> None:
    """Run all cases plainly and under all tools, and write the results after every run."""
    end = time.monotonic() + seconds
    known = json.loads((folder / "cases.json").read_text())
    wanted = {name: case for name, case in known.items() if not only or name.startswith(tuple(only))}
    kept = json.loads(target.read_text()) if target.exists() else {"about": {}, "cases": {}}
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    for command in ("nvidia-smi --query-gpu=name,driver_version --format=csv,noheader", "compute-sanitizer --version"):
        kept["about"][command.split()[0]] = subprocess.getoutput(command)
    compile_all(folder, dict.fromkeys(name.partition(".")[0] for name in wanted))

    def one(name: str, tool: str, hangs: bool) -> Case | None:
        return run(folder, name, tool, hangs) if time.monotonic() < end else None

    for hangs in (False, True):
        with ThreadPoolExecutor(AT_ONCE[hangs]) as pool:
            waiting = {
                pool.submit(one, name, tool, hangs): (name, tool)
                for name, case in wanted.items()
                for tool in TOOLS
                if case["hangs"] is hangs and tool not in kept["cases"].get(name, {})
            }
            for done in as_completed(waiting):
                name, tool = waiting[done]
                if done.exception():
                    print(name, tool, repr(done.exception()), flush=True)
                elif (result := done.result()) is not None:
                    kept["cases"].setdefault(name, {})[tool] = result
                    part = target.with_suffix(".part")
                    part.write_text(json.dumps(kept))
                    part.replace(target)
    for name in wanted:
        found = kept["cases"].get(name, {})
        cells = [short(said(found[tool])) if tool in found else "not run" for tool in TOOLS]
        print(f"{name.partition('.')[2][:22]:<22} {'|'.join(cells)}"[:116])
    slow = max((record["seconds"] for found in kept["cases"].values() for record in found.values()), default=0)
    took = seconds - (end - time.monotonic())
    print(f"{kept['about']['nvidia-smi']}; the longest run took {slow} s, all together {took:.0f} s")


# Messages -------------------------------------------------------------------------------------------------------------


def said(record: Case) -> str:
    """Return the text for a run on a card: the tool's messages with their lines or, without messages, how the kernel
    ended."""
    words = [
        text + (f" ({', '.join(map(str, lines))})" if lines else "")
        for text, lines, _ in record["messages"]
        if "Program hit" not in text
    ]
    result = record["result"]
    if result is None:
        words.append("hangs" if record["launched"] and record["seconds"] > LIMITS["plain"] - 1 else "did not end well")
    elif "error" in result:
        words.append(result["error"].removeprefix("CUDA_ERROR_"))
    elif not all(result["right"].values()):
        words.append("WRONG")
    return "; ".join(dict.fromkeys(words)) or "-"


def short(text: str) -> str:
    """Return a run's text in abbreviated form."""
    for pattern, word in (
        (r"Barrier error detected\. ", ""),
        (r"Divergent thread\(s\) in ", "div "),
        (r"Invalid __(\w+)__ (\w+) of size (\d+)( bytes)?", r"\1 \2 \3"),
        (r"Uninitialized __(\w+)__ memory read of size \d+( bytes)?", r"uninit \1"),
        (r"Error: Race reported between \w+ access", "race"),
        (r"Warning: Race reported between \w+ access", "race?"),
        (r"Host API uninitialized memory access", "uninit host"),
        (r"out of bounds", "oob"),
        (r"Invalid arguments", "bad args"),
    ):
        text = re.sub(pattern, word, text)
    return text[:22]


def verdict(mine: Case) -> str:
    """Return the verdict of `cudabench check`: kinds of hazards with their lines, else the reason why it is not
    clean."""
    hazards = dict.fromkeys(f"{kind} ({line})" for kind, line, *_ in mine["hazards"])
    return ", ".join(hazards) or ("-" if mine["exit"] == 0 else mine["reason"])


def named(record: Case | None) -> bool:
    """Return whether a tool reports a fault, and not only that the program ended with an error."""
    return record is not None and any("Program hit" not in text for text, *_ in record["messages"])


def table(on_card: Case, by_us: Case) -> None:
    """Print the Markdown table: a row for each case, and how many faults and correct kernels each tool reports."""
    sums: dict[str, Counter[str]] = {}
    tests: dict[str, Callable[[Case, Case], bool]] = {
        **{tool: partial(lambda tool, found, _: named(found.get(tool)), tool) for tool in TOOLS if tool != "plain"},
        "one of the four": lambda found, _: any(named(found.get(tool)) for tool in TOOLS),
        "cudabench check": lambda _, mine: mine["exit"] == 3,
    }
    for key, value in on_card["about"].items():
        print(f"    {key}: {value.splitlines()[-1] if value else '?'}")
    print(f"\n| case | it is | {' | '.join(TOOLS)} | cudabench check | why they differ |\n|{' --- |' * 9}")
    known = cases()
    for name, case in known.items():
        found, mine = on_card["cases"].get(name, {}), by_us[name]
        cells = [said(found[tool]) if tool in found else "not run" for tool in TOOLS]
        cells += [verdict(mine), case.get("reason", "")]
        print(f"| {name} | {case['is']} | {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        for tester, test in tests.items():
            sums.setdefault(tester, Counter())[case["is"]] += test(found, mine)
    of = Counter(case["is"] for case in known.values())
    print(f"\n| | {' | '.join(f'{word}, of {many}' for word, many in of.items())} |\n|{' --- |' * (1 + len(of))}")
    for tester, count in sums.items():
        print(f"| {tester} | {' | '.join(str(count[word]) for word in of)} |")


def main() -> None:
    """Run the step that the command line names."""
    match sys.argv[1:]:
        case ["prepare", folder]:
            prepare(Path(folder))
        case ["card", folder, target, *rest]:
            card(Path(folder).resolve(), Path(target), float(rest[0]) if rest else 500, rest[1:])
        case ["launch", folder, name, limit]:
            launch(Path(folder), name, int(limit))
        case ["ours", target, *only]:
            ours(Path(target), only)
        case ["table", on_card, by_us]:
            table(*(json.loads(Path(path).read_text()) for path in (on_card, by_us)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
