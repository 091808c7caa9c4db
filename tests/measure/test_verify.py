"""The verifier with outputs that are wrong on purpose."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench.measure import verify
from cudabench.records.plan import EXACT, Tolerance

LOOSE = Tolerance(1e-5, 1e-6, "test")


def matrix(dtype: str = "float32") -> np.ndarray:
    """Return a small matrix without repeated values."""
    return np.arange(1, 13).reshape(3, 4).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "uint8"])
def test_right_output_passes(dtype: str) -> None:
    """An equal array has no mismatch."""
    found = verify.compare(matrix(dtype), matrix(dtype), EXACT)
    assert (found.mismatches, found.first) == (0, None)


def test_complex_numbers_are_compared_whole() -> None:
    """The verifier finds a wrong imaginary part, and accepts an imaginary part within the tolerance."""
    want = np.array([1 + 2j, 3 - 1j], "complex64")
    assert verify.compare(want, want * np.complex64(1 + 1e-6j), LOOSE).mismatches == 0
    assert verify.compare(want, want.conj(), LOOSE).mismatches == 2


def test_first_mismatch_has_index_and_values() -> None:
    """The report names the first wrong element, both values and the count."""
    got = matrix()
    got[1, 2], got[2, 3] = -1, -2
    found = verify.compare(matrix(), got, EXACT, output="out")
    assert found.mismatches == 2
    assert found.first is not None
    assert (found.first.index, found.first.got, found.first.expected) == ((1, 2), -1.0, 7.0)


@pytest.mark.parametrize("tolerance", [EXACT, LOOSE])
def test_nan_never_passes(tolerance: Tolerance) -> None:
    """NaN is wrong, also where the reference is NaN."""
    got = matrix()
    got[0, 0] = np.nan
    assert verify.compare(matrix(), got, tolerance).mismatches == 1
    assert verify.compare(got, got, tolerance).mismatches == 1


def test_poison_is_wrong() -> None:
    """An output whose bytes are all 0xFF fails the comparison in every element."""
    got = np.full(48, 0xFF, np.uint8).view(np.float32).reshape(3, 4)
    assert verify.compare(matrix(), got, LOOSE).mismatches == 12


def test_unwritten_last_tile_is_found() -> None:
    """The verifier counts exactly the elements of a corner that the kernel did not write."""
    got = matrix()
    got[2:, 2:] = 0
    assert verify.compare(matrix(), got, EXACT).mismatches == 2


def test_identity_instead_of_transpose_is_wrong() -> None:
    """A copy of the matrix fails as a transpose, although it has the same values."""
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert verify.compare(square.T.copy(), square, EXACT).mismatches == 12


def test_tolerance_is_a_bound() -> None:
    """Differences up to atol + rtol * |expected| pass, larger ones do not."""
    want = np.array([1000.0, 0.0])
    assert verify.compare(want, want + np.array([0.009, 9e-7]), LOOSE).mismatches == 0
    assert verify.compare(want, want + np.array([0.011, 2e-6]), LOOSE).mismatches == 2


def test_infinity_has_no_tolerance() -> None:
    """An infinite reference accepts only itself."""
    want = np.array([np.inf, np.inf, -np.inf])
    assert verify.compare(want, np.array([np.inf, 1.0, np.inf]), LOOSE).mismatches == 2


def test_other_shape_is_refused() -> None:
    """Arrays of other shapes cannot be compared."""
    with pytest.raises(ValueError, match="shape"):
        verify.compare(matrix(), matrix().T, EXACT)


@pytest.mark.slow
@given(st.integers(0, 12 * 10**6 - 1))
def test_one_wrong_element_is_found_anywhere(at: int) -> None:
    """The verifier finds a single wrong element at any index of an array that it compares in several chunks."""
    want = np.zeros(12 * 10**6, np.int8)
    got = want.copy()
    got[at] = 1
    found = verify.compare(want, got, EXACT)
    assert found.mismatches == 1
    assert found.first is not None
    assert found.first.index == (at,)


def test_the_largest_error_is_of_all_elements() -> None:
    """The error in ulp is the largest of the unequal elements: 0 if a finite element is equal, None if no element is
    finite or the type is an integer."""
    want = np.array([1.0, 2.0, np.inf], np.float32)
    near = np.nextafter(want, np.float32(3), dtype=np.float32)
    assert verify.compare(want, want, EXACT).largest_error_ulp == 0.0
    assert verify.compare(want[:2], near[:2], EXACT).largest_error_ulp == 1.0
    assert verify.compare(want[2:], want[2:], EXACT).largest_error_ulp is None
    assert verify.compare(want[::2].copy(), np.full(2, np.inf, np.float32), EXACT).largest_error_ulp is None
    assert verify.compare(np.arange(3), np.arange(3), EXACT).largest_error_ulp is None


def test_merge_keeps_the_first_fault_and_both_looks() -> None:
    """Merging two checks of an output adds their mismatches, and keeps the first mismatch."""
    bad = matrix()
    bad[0, 1] = 9
    before = verify.compare(matrix(), matrix(), EXACT, checked="before")
    after = verify.compare(matrix(), bad, EXACT, checked="after")
    merged = verify.merge(before, after)
    assert merged.checked == ("before", "after")
    assert merged.mismatches == 1
    assert merged.first == after.first


def test_the_bound_itself_passes() -> None:
    """A difference of exactly atol + rtol * |expected| passes, also for a negative reference."""
    want = np.array([8.0, -8.0, 0.0])
    bound = Tolerance(0.25, 0.5, "test")
    assert verify.compare(want, want + np.array([2.5, -2.5, 0.5]), bound).mismatches == 0
    assert verify.compare(want, want + np.array([2.6, -2.6, 0.6]), bound).mismatches == 3


def test_merge_keeps_the_tolerance_of_the_wrong_look() -> None:
    """A merged check has the tolerance of the failed check, or the wider one if both passed; it lists each moment once,
    and keeps the first mismatch."""
    tight, wide = Tolerance(1e-6, 0.0, "tight"), Tolerance(1e-2, 1e-3, "wide")
    bad, worse = matrix(), matrix()
    bad[0, 1], worse[0, 0] = 9, 9
    right = verify.compare(matrix(), matrix(), wide)
    wrong = verify.compare(matrix(), bad, tight)
    for merged in (verify.merge(right, wrong), verify.merge(wrong, right)):
        assert (merged.rtol, merged.atol, merged.checked) == (1e-6, 0.0, ("before",))
    exact = verify.compare(matrix(), matrix(), tight)
    assert verify.merge(exact, right).rtol == verify.merge(right, exact).rtol == 1e-2
    assert verify.merge(wrong, verify.compare(matrix(), worse, tight)).first == wrong.first


def test_every_output_is_compared_with_its_own_tolerance() -> None:
    """The verifier also compares a second output, with the tolerance given for its name."""
    expected = {"a": np.array([1.0]), "b": np.array([1.0])}
    loose_b = Tolerance(0.0, 0.0, "exact", outputs={"b": Tolerance(0.5, 0.0, "loose")})
    assert (
        verify.compare_all(expected, {"a": np.array([1.0]), "b": np.array([1.4])}, loose_b, checked="x").first is None
    )
    found = verify.compare_all(expected, {"a": np.array([1.4]), "b": np.array([1.6])}, loose_b, checked="x")
    assert (found.mismatches, found.first and found.first.output) == (2, "a")


def test_written_inputs_are_found_to_the_element() -> None:
    """The message names the first changed element with both values, also beyond the first chunk; an unchanged NaN is
    not a change."""
    before = np.zeros((3, verify.CHUNK // 4), np.float32)
    before[0, 0] = np.nan
    assert verify.changed({"x": before}, {"x": before.copy()}) is None
    after = before.copy()
    after[2, 7] = 5
    assert "x[2, 7] was 0.0, is 5.0" in (verify.changed({"x": before}, {"x": after}) or "")
