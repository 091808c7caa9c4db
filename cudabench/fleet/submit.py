"""A submission: a task for each card. An engine runs the tasks, and cudabench watches them until all are done.

The engine is an array of Slurm jobs, submitted through submitit, or processes on this machine. An interrupted
submission can be resumed, since its state is kept in `.fleet` in the folder of shards: the request, the jobs, the state
that every task writes itself, and the jobs' logs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from cudabench.errors import EXIT_FAILED, CudabenchError, DeviceUnusable, UsageError, most_serious, refuse
from cudabench.fleet import findings, place, shard, task
from cudabench.fleet.shard import Plan
from cudabench.records.decode import DecodeError, decode
from cudabench.system import children, interrupts, limited_process, outputs
from cudabench.system.reading import open_bytes, parse_json
from cudabench.text import HARMFUL

State = Literal["pending", "running", "done", "repeated", "failed"]

JOB_NAME = "cudabench-fleet"
ATTEMPTS = 5  # a task is submitted at most this often; it is submitted again if it is preempted or its node fails
SLURM_TIMEOUT_S = 60.0
SBATCH = "sbatch: error: "
MOST_SILENCE = 10  # at most this many consecutive calls of squeue may fail
# A job that has ended, or that Slurm does not know, is taken as lost if its result is missing after this many checks.
MOST_CHECKS = 5
MOST_TASKS = 100_000
MOST_RECORD = 256 << 20  # the largest record of a submission that is read, in bytes
# Options of `sbatch` that are also options of cudabench: in NUMBERS those with whole numbers, in NAMES those with
# names. All other options of `sbatch` are given in `additional_parameters`, except the options in OWN, which cudabench
# sets itself.
NUMBERS = ("gpus_per_node", "time", "cpus_per_task")
NAMES = ("partition", "account", "qos")
RESERVED = ("array", "output", "error", "open-mode")
FINISH_S = 3 * task.POLL_S  # seconds that the process may take to end after its task is done
# Job states of Slurm (squeue(1), JOB STATE CODES).
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
RESUBMITTED = {"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED"}


@dataclass
class Entry:
    """The state of a task in its submission.

    `job`: the engine's id of the job; `attempts`: how often the task was submitted; `silent`: the number of checks
    since the job ended or became unknown.
    """

    number: int
    job: str = ""
    attempts: int = 0
    state: State = "pending"
    host: str = ""
    reason: str = ""
    exit_code: int | None = None
    silent: int = 0


@dataclass(frozen=True)
class SubmissionRecord:
    """The content of a submission's file."""

    words: tuple[str, ...]
    device: str | None
    quiet: bool
    engine: Literal["slurm", "local"]
    settings: dict[str, Any]
    hold_s: float
    tasks: tuple[Entry, ...]


# Engines -------------------------------------------------------------------------------------------------------------


class Slurm:
    """Arrays of Slurm jobs, submitted through submitit. Their states come from squeue, since sacct needs a database."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        from submitit import SlurmExecutor

        _check_word("DIR", str(folder))
        try:
            self._executor = SlurmExecutor(folder)
            self._executor.update_parameters(job_name=JOB_NAME, **settings)
        except RuntimeError:
            raise DeviceUnusable(
                "Slurm is missing: srun is not on PATH; submit from a login node, or use --engine local."
            ) from None
        except (TypeError, ValueError) as error:
            raise UsageError(f"submitit refuses the settings: {str(error).splitlines()[0]}.") from None
        self._silence = 0

    def submit(self, tasks: Sequence[task.Task]) -> list[str]:
        """Submit the tasks as one array of jobs, and return the jobs' ids."""
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        try:
            with self._executor.batch():
                jobs = [self._executor.submit(job) for job in tasks]
        except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError, OSError) as error:
            lines = str(getattr(error, "stderr", None) or error).splitlines() or ["without a reason"]
            why = next((line for line in lines if line.startswith(SBATCH)), lines[0]).removeprefix(SBATCH)
            raise CudabenchError(f"Slurm refuses the jobs: {why[:300]}.") from None
        return [str(job.job_id) for job in jobs]

    def states(self, jobs: Iterable[str]) -> Mapping[str, str]:
        """Return Slurm's state of each job that squeue knows; squeue still lists a job for some minutes after the job
        has ended.

        If squeue does not answer, every job is taken to be running; after MOST_SILENCE failed calls CudabenchError is
        raised.
        """
        wanted = {*jobs}
        words = ["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}", "--format=%i|%T"]
        try:
            answer = subprocess.run(words, capture_output=True, text=True, timeout=SLURM_TIMEOUT_S, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            self._silence += 1
            if self._silence > MOST_SILENCE:
                raise CudabenchError(
                    f"Slurm has not answered {self._silence} times, but submitted jobs continue; "
                    "'cudabench fleet resume' checks again."
                ) from None
            return dict.fromkeys(wanted, "RUNNING")
        self._silence = 0
        pairs = (line.strip().split("|", 1) for line in answer.splitlines() if "|" in line)
        return {job: state for job, state in pairs if job in wanted}

    def cancel(self, jobs: Sequence[str], *, running: bool) -> None:
        """Cancel the jobs; with `running` False, only those that have not started."""
        for at in range(0, len(jobs), 500):
            states = [] if running else ["--state=PENDING"]
            subprocess.run(["scancel", *states, *jobs[at : at + 500]], capture_output=True, check=False)

    def finish(self) -> None:
        """Do nothing: Slurm ends its jobs by itself."""


class Local:
    """Processes on this machine. Each is in a session of its own, so that only `cancel` interrupts the process, not
    Ctrl-C."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder, self._limit_s = folder, 60 * int(settings.get("time", 60))
        self._jobs: dict[str, tuple[subprocess.Popen[bytes], float]] = {}

    def submit(self, tasks: Sequence[task.Task]) -> list[str]:
        """Start a process for each task, write the output of each process into a separate log, and return the ids of
        the processes."""
        shard.make_folder(self._folder)
        return [self._start(job) for job in tasks]

    def _start(self, job: task.Task) -> str:
        def no_link(path: str, flags: int) -> int:
            return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)

        with open(self._folder / f"{job.number}.log", "ab", opener=no_link) as log:
            process = subprocess.Popen(
                children.code_command("import pickle; sys.exit(pickle.load(sys.stdin.buffer)())"),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdin is not None
        # the process may have ended before it read its task; the method `states` notices this
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:
            stream.write(pickle.dumps(job))
        self._jobs[str(process.pid)] = (process, time.monotonic())
        return str(process.pid)

    def states(self, jobs: Iterable[str]) -> Mapping[str, str]:
        """Return the state of each process in Slurm's words. LOST: the process was started by an earlier run of
        cudabench."""
        late = [job for job in self._running() if time.monotonic() - self._jobs[job][1] > self._limit_s]
        self.cancel(late, running=True)
        running = {*self._running()}
        known = {job: "RUNNING" if job in running else "FAILED" for job in self._jobs}
        return {job: "TIMEOUT" if job in late else known.get(job, "LOST") for job in jobs}

    def _running(self) -> list[str]:
        return [job for job, (process, _) in self._jobs.items() if process.poll() is None]

    def cancel(self, jobs: Sequence[str], *, running: bool) -> None:
        """Interrupt the processes, and kill those that do not end by themselves. `running` is ignored."""
        chosen = [self._jobs[job][0] for job in jobs if job in self._jobs and self._jobs[job][0].poll() is None]
        try:
            for process in chosen:
                process.send_signal(signal.SIGINT)
            self._wait(shard.GRACE_S + FINISH_S, chosen)
        finally:
            for process in chosen:
                if process.poll() is None:
                    limited_process.end_group(process)

    def finish(self) -> None:
        """Wait until the processes have ended; then cancel those that still run."""
        self._wait(FINISH_S, [process for process, _ in self._jobs.values()])
        self.cancel(self._running(), running=True)

    def _wait(self, seconds: float, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(0.05)


Engine = Slurm | Local


# Submissions ---------------------------------------------------------------------------------------------------------


@dataclass
class Submission:
    """The tasks of a submission, and their folder. `save` is called after every change, so that `load` can continue."""

    plan: Plan
    engine: Literal["slurm", "local"]
    settings: dict[str, Any] = field(default_factory=dict)
    hold_s: float = 60.0
    entries: list[Entry] = field(default_factory=list)

    def save(self) -> None:
        """Write the submission's record into its folder."""
        plan, tasks = self.plan, tuple(self.entries)
        contents = SubmissionRecord(plan.words, plan.device, plan.quiet, self.engine, self.settings, self.hold_s, tasks)
        outputs.write_own_file(record_path(plan.folder), json.dumps(asdict(contents), indent=1).encode())

    # Submitting

    def start(self, engine: Engine, entries: Sequence[Entry]) -> None:
        """Submit the given tasks as one array of jobs."""
        if not entries:
            return
        cards = self._cards()
        tasks = [
            task.Task(self.plan, entry.number, len(self.entries), self.hold_s, *cards.get(entry.number, (None, None)))
            for entry in entries
        ]
        for entry in entries:
            task.delete_state(self.plan.folder, entry.number)
        # Without the delay, an interrupt between submitting and saving would lose the job's id, and the job could not
        # be cancelled.
        with interrupts.delayed():
            for entry, job in zip(entries, engine.submit(tasks), strict=True):
                entry.job, entry.state, entry.reason = job, "pending", ""
                entry.attempts, entry.silent = entry.attempts + 1, 0
            self.save()

    def _cards(self) -> dict[int, tuple[str | None, str | None]]:
        """Return (card, simulator's name) for each task by its number; empty if the engine, Slurm, chooses the cards.

        Raises DeviceUnusable if there are fewer cards than tasks.
        """
        if self.engine == "slurm":
            return {}
        if self.plan.device is not None and self.plan.device.startswith("sim"):
            host = place.host()
            several = len(self.entries) > 1
            return {e.number: (None, f"{host}-{e.number}" if several else host) for e in self.entries}
        cards = [target.id for target in shard.visible_cards(self.plan)]
        if len(self.entries) > len(cards):
            visible = f"{len(cards)} cards are" if len(cards) != 1 else "1 card is"
            raise DeviceUnusable(f"--gpus {len(self.entries)} is too many: {visible} visible here; ask for fewer.")
        return {entry.number: (card, None) for entry, card in zip(self.entries, cards, strict=False)}

    # Watching

    def update(self, engine: Engine) -> None:
        """Update the state of every task. Submit tasks again that were preempted or whose node failed."""
        open_ones = [entry for entry in self.entries if entry.state in ("pending", "running")]
        states = engine.states([entry.job for entry in open_ones])
        again = []
        for entry in open_ones:
            reported = task.last_state(self.plan.folder, entry.number) or {}
            entry.host = str(reported.get("host") or entry.host)[: place.MOST_NAME]
            word = states.get(entry.job, "")
            if reported.get("exit_code") in range(256):
                entry.state = "repeated" if reported.get("repeated") is True else "done"
                entry.exit_code = int(reported["exit_code"])
            elif word in WAITING:
                entry.state = "pending"
            elif word in RUNNING:
                entry.state = "running"
            elif word in ("", "COMPLETED") and entry.silent < MOST_CHECKS:
                entry.silent += 1  # Slurm, or the shared folder, may show the task's result only after some seconds
            elif word in RESUBMITTED and entry.attempts < ATTEMPTS:
                again.append(entry)
            else:
                fate = f"job {entry.job} is {word.lower() or 'no longer known'}" + (
                    f" on {entry.host}" * bool(entry.host)
                )
                entry.state, entry.reason = "failed", f"{fate}; its log is in {log_folder(self.plan.folder)}"
        self.save()
        self.start(engine, again)

    @property
    def is_open(self) -> bool:
        """Return whether a task waits or runs."""
        return any(entry.state in ("pending", "running") for entry in self.entries)

    def count_slow_cards(self) -> int | None:
        """Return how many cards are slow so far; None if nothing can be compared yet."""
        findings_so_far = findings.load([self.plan.folder]).findings()
        return len(findings_so_far.slow) if findings_so_far.measurements else None

    def resume(self, engine: Engine) -> None:
        """Submit the tasks that failed, were cancelled, or got a card that was measured already.

        Tasks that wait or run are not submitted again; only their state is checked.
        """
        for entry in self.entries:
            if entry.state in ("pending", "running") and not entry.job:
                entry.state = "failed"
        # A job may have been cancelled or preempted since the last check. `update` marks a cancelled job as failed, and
        # submits a preempted job again.
        self.update(engine)
        unfinished = [entry for entry in self.entries if entry.state in ("failed", "repeated")]
        for entry in unfinished:
            entry.attempts, entry.exit_code = 0, None
        self.start(engine, unfinished)

    def cancel(self, engine: Engine) -> list[str]:
        """Cancel the jobs that wait and, on this machine, also those that run. Results that were written stay.

        Return the ids of the jobs that continue to run.
        """
        waiting = [entry.job for entry in self.entries if entry.state == "pending"]
        running = [entry.job for entry in self.entries if entry.state == "running"]
        engine.cancel(waiting, running=False)
        if self.engine == "local":
            engine.cancel(running, running=True)
            for entry in self.entries:
                if entry.state in ("pending", "running"):
                    entry.state, entry.reason = "failed", "it was cancelled"
        self.save()
        return [] if self.engine == "local" else running

    def exit_code(self) -> int:
        """Return the most serious exit code of all tasks."""
        failed = [EXIT_FAILED for entry in self.entries if entry.state == "failed"]
        return most_serious([*failed, *(entry.exit_code for entry in self.entries if entry.exit_code is not None)])


def record_path(folder: Path) -> Path:
    """Return the path of the file that holds a submission's record."""
    return folder / task.STATE / "submission.json"


def log_folder(folder: Path) -> Path:
    """Return the path of the folder with the jobs' logs."""
    return folder / task.STATE / "jobs"


def new_submission(
    plan: Plan, gpus: int, engine: Literal["slurm", "local"], settings: Mapping[str, Any], hold_s: float
) -> Submission:
    """Return a new submission of `gpus` tasks, which are not submitted yet.

    Raises UsageError for settings that must not be passed to Slurm, and for a folder that already holds a submission.
    Raises CudabenchError if the folder cannot be written.
    """
    if record_path(plan.folder).exists():
        raise UsageError(
            f"{plan.folder} holds a submission already: continue with 'cudabench fleet resume {plan.folder}', or name "
            "another folder."
        )
    check_settings(settings)
    submission = Submission(plan, engine, dict(settings), hold_s, [Entry(number) for number in range(gpus)])
    shard.make_folder(task.state_path(plan.folder, 0).parent)
    return submission


def load(folder: Path) -> Submission:
    """Return the submission whose record is in a folder. Raises CudabenchError if the record is missing or damaged."""
    path = record_path(folder)
    try:
        with open_bytes(path) as stream:
            contents: SubmissionRecord = decode(SubmissionRecord, parse_json(stream.read(MOST_RECORD)), "it")
        check_settings(contents.settings)
    except FileNotFoundError:
        raise CudabenchError(f"{folder} lacks a submission: 'cudabench fleet submit' makes one.") from None
    except OSError as error:
        raise CudabenchError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError, DecodeError, UsageError):
        contents = SubmissionRecord((), None, False, "local", {}, 0.0, ())
    # The job's id is checked, because it becomes an argument of the command scancel.
    right = all(
        entry.number == at and re.fullmatch(r"(\d+(_\d+)?)?", entry.job, re.ASCII)
        for at, entry in enumerate(contents.tasks)
    )
    if not (
        right and math.isfinite(contents.hold_s) and contents.hold_s >= 0 and 0 < len(contents.tasks) <= MOST_TASKS
    ):
        raise CudabenchError(f"{path} is damaged: submit again, into another folder.")
    plan = Plan(folder, contents.words, contents.device, contents.quiet)
    return Submission(plan, contents.engine, contents.settings, contents.hold_s, list(contents.tasks))


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise UsageError for unsafe settings of sbatch.

    submitit writes the settings as lines of a shell script, so a value with a newline would add a line to the script.
    """
    for name, value in settings.items():
        if name in NAMES:
            _check_word(f"--{name}", value)
        refuse(
            (
                name in NUMBERS and (type(value) is not int or value < 1),
                f"{name} {value!r} is not a number for sbatch: give 1 or more.",
            ),
            (
                name not in (*NUMBERS, *NAMES) and (name != "additional_parameters" or not isinstance(value, dict)),
                f"'{name}' is not a setting of a submission: write --slurm {name}=VALUE.",
            ),
        )
    for name, value in settings.get("additional_parameters", {}).items():
        refuse(
            (
                not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name, re.ASCII),
                f"--slurm '{name}' is not an option of sbatch: use letters, digits and '-'.",
            ),
            (name.replace("_", "-") in RESERVED, f"'fleet submit' sets {name} itself: remove --slurm {name}."),
        )
        _check_word(f"--slurm {name}", value)


def _check_word(what: str, value: Any) -> None:
    if not isinstance(value, str) or not value or "\n" in value or HARMFUL.search(value):
        raise UsageError(f"{what} '{value}' is not valid for sbatch: give a text without control characters.")


def engine_of(submission: Submission) -> Engine:
    """Return a new engine for a submission. Raises CudabenchError if the engine is not available here."""
    folder = log_folder(submission.plan.folder)
    if submission.engine == "local":
        return Local(folder, submission.settings)
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise CudabenchError(
            "fleet submit needs submitit, which is missing: pip install 'cudabench[fleet]'; or start "
            "'cudabench fleet shard' with srun."
        ) from None
    return Slurm(folder, submission.settings)
