"""Reads the state of cards with NVML (NVIDIA's management library), if it is installed; unknown values are None."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cudabench.records.fleet import Health, Load

# NVML's reasons for low clocks: the bits of nvmlClocksEventReasons in nvml.h, each with the words that nvidia-smi
# prints.
THROTTLE = {
    0x1: "idle",
    0x2: "application clocks setting",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks setting",
}


@dataclass(frozen=True)
class Board:
    """A card in NVML. `nvml`: the Python module pynvml; `handle`: NVML's handle of the card."""

    nvml: Any
    handle: Any

    def query(self, function: str, *arguments: Any) -> Any:
        """Call an NVML function for the card and return its value, or None if it fails. An argument that begins with
        'NVML_' is the name of a constant."""
        try:
            constants = [getattr(self.nvml, a) if str(a).startswith("NVML_") else a for a in arguments]
            return getattr(self.nvml, function)(self.handle, *constants)
        # NVML has a subclass of NVMLError for each reason. If an old library lacks the function, another error is
        # raised.
        except Exception:
            return None

    def text(self, function: str) -> str | None:
        """Return the value of an NVML function as text, or None (consumer cards lack, for example, a serial number)."""
        value = self.query(function)
        return value.decode(errors="replace") if isinstance(value, bytes) else None if value is None else str(value)

    def query_thousandths(self, function: str) -> float | None:
        """Return the value of an NVML function divided by 1000, such as watts from milliwatts, or None."""
        value = self.query(function)
        return None if value is None else int(value) / 1e3

    def state(self) -> dict[str, Any]:
        """Return the present clocks in MHz, power in W, temperature in Celsius and reasons for low clocks, by name."""
        reasons = self.query("nvmlDeviceGetCurrentClocksThrottleReasons")
        return {
            "clocks": {
                "sm_mhz": self.query("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
                "memory_mhz": self.query("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
            },
            "power_w": self.query_thousandths("nvmlDeviceGetPowerUsage"),
            "temperature_c": self.query("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
            "throttle": None if reasons is None else [text for bit, text in THROTTLE.items() if reasons & bit],
        }

    def readings(self) -> dict[str, Any]:
        """Return the dict of `state` with the card's utilization in percent as `busy`, for `load`."""
        return {"busy": getattr(self.query("nvmlDeviceGetUtilizationRates"), "gpu", None), **self.state()}

    def other_processes(self) -> list[str]:
        """Return the other processes that compute on the card, as 'python3 (process 4711)'."""
        running = [int(process.pid) for process in self.query("nvmlDeviceGetComputeRunningProcesses") or ()]
        if os.getpid() in running:
            return [f"{_process_name(pid)} (process {pid})" for pid in running if pid != os.getpid()]
        # A container numbers its processes itself, so the ids differ. One of the processes is this one, but it is
        # unknown which.
        return [f"another process, one of {', '.join(map(str, running))} outside this container"] * (len(running) > 1)

    def health(self) -> Health:
        """Return the card's counts of memory errors, and the state of its NVLink and PCI Express links."""
        rows = self.query("nvmlDeviceGetRemappedRows") or (None,) * 4
        links = [
            self.query("nvmlDeviceGetNvLinkState", n) for n in range(getattr(self.nvml, "NVML_NVLINK_MAX_LINKS", 0))
        ]
        up, down = (links.count(state) if {*links} - {None} else None for state in (1, 0))

        def ecc(kind: str, since: str) -> Any:
            return self.query("nvmlDeviceGetTotalEccErrors", f"NVML_MEMORY_ERROR_TYPE_{kind}", f"NVML_{since}_ECC")

        return Health(
            ecc_corrected=ecc("CORRECTED", "VOLATILE"),
            ecc_uncorrected=ecc("UNCORRECTED", "VOLATILE"),
            ecc_corrected_ever=ecc("CORRECTED", "AGGREGATE"),
            ecc_uncorrected_ever=ecc("UNCORRECTED", "AGGREGATE"),
            remapped_rows=None if rows[0] is None else rows[0] + rows[1],
            remap_pending=None if rows[2] is None else bool(rows[2]),
            remap_failed=None if rows[3] is None else bool(rows[3]),
            nvlinks_up=up,
            nvlinks_down=down,
            pcie_generation=self.query("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=self.query("nvmlDeviceGetCurrPcieLinkWidth"),
            power_limit_w=self.query_thousandths("nvmlDeviceGetEnforcedPowerLimit"),
            max_sm_mhz=self.query("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
        )


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "another user's or container's"


def management() -> Any:
    """Import pynvml, initialise it and return the module; None if pynvml or NVML is missing or does not start."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # NVMLError has a subclass for each reason
        return None
    return pynvml


def board(uuid: str | None) -> Board | None:
    """Return the card with this UUID; None if NVML is missing or does not know the card."""
    nvml = None if uuid is None else management()
    try:
        return None if nvml is None else Board(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
    except Exception:  # NVMLError has a subclass for each reason
        return None


def uuids() -> list[str]:
    """Return the UUIDs of all cards of the machine, including those that CUDA_VISIBLE_DEVICES hides."""
    nvml = management()
    try:
        count = 0 if nvml is None else nvml.nvmlDeviceGetCount()
        boards = [Board(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
    except Exception:  # NVMLError has a subclass for each reason
        return []
    return [uuid for card in boards if (uuid := card.text("nvmlDeviceGetUUID"))]


def energy_j(board: Board | None) -> float | None:
    """Return the energy in joules that a card has used since the driver was loaded; NVML updates it every 20 to 100
    ms."""
    return board.query_thousandths("nvmlDeviceGetTotalEnergyConsumption") if board else None


def link(board: Board | None) -> tuple[int, int] | None:
    """Return the highest generation and number of lanes that the card's PCI Express link can use, or None."""
    functions = ("nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth")
    generation, lanes = (board.query(function) if board else None for function in functions)
    return (int(generation), int(lanes)) if generation and lanes else None


def load(readings: Sequence[dict[str, Any]]) -> Load | None:
    """Summarize readings of `Board.readings` as the card's state while it was busy; None without readings.

    Readings of an idle card, for example during a compile, are left out.
    """
    if not readings:
        return None
    # If all readings say that the GPU is idle, all readings are used, because NVML averages the utilization over an
    # interval that may be longer than the run.
    busy = [reading for reading in readings if reading["busy"]] or readings

    def median_of(clock: str) -> float | None:
        values = [float(reading["clocks"][clock]) for reading in busy if reading["clocks"][clock] is not None]
        return median(values) if values else None

    def maximum_of(key: str) -> float | None:
        return max((float(reading[key]) for reading in busy if reading[key] is not None), default=None)

    reasons = {reason for reading in busy for reason in reading["throttle"] or ()} - {"idle"}
    throttle = tuple(reason for reason in THROTTLE.values() if reason in reasons)
    return Load(
        median_of("sm_mhz"),
        median_of("memory_mhz"),
        maximum_of("power_w"),
        maximum_of("temperature_c"),
        throttle,
        len(busy),
    )
