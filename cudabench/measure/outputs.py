"""Checks a kernel's outputs on a GPU, in full or by comparing their digest with the digests of correct outputs. Also
finds the module's variables that a kernel changes, and resets them before every sample."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudabench.devices.protocol import Device, Variable, Work
from cudabench.measure.buffers import BufferSet
from cudabench.measure.context import Arrays, InputSet, wrong_reason
from cudabench.records.launch import POISON
from cudabench.records.results import Hazard, StateVariable, Verification

ELSEWHERE = "outside its arrays, into memory that the launch did not pass to it; --device sim names the line"
# If the module variables together have at most this many bytes, all are reset before every launch; otherwise only those
# that a launch has changed.
ALWAYS_BYTES = 1 << 20
FULL_SHARE = 0.25  # full comparisons may take at most this share of the time since the first sample


class WrongOutput(Exception):
    """Raised for a wrong output or a forbidden write of a kernel, with the reason; it ends the kernel's measurement."""

    def __init__(self, reason: str, verification: Verification | None = None, hazards: tuple[Hazard, ...] = ()) -> None:
        super().__init__(reason)
        self.reason, self.verification, self.hazards = reason, verification, hazards

    @classmethod
    def of(cls, verification: Verification, when: str = "", **known: Any) -> WrongOutput:
        """Return the exception for a verification with wrong elements. `when`: a text before the reason. `known`: new
        values for fields of the verification."""
        return cls(f"{when}{wrong_reason(verification)}", replace(verification, **known))


@dataclass(frozen=True)
class Site:
    """A kernel bound to the buffers at one place of the memory, with one set of inputs.

    `work`: queues the kernel's launches. `rotated`: the same site with rotated inputs (see `buffers`); None if no input
    depends on the seed. `poison`: the byte that fills outputs before a run. `constants`: works that fill the module's
    `__constant__` variables.
    """

    buffers: BufferSet
    inputs: InputSet
    work: Work
    rotated: Site | None = None
    poison: int = POISON
    constants: Sequence[Work] = ()

    def reset(self) -> list[Work]:
        """Return the works that reset all buffers that the kernel may write, and that copy this site's inputs to
        constant memory."""
        return [*self.buffers.reset(self.poison), *self.constants]

    def works(self, runs: int, last: Site | None = None) -> list[Work]:
        """Return the works of a sample: `runs` launches in a row, which get this site's inputs and the rotated inputs
        in turn. `last`: the site whose inputs the last launch gets. Without `rotated`, return a single launch."""
        if self.rotated is None:
            return [self.work]
        pair = [self.work, self.rotated.work] if last is self.rotated else [self.rotated.work, self.work]
        return (pair * (runs // 2 + 1))[-runs:]


@dataclass
class OutputCheck:
    """Checks the outputs of one kernel. `expects`: the name of the expected outputs. `saves`: the names of outputs that
    are saved. `samples`: how many timed samples were checked. `_known`: digests of correct outputs.

    Outputs with a known digest are correct; other outputs are compared in full (see also `check_sample`). A kernel
    whose sums depend on the order of its threads has several correct outputs, and so several known digests.
    """

    expects: str
    saves: Sequence[str] = ()
    samples: int = 0
    _known: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)
    _full_s: float = 0.0
    _start: float = field(default_factory=time.monotonic)

    def compare_in_full(self, site: Site, when: str) -> tuple[Verification | None, Arrays]:
        """Compare all outputs at a site, and return (verification, None if nothing is expected; outputs)."""
        expected = site.inputs.expected(self.expects)
        names = {*expected, *self.saves}
        digest = self._digest(site, expected)
        outputs = site.buffers.download(b for b in site.buffers.buffers if b.name in names)
        verification = site.inputs.compare(self.expects, outputs, when)
        if verification and not verification.mismatches:
            self._known.add(digest)
        return verification, outputs

    def compare_by_digest(self, site: Site, when: str) -> Verification | None:
        """Return the verification if the outputs at a site are wrong, else None. Outputs with a known digest are
        correct, so they are not compared."""
        digest = self._digest(site, site.inputs.expected(self.expects))
        if digest in self._known:
            return None
        verification, _ = self.compare_in_full(site, when)
        return verification if verification and verification.mismatches else None

    def check_sample(self, site: Site) -> Verification | None:
        """Check the outputs of a timed sample as `compare_by_digest` does. If outputs vary from run to run, and
        comparisons have taken more than `FULL_SHARE` of the time, outputs with an unknown digest are not compared."""
        if not (expected := site.inputs.expected(self.expects)):
            return None
        if self._digest(site, expected) in self._known:
            self.samples += 1
            return None
        begin = time.monotonic()
        if self._full_s > FULL_SHARE * (begin - self._start):
            return None
        verification, _ = self.compare_in_full(site, "timed")
        self._full_s += time.monotonic() - begin
        self.samples += 1
        return replace(verification, samples=self.samples) if verification and verification.mismatches else None

    def start(self) -> None:
        """Set the number of checked samples and the time of full comparisons to 0."""
        self.samples, self._full_s, self._start = 0, 0.0, time.monotonic()

    def _digest(self, site: Site, expected: Arrays) -> tuple[int, tuple[int, ...]]:
        return id(site.inputs), site.buffers.digests(expected)


class KernelState:
    """The writable variables of a kernel's modules, with copies of their initial values in device memory."""

    def __init__(self, device: Device, variables: Sequence[Variable]) -> None:
        self._device = device
        # For each variable: (address of the copy, digest of its initial value).
        self._images: dict[Variable, tuple[int, int]] = {}
        self._changed: dict[Variable, None] = {}
        self._reset: frozenset[Variable] = frozenset()
        if not variables:
            return
        # The copies share no page with other memory, and `reset` clears the rest of the last page: otherwise a kernel
        # could keep results there.
        self._used = sum(_aligned(variable.nbytes) for variable in variables)
        self._pages = at = device.allocate(self._used, own_page=True)
        for variable in variables:
            device.copy(variable.pointer, at, variable.nbytes)()
            self._images[variable] = at, device.digest(variable.pointer, variable.nbytes)
            at += _aligned(variable.nbytes)

    def note_changes(self) -> None:
        """Add the variables whose present values differ from their initial values to the changed variables."""
        for variable, (_, digest) in self._images.items():
            if self._device.digest(variable.pointer, variable.nbytes) != digest:
                self._changed[variable] = None

    @property
    def changed_variables(self) -> tuple[StateVariable, ...]:
        """Records of the variables that had changed at a call of `note_changes`."""
        return tuple(StateVariable(variable.name, variable.line) for variable in self._changed)

    def reset(self) -> list[Work]:
        """Return the works that reset all variables to their initial values; if the variables are large, only works
        that reset changed variables."""
        small = sum(variable.nbytes for variable in self._images) <= ALWAYS_BYTES
        self._reset = frozenset(self._images if small else self._changed)
        works = [
            self._device.copy(image, variable.pointer, variable.nbytes)
            for variable, (image, _) in self._images.items()
            if variable in self._reset
        ]
        padding = -self._used % self._device.page_bytes if self._images else 0
        return [*works, self._device.fill(self._pages + self._used, padding, 0)] if padding else works

    @property
    def has_unreset_change(self) -> bool:
        """Whether a launch changed a variable that the last `reset` did not reset."""
        return not self._reset.issuperset(self._changed)

    def release(self) -> None:
        """Reset all variables to their initial values, and free the copies of the initial values."""
        for variable, (image, _) in self._images.items():
            self._device.copy(image, variable.pointer, variable.nbytes)()
            self._device.digest(variable.pointer, variable.nbytes)  # reading the copy back waits until it is complete
        if self._images:
            self._device.release(self._pages)
        self._images.clear()


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 16) * 16
