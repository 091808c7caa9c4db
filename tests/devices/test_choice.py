"""The device that --device selects, on machines with and without GPUs."""

from __future__ import annotations

import re

import pytest

from cudabench import devices
from cudabench.devices import Choice, probe
from cudabench.devices.probe import Component
from cudabench.errors import DeviceUnusable, UsageError


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as on a machine with two usable GPUs."""
    monkeypatch.setattr(probe, "driver", lambda: Component("driver", version="1", device_count=2))
    for part in ("pycuda", "gpu_compiler"):
        monkeypatch.setattr(probe, part, lambda: Component("nvcc", version="13.0"))


@pytest.mark.usefixtures("two_gpus")
def test_gpus_by_number() -> None:
    """GPUs are numbered from 0; `all` selects each GPU once."""
    assert devices.choose("auto") == devices.choose("cuda") == devices.choose("cuda:0") == Choice("cuda", 0)
    assert devices.choose("cuda:1") == Choice("cuda", 1)
    assert devices.choose_all("all") == (Choice("cuda", 0), Choice("cuda", 1))
    with pytest.raises(DeviceUnusable, match="cuda:2 does not exist: this machine has cuda:0 to cuda:1;"):
        devices.choose("cuda:2")


@pytest.mark.parametrize("text", ["auto:1", "cuda:", "cuda:x", "gpu", "sim:"])
@pytest.mark.usefixtures("two_gpus")
def test_words_that_are_not_devices(text: str) -> None:
    """An unknown device is refused."""
    with pytest.raises(UsageError, match=f"'{re.escape(text)}' is not a device"):
        devices.choose(text)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver `auto` selects the simulator; a requested GPU is an error that gives the reason."""
    monkeypatch.setattr(probe, "driver", lambda: Component("driver", problem="there is no driver", repair="install it"))
    assert [devices.simulates(text) for text in ("auto", "sim:sm_80", "cuda")] == [True, True, False]
    with pytest.raises(DeviceUnusable, match="A GPU cannot be used: there is no driver; install it, or simulate"):
        devices.choose("cuda")
