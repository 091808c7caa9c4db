"""What a kernel's text shows of its arrays: which are outputs, and through which pointers one number is read."""

from __future__ import annotations

import pytest

from cudabench.toolchain import source
from cudabench.toolchain.source import KernelSource
from cudabench.userkernel.suggested.uses import numbers_by_pointer, outputs


def kernel_of(parameters: str, body: str) -> KernelSource:
    """Return a kernel of these parameters and this body."""
    return source.parse(f"__global__ void k({parameters}) {{ int i = threadIdx.x; {body} }}", "k.cu").kernels[0]


OUTPUTS = {
    "the last is read": ("float *out, float *in", "out[i] = 2 * in[i];", {"out"}),
    "the last is read, another added to": ("float *sum, float *part", "sum[i] += part[i];", set()),
    "in place": ("float *x, int n", "x[i] = x[n - i];", set()),
    "in place, a sort": ("int *x", "int a = x[i], b = x[i ^ 1]; if (a > b) { x[i] = b; x[i ^ 1] = a; }", set()),
    "added to": ("float *x", "x[i] += 3;", {"x"}),
    "in place, of indices": ("int *p", "while (p[i] != i) { int up = p[i]; p[i] = p[up]; i = up; }", {"p"}),
    "in place, of an index at once": ("int *p", "p[i] = p[p[i]];", {"p"}),
    "by a pointer into it": (
        "char *src, char *dst, double *w",
        "char *o = dst + 3 * i; o[1] = src[i] * w[i];",
        {"dst"},
    ),
    "by the address of an element": ("float *y, float *x", "float *o = &y[4 * i]; o[0] = x[i];", {"y"}),
    "by a pointer of another type": ("float *y, float *x", "float4 *o = (float4 *)y; o[i].x = x[i];", {"y"}),
    "by a reference": ("float *y, float *x", "float &o = y[i]; o = x[i]; y[i + 32] = 0;", {"y"}),
    "by a star": ("float *y, float *x", "*(y + i) = *(x + i);", {"y"}),
    "by one star": ("float *y, float *x", "if (i == 0) *y = *x;", {"y"}),
    "a struct's member": ("float *y, struct S *s", "y[i] = s->scale; y[i + 32] = (*s).scale;", {"y"}),
    "set and then added to": ("float *y, float *x", "y[i] = 0; y[i] += x[i];", {"y"}),
    "atomics": ("int *bins, int *x", "atomicAdd(&bins[x[i]], 1);", {"bins"}),
    "an atomic on one place": ("int *total, int *x", "atomicAdd(total, x[i]);", {"total"}),
    "given to a function": ("float *x", "change(x, i);", {"x"}),
    "compared is not set": ("float *x, float *y", "if (x[i] == y[i]) x[i] = 1;", set()),
    "a product is no star": ("float *x, float *y", "x[i] = i * y[i];", {"x"}),
    "no pointer at all": ("int n", "n = i;", set()),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name: str) -> None:
    """What is only written or counted in is an output; what is read holds data, in place and last of all too."""
    parameters, body, found = OUTPUTS[name]
    assert outputs(kernel_of(parameters, body)) == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if (i < *n) x[i] = *n + 1;", {"n"}),
        ("for (int j = 0; j < (*n); j++) x[j] = 2 * *n;", {"n"}),
        ("x[i] = n[0] + *n;", set()),
        ("x[i] = *(n + i);", set()),
        ("int *p = n + 1; x[i] = *n;", set()),
        ("x[i] = *n; *n = 0;", set()),
        ("x[i] = *n; atomicAdd(n, 1);", set()),
        ("x[i] = *n; use(n);", set()),
        ("x[i] = 1;", set()),
    ],
)
def test_numbers_by_pointer(body: str, found: set[str]) -> None:
    """A pointer of which a kernel reads one number and nothing else."""
    assert numbers_by_pointer(kernel_of("int *x, int *n", body)) == found
