"""NVML's report of a card: other processes, error counts, and the card's state while busy."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from cudabench.devices import constants, nvml
from cudabench.devices.nvml import Board
from cudabench.errors import UsageError


def board(**functions: Any) -> Board:
    """Return a card whose NVML functions return these values."""
    named = {f"nvmlDevice{name}": lambda handle, *arguments, value=value: value for name, value in functions.items()}
    return Board(SimpleNamespace(**named), "card")


def test_other_processes() -> None:
    """This process does not count as another one; inside a container, where numbers differ, one of the listed is this
    one."""
    mine, other = SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)
    assert board(GetComputeRunningProcesses=[mine]).other_processes() == []
    (named,) = board(GetComputeRunningProcesses=[mine, other]).other_processes()
    assert named.endswith("(process 1)")
    assert board(GetComputeRunningProcesses=[other]).other_processes() == []
    (unknown,) = board(GetComputeRunningProcesses=[other, SimpleNamespace(pid=2)]).other_processes()
    assert unknown == "another process, one of 1, 2 outside this container"
    assert board().other_processes() == []


def test_remapped_rows_add_up() -> None:
    """Rows remapped for either kind of error are added; without NVML's function the count is unknown."""
    health = board(GetRemappedRows=(2, 3, 0, 1)).health()
    assert (health.remapped_rows, health.remap_pending, health.remap_failed) == (5, False, True)
    assert board().health().remapped_rows is None


def test_idle_readings_do_not_count() -> None:
    """The state of a card comes from the readings while it was busy, or from all readings if it never was."""

    def reading(busy: int, power: float, mhz: int) -> dict[str, Any]:
        clocks = {"sm_mhz": mhz, "memory_mhz": None}
        return {
            "busy": busy,
            "clocks": clocks,
            "power_w": power,
            "temperature_c": 50,
            "throttle": ["idle", "power cap"],
        }

    found = nvml.load([reading(0, 900.0, 300), reading(90, 400.0, 1900), reading(95, 500.0, 1700)])
    assert found is not None
    assert (found.power_w, found.sm_mhz, found.memory_mhz, found.throttle) == (500.0, 1800.0, None, ("power cap",))
    idle = nvml.load([reading(0, 90.0, 300)])
    assert idle is not None
    assert idle.power_w == 90.0
    assert nvml.load([]) is None


def test_names_of_constant_variables() -> None:
    """A variable is found by its own name in any namespace; a name that two namespaces have is ambiguous."""
    assert constants.constant_name("w", ["_ZN1a1wE"]) == "_ZN1a1wE"
    assert constants.constant_name("w", ["_ZN1a1wE", "_ZN1b1wE"]) is None
    assert constants.constant_name("b::w", ["_ZN1a1wE", "_ZN1b1wE"]) == "_ZN1b1wE"


@pytest.mark.parametrize("count", [3, 5])
def test_a_constant_has_its_size(count: int) -> None:
    """A value with fewer or more bytes than the variable is refused."""
    constants.check_constant("w", bytes(4), 4)
    with pytest.raises(UsageError, match=f"the value has {count} bytes, the variable 4: give 4 bytes"):
        constants.check_constant("w", bytes(count), 4)
