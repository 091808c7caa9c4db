"""Linear equations over the lanes in a function's blocks, solved one unknown at a time, the surest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

Key = tuple[str, int, int]  # ("in", block, -1), ("edge", from, to), ("end", block, -1)

RANKS = 4  # structure, fixed instructions, branches, loads
_NARROWINGS = 100  # most rounds


@dataclass(eq=False)
class _Equation:
    """Sum of coefficient times unknown = constant; unknowns are removed as they become known."""

    terms: dict[Key, int]
    constant: float
    rank: int
    told: bool = False  # whether its present form is used up


class System:
    """Equations over lanes, solved by substitution of known values.

    entering: the edges that lead to each block. warps: the warps of blocks in which they are known. limits: bounds of
    the unknowns.
    """

    def __init__(self, entering: Mapping[int, Sequence[Key]]) -> None:
        self.entering = entering
        self.known: dict[Key, float] = {}
        self.warps: dict[int, float] = {}
        self.limits: dict[Key, tuple[float, float]] = defaultdict(lambda: (0.0, inf))
        self._equations: list[list[_Equation]] = [[] for _ in range(RANKS)]
        self._uses: dict[Key, list[_Equation]] = defaultdict(list)
        self._changed: dict[_Equation, None] = {}  # equations with newly known values since `narrow`

    def lanes(self, block: int) -> float | None:
        """Return the lanes that enter a block, or None if unknown."""
        return self.known.get(("in", block, -1))

    def enter(self, block: int, lanes: float) -> None:
        """Put the lanes that enter a block into all equations."""
        self.set(("in", block, -1), lanes)

    def add(self, terms: Mapping[Key, int], constant: float, rank: int) -> None:
        """Add an equation; rank: its certainty."""
        left = {key: value for key, value in terms.items() if key not in self.known}
        constant -= sum(value * self.known[key] for key, value in terms.items() if key in self.known)
        equation = _Equation(left, constant, rank)
        self._equations[rank].append(equation)
        for key in left:
            self._uses[key].append(equation)
        self._changed[equation] = None

    def solve(self, rank: int = RANKS - 1) -> None:
        """Use the equations up to a rank until they give no new values; surer equations first."""
        while any(
            sum(self._step(one) for one in level if one.terms and not one.told) for level in self._equations[: rank + 1]
        ):
            pass

    def settle(self) -> None:
        """Use all equations, and the bounds of unknowns, until neither gives new values."""
        self.solve()
        while self.narrow():
            self.solve()

    def _step(self, equation: _Equation) -> bool:
        """Solve a single equation if possible; return whether it gave a value."""
        terms, constant = equation.terms, equation.constant
        equation.told = True
        if len(terms) == 1:
            ((key, coefficient),) = terms.items()
            value = constant / coefficient
            before = self.entering.get(key[1], ()) if key[0] == "in" else ()
            if value < sum(self.known.get(edge, 0) for edge in before) or value != int(value) or value < 0:
                equation.terms = {}  # contradicts a surer equation
                return False
            self.set(key, value)
            return True
        zeros = not constant and len({coefficient > 0 for coefficient in terms.values()}) < 2
        for key in list(terms) if zeros else ():
            self.set(key, 0)
        return zeros

    def set(self, key: Key, value: float) -> None:
        """Put a value into all equations."""
        if key in self.known:
            return
        self.known[key] = value
        for equation in self._uses[key]:
            equation.constant -= equation.terms.pop(key, 0) * value
            equation.told = False
            self._changed[equation] = None

    def narrow(self) -> bool:
        """Narrow the bounds of unknowns by the surer equations; return whether an unknown became known.

        Unknowns are not negative, so an equation bounds each of them: if two unknown edges together bring 512 lanes,
        neither brings more.
        """
        told = False
        for _ in range(_NARROWINGS):
            waiting, self._changed = self._changed, {}
            for equation in waiting:
                for key in self._narrowed(equation) if equation.rank <= 1 else ():
                    self._changed |= dict.fromkeys(self._uses[key])
                    least, most = self.limits[key]
                    if least == most and key not in self.known:
                        self.set(key, least)
                        told = True
            if not self._changed:
                break
        return told

    def _narrowed(self, equation: _Equation) -> list[Key]:
        """Narrow the unknowns of one equation; return the changed ones."""
        spans = {key: sorted(factor * limit for limit in self.limits[key]) for key, factor in equation.terms.items()}
        changed = []
        for key, factor in equation.terms.items():
            others = [span for other, span in spans.items() if other != key]
            least, most = sorted((equation.constant - sum(span[end] for span in others)) / factor for end in (0, 1))
            before = self.limits[key]
            after = max(before[0], least), min(before[1], most)
            if before != after and after[0] <= after[1]:
                self.limits[key] = after
                changed.append(key)
        return changed
