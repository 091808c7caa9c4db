"""`cudabench fleet shard|submit|resume|report`: measures many cards, writes a file for each, and reports on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench.cli.arguments import Finite, percentage
from cudabench.cli.files import picture_format
from cudabench.cli.groups import LazyGroup
from cudabench.cli.habits import resolved
from cudabench.cli.help import headed
from cudabench.cli.options import PLACE, option
from cudabench.cli.output import Destination, Output
from cudabench.cli.process import Terminated
from cudabench.devices import probe
from cudabench.errors import EXIT_TERMINATED, CudabenchError, UsageError, exit_code, refuse
from cudabench.measure import provenance
from cudabench.records.file import ResultsFile
from cudabench.records.fleet import Fleet, Rule
from cudabench.system import outputs
from cudabench.views import console, fleet

if TYPE_CHECKING:
    from cudabench.fleet.findings import Report
    from cudabench.fleet.shard import Plan
    from cudabench.fleet.submit import Engine, Submission

COMMANDS = {
    "shard": "Measure every visible card, and write a file for each into DIR.",
    "submit": "Run 'shard' on many cards, through Slurm or on this machine.",
    "resume": "Continue an unfinished 'submit'.",
    "report": "Show which cards are slow, wrong, missing, or getting slower.",
}
POLL_S = 2.0  # seconds between two checks of the jobs
LOOK_AT_SHARDS_S = 10.0  # seconds between two readings of the shards to find slow cards


FOLDER = click.Argument(["folder"], type=click.Path(path_type=Path), metavar="DIR")
WORDS = click.Argument(["words"], nargs=-1, required=True, metavar="-- COMMAND ...")
QUIET = option("-q, --quiet", "Print nothing while it runs.")


# shard ---------------------------------------------------------------------------------------------------------------


@headed(
    "shard",
    FOLDER,
    WORDS,
    option("--host NAME", "Name of this machine. Default: Slurm's name of the node, or its own."),
    option("--rack NAME", "Rack of the machine. Default: its network switch, if Slurm knows it."),
    option("--expect UUID|FILE", "Cards that should be here; FILE has one UUID per line. Repeatable.", multiple=True),
    option("--in-turn", "Measure one card after the other. Default: all at once."),
    option("-q, --quiet", "Print no line for each card."),
)
def shard(
    folder: Path,
    words: tuple[str, ...],
    host: str | None,
    rack: str | None,
    expect: tuple[str, ...],
    in_turn: bool,
    quiet: bool,
) -> int:
    """Run a measuring command on every visible card, and write DIR/<GPU UUID>.json for each.

    \b
      cudabench fleet shard runs/today -- transpose --kernel smem-pad
      cudabench fleet shard runs/today -- run saxpy.cu --profile saxpy.toml
      cudabench fleet shard runs/trial -- transpose --device sim

    A card whose run failed also gets a shard, and so does an expected card that is missing. The exit code is that of
    the worst card. An interrupted run does not write a shard.
    """
    from cudabench.fleet import shard as shards

    def print_shard(written: shards.WrittenShard) -> None:
        if not quiet:
            console.out().print(fleet.shard_line(written), soft_wrap=True)

    code = shards.measure_cards(
        planned(folder, words, host, rack), _ids(expect), in_turn=in_turn, on_written=print_shard
    )
    if code == EXIT_TERMINATED:
        raise Terminated
    return code


def planned(folder: Path, words: Sequence[str], host: str | None = None, rack: str | None = None) -> Plan:
    """Return the plan of `shard` for a command. Raises UsageError if `words` are not a command that measures."""
    from cudabench.cli import group
    from cudabench.fleet.shard import Plan

    line = " ".join(words)
    context, rest = resolved(group, words)
    refuse(
        (
            isinstance(context.command, click.Group),
            f"'{line}' is not a command that measures: name such a command, as in -- transpose --kernel smem.",
        ),
        (
            not {"device", "json_path"} <= {param.name for param in context.command.params},
            f"'{line}' does not measure: name a command that does, as in -- transpose --kernel smem.",
        ),
    )
    given = context.command.make_context(context.info_name, rest, context.parent).params
    file, key = given["json_path"], given.get("key")
    refuse(
        (file is not None, f"'fleet shard' sets --json itself: remove --json {file} from COMMAND."),
        (key is not None, f"--print {key} is for a single run: remove it from COMMAND, and read the shards."),
    )
    names = {key: value for key, value in (("host", host), ("rack", rack)) if value}
    device = given["device"] if given["device"] != "auto" else None
    return Plan(folder, tuple(words), device=device, quiet="quiet" in given, **names)


def _ids(words: Sequence[str]) -> list[str]:
    """Return the ids of cards. Each word is an id, or the name of a file with one id per line."""
    ids = []
    for word in words:
        path = Path(word)
        if not path.is_file():
            if "/" in word or path.suffix:
                raise UsageError(
                    f"--expect {word}: the file does not exist; give UUIDs, or a file with one UUID per line."
                )
            ids.append(word)
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CudabenchError(f"--expect {word} cannot be read: {error}.") from None
        ids += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return ids


# submit and resume ---------------------------------------------------------------------------------------------------


@headed(
    "submit",
    FOLDER,
    WORDS,
    option(
        "--engine",
        "slurm: an array of jobs. local: processes on this machine.",
        type=click.Choice(["slurm", "local"]),
        default="slurm",
        show_default=True,
    ),
    option("--gpus N", "Number of cards; each gets a job.", type=click.IntRange(1, 100_000), required=True),
    option("--partition NAME", "Slurm's partition."),
    option("--account NAME", "Slurm's account."),
    option("--qos NAME", "Slurm's quality of service."),
    option("--time MIN", "Time limit of a job.", type=click.IntRange(1), default=60, show_default=True),
    option("--cpus N", "CPUs of a job.", "cpus_per_task", type=click.IntRange(1)),
    option("--slurm NAME=VALUE", "Another option of sbatch, such as exclude=n7; repeatable.", "more", multiple=True),
    option(
        "--hold S",
        "A finished job keeps its card until all jobs have started, or no job started for S seconds, so that each "
        "card is measured once.",
        type=Finite(0),
        default=60.0,
        show_default=True,
    ),
    QUIET,
)
def submit(
    folder: Path, words: tuple[str, ...], engine: str, gpus: int, more: tuple[str, ...], hold: float, quiet: bool,
    **given: Any,
) -> int:  # fmt: skip
    """Run 'cudabench fleet shard DIR -- COMMAND' on N cards, with a job for each, and watch until all are done.

    \b
      cudabench fleet submit --gpus 64 --partition gpu runs/today -- transpose
      cudabench fleet submit --engine local --gpus 2 runs/trial -- transpose --device sim

    A job that is preempted or whose node dies is submitted again. Ctrl-C cancels waiting jobs and keeps finished ones;
    'cudabench fleet resume DIR' continues. All nodes must see DIR.
    """
    from cudabench.fleet import submit as submissions

    settings = {"gpus_per_node": 1, **{key: value for key, value in given.items() if value is not None}}
    settings["additional_parameters"] = _pairs(more)
    plan = planned(folder.absolute(), words)
    submission = submissions.new_submission(plan, gpus, "local" if engine == "local" else "slurm", settings, hold)
    return _watch(submission, folder, quiet, lambda engine: submission.start(engine, submission.entries))


@headed("resume", FOLDER, QUIET)
def resume(folder: Path, quiet: bool) -> int:
    """Continue a submission: watch the remaining jobs, and submit again jobs that failed, were cancelled, or got a
    card that another job had measured.
    """
    from cudabench.fleet import submit as submissions

    submission = submissions.load(folder.absolute())
    # The words come from a file that somebody may have edited, so they are checked again.
    submission.plan = planned(submission.plan.folder, submission.plan.words)
    return _watch(submission, folder, quiet, submission.resume)


def _pairs(words: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip("-"):
            raise UsageError(f"--slurm '{word}' is not NAME=VALUE, as in exclude=n7.")
        pairs[name.strip("-")] = value
    return pairs


def _watch(submission: Submission, folder: Path, quiet: bool, begin: Callable[[Engine], object]) -> int:
    """Start jobs with `begin`, watch them until all have ended, and return the exit code.

    Ctrl-C cancels the jobs that wait.
    """
    import time

    from cudabench.fleet import submit as submissions

    running = submissions.engine_of(submission)
    done_count, slow, checked_at = -1, None, 0.0
    with fleet.Live(console.err(), shown=not quiet) as live:
        try:
            begin(running)
            while True:
                done_now = sum(entry.state == "done" for entry in submission.entries)
                if done_now != done_count and (
                    not submission.is_open or time.monotonic() - checked_at > LOOK_AT_SHARDS_S
                ):
                    done_count, slow, checked_at = done_now, submission.count_slow_cards(), time.monotonic()
                live.update(submission.entries, slow)
                if not submission.is_open:
                    break
                time.sleep(POLL_S)
                submission.update(running)
        except (KeyboardInterrupt, Terminated):
            continuing = submission.cancel(running)
            running.finish()
            live.close()
            console.err().print(fleet.cancelled(continuing, folder), soft_wrap=True)
            raise
        except BaseException:
            if submission.engine == "local":
                # without this, local processes would run on unwatched; Slurm's jobs are not cancelled
                submission.cancel(running)
                running.finish()
            raise
    running.finish()
    for line in fleet.ended(submission.entries, folder, submissions.log_folder(folder)):
        console.err().print(line, soft_wrap=True)
    return submission.exit_code()


# report --------------------------------------------------------------------------------------------------------------


@headed(
    "report",
    click.Argument(["folders"], nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR ..."),
    option(
        "--mads K",
        "A card is slow if its cost is over its model's median by more than K scaled MADs",
        type=Finite(0),
        default=5.0,
        show_default=True,
    ),
    option("--over PERCENT", "and by more than PERCENT.", type=percentage, default="3%", show_default=True),
    option("--expect ID|FILE", "Cards that should be there; FILE has one id per line. Repeatable.", multiple=True),
    option("--fail-on-slow", "Exit 4 if a card is slow or gets slower."),
    option("--fail-on-missing", "Exit 1 if a card failed or is missing, or a file is not a shard."),
    option("--json PATH", "Write all findings; '-' is standard output.", "json_path", type=PLACE),
    option(
        "--to",
        "Form of the report. Default: html if --output names an .html file, else table.",
        "target",
        type=click.Choice(["table", "markdown", "html"]),
    ),
    option("-o, --output FILE", "Write the report to FILE, such as report.html.", type=PLACE),
    option("--plot FILE", "Draw every card as a dot: .svg, .png or .pdf.", type=PLACE),
    option("-q, --quiet", "Print no table."),
)
def report(
    folders: tuple[Path, ...], mads: float, over: float, expect: tuple[str, ...], fail_on_slow: bool,
    fail_on_missing: bool, json_path: str | None, target: str | None, output: str | None, plot: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Compare every card of DIR with the cards of its model; several DIRs are its history.

    The exit code is 3 if a card has a wrong or unverified result.
    """
    from cudabench.fleet import findings

    json_output, report_output = Output.of(json_path, quiet), Destination.of(output)
    picture = Path(plot) if plot is not None else None
    picture_kind = picture_format(picture, "--plot") if picture else ""
    expected = _ids(expect)
    page = report_output.path is not None and report_output.path.suffix.lower() in (".html", ".htm")
    loaded = findings.load(folders)
    outcome = loaded.findings(Rule(mads, over), expected)
    if not outcome.cards:
        why = (
            f": {outcome.damaged[0].file}: {outcome.damaged[0].reason}" if outcome.damaged else "; it lacks .json files"
        )
        raise CudabenchError(f"{outcome.folders[-1]} lacks readable shards{why}.")
    if json_output.json:
        file = ResultsFile({}, {}, probe.host(), provenance=provenance.provenance_record([], None), fleet=outcome)
        json_output.json.write(file.text())
    if picture:
        from cudabench.views import fleet_plot
        from cudabench.views.plot import render

        outputs.write_whole(picture, render(fleet_plot.draw(loaded, outcome), picture_kind))
    if report_output.path or not json_output.quiet:
        _show(loaded, outcome, target or ("html" if page else "table"), report_output, json_output.to_stdout)
    statuses = {card.status for card in outcome.cards}
    failed = fail_on_missing and (statuses & {"failed", "missing"} or outcome.damaged)
    as_wrong = {"wrong"} if statuses & {"wrong", "unverified"} else {"failed"} if failed else set()
    return exit_code(as_wrong, missed=fail_on_slow and bool(outcome.slow or outcome.slowing))


def _show(loaded: Report, outcome: Fleet, form: str, place: Destination, json_to_stdout: bool) -> None:
    from cudabench.views import fleet_page

    view = fleet.View(outcome, loaded.simulated, form == "markdown")
    if form == "html":
        page = fleet_page.page(loaded, outcome)
        place.write(page if place.path else f"{page}\n", beside=json_to_stdout)
    elif place.path:
        place.write(console.captured(view.show))
    else:
        view.show(console.table_console(json_to_stdout))


command = LazyGroup(
    "fleet",
    sections={"Commands": COMMANDS},
    make={"shard": shard, "submit": submit, "resume": resume, "report": report}.__getitem__,
    kind="not a command of fleet",
    help="""Find the slow card among many.

\b
  srun -N8 --ntasks-per-node=8 --gpus-per-task=1 cudabench fleet shard runs/today -- transpose
  cudabench fleet report runs/today

A separate process measures each card and writes DIR/<GPU UUID>.json: the usual results file, with the card's host,
clocks, temperature, errors and links. The report compares each card with the cards of its model.
""",
)
