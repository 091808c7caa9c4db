"""`cudabench run FILE.cu ...`: any kernel of the user's own, with no host code."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cudabench.cli import complete, pricing
from cudabench.cli import options as families
from cudabench.cli.arguments import Expressions, SpreadCommand
from cudabench.cli.groups import FILE
from cudabench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudabench.cards.load import Card
    from cudabench.cli.output import Output
    from cudabench.devices import Choice
    from cudabench.plan.series import Series
    from cudabench.records.planned import Settings
    from cudabench.records.results import Result
    from cudabench.userkernel.request import UserRequest

HELP = """Compile a kernel of FILE.cu, make its arguments, run it, verify it, time it. No host code is needed.

\b
cudabench run saxpy.cu --grid 'cdiv(n,256)' --block 256 --arg n=1048576 --arg a=2.5 \\
    --arg 'x=float32[n]:random' --arg 'y=float32[n]:random' --expect 'y=a*x+y0'

'cudabench run saxpy.cu' alone prints the arguments that are missing.

\f
One --arg a parameter, in any order. A number's type comes from the signature (or n=int32:4096); an array is
TYPE[SHAPE]:INIT, INIT one of random, zeros, ones, arange, empty (poisoned: for outputs), or @FILE.npy.

--expect is NAME=EXPRESSION in NumPy (np); y0 is y before the launch. Floats are compared in double precision with a
relative tolerance of 1e-5 for float32, 2e-3 for float16, 1e-12 for float64, absolute a tenth of that; integers exactly.
Without --expect a result is unverified. The CPU baseline is the expression itself, timed in NumPy.
"""

ONE_RUN = (
    "device", "cache", "min_time", "max_time", "min_samples", "timeout", "min_bandwidth", "min_copy_fraction",
    "budget", "no_cpu", "cpu_threads", "jobs", "schedule", "json_path", "report_path", "quiet", "card", "price",
    "limits",
)  # fmt: skip


def problem_options() -> list[click.Parameter]:
    """Return what says which kernel runs on which arguments; `request_of` reads them."""
    option = families.option
    return [
        click.Argument(["file"], type=click.Path(), required=False, metavar="FILE.cu"),
        option(
            "-k", "--kernel", "kernels", multiple=True, metavar="NAME",
            help="Name, 'f<float>', glob or all; repeatable.",
            shell_complete=complete.kernels_of_file,
        ),
        option("-g", "--grid", type=Expressions(), metavar="X[,Y[,Z]]", help="Blocks, such as 'cdiv(n,256)'."),
        option("-b", "--block", type=Expressions(), metavar="X[,Y[,Z]]", help="Threads per block."),
        option(
            "--arg", "arguments", multiple=True, metavar="NAME=VALUE",
            help="n=4096, 'x=float32[n]:random', x=@x.npy.",
        ),
        option(
            "--step", "steps", multiple=True, metavar="LAUNCH",
            help="Several launches in order, instead of --grid and --block: 'f<<<cdiv(n,256), 256>>>(x, y, n) * 10 "
            "swap(x, y)'.",
        ),
        option(
            "--expect", multiple=True, metavar="NAME=EXPR", help="The result: 'y=a*x+y0', y=@y.npy; repeatable."
        ),
        option(
            "--const", "constants", multiple=True, metavar="NAME=VALUE",
            help="Value of a __constant__ variable: c=2.5, 'c=float32[16]:random', c=@c.npy.",
        ),
        option("--bytes", metavar="EXPR", help="Bytes that the kernel must move: '3*4*n'."),
        option("--flops", metavar="EXPR", help="Floating-point operations of the kernel: '2*n'."),
        option("--shared", metavar="BYTES", help="Dynamic shared memory of each block."),
        option(
            "--cluster", type=Expressions(), metavar="X[,Y[,Z]]",
            help="Blocks in a cluster, for a kernel without __cluster_dims__.",
        ),
        option("--rtol", type=float, metavar="R", help="Relative tolerance of all --expect."),
        option("--atol", type=float, metavar="A", help="Absolute tolerance of all --expect."),
        option(
            "-I",
            "--include",
            type=click.Path(file_okay=False),
            multiple=True,
            metavar="FOLDER",
            help="Folder of headers; FILE.cu's own is always searched. Repeatable.",
        ),
        option("--where", metavar="EXPR", help="With --fuzz: use only sizes for which EXPR holds, such as 'n%16==0'."),
        option(
            "--std", type=click.Choice(["c++11", "c++14", "c++17", "c++20"]),
            help="C++ standard. Default: C++17, then C++20.",
        ),
        option("--save", multiple=True, metavar="NAME=FILE.npy", help="Save an array after a run that is not wrong."),
        option(
            "--profile", type=click.Path(), metavar="FILE.toml",
            help="Read these options from a file, one table a kernel.",
        ),
    ]  # fmt: skip


def requests_of(
    ctx: click.Context, given: dict[str, Any], allowed: Sequence[click.Parameter] = ()
) -> list[UserRequest]:
    """Return what the options, and the profile under them, ask for; the profile's settings of a run go into `given`.

    A single request without --profile; else one for each of the profile's tables that is asked for. `allowed` is what
    a profile may hold, where that is not what the command takes.
    """
    if not given["profile"]:
        return [request_of(given)]
    from cudabench.userkernel import profile

    params = {param.name: param for param in allowed or ctx.command.params if param.name}
    keys = {name: _key(param) for name, param in params.items() if name not in ("profile", "kernels")}
    names = {key: name for name, key in keys.items()}
    content = profile.read(
        given["profile"], {key: bool(getattr(params[names[key]], "is_flag", False)) for key in names}
    )
    typed = {
        keys[name]: given[name]
        for name in keys
        if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE and given.get(name) not in (None, ())
    }
    wanted = given["kernels"] or tuple(content.tables) or ("",)
    requests, settings = [], None
    for kernel in wanted:
        options = profile.merged(content.of(kernel), typed)
        values = dict(given)
        for key, value in options.items():
            values[names[key]] = params[names[key]].type_cast_value(ctx, value)
        values["kernels"] = (kernel,) if kernel else ()
        own = {name: values[name] for name in ONE_RUN if name in values}
        for name in own:
            if settings is not None and settings[name] != own[name]:
                raise UsageError(
                    f"{content.path}: {keys[name]} is {settings[name]} for {wanted[0]} and {own[name]} for {kernel}; a "
                    "run has one: write it above the tables."
                )
        settings = own
        requests.append(request_of(values))
    given.update(settings or {})
    return requests


def _key(param: click.Parameter) -> str:
    """Return an option's name as a profile writes it: its longest spelling without the dashes."""
    return max(param.opts, key=len).lstrip("-")


def request_of(given: dict[str, Any]) -> UserRequest:
    """Return what options ask for, without a profile."""
    from cudabench.plan import cases
    from cudabench.userkernel.request import UserRequest

    if not given["file"]:
        raise UsageError(
            "run needs a file: cudabench run FILE.cu --kernel NAME ...; 'cudabench run --help' shows a whole line."
        )
    return UserRequest(
        file=given["file"],
        kernels=given["kernels"],
        grid=given["grid"],
        block=given["block"],
        steps=given.get("steps", ()),
        arguments=given["arguments"],
        expect=given["expect"],
        constants=given.get("constants", ()),
        bytes=given["bytes"],
        flops=given["flops"],
        shared=given["shared"],
        cluster=given.get("cluster"),
        rtol=given["rtol"],
        atol=given["atol"],
        save=given.get("save", ()),
        defines=cases.parse_defines(given["defines"]),
        include=given["include"],
        std=given["std"] or "",
        seed=given["seed"],
    )


def series_of(ctx: click.Context, given: dict[str, Any], command: str = "run") -> tuple[list[Series], dict[str, Any]]:
    """Return what is to be run, in series of kernels that share their arguments, and the request for the records.

    `command` is what errors suggest a line of.
    """
    series, record, _ = planned(ctx, given, command)
    return series, record


def planned(
    ctx: click.Context, given: dict[str, Any], command: str = "run"
) -> tuple[list[Series], dict[str, Any], list[UserRequest]]:
    """Return the series, the request for the records, and the requests themselves."""
    from cudabench.cli.reading import reading
    from cudabench.userkernel import plan

    requests = requests_of(ctx, given)
    if given.get("sizes"):
        from cudabench.userkernel.sizes import at_sizes

        requests = [one for request in requests for one in at_sizes(request, given["sizes"])]
    record = asdict(requests[0])
    if len(requests) > 1:
        record = {"requests": [asdict(request) for request in requests]}
    with reading(requests[0].file, given, len(requests)):
        return plan.series(requests, command), record, requests


@click.pass_context
def _run(ctx: click.Context, /, **given: Any) -> int:
    """Measure what the options ask for and return the exit code."""
    from cudabench import devices
    from cudabench.cli.operation import measure, refuse_thresholds
    from cudabench.cli.output import Output

    series, record, requests = planned(ctx, given)
    output = Output.of(given["json_path"], given["quiet"], given["key"], given["report_path"])
    limits = families.thresholds(given)
    several = pricing.several(given)
    choices = several.choices if several else (devices.choose(families.on_device(given)),)
    choice = choices[0]
    cards = several.cards if several else families.priced(given, choice)
    refuse_thresholds(limits, choice)
    settings = families.settings(given, simulated=choice.kind == "sim")
    if given["where"] and not given["fuzz"]:
        raise UsageError("--where says which sizes --fuzz may take: add --fuzz K, such as --fuzz 20.")
    if given["fuzz"] and given["sizes"]:
        raise UsageError(f"--fuzz {given['fuzz']} takes sizes of its own: leave --sizes {given['sizes']} out.")
    if not given["fuzz"]:
        return measure(
            series, choices, settings, record, output, limits, cards=cards, counted=given["limits"],
            more=None if several else partial(_explaining, ctx),
        )  # fmt: skip
    if several:
        raise UsageError(
            f"--fuzz {given['fuzz']} is of one card, since inputs do not depend on it: name one with --on."
        )
    return _fuzzed(series, choice, settings, record, requests, output, limits, given["fuzz"], given["where"], cards)


def _explaining(ctx: click.Context, kernel: str) -> str:
    """Return the command that explains a kernel with the arguments that were typed."""
    from cudabench.cli.operation import OUTPUTS

    words = families.retyped(ctx, families.explain_command(ctx, FILE), ("file", "kernels", *OUTPUTS))
    file = [ctx.params["file"]] if ctx.params["file"] else []
    return shlex.join(["cudabench", "explain", *file, "-k", kernel, *words])


def _fuzzed(
    series: Sequence[Series],
    choice: Choice,
    settings: Settings,
    record: dict[str, Any],
    requests: Sequence[UserRequest],
    output: Output,
    limits: dict[str, float],
    count: int,
    where: str | None,
    cards: Sequence[Card],
) -> int:
    """Measure, then run every right kernel on other inputs; show all, and return the exit code."""
    from cudabench.cli import output as outputs
    from cudabench.cli.operation import exit_code
    from cudabench.measure import fuzz
    from cudabench.measure.run import Run

    output.refuse_several([case.kernel for one in series for case in one.cases], [choice])
    kernels = fuzz.each_kernel(requests, series)
    for request in kernels:  # what cannot be fuzzed is refused before anything runs
        fuzz.Fuzz(request, choice, settings, count, where)
    screen = outputs.Screen(output)
    recorded = bool(output.report)
    run = Run(series, [choice], settings, record, path=output.path, listener=screen, record=recorded, cards=cards)
    run.note({**limits, "fuzz": count, "where": where})
    told: list[str] = []

    def tell(result: Result, record: fuzz.Record) -> None:
        if record.failed or not output.quiet:
            told.extend(fuzz.sentences(result, record))

    def work() -> None:
        run.collect()
        fuzz.fuzz_all(kernels, run, settings, count, where, screen, tell)

    outputs.carry_out(run, output, work, outputs.tables)
    for sentence in told:
        outputs.say(sentence)
    code = exit_code(run.file.results, limits, outputs.say)
    return code or output.lacking(run)


command = SpreadCommand(
    "run",
    params=[
        *problem_options(),
        families.sizes_option("[NAME=]A..B*2", "Several values of one argument: 'n=1024..65536*2'."),
        *families.compiler_options(),
        *families.timing_options(),
        families.budget_option(),
        *families.baseline_options(),
        families.jobs_option(),
        families.schedule_option(),
        families.option(
            "--fuzz", type=click.IntRange(1), metavar="K", help="Run K more times with other seeds, values and sizes."
        ),
        *families.limits_options(),
        *families.output_options(),
        families.print_option(),
    ],
    callback=_run,
    help=HELP,
    short_help="Run any kernel of your own, with no host code.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
