"""`cudabench ceilings`: what a card can do at most, measured."""

from __future__ import annotations

import click

from cudabench.cards import KINDS
from cudabench.cli import options as families
from cudabench.cli.arguments import Finite
from cudabench.cli.help import Headed
from cudabench.errors import EXIT_FAILED, EXIT_OK, EXIT_WRONG, UsageError

HELP = """Measure what a card can do at most, each figure verified, beside what its clocks and units allow.

Exit codes: 0 measured, 1 one failed, 3 one left a wrong result, 5 no GPU to measure.

\f
In the simulator (-d sim) the same kernels run small and are verified; nothing has a value. What the card lacks is
skipped.

\b
""" + "\n".join(f"{name:<24} {kind.meaning}" for name, kind in KINDS.items())


@click.command("ceilings", cls=Headed, help=HELP, short_help="Measure what a card can do at most.")
@click.option(
    "--only",
    multiple=True,
    metavar="GROUP|NAME",
    help="Measure only this group, such as memory or tensor, or this figure; repeatable.",
)
@click.option("--energy", is_flag=True, help="Also measure energy per byte and per operation, if NVML reports it.")
@click.option(
    "-d",
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    callback=families.device_name,
    help="cuda, cuda:N, sim, sim:sm_90.",
)
@click.option(
    "--timeout", type=Finite(0, min_open=True), metavar="S", help="A measurement fails after S seconds. Default: 60."
)
def command(
    only: tuple[str, ...],
    energy: bool,
    device: str,
    timeout: float | None,
    json_path: str | None,
    quiet: bool,
) -> int:
    """Measure; see HELP."""
    from dataclasses import replace

    from cudabench import devices
    from cudabench.ceilings import run
    from cudabench.ceilings.gpu import TIMING
    from cudabench.cli.output import Output, Screen, say
    from cudabench.cli.process import Terminated

    names = run.chosen(only, energy)
    output = Output.of(json_path, quiet)
    if device == "all":
        raise UsageError("ceilings measures one card at a time: name it, as in --device cuda:1.")
    # A machine without a GPU has no ceilings: never a silent simulation.
    choice = devices.choose("cuda" if device == "auto" else device)
    settings = replace(TIMING, timeout=timeout) if timeout else TIMING
    made = run.CeilingsRun(
        choice,
        names,
        settings,
        {"only": list(only), "energy": energy},
        path=output.path,
        listener=Screen(output),
    )
    stopped: BaseException | None = None
    try:
        made.collect()
    except (KeyboardInterrupt, Terminated) as interrupt:
        stopped = interrupt
    if output.stream:
        made.file.write(output.stream)
    if output.to_stdout:
        click.echo(made.file.text(), nl=False)
    if not output.quiet:
        from cudabench.views import ceilings, console

        ceilings.show(console.tables(output.to_stdout), made.file.device, made.file.ceilings)
    else:
        for one in made.file.ceilings:
            if one.status in ("wrong", "failed"):
                say(f"{one.name} {one.status}: {one.reason}.")
    if stopped:
        raise stopped
    found = {one.status for one in made.file.ceilings}
    return EXIT_WRONG if "wrong" in found else EXIT_FAILED if "failed" in found else EXIT_OK


command.params += [option for option in families.output_options() if option.name != "report_path"]
