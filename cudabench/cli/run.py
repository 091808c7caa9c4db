"""`cudabench run FILE.cu ...`: runs a kernel from a user's file; the file needs no host code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from cudabench import devices
from cudabench.cli import complete, options
from cudabench.cli.arguments import Expressions
from cudabench.cli.groups import FILE
from cudabench.cli.help import Headed
from cudabench.cli.operation import MEASURING, SHOWING, measure
from cudabench.cli.options import PLACE, option
from cudabench.cli.output import Output, show_reading
from cudabench.errors import UsageError, refuse
from cudabench.plan.series import Series
from cudabench.userkernel import profile
from cudabench.userkernel.request import UserRequest

HELP = """Compile a kernel of FILE.cu, make its arguments, run it, verify it, time it. No host code is needed.

\b
cudabench run saxpy.cu --grid 'cdiv(n,256)' --block 256 --arg n=1048576 --arg a=2.5 \\
    --arg 'x=float32[n]:random' --arg 'y=float32[n]:random' --expect 'y=a*x+y0'

'cudabench run saxpy.cu' alone prints the arguments that are missing.

\f
One --arg for each parameter, in any order. A number's type comes from the signature (or n=int32:4096); an array is
TYPE[SHAPE]:INIT, where INIT is random, zeros, ones, arange, empty (poisoned: for outputs), or @FILE.npy.

--expect is NAME=EXPRESSION in NumPy (np); y0 is y before the launch. Floats are compared in double precision with a
relative tolerance of 1e-5 for float32, 2e-3 for float16, 1e-12 for float64, and an absolute tolerance of a tenth of
it; integers exactly. Without --expect a result is unverified. The CPU baseline is the expression, timed in NumPy.
"""

UNWRITTEN = ("profile", "kernels")  # parameters that a profile must not set
ONE_RUN = (
    "device", "cache", "min_time", "max_time", "min_samples", "timeout", "min_bandwidth", "min_copy_fraction",
    "budget", "no_cpu", "cpu_threads", "jobs", "sim_threads", "schedule", "json_path", "report_path", "quiet", "card",
    "price", "limits",
)  # fmt: skip


# Options that describe the kernel and its arguments; `request_of` reads them.
PROBLEM: list[click.Parameter] = [
    click.Argument(["file"], type=PLACE, required=False, metavar="FILE.cu"),
    option(
        "-k, --kernel NAME", "Name, 'f<float>', glob or all; repeatable.", "kernels",
        multiple=True, shell_complete=complete.kernels_of_file,
    ),
    option("-g, --grid X[,Y[,Z]]", "Blocks, such as 'cdiv(n,256)'.", type=Expressions()),
    option("-b, --block X[,Y[,Z]]", "Threads per block.", type=Expressions()),
    option("--arg NAME=VALUE", "n=4096, 'x=float32[n]:random', x=@x.npy.", "arguments", multiple=True),
    option(
        "--step LAUNCH",
        "Several launches in order, instead of --grid and --block: 'f<<<cdiv(n,256), 256>>>(x, y, n) * 10 "
        "swap(x, y)'.",
        "steps", multiple=True,
    ),
    option("--expect NAME=EXPR", "The result: 'y=a*x+y0', y=@y.npy; repeatable.", multiple=True),
    option(
        "--const NAME=VALUE", "Value of a __constant__ variable: c=2.5, 'c=float32[16]:random', c=@c.npy.",
        "constants", multiple=True,
    ),
    option("--bytes EXPR", "Bytes that the kernel must move: '3*4*n'."),
    option("--flops EXPR", "Floating-point operations of the kernel: '2*n'."),
    option("--shared BYTES", "Dynamic shared memory of each block."),
    option(
        "--cluster X[,Y[,Z]]", "Blocks in a cluster, for a kernel without __cluster_dims__.", type=Expressions()
    ),
    option("--rtol R", "Relative tolerance of all --expect.", type=float),
    option("--atol A", "Absolute tolerance of all --expect.", type=float),
    option(
        "-I, --include FOLDER", "Folder of headers; FILE.cu's own is always searched. Repeatable.",
        type=click.Path(file_okay=False), multiple=True,
    ),
    option("--where EXPR", "With --fuzz: use only sizes for which EXPR holds, such as 'n%16==0'."),
    option(
        "--std", "C++ standard. Default: C++17, then C++20.",
        type=click.Choice(["c++11", "c++14", "c++17", "c++20"]),
    ),
    option("--save NAME=FILE.npy", "Save an array after a run that is not wrong.", multiple=True),
    option("--profile FILE.toml", "Read these options from a file, one table a kernel.", type=PLACE),
]  # fmt: skip


def requests_of(
    ctx: click.Context, given: dict[str, Any], allowed: Sequence[click.Parameter] = ()
) -> list[UserRequest]:
    """Return the requests of the command line and of its profile.

    Settings in the profile that apply to the whole run are written into `given`.

    Without --profile there is one request, else one for each chosen table of the profile. `allowed`: the options that a
    profile may contain, by default the options of the command. Raises UsageError if two tables have different settings
    for the whole run.
    """
    if not given["profile"]:
        return [request_of(given)]

    params = {param.name: param for param in allowed or ctx.command.params if param.name}
    # A profile's key is the longest spelling of an option, without its dashes.
    keys = {name: max(param.opts, key=len).lstrip("-") for name, param in params.items() if name not in UNWRITTEN}
    names = {key: name for name, key in keys.items()}
    content = profile.load_profile(
        given["profile"], {key: bool(getattr(params[names[key]], "is_flag", False)) for key in names}
    )
    typed = {
        keys[name]: given[name]
        for name in keys
        if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE and given.get(name) not in (None, ())
    }
    chosen = given["kernels"] or tuple(content.tables) or ("",)
    requests, settings = [], None
    for kernel in chosen:
        options = {names[key]: value for key, value in profile.merged(content.of(kernel), typed).items()}
        cast = {name: params[name].type_cast_value(ctx, value) for name, value in options.items()}
        values = {**given, **cast, "kernels": (kernel,) if kernel else ()}
        run_settings = {name: values[name] for name in ONE_RUN if name in values}
        for name in run_settings:
            if settings is not None and settings[name] != run_settings[name]:
                raise UsageError(
                    f"{content.path}: {keys[name]} is {settings[name]} for {chosen[0]} and {run_settings[name]} for "
                    f"{kernel}; a run has one value: write it above the tables."
                )
        settings = run_settings
        requests.append(request_of(values))
    given.update(settings or {})
    return requests


def request_of(given: dict[str, Any]) -> UserRequest:
    """Return the request from the values of the options, without reading a profile.

    Raises UsageError without a file.
    """
    from cudabench.plan import cases

    if not given["file"]:
        raise UsageError(
            "run needs a file: cudabench run FILE.cu --kernel NAME ...; 'cudabench run --help' shows an example."
        )
    values = {field.name: given[field.name] for field in fields(UserRequest) if field.name in given}
    defines = cases.parse_defines(given["defines"])
    return UserRequest(**{**values, "defines": defines, "std": given["std"] or ""})


def planned(
    ctx: click.Context, given: dict[str, Any], command: str = "run"
) -> tuple[list[Series], dict[str, Any], list[UserRequest]]:
    """Return (series, record, requests): the kernels of a series share their arguments; the record is the request as
    the results file has it; the requests are the user's.

    `command`: the name of the command for the lines that errors suggest.
    """
    from cudabench.userkernel import plan

    requests = requests_of(ctx, given)
    if given.get("sizes"):
        from cudabench.userkernel.space import requests_for_sizes

        requests = [sized for request in requests for sized in requests_for_sizes(request, given["sizes"])]
    record = asdict(requests[0])
    if len(requests) > 1:
        record = {"requests": [asdict(request) for request in requests]}
    with show_reading(requests[0].file, given, len(requests)):
        return plan.series(requests, command), record, requests


@click.pass_context
def _run(ctx: click.Context, /, **given: Any) -> int:
    series, record, requests = planned(ctx, given)
    refuse(
        (
            given["where"] and not given["fuzz"],
            "--where restricts the sizes of --fuzz: add --fuzz K, such as --fuzz 20.",
        ),
        (
            given["fuzz"] and given["sizes"],
            f"--fuzz {given['fuzz']} chooses its own sizes: leave --sizes {given['sizes']} out.",
        ),
    )
    explain_command = partial(options.explaining, ctx, FILE, [ctx.params["file"]] if ctx.params["file"] else [], [])
    output = Output.of(given["json_path"], given["quiet"], given["key"], given["report_path"])
    return measure(series, record, given, output, explain_command, lambda device: [devices.choose(device)], requests)


command = Headed(
    "run",
    params=[
        *PROBLEM,
        option("--sizes [NAME=]A..B*2", "Several values of one argument: 'n=1024..65536*2'."),
        *MEASURING,
        options.SCHEDULE,
        option("--fuzz K", "Run K more times with other seeds, values and sizes.", type=click.IntRange(1)),
        *SHOWING,
    ],
    callback=_run,
    help=HELP,
)
