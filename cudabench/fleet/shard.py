"""A shard: what one card of a fleet is and how it did, in a results file of its own.

Each visible card is measured by a process of its own that runs the ordinary command; it writes where nobody else looks,
and the shard appears in the folder whole. A card whose run failed and one that should be there and is not get a shard
too, which says so. An interrupted run leaves none: nothing was found out about its card.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cudabench.devices import probe
from cudabench.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_TERMINATED,
    EXIT_THRESHOLD,
    EXIT_UNUSABLE,
    EXIT_USAGE,
    EXIT_WRONG,
    CudabenchError,
)
from cudabench.fleet import place
from cudabench.fleet.nvml import Nvml
from cudabench.records import file as results
from cudabench.records.fleet import Card, CardStatus, Fleet
from cudabench.records.results import DeviceInfo
from cudabench.system import children, confined, interrupts, outputs

LOOK_S = 0.5  # between two looks at the cards from outside
GRACE_S = 10.0  # in which an interrupted run may end by itself
MOST_WORDS = 400  # characters of what a failed run said
INTERRUPTS = (EXIT_INTERRUPTED, EXIT_TERMINATED, -signal.SIGINT, -signal.SIGTERM)
SEVERITY = (EXIT_TERMINATED, EXIT_WRONG, EXIT_FAILED, EXIT_UNUSABLE, EXIT_USAGE, EXIT_THRESHOLD)


@dataclass(frozen=True)
class Plan:
    """What is to be run where: the words behind `cudabench`, the folder of shards, and who we are.

    `device` is what the command's own --device says, None where it does not say; `quiet` whether it has that option;
    `name` what the simulator is called in the place of a card.
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
    """A card to be measured: its id and, of a GPU, what the driver says of it; `alone` where no other is visible."""

    id: str
    info: DeviceInfo | None = None
    alone: bool = True


@dataclass(frozen=True)
class Written:
    """A shard that is in the folder."""

    path: Path
    card: Card
    exit_code: int
    kernels: int = 0


# Which cards ---------------------------------------------------------------------------------------------------------


def visible(plan: Plan) -> list[Target]:
    """Return the cards that the plan's command is to be run on: the visible ones, the one of --device cuda:N, or the
    simulator where the command asks for it by name."""
    if plan.device is not None and plan.device.startswith("sim"):
        return [Target(plan.name or place.stand_in(plan.host))]
    count = probe.driver().device_count if probe.driver().usable else 0
    cards = [probe.gpu(index) for index in range(count)]
    _, _, number = (plan.device or "").partition(":")
    if number.isdecimal():
        cards = [card for card in cards if card.index == int(number)]
    alone = count == 1 or number.isdecimal()
    words = place.granted()
    # A part of a card has a UUID of its own, by which it was granted.
    part = words[0] if len(words) == 1 and words[0].startswith("MIG-") and count == 1 else None
    return [Target(part or str(card.uuid), card, alone) for card in cards]


def absent(plan: Plan, targets: Sequence[Target], expected: Iterable[str], nvml: Nvml) -> list[Card]:
    """Return the cards that should be there and are not: of `expected`, and of CUDA_VISIBLE_DEVICES."""
    if any(target.info is None for target in targets):
        return []
    seen = {target.id for target in targets} | {str(target.info.uuid) for target in targets if target.info}
    wanted = [word for word in (*expected, *place.granted()) if word.startswith(("GPU-", "MIG-"))]
    # An abbreviated UUID is one to CUDA.
    missing = [uuid for uuid in dict.fromkeys(wanted) if not any(known.startswith(uuid) for known in seen)]
    known = nvml.uuids() if missing else []
    cards = []
    for uuid in missing:
        there = any(each.startswith(uuid) for each in known)
        reason = "NVML knows it, and CUDA does not see it" if there else "neither CUDA nor NVML sees it"
        cards.append(_card(plan, uuid, "missing", reason=reason))
    numbers = [word for word in place.granted() if word.isdecimal()]
    if not targets and not missing:
        cards.append(_card(plan, f"{plan.host}-no-card", "missing", reason=_none_visible()))
    elif len(numbers) > len(targets) > 0 and targets[0].info and ":" not in (plan.device or ""):
        reason = f"CUDA_VISIBLE_DEVICES grants {len(numbers)} cards, and CUDA sees {len(targets)}"
        cards.append(_card(plan, f"{plan.host}-missing", "missing", reason=reason))
    return cards


def _none_visible() -> str:
    problem = probe.driver().problem
    return f"no card is visible: {problem}" if problem else "no card is visible"


def _card(plan: Plan, name: str, status: CardStatus, **more: Any) -> Card:
    return Card(id=name, status=status, host=plan.host, rack=plan.rack, slurm=place.slurm(), **more)


# Measuring -----------------------------------------------------------------------------------------------------------


def run(
    plan: Plan, expected: Iterable[str] = (), *, in_turn: bool = False, told: Callable[[Written], None] = lambda _: None
) -> int:
    """Measure every card of the plan, all at once or in turn, and write a shard for each; return the exit code of all.

    `told` is called for every shard that is written. A run that somebody ended, as Slurm does when it preempts a job,
    leaves none, and the exit code is EXIT_TERMINATED. Raises CudabenchError where the folder cannot be written.
    """
    make_folder(plan.folder)
    nvml = Nvml()
    targets = visible(plan)
    codes = []

    def note(written: Written) -> None:
        codes.append(written.exit_code)
        told(written)

    for card in absent(plan, targets, expected, nvml):
        note(_write(plan, card, {"schema": results.SCHEMA, "results": []}, EXIT_UNUSABLE))
    for batch in [[target] for target in targets] if in_turn else [targets]:
        if not _together(plan, batch, nvml, note):
            codes.append(EXIT_TERMINATED)
            break
    return worst(codes)


def make_folder(folder: Path) -> None:
    """Make the folder of shards. Raises CudabenchError where it cannot be, or is a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if folder.exists() else error.strerror
        raise CudabenchError(f"{folder} cannot be a folder of shards: {why}; name another one.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CudabenchError(f"{folder}: no permission to write shards in it; name another folder.")


def worst(codes: Sequence[int]) -> int:
    """Return the exit code of several: a wrong result outweighs a failure, that a card that is not usable."""
    return next((code for code in SEVERITY if code in codes), max(codes, default=EXIT_OK))


def _together(plan: Plan, targets: Sequence[Target], nvml: Nvml, told: Callable[[Written], None]) -> bool:
    """Run the command on cards at once; return whether nobody ended a run."""
    runs: list[_Run] = []
    try:
        for target in targets:
            with interrupts.kept():
                runs.append(_Run(plan, target))
        left = list(runs)
        while left:
            for each in left:
                if each.target.info:
                    nvml.look(each.target.id)
            until = time.monotonic() + LOOK_S
            while time.monotonic() < until and not any(each.ended() for each in left):
                time.sleep(0.02)
            for each in [each for each in left if each.ended()]:
                left.remove(each)
                if not each.interrupted():
                    told(each.finish(nvml))
        return not any(each.interrupted() for each in runs)
    finally:
        for each in runs:
            each.close()


class _Run:
    """The command on one card, in a process of its own."""

    def __init__(self, plan: Plan, target: Target) -> None:
        self.target, self._plan = target, plan
        self._folder = tempfile.TemporaryDirectory(prefix="cudabench-shard-")
        self._file = Path(self._folder.name) / "results.json"
        self._said = Path(self._folder.name) / "stderr"
        words = [*plan.words, "--json", str(self._file), *(["--quiet"] if plan.quiet else [])]
        if target.info and plan.device is None:
            words += ["--device", "cuda"]  # a card that is lost by now must not become a simulation
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [*children.module("cudabench"), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=os.environ if target.alone else {**os.environ, "CUDA_VISIBLE_DEVICES": target.id},
                start_new_session=True,  # an interrupt reaches this process alone, which passes it on
            )

    def ended(self) -> bool:
        """Tell whether the process has ended."""
        return self._process.poll() is not None

    def interrupted(self) -> bool:
        """Tell whether somebody ended the process."""
        return self._process.returncode in INTERRUPTS

    def finish(self, nvml: Nvml) -> Written:
        """Write the shard of a run that has ended."""
        code = self._process.returncode
        document, file, fault = self._results()
        status, reason = judge(file, code, fault or self._last_words())
        info = self.target.info
        if file and file.device and info and file.device.timed and self.target.id.startswith("GPU-"):
            if file.device.uuid != self.target.id:
                status, reason = "failed", f"it was to run on this card and ran on {file.device.uuid}"
        elif info and file and file.device and not file.device.timed:
            status, reason = "failed", "it was simulated, since no GPU was visible by then"
        pci, serial = (probe.pci_address(info.index or 0), nvml.serial(self.target.id)) if info else (None, None)
        card = _card(
            self._plan,
            self.target.id,
            status,
            reason=reason,
            model=info.name if info else file.device.name if file and file.device else None,
            pci_address=pci,
            serial=serial,
            exit_code=code,
            load=nvml.load(self.target.id) if info else None,
            health=nvml.health(self.target.id) if info else None,
        )
        if info and not document.get("device"):
            document["device"] = asdict(info)
        exit_code = {"ok": code, "unverified": code, "wrong": EXIT_WRONG}.get(status, code or EXIT_FAILED)
        kernels = len(file.results) if file else 0
        return _write(self._plan, card, document, EXIT_FAILED if exit_code < 0 else exit_code, kernels)

    def _results(self) -> tuple[dict[str, Any], results.ResultsFile | None, str | None]:
        """Return the results file as plain values and as records; without one, why."""
        import json

        try:
            file = results.load(self._file)
            document: dict[str, Any] = json.loads(self._file.read_bytes())
            return document, file, None
        except CudabenchError:
            return {"schema": results.SCHEMA, "results": []}, None, self._last_words()

    def _last_words(self) -> str:
        text = self._said.read_text(errors="replace").strip()
        lines = text.splitlines()
        said = next((line for line in reversed(lines) if line.startswith("Error: ")), lines[-1] if lines else "")
        code = self._process.returncode
        ended = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
        return said.removeprefix("Error: ")[:MOST_WORDS] or ended

    def close(self) -> None:
        """End the process, which writes and stops at an interrupt, and leave nothing behind."""
        if not self.ended():
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                confined.end_group(self._process)
        self._folder.cleanup()


def judge(file: results.ResultsFile | None, exit_code: int, said: str) -> tuple[CardStatus, str | None]:
    """Return what a run says of its card, and why it is not well; `said` is the run's last sentence."""
    if file is None:
        return "failed", said
    rows: list[Any] = [*file.results, *getattr(file, "ceilings", ())]
    named = {status: [_name(row) for row in rows if row.status == status] for status in ("ok", "wrong", "failed")}
    if named["wrong"]:
        return "wrong", f"wrong: {', '.join(named['wrong'])}"
    if named["failed"] or not named["ok"]:
        return "failed", f"failed: {', '.join(named['failed'])}: {said}" if named["failed"] else said
    if exit_code == EXIT_WRONG:
        return "wrong", said
    if exit_code not in (EXIT_OK, EXIT_THRESHOLD):
        return "failed", said
    unproven = [row.kernel for row in file.results if row.status == "ok" and row.verification is None]
    if unproven:
        return "unverified", f"compared with nothing: {', '.join(unproven)}"
    return "ok", said if exit_code == EXIT_THRESHOLD else None


def _name(row: Any) -> str:
    return str(getattr(row, "kernel", None) or row.name)


def _write(plan: Plan, card: Card, document: Mapping[str, Any], exit_code: int, kernels: int = 0) -> Written:
    path = plan.folder / place.file_name(card.id)
    whole = {**document, "fleet": asdict(Fleet(card=card))}
    outputs.write_ours(path, results.document_text(whole).encode())
    return Written(path, card, exit_code, kernels)
