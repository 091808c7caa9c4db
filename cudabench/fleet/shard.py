"""A shard is the results file of one card of a fleet.

For each visible card, a separate process runs the user's command. It writes its results into a temporary folder; the
complete shard is then put into the folder of shards in one step. A card whose run failed, and an expected card that is
missing, also get a shard. An interrupted run leaves no shard, because an interruption says nothing about the card.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cudabench.devices import nvml, probe
from cudabench.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_TERMINATED,
    EXIT_THRESHOLD,
    EXIT_UNUSABLE,
    EXIT_WRONG,
    CudabenchError,
    most_serious,
)
from cudabench.fleet import place, reading
from cudabench.records import file as results
from cudabench.records.fleet import Card, CardStatus, Fleet
from cudabench.records.results import DeviceInfo
from cudabench.system import children, interrupts, limited_process, outputs

POLL_S = 0.5  # seconds between two NVML readings of a card
GRACE_S = 10.0  # an interrupted run may take this many seconds to end by itself
MOST_WORDS = 400  # the message of a failed run is cut to this many characters
INTERRUPTS = (EXIT_INTERRUPTED, EXIT_TERMINATED, -signal.SIGINT, -signal.SIGTERM)


@dataclass(frozen=True)
class Plan:
    """The command to measure, and the folder for the shards.

    `words`: the words of the command after `cudabench`; `device`: the command's --device, or None; `quiet`: the command
    knows the option --quiet; `name`: the name of a simulator that is measured instead of a card.
    """

    folder: Path
    words: tuple[str, ...]
    device: str | None = None
    quiet: bool = True
    host: str = field(default_factory=place.host)
    rack: str | None = field(default_factory=place.rack)
    name: str | None = None


@dataclass(frozen=True)
class Target:
    """A card to measure: its id and, for a GPU, the driver's information; `alone`: no other card is visible."""

    id: str
    info: DeviceInfo | None = None
    alone: bool = True


@dataclass(frozen=True)
class WrittenShard:
    """A shard that was written into the folder. `kernels`: how many results it holds."""

    path: Path
    card: Card
    exit_code: int
    kernels: int = 0


# Which cards ---------------------------------------------------------------------------------------------------------


def visible_cards(plan: Plan) -> list[Target]:
    """Return the cards on which to run the plan's command.

    These are all visible cards, or only card N for --device cuda:N, or a simulator for --device sim.
    """
    if plan.device is not None and plan.device.startswith("sim"):
        return [Target(plan.name or place.simulator_name(plan.host))]
    count = probe.driver().device_count if probe.driver().usable else 0
    cards = [probe.gpu(index) for index in range(count)]
    _, _, number = (plan.device or "").partition(":")
    if number.isdecimal():
        cards = [card for card in cards if card.index == int(number)]
    alone = count == 1 or number.isdecimal()
    words = place.granted_cards()
    # To select a MIG partition (a part of a card), CUDA_VISIBLE_DEVICES contains the UUID of the partition instead of
    # the UUID of the card.
    part = words[0] if len(words) == 1 and words[0].startswith("MIG-") and count == 1 else None
    return [Target(part or str(card.uuid), card, alone) for card in cards]


def missing_cards(plan: Plan, targets: Sequence[Target], expected: Iterable[str]) -> list[Card]:
    """Return the cards that are in `expected` or in CUDA_VISIBLE_DEVICES, but are not visible."""
    if any(target.info is None for target in targets):
        return []
    seen = {target.id for target in targets} | {str(target.info.uuid) for target in targets if target.info}
    wanted = [word for word in (*expected, *place.granted_cards()) if word.startswith(("GPU-", "MIG-"))]
    # CUDA_VISIBLE_DEVICES may contain only the beginning of a UUID, so `startswith` is used.
    missing = [uuid for uuid in dict.fromkeys(wanted) if not any(listed.startswith(uuid) for listed in seen)]
    listed = nvml.uuids() if missing else []
    cards = []
    for uuid in missing:
        known = any(other.startswith(uuid) for other in listed)
        reason = "NVML knows it, but CUDA does not see it" if known else "neither CUDA nor NVML sees it"
        cards.append(_card(plan, uuid, "missing", reason=reason))
    numbers = [word for word in place.granted_cards() if word.isdecimal()]
    if not targets and not missing:
        problem = probe.driver().problem
        reason = f"no card is visible{f': {problem}' if problem else ''}"
        cards.append(_card(plan, f"{plan.host}-no-card", "missing", reason=reason))
    elif len(numbers) > len(targets) > 0 and targets[0].info and ":" not in (plan.device or ""):
        reason = f"CUDA_VISIBLE_DEVICES grants {len(numbers)} cards, but CUDA sees {len(targets)}"
        cards.append(_card(plan, f"{plan.host}-missing", "missing", reason=reason))
    return cards


def _card(plan: Plan, name: str, status: CardStatus, **more: Any) -> Card:
    return Card(id=name, status=status, host=plan.host, rack=plan.rack, slurm=place.slurm(), **more)


# Measuring -----------------------------------------------------------------------------------------------------------


def measure_cards(
    plan: Plan,
    expected: Iterable[str] = (),
    *,
    in_turn: bool = False,
    on_written: Callable[[WrittenShard], None] = lambda _: None,
) -> int:
    """Measure every card of the plan, write a shard for each, and return the most serious exit code.

    All cards are measured at once; with `in_turn` one after the other. `on_written` is called with every written shard.
    A run that was ended from outside, for example by Slurm's preemption, leaves no shard, and the exit code is
    EXIT_TERMINATED. Raises CudabenchError if the folder cannot be written.
    """
    make_folder(plan.folder)
    targets = visible_cards(plan)
    codes = []

    def note(written: WrittenShard) -> None:
        codes.append(written.exit_code)
        on_written(written)

    for card in missing_cards(plan, targets, expected):
        note(_write(plan, card, {"schema": results.SCHEMA, "results": []}, EXIT_UNUSABLE))
    for batch in [[target] for target in targets] if in_turn else [targets]:
        if not _measure_batch(plan, batch, note):
            codes.append(EXIT_TERMINATED)
            break
    return most_serious(codes)


def make_folder(folder: Path) -> None:
    """Make the folder of shards. Raises CudabenchError if it cannot be made, or is a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if folder.exists() else error.strerror
        raise CudabenchError(f"{folder} cannot be a folder of shards: {why}; name another folder.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CudabenchError(f"{folder}: no permission to write shards in it; name another folder.")


def _measure_batch(plan: Plan, targets: Sequence[Target], note: Callable[[WrittenShard], None]) -> bool:
    """Run the command on all cards at once, and call `note` with each shard.

    Return False if a run was ended from outside.
    """
    runs: list[_Run] = []
    with contextlib.ExitStack() as stack:
        for target in targets:
            with interrupts.delayed():
                runs.append(_Run(plan, target))
                stack.callback(runs[-1].close)
        running = list(runs)
        while running:
            for run in running:
                run.record_state()
            until = time.monotonic() + POLL_S
            while time.monotonic() < until and all(run.process.poll() is None for run in running):
                time.sleep(0.02)
            for run in [run for run in running if run.process.poll() is not None]:
                running.remove(run)
                if run.process.returncode not in INTERRUPTS:
                    note(run.finish())
        return all(run.process.returncode not in INTERRUPTS for run in runs)


class _Run:
    """The command on one card, in a separate process."""

    def __init__(self, plan: Plan, target: Target) -> None:
        self.target, self._plan = target, plan
        self._board = nvml.board(target.id) if target.info else None
        self._readings: list[dict[str, Any]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="cudabench-shard-")
        self._file = Path(self._folder.name) / "results.json"
        self._stderr = Path(self._folder.name) / "stderr"
        words = [*plan.words, "--json", str(self._file), *(["--quiet"] if plan.quiet else [])]
        if target.info and plan.device is None:
            # if the GPU fails before the command starts, the command must not use the simulator
            words += ["--device", "cuda"]
        with self._stderr.open("wb") as stream:
            self.process = subprocess.Popen(
                [*children.module_command("cudabench"), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env=os.environ if target.alone else {**os.environ, "CUDA_VISIBLE_DEVICES": target.id},
                start_new_session=True,  # Ctrl-C then interrupts only this process, which interrupts the runs itself
            )

    def record_state(self) -> None:
        """Read the card's clocks, temperature and other state from NVML, and append them to the readings."""
        if self._board:
            self._readings.append(self._board.readings())

    def finish(self) -> WrittenShard:
        """Write the shard of a run that has ended, and return it."""
        code = self.process.returncode
        info = self.target.info
        document: dict[str, Any] = {"schema": results.SCHEMA, "results": []}
        device = None
        with contextlib.suppress(CudabenchError):
            file = results.load(self._file)
            document, device = file.document(), file.device
        status, reason = card_status(document, code, self._error_text())
        if info and device and device.timed and self.target.id.startswith("GPU-"):
            if device.uuid != self.target.id:
                status, reason = "failed", f"it should run on this card, but ran on {device.uuid}"
        elif info and device and not device.timed:
            status, reason = "failed", "it was simulated, because the GPU had become invisible"
        card = _card(
            self._plan,
            self.target.id,
            status,
            reason=reason,
            model=getattr(info or device, "name", None),
            pci_address=probe.pci_address(info.index or 0) if info else None,
            serial=self._board.text("nvmlDeviceGetSerial") if self._board else None,
            exit_code=code,
            load=nvml.load(self._readings),
            health=self._board.health() if self._board else None,
        )
        if info and not document.get("device"):
            document["device"] = asdict(info)
        exit_code = {"ok": code, "unverified": code, "wrong": EXIT_WRONG}.get(status, code or EXIT_FAILED)
        return _write(self._plan, card, document, EXIT_FAILED if exit_code < 0 else exit_code)

    def _error_text(self) -> str:
        text = self._stderr.read_text(errors="replace").strip()
        lines = text.splitlines()
        message = next((line for line in reversed(lines) if line.startswith("Error: ")), lines[-1] if lines else "")
        code = self.process.returncode
        ended = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
        return message.removeprefix("Error: ")[:MOST_WORDS] or ended

    def close(self) -> None:
        """Interrupt the process, which then writes its results, and kill it after GRACE_S; delete its folder."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                limited_process.end_group(self.process)
        self._folder.cleanup()


def card_status(document: Mapping[str, Any], exit_code: int, message: str) -> tuple[CardStatus, str | None]:
    """Return the status of a run's card, and the reason. `message`: the last sentence that the run printed."""
    rows = [*document["results"], *document.get("ceilings", ())]
    status, reason = reading.status_of(rows)
    if status == "wrong":
        return status, reason
    if status == "failed" or all(row["status"] != "ok" for row in rows):
        return "failed", f"{reason}: {message}" if reason else message
    if exit_code not in (EXIT_OK, EXIT_THRESHOLD):
        return "wrong" if exit_code == EXIT_WRONG else "failed", message
    return status, message if exit_code == EXIT_THRESHOLD and not reason else reason


def _write(plan: Plan, card: Card, document: Mapping[str, Any], exit_code: int) -> WrittenShard:
    path = plan.folder / place.file_name(card.id)
    whole = {**document, "fleet": asdict(Fleet(card=card))}
    outputs.write_own_file(path, results.document_text(whole).encode())
    return WrittenShard(path, card, exit_code, len(document["results"]))
