"""Instructions of compute capability 9.0: compares the results of a GPU and the simulator bit by bit, case by case.

    python -m tests.hopper_cases run real.npz [PATTERN]         # on an H100 or H200
    python -m tests.hopper_cases compare real.npz [PATTERN]     # anywhere; names what differs
    python -m tests.hopper_cases record tests/data/hopper_h200.json real.npz ...    # the expected digests in CI

The inputs are random bytes with a seed, so that every bit of a result matters. The module does not use pytest, so it
runs where only the package is installed.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A launch: `arrays` are its arguments in order, including those that it writes; `shared` is the dynamic shared
    memory."""

    name: str
    text: str
    arguments: tuple[Any, ...]
    grid: tuple[int, ...] = (1,)
    block: tuple[int, ...] = (128,)
    shared: int = 0


@dataclass(frozen=True)
class Map:
    """A tensor map over the array that is argument `place`; all sizes have the fastest dimension first."""

    dtype: str
    sizes: tuple[int, ...]
    box: tuple[int, ...]
    strides: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    fill: Literal["zeros", "nan"] = "zeros"
    place: int = 0

    @property
    def width(self) -> int:
        """Bytes per element."""
        return 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize

    def filled(self) -> Map:
        """Return the map with strides and steps; the default is a dense array."""
        dense = (self.width * int(np.prod(self.sizes[: at + 1])) for at in range(len(self.sizes) - 1))
        return replace(self, strides=self.strides or tuple(dense), steps=self.steps or (1,) * len(self.sizes))


def random_floats(rng: np.random.Generator, shape: tuple[int, ...], type_: str, kind: str) -> Array:
    """Return random numbers of a tensor core's type: 'normal', 'wide' (all exponents that do not overflow a sum),
    'special' (with subnormals, zeros, infinities and NaN) or 'whole'."""
    import ml_dtypes

    dtype = {
        "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2, "f32": np.float32,
    }[type_]  # fmt: skip
    if kind == "whole":
        x: Array = rng.integers(-8, 9, shape).astype(np.float32)
    else:
        x = rng.standard_normal(shape)
        spread = {"f16": 6, "e4m3": 4, "e5m2": 6}.get(type_, 30)
        if kind != "normal":
            x = x * 2.0 ** rng.integers(-spread, spread - 2, shape)
    with np.errstate(over="ignore"):
        found = x.astype(dtype)
    if kind == "special":
        flat = found.reshape(-1)
        size = np.dtype(dtype).itemsize
        tiny = np.array([1, 2, 3, 0x81 if size == 1 else 5], f"u{size}").view(dtype)
        flat[rng.integers(0, flat.size, flat.size // 8)] = rng.choice(tiny, flat.size // 8)
        flat[rng.integers(0, flat.size, flat.size // 8)] = 0
        flat[rng.integers(0, flat.size, 3)] = np.nan
        if type_ != "e4m3":
            flat[rng.integers(0, flat.size, 3)] = np.inf
    return found


# wgmma ---------------------------------------------------------------------------------------------------------------

WGMMA = """
extern "C" __global__ void __launch_bounds__(128) kernel(
    const unsigned *tiles, const unsigned *regs, const unsigned *sums, unsigned *out, unsigned long long a,
    unsigned long long b, int add, int words)
{
    extern __shared__ __align__(1024) unsigned memory[];
    for (int i = threadIdx.x; i < words; i += 128) memory[i] = tiles[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long base = __cvta_generic_to_shared(memory) >> 4;
    unsigned long long da = a + base, db = b + base;
    unsigned x[4], d[D];
    for (int i = 0; i < 4; i++) x[i] = regs[4 * threadIdx.x + i];
    for (int i = 0; i < D; i++) d[i] = sums[D * threadIdx.x + i];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{\\n.reg .pred p;\\nsetp.ne.b32 p, %6, 0;\\n"
                 "wgmma.mma_async.sync.aligned.TYPES OUTPUTS, FIRST, %5, p TAIL;\\n}\\n" : BOUND
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(da), "l"(db), "r"(add));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < D; i++) out[D * threadIdx.x + i] = d[i];
}
"""


def wgmma(
    name: str, types: str, kind: str, *, registers: bool = False, tail: str = "", a: int = 0, b: int = 0, add: int = 1
) -> Case:
    """Return a case of one wgmma with random tiles; a and b are the upper fields of the descriptors, with starts in
    bytes."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    _, n, _ = (int(part) for part in re.match(r"m(\d+)n(\d+)k(\d+)", types).groups())  # type: ignore[union-attr]
    words = types.split(".")
    outer, type_a = [word for word in words if re.fullmatch(r"[a-z]+\d+(m\d)?", word) and not word.startswith("m64")][
        :2
    ]
    count = n // 2 // (2 if outer == "f16" else 1)
    nbytes = 48 << 10
    if outer == "s32":
        tiles = rng.integers(0, 1 << 32, nbytes // 4, dtype=np.uint32)
        regs = rng.integers(0, 1 << 32, 512, dtype=np.uint32)
        sums = rng.integers(0, 1 << 32, 128 * count, dtype=np.uint32)
    else:
        size = {"tf32": 4, "f16": 2, "bf16": 2}.get(type_a, 1)
        tiles = random_floats(rng, (nbytes // size,), type_a, kind).view(np.uint32)
        regs = random_floats(rng, (2048 // size,), type_a, kind).view(np.uint32)
        sums = random_floats(rng, (128 * count * (2 if outer == "f16" else 1),), outer, kind).view(np.uint32)
    code = "f" if outer == "f32" else "r"
    outputs = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
    first = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}" if registers else f"%{count + 4}"
    text = WGMMA.replace("%6", f"%{count + 6}").replace("%5", f"%{count + 5}").replace("FIRST", first)
    text = text.replace("TYPES", types).replace("OUTPUTS", outputs).replace("TAIL", tail)
    text = text.replace("BOUND", ", ".join(f'"+{code}"(d[{i}])' for i in range(count))).replace("[D]", f"[{count}]")
    text = re.sub(r"\bD\b", str(count), text)
    if code == "f":
        text = text.replace(f"x[4], d[{count}];", f"x[4]; float d[{count}];")
        text = text.replace("= sums[", "= ((const float *)sums)[").replace("out[", "((float *)out)[")
    out = np.zeros(128 * count, np.uint32)
    arguments = (tiles, regs, sums, out, np.uint64(a), np.uint64(b), np.int32(add), np.int32(nbytes // 4))
    return Case(name, text, arguments, shared=nbytes + 1024)


def descriptor(start: int, leading: int, stride: int, mode: int, base_offset: int = 0) -> int:
    """Return the bits of a descriptor; start, leading and stride are in bytes."""
    return start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | base_offset << 49 | mode << 62


def wgmma_cases() -> Iterator[Case]:
    """Yield wgmma cases of all types, layouts and options."""
    a = descriptor(0, 128, 256, 0)
    b = descriptor(16384, 128, 256, 0)
    scales, scales_16 = ", 1, 1", ", 1, 1, 0, 0"
    for kind in ("whole", "normal", "wide", "special"):
        for types, tail in (
            ("m64n8k16.f32.f16.f16", scales_16), ("m64n24k16.f32.bf16.bf16", scales_16),
            ("m64n16k8.f32.tf32.tf32", scales), ("m64n16k16.f16.f16.f16", scales_16),
            ("m64n8k32.f32.e4m3.e4m3", scales), ("m64n8k32.f32.e5m2.e4m3", scales),
            ("m64n8k32.f16.e4m3.e5m2", scales),
        ):  # fmt: skip
            yield wgmma(f"wgmma {types} {kind}", types, kind, tail=tail, a=a, b=b)
            tail = tail[:-3] if tail == scales_16 else tail
            yield wgmma(f"wgmma {types} {kind} registers", types, kind, tail=tail, a=a, b=b, registers=True)
    for types in ("m64n8k32.s32.s8.s8", "m64n8k32.satfinite.s32.u8.s8", "m64n32k32.s32.s8.u8", "m64n8k32.s32.u8.u8"):
        yield wgmma(f"wgmma {types}", types, "", a=a, b=b)
        yield wgmma(f"wgmma {types} registers", types, "", a=a, b=b, registers=True)
    yield wgmma("wgmma b1", "m64n16k256.s32.b1.b1.and.popc", "", a=a, b=b)
    for n in (8, 64, 128, 256):
        yield wgmma(
            f"wgmma n={n}", f"m64n{n}k16.f32.f16.f16", "normal", tail=scales_16, a=a, b=descriptor(8192, 128, 256, 0)
        )
    for signs in (", -1, 1, 0, 0", ", 1, -1, 0, 0", ", -1, -1, 0, 0"):
        yield wgmma(f"wgmma scales {signs}", "m64n8k16.f32.f16.f16", "normal", tail=signs, a=a, b=b)
    yield wgmma("wgmma without C", "m64n8k16.f32.bf16.bf16", "normal", tail=scales_16, a=a, b=b, add=0)
    # Layouts: every mode, K-major and MN-major, with starts inside a swizzled row, and with distinct strides.
    for mode, span in ((0, 16), (3, 32), (2, 64), (1, 128)):
        for start in dict.fromkeys((0, 32 if span > 32 else 0, span * 8)):
            one = descriptor(start, 2176 if span == 16 else 16, span * 8, mode)
            yield wgmma(f"wgmma K-major {span} at {start}", "m64n40k16.f32.f16.f16", "normal", tail=scales_16,
                        a=one, b=one + (8192 >> 4))  # fmt: skip
        for type_ in ("f16", "bf16"):
            for turned in (", 1, 1, 1, 1", ", 1, 1, 0, 1", ", 1, 1, 1, 0"):
                apart = descriptor(0, 2048, 4096, mode) if span == 16 else descriptor(0, span * 32, span * 8, mode)
                along = descriptor(0, 1024, 256 if span == 16 else span * 8, mode)
                one, two = apart if turned[8] == "1" else along, apart if turned[11] == "1" else along
                yield wgmma(f"wgmma MN-major {span} {type_}{turned}", f"m64n48k16.f32.{type_}.{type_}", "normal",
                            tail=turned, a=one, b=two + (16384 >> 4))  # fmt: skip
    for offset in (0, 3):
        skewed = descriptor(384, 16, 1024, 1, offset)
        yield wgmma(
            f"wgmma base offset {offset}", "m64n16k16.f32.f16.f16", "normal", tail=scales_16, a=skewed, b=skewed + 512
        )


MMA = """
extern "C" __global__ void kernel(const unsigned *a, const unsigned *b, const unsigned *c, unsigned *out)
{
    const unsigned *x = a + A * threadIdx.x, *y = b + B * threadIdx.x, *z = c + C * threadIdx.x;
    unsigned d[C];
    for (int i = 0; i < C; i++) d[i] = z[i];
    asm volatile("mma.sync.aligned.TYPES {D}, {X}, {Y}, {D};" : OUTPUTS : INPUTS);
    for (int i = 0; i < C; i++) out[C * threadIdx.x + i] = d[i];
}
"""


def mma_cases() -> Iterator[Case]:
    """Yield cases of mma.sync with floats, which add like wgmma."""
    for types, count in (
        ("m16n8k16.row.col.f32.f16.f16.f32", (4, 2, 4)), ("m16n8k16.row.col.f16.f16.f16.f16", (4, 2, 2)),
        ("m16n8k8.row.col.f32.f16.f16.f32", (2, 1, 4)), ("m16n8k16.row.col.f32.bf16.bf16.f32", (4, 2, 4)),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", (4, 2, 4)), ("m16n8k4.row.col.f32.tf32.tf32.f32", (2, 1, 4)),
        ("m16n8k32.row.col.f32.e4m3.e5m2.f32", (4, 2, 4)), ("m16n8k32.row.col.f16.e4m3.e4m3.f16", (4, 2, 2)),
    ):  # fmt: skip
        for kind in ("normal", "wide", "special"):
            name = f"mma.sync {types} {kind}"
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            words = types.split(".")
            arrays = []
            for type_, n in zip((words[4], words[5], words[3]), count, strict=True):
                size = {"tf32": 4, "f32": 4, "f16": 2, "bf16": 2}.get(type_, 1)
                arrays.append(random_floats(rng, (256 * n * 4 // size,), type_, kind).view(np.uint32))
            a, b, c = count
            listed = [", ".join(f"%{i}" for i in range(*ends)) for ends in ((0, c), (c, c + a), (c + a, c + a + b))]
            text = MMA.replace("TYPES", types)
            for letter, operands in zip("DXY", listed, strict=True):
                text = text.replace("{" + letter + "}", "{" + operands + "}")
            text = text.replace("OUTPUTS", ", ".join(f'"+r"(d[{i}])' for i in range(c)))
            inputs = [f'"r"(x[{i}])' for i in range(a)] + [f'"r"(y[{i}])' for i in range(b)]
            text = text.replace("INPUTS", ", ".join(inputs))
            for letter, number in zip("ABC", count, strict=True):
                text = re.sub(rf'(?<!")\b{letter}\b', str(number), text)
            yield Case(name, text, (*arrays, np.zeros(256 * c, np.uint32)), block=(256,))


def cases(pattern: str = "") -> list[Case]:
    """Return the cases whose names match a pattern."""
    from tests.hopper_tiles import cluster_cases, tensor_cases

    families = (wgmma_cases, mma_cases, tensor_cases, cluster_cases)
    return [case for family in families for case in family() if re.search(pattern, case.name)]


# Both sides ----------------------------------------------------------------------------------------------------------


def simulated(chosen: list[Case]) -> Iterator[tuple[list[Array], list[Any]]]:
    """Yield the arrays after the simulated launch of each case, and the hazards."""
    from cudabench.compile.compiler import compile_ptx
    from cudabench.simulator import api as simulator

    names = kernel_names(chosen)
    compiled = compile_ptx(module_text(chosen), "cases.cu", names=names)
    program = simulator.load(compiled.ptx)
    for name, case in zip(names, chosen, strict=True):
        yield launched(program, compiled.entry(name), case)


def launched(program: Any, entry: str, case: Case) -> tuple[list[Array], list[Any]]:
    """Return the arrays after a case's launch, and the hazards."""
    from cudabench.simulator import api as simulator

    arguments: list[Any] = [x.copy() if isinstance(x, np.ndarray) else x for x in case.arguments]
    for place, one in enumerate(arguments):
        if isinstance(one, Map):
            array = arguments[one.place].view(f"u{one.width}")
            arguments[place] = simulator.TensorMap(
                array, one.box, one.sizes, one.strides, one.steps, one.swizzle, one.fill, one.dtype
            )
    report = simulator.run(program, entry, case.grid, case.block, arguments, shared_bytes=case.shared)
    return [x for x in arguments if isinstance(x, np.ndarray)], list(report.hazards)


def kernel_names(chosen: list[Case]) -> list[str]:
    """Return the kernel name of each case in the common file: kernel0, kernel1 and so on, one per text."""
    places = {text: place for place, text in enumerate(dict.fromkeys(case.text for case in chosen))}
    return [f"kernel{places[case.text]}" for case in chosen]


def module_text(chosen: list[Case]) -> str:
    """Return one file with the kernels of all cases, which needs one compile."""
    texts = dict(zip(kernel_names(chosen), (case.text for case in chosen), strict=True))
    return "".join(re.sub(r"\bkernel\(", f"{name}(", text) for name, text in texts.items())


def on_gpu(chosen: list[Case], device: Any, first: int = 0) -> Iterator[list[Array]]:
    """Compile the cases, and return the arrays after the launch of each on a GPU, from number `first` on."""
    from cudabench.records.launch import Source

    names = kernel_names(chosen)
    module = device.load(Source("cases.cu", module_text(chosen)), {}, names)
    return (launched_on_gpu(device, module, *pair) for pair in list(zip(names, chosen, strict=True))[first:])


def launched_on_gpu(device: Any, module: Any, name: str, case: Case) -> list[Array]:
    """Return the arrays after a case's launch."""
    from cudabench.records.launch import Launch, TensorMap

    pointers: dict[str, int] = {}
    arguments: list[Any] = []
    for place, value in enumerate(case.arguments):
        if isinstance(value, np.ndarray):
            buffer = f"a{place}"
            pointers[buffer] = device.allocate(value.nbytes)
            device.upload(pointers[buffer], value)
            arguments.append(buffer)
        elif isinstance(value, Map):
            sides = value.sizes, value.strides, value.box, value.steps
            arguments.append(TensorMap(f"a{value.place}", value.dtype, *sides, value.swizzle, value.fill))
        else:
            arguments.append(value)
    grid, block = ((*sides, 1, 1)[:3] for sides in (case.grid, case.block))
    launch = Launch(name, grid, block, tuple(arguments), case.shared)  # type: ignore[arg-type]
    work = device.bind(module, [launch], pointers)
    device.run(work, f"running {case.name}")
    found = []
    for place, value in enumerate(case.arguments):
        if isinstance(value, np.ndarray):
            back = np.empty_like(value)
            device.download(pointers[f"a{place}"], back)
            device.release(pointers[f"a{place}"])
            found.append(back)
    return found


def differing(one: list[Array], other: list[Array]) -> int:
    """Return the number of bytes in which two lists of arrays differ."""
    return sum(int(np.count_nonzero(x.view(np.uint8) != y.view(np.uint8))) for x, y in zip(one, other, strict=True))


def run(path: str, pattern: str = "", first: str = "0") -> None:
    """Run the cases on the first GPU, and append each result to an .npz file at once.

    A case that fails spoils the CUDA context: it is reported, and a new process continues with the next case.
    """
    from cudabench.devices.cuda import CudaDevice
    from cudabench.errors import CudabenchError

    chosen, done = cases(pattern), int(first)
    if not done:
        Path(path).unlink(missing_ok=True)
    with CudaDevice(0) as device:
        left = on_gpu(chosen, device, done)
        while done < len(chosen):
            try:
                arrays = next(left)
            except CudabenchError as error:
                print(f"{chosen[done].name}: {error}", flush=True)
                keep(path, chosen[done].name, [], str(error))
                break
            keep(path, chosen[done].name, arrays)
            done += 1
    if done + 1 < len(chosen):
        command = [sys.executable, "-m", "tests.hopper_cases", "run", path, pattern, str(done + 1)]
        subprocess.run(command, check=False)
    else:
        print(f"{len(np.load(path))} arrays of {len(chosen)} cases")


def keep(path: str, name: str, arrays: list[Array], failed: str = "") -> None:
    """Add a case's arrays, or its error message, to an .npz file."""
    parts = {str(place): array for place, array in enumerate(arrays)}
    if failed:
        parts["failed"] = np.array(failed)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        for part, array in parts.items():
            with file.open(f"{name}//{part}".replace("/", "_") + ".npy", "w") as stream:
                np.lib.format.write_array(stream, array)


def compare(path: str, pattern: str = "") -> int:
    """Run the cases in the simulator, print those that differ from an .npz file, and return their number."""
    wrong = 0
    real = np.load(path)
    chosen = cases(pattern)
    for case, (mine, hazards) in zip(chosen, simulated(chosen), strict=True):
        key = f"{case.name}//".replace("/", "_")
        if key + "failed" in real:
            wrong += not hazards
            if not hazards:
                print(f"{case.name}: {real[key + 'failed']}, and no hazard here")
            continue
        if key + "0" not in real:
            print(f"{case.name}: not in the file")
            continue
        count = differing([real[f"{key}{place}"] for place in range(len(mine))], mine)
        wrong += bool(count or hazards)
        if count:
            print(f"{case.name}: {count} bytes differ")
        for hazard in hazards:
            print(f"{case.name}: {hazard.kind}: {hazard.message}")
    print(f"{len(chosen)} cases, {wrong} differ")
    return wrong


ILLEGAL = "illegal instruction"  # the record of a case that the GPU refuses


def digest(arrays: list[Array]) -> str:
    """Return the digest of a case's arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def record(path: str, *files: str) -> None:
    """Write the digests of all cases in some .npz files as JSON, or that the GPU stopped with an illegal
    instruction."""
    found = {}
    for file in files:
        real = np.load(file)
        for case in cases():
            key = f"{case.name}//".replace("/", "_")
            if key + "failed" in real and ILLEGAL in str(real[key + "failed"]):
                found[case.name] = ILLEGAL
            elif key + "0" in real:
                arrays = sum(isinstance(one, np.ndarray) for one in case.arguments)
                found[case.name] = digest([real[f"{key}{place}"] for place in range(arrays)])
    Path(path).write_text(json.dumps(found, indent=0) + "\n")
    print(f"{len(found)} of {len(cases())} cases")


if __name__ == "__main__":
    import tests.hopper_cases as itself  # `hopper_tiles` uses the classes of this module

    commands: dict[str, Any] = {"run": itself.run, "compare": itself.compare, "record": itself.record}
    commands[sys.argv[1]](*sys.argv[2:])
