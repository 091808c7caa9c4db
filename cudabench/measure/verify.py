"""Compares an output with its reference, in chunks. A NaN in the output is always wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from cudabench.floats import from_bfloat16
from cudabench.records.plan import Tolerance
from cudabench.records.results import Mismatch, Verification
from cudabench.system.children import on_threads

CHUNK = 1 << 20  # elements that a thread compares at a time; its temporary arrays then need tens of megabytes


def compare(
    expected: np.ndarray, got: np.ndarray, tolerance: Tolerance, *, checked: str = "before", output: str = ""
) -> Verification:
    """Compare two arrays of the same shape element by element, and return the verification.

    An element is correct if |got - expected| <= atol + rtol * |expected| (the rule of numpy.isclose), or if both are
    the same infinity. `checked`: the point of the run at which the output was read. `output`: the name of the output.
    Raises ValueError if the shapes differ.
    """
    if expected.shape != got.shape:
        raise ValueError(f"the output has shape {got.shape}, the reference {expected.shape}")
    flat_expected, flat_got = expected.reshape(-1), got.reshape(-1)

    def compare_chunk(start: int) -> tuple[int, Mismatch | None, float | None]:
        want, have = flat_expected[start : start + CHUNK], flat_got[start : start + CHUNK]
        if tolerance.bfloat16:
            want, have = from_bfloat16(want), from_bfloat16(have)
        unequal = np.flatnonzero(want != have)
        ulp = None
        if have.dtype.kind == "f" and want.dtype.kind in "fiu":
            ulp = _largest_ulp(want, have, unequal, 16 if tolerance.bfloat16 else 0)
        wrong = unequal[_wrong(want[unequal], have[unequal], tolerance)]
        if not wrong.size:
            return 0, None, ulp
        at = int(wrong[0])
        index = tuple(int(i) for i in np.unravel_index(start + at, expected.shape))
        return wrong.size, Mismatch(index, have[at].item(), want[at].item(), output), ulp

    counts, firsts, ulps = zip(*on_threads(compare_chunk, range(0, max(flat_expected.size, 1), CHUNK)), strict=True)
    return Verification(
        sum(counts),
        next(filter(None, firsts), None),
        tolerance.rtol,
        tolerance.atol,
        (checked,),
        largest_error_ulp=max((ulp for ulp in ulps if ulp is not None), default=None),
    )


def _largest_ulp(want: np.ndarray, have: np.ndarray, unequal: np.ndarray, shorter: int) -> float | None:
    """Return the largest difference of finite values, in units in the last place of the expected value; None if there
    are no finite values. `unequal`: the indices at which `want` and `have` differ. `shorter`: by how many bits the
    fraction of the true type, such as bfloat16, is shorter than that of the type of `have`."""
    if not unequal.size:
        return 0.0 if np.isfinite(want[:1]).any() or np.isfinite(want).any() else None
    exact, actual = want[unequal].astype(np.float64), have[unequal].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        unit = np.spacing(np.abs(exact).astype(have.dtype)).astype(np.float64) * 2.0**shorter
        error = np.abs(actual - exact) / unit
    finite = error[np.isfinite(error)]
    if finite.size:
        return float(finite.max())
    return 0.0 if np.count_nonzero(np.isfinite(want)) > np.count_nonzero(np.isfinite(exact)) else None


def _wrong(want: np.ndarray, have: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """Return a bool array that is True for each pair of unequal elements that differ by more than the tolerance."""
    if tolerance.rtol == 0 and tolerance.atol == 0:
        return np.ones(want.shape, bool)
    wider = np.complex128 if want.dtype.kind == "c" else np.float64
    wide_want, wide_have = want.astype(wider), have.astype(wider)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(wide_have - wide_want) <= tolerance.atol + tolerance.rtol * np.abs(wide_want)
    # An infinite reference makes the tolerance infinite too. Without this check, every finite value would be accepted.
    return ~(near & np.isfinite(wide_want))


def compare_all(
    expected: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], tolerance: Tolerance, *, checked: str
) -> Verification:
    """Compare all expected outputs of a kernel, at least one, and return one verification for all of them."""
    verifications = []
    for name, array in expected.items():
        bound = tolerance.of(name)
        parts = bound.parts(array, got[name]) if bound.parts else [(name, array, got[name], bound)]
        verifications += [
            compare(want, have, part_tolerance, checked=checked, output=output)
            for output, want, have, part_tolerance in parts
        ]
    return reduce(merge, verifications)


def zeros_pass(expected: np.ndarray, tolerance: Tolerance) -> float | None:
    """Return the largest |expected| if the expected output is not all zeros, but the tolerance would accept an output
    of zeros; else None. Also return None for an array of records, whose fields are compared one by one."""
    if tolerance.parts or not expected.size or (tolerance.rtol < 1 and tolerance.atol == 0):
        return None
    flat = expected.reshape(-1)
    largest = 0.0
    for start in range(0, flat.size, CHUNK):
        want = flat[start : start + CHUNK]
        if tolerance.bfloat16:
            want = from_bfloat16(want)
        nonzero = want[want != 0]
        if _wrong(nonzero, np.zeros_like(nonzero), tolerance).any():
            return None
        largest = max(largest, float(np.abs(want).max()))
    return largest or None


def changed(inputs: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> str | None:
    """Return a sentence that names the first input element that a kernel changed, or None if it changed none.

    `inputs`: the input arrays before the kernel ran. `got`: the same arrays after it.
    """
    for name, array in got.items():
        before, after = (a.reshape(-1).view(np.uint8) for a in (np.ascontiguousarray(inputs[name]), array))
        for start in range(0, before.size, CHUNK):
            differs = before[start : start + CHUNK] != after[start : start + CHUNK]
            if differs.any():
                at = (start + int(np.argmax(differs))) // array.itemsize
                before_value, after_value = inputs[name].reshape(-1)[at].item(), array.reshape(-1)[at].item()
                change = f"{element_name(name, np.unravel_index(at, array.shape))} was {before_value}, is {after_value}"
                return f"the kernel wrote into {name}, which is const in its signature: {change}"
    return None


def merge(first: Verification, second: Verification) -> Verification:
    """Merge two verifications. The tolerance is that of the verification with wrong elements; if both or neither have
    wrong elements, it is the tolerance with the larger rtol."""
    ranked = sorted((first, second), key=lambda verification: (verification.first is None, -verification.rtol))
    known = [ulp for ulp in (first.largest_error_ulp, second.largest_error_ulp) if ulp is not None]
    return Verification(
        first.mismatches + second.mismatches,
        first.first or second.first,
        ranked[0].rtol,
        ranked[0].atol,
        first.checked + tuple(c for c in second.checked if c not in first.checked),
        largest_error_ulp=max(known, default=None),
    )


def element_name(name: str, index: Sequence[object]) -> str:
    """Return the name of an element of an array in messages: 'out[3, 0]', or 'out' of an array without dimensions."""
    return f"{name}[{', '.join(map(str, index))}]" if len(index) else name
