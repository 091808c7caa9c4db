"""What NVIDIA's management library tells of a card from outside, where it is installed; None is what it does not."""

from __future__ import annotations

from statistics import median
from typing import Any

from cudabench.cards.fleet import Health, Load
from cudabench.measure.provenance import THROTTLE


class Nvml:
    """NVML for some cards by their UUIDs; without the library, or for a card that it does not know, all is None."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._looks: dict[str, list[dict[str, Any]]] = {}
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
        except Exception:  # no package, no library, or one that does not start: each is no NVML
            return

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except Exception:  # NVMLError has a subclass for each reason, and an old library lacks functions
            return None

    def _constant(self, name: str) -> Any:
        return getattr(self._nvml, name, None)

    def _handle(self, uuid: str) -> Any:
        return None if self._nvml is None else self._ask("nvmlDeviceGetHandleByUUID", uuid)

    def serial(self, uuid: str) -> str | None:
        """Return the serial number of the board, which consumer cards have none of."""
        handle = self._handle(uuid)
        found = None if handle is None else self._ask("nvmlDeviceGetSerial", handle)
        return None if found is None else _text(found)

    def uuids(self) -> list[str]:
        """Return the UUIDs of all cards of the machine, seen by this process or not."""
        count = None if self._nvml is None else self._ask("nvmlDeviceGetCount")
        handles = (self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(count or 0))
        found = (None if handle is None else self._ask("nvmlDeviceGetUUID", handle) for handle in handles)
        return [_text(uuid) for uuid in found if uuid is not None]

    def health(self, uuid: str) -> Health | None:
        """Return a card's counts of its faults and the state of its links."""
        handle = self._handle(uuid)
        if handle is None:
            return None
        ask, constant = self._ask, self._constant

        def ecc(kind: str, counter: str) -> int | None:
            found: int | None = ask("nvmlDeviceGetTotalEccErrors", handle, constant(kind), constant(counter))
            return found

        rows = ask("nvmlDeviceGetRemappedRows", handle)
        links = [
            ask("nvmlDeviceGetNvLinkState", handle, link) for link in range(constant("NVML_NVLINK_MAX_LINKS") or 0)
        ]
        limit = ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        corrected, uncorrected = "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"
        return Health(
            ecc_corrected=ecc(corrected, "NVML_VOLATILE_ECC"),
            ecc_uncorrected=ecc(uncorrected, "NVML_VOLATILE_ECC"),
            ecc_corrected_ever=ecc(corrected, "NVML_AGGREGATE_ECC"),
            ecc_uncorrected_ever=ecc(uncorrected, "NVML_AGGREGATE_ECC"),
            remapped_rows=rows[0] + rows[1] if rows else None,
            remap_pending=bool(rows[2]) if rows else None,
            remap_failed=bool(rows[3]) if rows else None,
            nvlinks_up=links.count(1) if any(link is not None for link in links) else None,
            nvlinks_down=links.count(0) if any(link is not None for link in links) else None,
            pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            power_limit_w=None if limit is None else limit / 1000,
            max_sm_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, constant("NVML_CLOCK_SM")),
        )

    def look(self, uuid: str) -> None:
        """Note how a card is now; `load` sums it up."""
        handle = self._handle(uuid)
        if handle is None:
            return
        ask, constant = self._ask, self._constant
        use = ask("nvmlDeviceGetUtilizationRates", handle)
        power = ask("nvmlDeviceGetPowerUsage", handle)
        self._looks.setdefault(uuid, []).append(
            {
                "busy": getattr(use, "gpu", None),
                "sm_mhz": ask("nvmlDeviceGetClockInfo", handle, constant("NVML_CLOCK_SM")),
                "memory_mhz": ask("nvmlDeviceGetClockInfo", handle, constant("NVML_CLOCK_MEM")),
                "power_w": None if power is None else power / 1000,
                "temperature_c": ask("nvmlDeviceGetTemperature", handle, constant("NVML_TEMPERATURE_GPU")),
                "throttle": ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle),
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
