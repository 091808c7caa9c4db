"""`cudabench ceilings`: measures a card's ceilings, such as the highest memory bandwidth that the card reaches."""

from __future__ import annotations

from dataclasses import replace

from cudabench import devices
from cudabench.cards import KINDS
from cudabench.cli import options
from cudabench.cli.arguments import Finite
from cudabench.cli.help import headed
from cudabench.cli.options import option
from cudabench.cli.output import Output, interruption_of, print_notice
from cudabench.errors import UsageError, exit_code
from cudabench.views import ceilings, console

HELP = """Measure what a card can do at most, each figure verified, beside what its clocks and units allow.

Exit codes: 0 measured, 1 a measurement failed, 3 a result is wrong, 5 without a GPU.

\f
In the simulator (-d sim) the same kernels run on small sizes and are verified, without values. Figures that the card
lacks are skipped.

\b
""" + "\n".join(f"{name:<24} {kind.meaning}" for name, kind in KINDS.items())


@headed(
    "ceilings",
    option(
        "--only GROUP|NAME",
        "Measure only this group, such as memory or tensor, or this figure; repeatable.",
        multiple=True,
    ),
    option("--energy", "Also measure energy per byte and per operation, if NVML reports it."),
    options.device_option("cuda, cuda:N, sim, sim:sm_90."),
    option("--timeout S", "A measurement fails after S seconds. Default: 60.", type=Finite(0, min_open=True)),
    *options.without(options.OUTPUT, "report_path"),
    help=HELP,
)
def command(
    only: tuple[str, ...], energy: bool, device: str, timeout: float | None, json_path: str | None, quiet: bool
) -> int:
    """Measure the ceilings and show them; HELP is the help text."""

    from cudabench.ceilings import run
    from cudabench.ceilings.gpu import TIMING

    names = run.chosen_names(only, energy)
    output = Output.of(json_path, quiet)
    if device == "all":
        raise UsageError("ceilings measures one card at a time: name it, as in --device cuda:1.")
    # `auto` must find a GPU here: without a GPU it is an error, because the simulator cannot measure ceilings.
    choice = devices.choose("cuda" if device == "auto" else device)
    settings = replace(TIMING, timeout=timeout) if timeout else TIMING
    request = {"only": list(only), "energy": energy}
    measuring = run.CeilingsRun(choice, names, settings, request, path=output.path, listener=output.screen)
    stopped = interruption_of(measuring.collect)
    output.deliver(measuring.file)
    if not output.quiet:
        ceilings.show_ceilings(console.table_console(output.to_stdout), measuring.file.device, measuring.file.ceilings)
    else:
        for ceiling in measuring.file.ceilings:
            if ceiling.status in ("wrong", "failed"):
                print_notice(f"{ceiling.name} {ceiling.status}: {ceiling.reason}.")
    if stopped:
        raise stopped
    return exit_code({ceiling.status for ceiling in measuring.file.ceilings} - {"skipped"})
