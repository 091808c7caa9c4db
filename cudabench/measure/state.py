"""What a kernel can keep from one launch to the next: the variables of its modules, set back before every sample."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.devices.protocol import Device, Variable, Work
from cudabench.records.results import StateVariable

ALWAYS_BYTES = 1 << 20  # of variables are set back before every sample; larger ones only once a launch changed them


class KernelState:
    """The writable variables of a kernel's modules and their first images, kept in device memory."""

    def __init__(self, device: Device, variables: Sequence[Variable]) -> None:
        self._device = device
        self._images: dict[Variable, tuple[int, int]] = {}  # address and digest
        self._changed: dict[Variable, None] = {}
        self._reset: frozenset[Variable] = frozenset()
        if not variables:
            return
        # Images share pages with nothing else: a kernel could keep something in what is left of one.
        self._used = sum(_aligned(variable.nbytes) for variable in variables)
        self._pages = at = device.allocate(self._used, own_page=True)
        for variable in variables:
            device.copy(variable.pointer, at, variable.nbytes)()
            self._images[variable] = at, device.digest(variable.pointer, variable.nbytes)
            at += _aligned(variable.nbytes)

    def look(self) -> None:
        """Note which variables differ from their first images now."""
        for variable, (_, digest) in self._images.items():
            if self._device.digest(variable.pointer, variable.nbytes) != digest:
                self._changed[variable] = None

    @property
    def kept(self) -> tuple[StateVariable, ...]:
        """The variables that launches were seen to leave changed."""
        return tuple(StateVariable(variable.name, variable.line) for variable in self._changed)

    def reset(self) -> list[Work]:
        """Return what sets the variables back."""
        small = sum(variable.nbytes for variable in self._images) <= ALWAYS_BYTES
        self._reset = frozenset(self._images if small else self._changed)
        works = [
            self._device.copy(image, variable.pointer, variable.nbytes)
            for variable, (image, _) in self._images.items()
            if variable in self._reset
        ]
        rest = -self._used % self._device.page_bytes if self._images else 0
        return [*works, self._device.fill(self._pages + self._used, rest, 0)] if rest else works

    @property
    def missed(self) -> bool:
        """Whether a launch was seen to change a variable that the last `reset` leaves as it is."""
        return not self._reset.issuperset(self._changed)

    def release(self) -> None:
        """Set all variables back a last time, and free the images."""
        for variable, (image, _) in self._images.items():
            self._device.copy(image, variable.pointer, variable.nbytes)()
            self._device.digest(variable.pointer, variable.nbytes)  # waits for the copy
        if self._images:
            self._device.release(self._pages)
        self._images.clear()


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 16) * 16
