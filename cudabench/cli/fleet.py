"""`cudabench fleet shard|submit|resume|report`: many cards, a file each, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench.cli.arguments import Finite
from cudabench.cli.compare import Percentage
from cudabench.cli.groups import LazyGroup
from cudabench.cli.help import Headed
from cudabench.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_TERMINATED,
    EXIT_THRESHOLD,
    EXIT_WRONG,
    CudabenchError,
    UsageError,
)

if TYPE_CHECKING:
    from cudabench.fleet.findings import Report
    from cudabench.fleet.shard import Plan, Written
    from cudabench.fleet.submit import Engine, Submission
    from cudabench.records.fleet import Fleet

COMMANDS = {
    "shard": "Measure every visible card, and write a file for each into DIR.",
    "submit": "Run 'shard' on many cards, through Slurm or on this machine.",
    "resume": "Go on with what 'submit' left undone.",
    "report": "Say which cards are slow, wrong, missing, or get slower.",
}
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
POLL_S = 2.0  # between two looks at the jobs
LOOK_AT_SHARDS_S = 10.0  # between two looks for slow cards


@click.group(
    "fleet",
    cls=LazyGroup,
    sections={"Commands": COMMANDS},
    make=lambda name: _commands()[name],
    kind="not a command of fleet",
    short_help="Find the slow card among many.",
    context_settings=HELP_OPTIONS,
)
def command() -> None:
    """Find the slow card among many.

    \b
      srun -N8 --ntasks-per-node=8 --gpus-per-task=1 cudabench fleet shard runs/today -- transpose
      cudabench fleet report runs/today

    Every card is measured by a process of its own, which writes DIR/<GPU UUID>.json: the usual results file with the
    card's host, clocks, temperature, errors and links besides. The report holds each card against those of its model.
    """


def _commands() -> dict[str, click.Command]:
    return {"shard": shard, "submit": submit, "resume": resume, "report": report}


# shard ---------------------------------------------------------------------------------------------------------------


@click.command("shard", cls=Headed, short_help=COMMANDS["shard"], context_settings=HELP_OPTIONS)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND ...")
@click.option("--host", metavar="NAME", help="Name of this machine. Default: Slurm's name of the node, or its own.")
@click.option("--rack", metavar="NAME", help="Where the machine stands. Default: its switch, if Slurm knows it.")
@click.option(
    "--expect",
    multiple=True,
    metavar="UUID|FILE",
    help="Cards that should be here; FILE has a UUID a line. Repeatable.",
)
@click.option("--in-turn", is_flag=True, help="Measure one card after the other. Default: all at once.")
@click.option("-q", "--quiet", is_flag=True, help="Print no line for each card.")
def shard(
    folder: Path,
    words: tuple[str, ...],
    host: str | None,
    rack: str | None,
    expect: tuple[str, ...],
    in_turn: bool,
    quiet: bool,
) -> int:
    """Run a command that measures on every visible card, and write DIR/<GPU UUID>.json for each.

    \b
      cudabench fleet shard runs/today -- transpose --kernel smem-pad
      cudabench fleet shard runs/today -- run saxpy.cu --profile saxpy.toml
      cudabench fleet shard runs/trial -- transpose --device sim

    A card whose run failed has a shard too, and so has one that should be there and is not. The exit code is that of
    the worst card. An interrupted run writes no shard.
    """
    from cudabench.cli.process import Terminated
    from cudabench.fleet import shard as shards

    plan = planned(folder, words, host, rack)
    code = shards.run(plan, _ids(expect), in_turn=in_turn, told=lambda written: None if quiet else _say(written))
    if code == EXIT_TERMINATED:
        raise Terminated
    return code


def planned(folder: Path, words: Sequence[str], host: str | None = None, rack: str | None = None) -> Plan:
    """Return what `shard` is to do. Raises UsageError where the words are no command that measures."""
    from cudabench.fleet.shard import Plan

    given = _parsed(words)
    own = {"host": host, "rack": rack}
    return Plan(
        folder,
        tuple(words),
        device=given["device"] if given["device"] != "auto" else None,
        quiet="quiet" in given,
        **{key: value for key, value in own.items() if value},
    )


def _parsed(words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line of this tool, as the command itself would read them."""
    from cudabench.cli import group

    line = " ".join(words)
    with click.Context(group, info_name="cudabench") as parent:
        name, found, rest = group.resolve_command(parent, [*words])
        while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
            with click.Context(found, parent, name) as parent:
                name, found, rest = found.resolve_command(parent, rest)
        if found is None or isinstance(found, click.Group):
            raise UsageError(f"'{line}' is no command that measures: name one, as in -- transpose --kernel smem.")
        options = {param.name for param in found.params}
        if not {"device", "json_path"} <= options:
            raise UsageError(f"'{line}' measures nothing: name a command that does, as in -- transpose --kernel smem.")
        given = found.make_context(name or "", rest, parent).params
    if given["json_path"] is not None:
        raise UsageError(f"--json {given['json_path']} is the shard's own business: leave it out of COMMAND.")
    if given.get("key") is not None:
        raise UsageError(f"--print {given['key']} is of one run; leave it out of COMMAND and ask the shards.")
    return given


def _say(written: Written) -> None:
    from cudabench.views import console, fleet

    console.out().print(fleet.shard_line(written), soft_wrap=True)


def _ids(words: Sequence[str]) -> list[str]:
    """Return ids of cards, from the command line and from files with one a line."""
    found = []
    for word in words:
        path = Path(word)
        if not path.is_file():
            if "/" in word or path.suffix:
                raise UsageError(f"--expect {word}: no such file; give UUIDs, or a file with one a line.")
            found.append(word)
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CudabenchError(f"--expect {word} cannot be read: {error}.") from None
        found += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return found


# submit and resume ---------------------------------------------------------------------------------------------------


@click.command("submit", cls=Headed, short_help=COMMANDS["submit"], context_settings=HELP_OPTIONS)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND ...")
@click.option(
    "--engine", type=click.Choice(["slurm", "local"]), default="slurm", show_default=True,
    help="slurm: an array of jobs. local: processes on this machine.",
)  # fmt: skip
@click.option("--gpus", type=click.IntRange(1, 100_000), required=True, metavar="N", help="How many cards: a job each.")
@click.option("--partition", metavar="NAME", help="Slurm's partition.")
@click.option("--account", metavar="NAME", help="Slurm's account.")
@click.option("--qos", metavar="NAME", help="Slurm's quality of service.")
@click.option(
    "--time",
    "minutes",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    metavar="MIN",
    help="Time limit of a job.",
)
@click.option("--cpus", type=click.IntRange(1), metavar="N", help="CPUs of a job.")
@click.option(
    "--slurm", "more", multiple=True, metavar="NAME=VALUE",
    help="Any other option of sbatch, such as exclude=n7; repeatable.",
)  # fmt: skip
@click.option(
    "--hold", type=Finite(0), default=60.0, show_default=True, metavar="S",
    help="A finished job keeps its card until all have started, or none has for S seconds, so that no card is "
    "measured twice.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print nothing while it runs.")
def submit(
    folder: Path,
    words: tuple[str, ...],
    engine: str,
    gpus: int,
    partition: str | None,
    account: str | None,
    qos: str | None,
    minutes: int,
    cpus: int | None,
    more: tuple[str, ...],
    hold: float,
    quiet: bool,
) -> int:
    """Run 'cudabench fleet shard DIR -- COMMAND' on N cards, a job each, and watch until all are done.

    \b
      cudabench fleet submit --gpus 64 --partition gpu runs/today -- transpose
      cudabench fleet submit --engine local --gpus 2 runs/trial -- transpose --device sim

    A job that is preempted or whose node dies is submitted again. Ctrl-C cancels what waits and keeps what is done;
    'cudabench fleet resume DIR' goes on. DIR must be one that all nodes see.
    """
    from cudabench.fleet import submit as submissions

    settings: dict[str, Any] = {"gpus_per_node": 1, "time": minutes}
    given = {"partition": partition, "account": account, "qos": qos, "cpus_per_task": cpus}
    settings |= {key: value for key, value in given.items() if value is not None}
    settings["additional_parameters"] = _pairs(more)
    plan = planned(folder.absolute(), words)
    made = submissions.new(plan, gpus, "local" if engine == "local" else "slurm", settings, hold)
    running = submissions.engine_of(made)
    return _watch(made, running, folder, quiet, lambda: made.start(running, made.entries))


@click.command("resume", cls=Headed, short_help=COMMANDS["resume"], context_settings=HELP_OPTIONS)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing while it runs.")
def resume(folder: Path, quiet: bool) -> int:
    """Go on with a submission: watch the jobs that are still there, and submit again what failed, was cancelled, or
    was given a card that another job had measured.
    """
    from cudabench.fleet import submit as submissions

    made = submissions.load(folder.absolute())
    # A record that somebody changed is no way around what submit refuses.
    made.plan = planned(made.plan.folder, made.plan.words)
    running = submissions.engine_of(made)
    return _watch(made, running, folder, quiet, lambda: submissions.resume(made, running))


def _pairs(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip("-"):
            raise UsageError(f"--slurm '{word}' is no NAME=VALUE, as in exclude=n7.")
        found[name.strip("-")] = value
    return found


def _watch(made: Submission, running: Engine, folder: Path, quiet: bool, begin: Callable[[], object]) -> int:
    """Begin a submission, look at it until nothing of it waits or runs, and return its exit code."""
    import time

    from cudabench.cli.process import Terminated
    from cudabench.fleet import submit as submissions
    from cudabench.views import console, fleet

    done, slow, looked = -1, None, 0.0
    with fleet.Live(console.err(), shown=not quiet) as live:
        try:
            begin()
            while True:
                counts = made.counts(slow)
                if counts.done != done and (not made.open or time.monotonic() - looked > LOOK_AT_SHARDS_S):
                    done, slow, looked = counts.done, made.slow(), time.monotonic()
                    counts = made.counts(slow)
                live.update(counts)
                if not made.open:
                    break
                time.sleep(POLL_S)
                made.look(running)
        except (KeyboardInterrupt, Terminated):
            left = made.cancel(running)
            running.finish()
            live.close()
            console.err().print(fleet.cancelled(left, folder), soft_wrap=True)
            raise
        except BaseException:
            if made.engine == "local":
                made.cancel(running)  # nobody else would end them
                running.finish()
            raise
    running.finish()
    for line in fleet.ended(made.entries, folder, submissions.logs(folder)):
        console.err().print(line, soft_wrap=True)
    return made.exit_code()


# report --------------------------------------------------------------------------------------------------------------


@click.command("report", cls=Headed, short_help=COMMANDS["report"], context_settings=HELP_OPTIONS)
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR ...")
@click.option(
    "--mads", type=Finite(0), default=5.0, show_default=True, metavar="K",
    help="A card is slow if it lies over its model's median by more than K scaled MADs",
)  # fmt: skip
@click.option(
    "--over",
    type=Percentage(),
    default="3%",
    show_default=True,
    metavar="PERCENT",
    help="and by more than PERCENT.",
)
@click.option(
    "--expect", multiple=True, metavar="ID|FILE", help="Cards that should be there; FILE has one a line. Repeatable."
)
@click.option("--fail-on-slow", is_flag=True, help="Exit 4 if a card is slow or gets slower.")
@click.option(
    "--fail-on-missing", is_flag=True, help="Exit 1 if a card failed or is missing, or a file is not a shard."
)
@click.option(
    "--json", "json_path", type=click.Path(), metavar="PATH", help="Write all findings; '-' is standard output."
)
@click.option(
    "--to", "target", type=click.Choice(["table", "markdown", "html"]),
    help="Form of the report. Default: html if --output names an .html file, else table.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(), metavar="FILE", help="Write the report to FILE, such as report.html."
)
@click.option("--plot", type=click.Path(), metavar="FILE", help="Draw every card as a dot: .svg, .png or .pdf.")
@click.option("-q", "--quiet", is_flag=True, help="Print no table.")
def report(
    folders: tuple[Path, ...],
    mads: float,
    over: float,
    expect: tuple[str, ...],
    fail_on_slow: bool,
    fail_on_missing: bool,
    json_path: str | None,
    target: str | None,
    output: str | None,
    plot: str | None,
    quiet: bool,
) -> int:
    """Hold every card of DIR against the cards of its model; several DIRs are its history.

    A card with a wrong or unverified result makes the exit code 3.
    """
    from cudabench.cli.output import Output
    from cudabench.cli.plot import picture_format
    from cudabench.fleet import findings
    from cudabench.records.fleet import Rule
    from cudabench.system import outputs

    place = Output.of(json_path, quiet)
    text_file = Path(output) if output not in (None, "-") else None
    picture = Path(plot) if plot is not None else None
    if text_file:
        outputs.check_target(text_file, "--output")
    drawn = picture_format(picture, "--plot") if picture else ""
    expected = _ids(expect)
    form = target or ("html" if text_file and text_file.suffix.lower() in (".html", ".htm") else "table")
    made = findings.load(folders)
    try:
        found = made.findings(Rule(mads, over), expected)
        _nothing(found)
        _write(found, place)
        if picture:
            _draw(made, found, picture, drawn)
        if text_file or not place.quiet:
            _show(made, found, form, text_file, place.to_stdout)
    finally:
        made.sums.close()
    return _exit_code(found, fail_on_slow, fail_on_missing)


def _nothing(found: Fleet) -> None:
    """Raise CudabenchError where not one shard was read."""
    if not found.cards:
        why = f": {found.damaged[0].file}: {found.damaged[0].reason}" if found.damaged else "; it has no .json file"
        raise CudabenchError(f"{found.folders[-1]} holds no shard that can be read{why}.")


def _write(found: Fleet, place: Any) -> None:
    from cudabench.devices import probe
    from cudabench.measure import provenance
    from cudabench.records.file import ResultsFile
    from cudabench.system import outputs

    target = place.path or place.stream
    if not (target or place.to_stdout):
        return
    file = ResultsFile({}, {}, probe.host(), provenance=provenance.gather([], None), fleet=found)
    if target:
        outputs.write_whole(target, file.text().encode())
    else:
        click.echo(file.text(), nl=False)


def _draw(made: Report, found: Fleet, path: Path, suffix: str) -> None:
    from cudabench.system import outputs
    from cudabench.views import fleet_plot as plot
    from cudabench.views.plot import render

    outputs.write_whole(path, render(plot.draw(made, found), suffix))


def _show(made: Report, found: Fleet, form: str, file: Path | None, json_to_stdout: bool) -> None:
    from cudabench.system import outputs
    from cudabench.views import console, fleet

    if form == "html":
        from cudabench.views import fleet_page

        page = fleet_page.page(made, found)
        if file:
            outputs.write_whole(file, page.encode())
        else:
            click.echo(page, err=json_to_stdout)
        return
    view = fleet.View(found, made.simulated, form == "markdown")
    if file:
        outputs.write_whole(file, console.captured(view.show).encode())
    else:
        view.show(console.tables(json_to_stdout))


def _exit_code(found: Fleet, fail_on_slow: bool, fail_on_missing: bool) -> int:
    statuses = {card.status for card in found.cards}
    if statuses & {"wrong", "unverified"}:
        return EXIT_WRONG
    if fail_on_missing and (statuses & {"failed", "missing"} or found.damaged):
        return EXIT_FAILED
    return EXIT_THRESHOLD if fail_on_slow and (found.slow or found.slowing) else EXIT_OK
