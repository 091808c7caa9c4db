"""What NVIDIA's management library tells of a card from outside, where it is installed; None is what it does not."""

from __future__ import annotations

from statistics import median
from typing import Any

from cudabench.devices import probe
from cudabench.measure.provenance import THROTTLE
from cudabench.records.fleet import Health, Load


class Nvml:
    """NVML for some cards by their UUIDs; without the library, or for a card that it does not know, all is None."""

    def __init__(self) -> None:
        self._boards: dict[str, probe.Board | None] = {}
        self._looks: dict[str, list[dict[str, Any]]] = {}

    def _board(self, uuid: str) -> probe.Board | None:
        if uuid not in self._boards:
            self._boards[uuid] = probe.board(uuid)
        return self._boards[uuid]

    def serial(self, uuid: str) -> str | None:
        """Return the serial number of the board, which consumer cards have none of."""
        board = self._board(uuid)
        found = None if board is None else board.ask("nvmlDeviceGetSerial")
        return None if found is None else _text(found)

    def uuids(self) -> list[str]:
        """Return the UUIDs of all cards of the machine, seen by this process or not."""
        nvml = probe.management()
        found = []
        try:
            for index in range(0 if nvml is None else nvml.nvmlDeviceGetCount()):
                found.append(probe.Board(nvml, nvml.nvmlDeviceGetHandleByIndex(index)).ask("nvmlDeviceGetUUID"))
        except Exception:  # NVMLError has a subclass for each reason
            pass
        return [_text(uuid) for uuid in found if uuid is not None]

    def health(self, uuid: str) -> Health | None:
        """Return a card's counts of its faults and the state of its links."""
        board = self._board(uuid)
        if board is None:
            return None
        ask = board.ask

        def ecc(kind: str, counter: str) -> int | None:
            found: int | None = ask("nvmlDeviceGetTotalEccErrors", f"NVML_MEMORY_ERROR_TYPE_{kind}", counter)
            return found

        rows = ask("nvmlDeviceGetRemappedRows")
        most = getattr(board.nvml, "NVML_NVLINK_MAX_LINKS", 0)
        links = [ask("nvmlDeviceGetNvLinkState", link) for link in range(most)]
        limit = ask("nvmlDeviceGetEnforcedPowerLimit")
        return Health(
            ecc_corrected=ecc("CORRECTED", "NVML_VOLATILE_ECC"),
            ecc_uncorrected=ecc("UNCORRECTED", "NVML_VOLATILE_ECC"),
            ecc_corrected_ever=ecc("CORRECTED", "NVML_AGGREGATE_ECC"),
            ecc_uncorrected_ever=ecc("UNCORRECTED", "NVML_AGGREGATE_ECC"),
            remapped_rows=rows[0] + rows[1] if rows else None,
            remap_pending=bool(rows[2]) if rows else None,
            remap_failed=bool(rows[3]) if rows else None,
            nvlinks_up=links.count(1) if any(link is not None for link in links) else None,
            nvlinks_down=links.count(0) if any(link is not None for link in links) else None,
            pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth"),
            power_limit_w=None if limit is None else limit / 1000,
            max_sm_mhz=ask("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
        )

    def look(self, uuid: str) -> None:
        """Note how a card is now; `load` sums it up."""
        board = self._board(uuid)
        if board is None:
            return
        use = board.ask("nvmlDeviceGetUtilizationRates")
        power = board.ask("nvmlDeviceGetPowerUsage")
        self._looks.setdefault(uuid, []).append(
            {
                "busy": getattr(use, "gpu", None),
                "sm_mhz": board.ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
                "memory_mhz": board.ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
                "power_w": None if power is None else power / 1000,
                "temperature_c": board.ask("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
                "throttle": board.ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
            }
        )

    def load(self, uuid: str) -> Load | None:
        """Return how a card was while it was looked at and busy; the time in which kernels compile does not count."""
        looks = self._looks.get(uuid)
        if not looks:
            return None
        # A run that is shorter than the interval of the utilization is idle throughout, to NVML.
        busy = [each for each in looks if each["busy"]] or looks

        def values(key: str) -> list[float]:
            return [float(each[key]) for each in busy if each[key] is not None]

        reasons = [each["throttle"] or 0 for each in busy]
        return Load(
            sm_mhz=median(values("sm_mhz")) if values("sm_mhz") else None,
            memory_mhz=median(values("memory_mhz")) if values("memory_mhz") else None,
            power_w=max(values("power_w"), default=None),
            temperature_c=max(values("temperature_c"), default=None),
            throttle=tuple(text for bit, text in THROTTLE.items() if text != "idle" and any(r & bit for r in reasons)),
            looks=len(busy),
        )


def _text(found: Any) -> str:
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)
