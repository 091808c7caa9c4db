"""Small kernels that each use one feature of the language, with the right answer, compiled and simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ladders import needs_compiler

# Each feature: text before the kernel, its body for thread i of 64, type of x and y, expected y; x is i - 32.
FEATURES = {
    "division towards zero": ("", "y[i] = x[i] / 3;", "int32", "np.trunc(x/3)"),
    "remainder has the dividend's sign": ("", "y[i] = x[i] % 5;", "int32", "np.fmod(x,5)"),
    "unsigned wraps": ("", "y[i] = 0u - x[i];", "uint32", "0-x"),
    "arithmetic shift": ("", "y[i] = x[i] >> 2;", "int32", "np.floor(x/4)"),
    "shift by 31": ("", "y[i] = (unsigned)x[i] >> 31;", "int32", "np.where(x<0,1,0)"),
    "64-bit product": ("", "y[i] = (long long)x[i] * 3000000000ll;", "int64", "x*3000000000"),
    "high half of a product": ("", "y[i] = __mulhi(x[i] << 20, 1 << 20);", "int32", "x*256"),
    "sign extension": ("", "signed char c = (signed char)(x[i] * 4); y[i] = c;", "int32", "np.int8(4*x)"),
    "zero extension": ("", "unsigned char c = (unsigned char)x[i]; y[i] = c;", "int32", "np.mod(x,256)"),
    "float to int saturates": (
        "",
        "y[i] = (int)(x[i] * 1e9f);",
        "int64",
        "np.clip(x*1000000000,-2147483648,2147483647)",
    ),
    "count of leading zeros": ("", "y[i] = __clz(i + 1);", "int32", "31-np.floor(np.log2(x+33))"),
    "count of ones": ("", "y[i] = __popc(1u << (i % 32)) + __popcll(3ll << (i % 40));", "int32", "0*x+3"),
    "first one": ("", "y[i] = __ffs(1 << (i % 31));", "int32", "np.mod(x+32,31)+1"),
    "reversed bits": ("", "y[i] = (int)(__brev(1u << (i % 32)) == 0x80000000u >> (i % 32));", "int32", "0*x+1"),
    "permuted bytes": ("", "y[i] = __byte_perm(0x03020100, 0x07060504, 0x5410) == 0x05040100;", "int32", "0*x+1"),
    "union": ("", "union { float f; int n; } u; u.f = 1.0f; y[i] = u.n + x[i];", "int32", "x+1065353216"),
    "bit field": (
        "struct B { int a : 3; unsigned b : 5; };",
        "B b; b.a = x[i]; b.b = x[i]; y[i] = b.a + b.b;",
        "int32",
        "np.mod(x+4,8)-4+np.mod(x,32)",
    ),
    "switch falls through": (
        "",
        "int s = 0; switch (i & 3) { case 0: s += 1; case 1: s += 2; break; default: s = 9; } y[i] = s;",
        "int32",
        "np.where(np.mod(x,4)==0,3,np.where(np.mod(x,4)==1,2,9))",
    ),
    "loop with continue and break": (
        "",
        "int s = 0; for (int j = 0; ; ++j) { if (j > i) break; if (j & 1) continue; s += 1; } y[i] = s;",
        "int32",
        "np.floor((x+32)/2)+1",
    ),
    "goto": ("", "int s = 0; again: if (++s < i) goto again; y[i] = s;", "int32", "np.maximum(x+32,1)"),
    "template": (
        "template <int N, class T> __device__ T times(T t) { return N * t; }",
        "y[i] = times<3>(x[i]);",
        "int32",
        "3*x",
    ),
    "lambda": ("", "int k = 2; auto f = [k](int v) { return v * k; }; y[i] = f(x[i]);", "int32", "2*x"),
    "operator": (
        "struct V { int a, b; __device__ V operator+(V o) const { return {a + o.a, b + o.b}; } };",
        "V v = V{x[i], 1} + V{1, x[i]}; y[i] = v.a + v.b;",
        "int32",
        "2*x+2",
    ),
    "virtual call": (
        "struct A { __device__ virtual int f(int v) const { return v; } };\n"
        "struct C : A { __device__ int f(int v) const override { return 2 * v; } };",
        "C c; const A &a = c; y[i] = a.f(x[i]);",
        "int32",
        "2*x",
    ),
    "function pointer": (
        "__device__ int one(int v) { return v + 1; }",
        "int (*f)(int) = one; y[i] = f(x[i]);",
        "int32",
        "x+1",
    ),
    "constant memory": ("__constant__ int table[4] = {7, 8, 9, 10};", "y[i] = table[i & 3];", "int32", "np.mod(x,4)+7"),
    "device variable": ("__device__ int offset = 5;", "y[i] = x[i] + offset;", "int32", "x+5"),
    "static shared": (
        "",
        "__shared__ int t[64]; t[63 - i] = x[i]; __syncthreads(); y[i] = t[i];",
        "int32",
        "np.flip(x)",
    ),
    "shuffle": ("", "y[i] = __shfl_xor_sync(~0u, x[i], 1);", "int32", "np.where(np.mod(x,2)==0,x+1,x-1)"),
    "ballot": ("", "y[i] = __popc(__ballot_sync(~0u, x[i] & 1));", "int32", "0*x+16"),
    "atomic": (
        "",
        "__shared__ int t; if (!i) t = 0; __syncthreads(); atomicAdd(&t, 1); atomicMax(&t, -5); __syncthreads(); "
        "y[i] = t;",
        "int32",
        "0*x+64",
    ),
    "compare and swap": (
        "",
        "__shared__ int t; if (!i) t = 9; __syncthreads(); if (i == 5) atomicCAS(&t, 9, 4); __syncthreads(); y[i] = t;",
        "int32",
        "0*x+4",
    ),
    "local array": (
        "",
        "int a[8]; for (int j = 0; j < 8; ++j) a[j] = j * x[i]; y[i] = a[i & 7];",
        "int32",
        "np.mod(x,8)*x",
    ),
    "vector type": ("", "int4 v = make_int4(x[i], 1, 2, 3); y[i] = v.x + v.y + v.z + v.w;", "int32", "x+6"),
    "read-only load": ("", "y[i] = __ldg(x + i) + 1;", "int32", "x+1"),
    "fused multiply-add": ("", "y[i] = fmaf(x[i], x[i], 0.5f);", "float32", "x*x+0.5"),
    "minimum ignores NaN": ("", 'y[i] = fminf(x[i], nanf(""));', "float32", "x"),
    "negative zero": ("", "y[i] = signbit(-0.0f) ? x[i] : 0;", "float32", "x"),
    "denormals stay": ("", "y[i] = (x[i] * 1e-40f) * 1e38f;", "float32", "x*0.01"),
    "rounding to even": ("", "y[i] = rintf(x[i] + 0.5f);", "float32", "np.rint(x+0.5)"),
    "double": ("", "y[i] = sqrt(x[i] * x[i]) + 1e-9;", "float64", "np.abs(x)+1e-9"),
    "half": ("#include <cuda_fp16.h>", "y[i] = __half2float(__float2half(x[i]));", "float32", "x"),
    "inline assembly": ("", 'int r; asm("add.s32 %0, %1, 4;" : "=r"(r) : "r"(x[i])); y[i] = r;', "int32", "x+4"),
}
C_TYPES = {"int32": "int", "uint32": "unsigned", "int64": "long long", "float32": "float", "float64": "double"}


@pytest.mark.sampled(24)
@needs_compiler
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature(cudabench: Callable[..., Any], name: str) -> None:
    """The kernel gives the result that C++ and CUDA define, without a hazard."""
    before, body, dtype, expected = FEATURES[name]
    kind = C_TYPES[dtype]
    Path("k.cu").write_text(
        f"{before}\n__global__ void k(const {kind} *x, {kind} *y) {{\n  int i = threadIdx.x;\n  {body}\n}}\n"
    )
    x = np.arange(-32, 32).astype(dtype)
    np.save("x.npy", x)
    ran = cudabench(
        "run", "k.cu", "-g", 1, "-b", 64, "--arg", "x=@x.npy", "--arg", f"y={dtype}[64]:empty", "--expect",
        f"y=np.{dtype}({expected})", "-d", "sim", "--no-cpu", "--rtol", "1e-5" if dtype == "float32" else "0",
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err


RUNS_OFF = """extern "C" __global__ void k(int *y)
{
    __shared__ int from[4];
    if (threadIdx.x < 4)
        from[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    int rank = 0;
    while (from[rank] != 77)
        rank++;
    y[threadIdx.x] = rank;
}
"""


@pytest.mark.slow
def test_one_that_never_ends_has_its_hazards(cudabench: Callable[..., Any]) -> None:
    """A loop that leaves its array and never ends is a wrong result with the line of the access; no command fails on
    it."""
    Path("k.cu").write_text(RUNS_OFF)
    line = ("--grid", 1, "--block", 32, "--arg", "y=int32[32]:ones", "--device", "sim", "--timeout", 1)
    ran = cudabench("run", "k.cu", *line, "--json", "r.json", "-q")
    assert ran.code == 3, ran.err
    (result,) = json.loads(Path("r.json").read_text())["results"]
    assert [(one["kind"], one["line"]) for one in result["hazards"]] == [("out-of-bounds", 8)]
    assert result["reason"].startswith("out-of-bounds on line 8: ")
    assert "was stopped at k.cu:8 when its time was up" in result["reason"]
    for words in (
        ("export", "r.json", "--to", "junit"),
        ("export", "r.json", "--to", "sarif"),
        ("report", "r.json", "-o", "r.html"),
        ("compare", "r.json", "r.json"),
    ):
        assert "defect" not in cudabench(*words).err
    assert cudabench("check", "k.cu", *line).code == 3
