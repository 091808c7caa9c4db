"""`cudabench setup-gpu`: PyCUDA, and nvcc on request, into this environment, without a CUDA toolkit."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from cudabench import text
from cudabench.cli.help import Headed
from cudabench.errors import DeviceUnusable, UsageError


@click.command("setup-gpu", cls=Headed, short_help="Build PyCUDA where there is no CUDA toolkit.")
@click.option(
    "--nvcc", "with_nvcc", is_flag=True, help="Install nvcc's wheels too, about 600 MB. Default: NVRTC compiles."
)
@click.option(
    "--find-links",
    type=click.Path(),
    metavar="DIR",
    help="Take every package from this folder, nothing from the network.",
)
@click.option("--rebuild", is_flag=True, help="Build PyCUDA even if an installed one loads.")
@click.option("--yes", is_flag=True, help="Go on outside a virtual environment.")
@click.option("--dry-run", is_flag=True, help="Print the commands, as a shell script that does the same.")
@click.option("-v", "--verbose", is_flag=True, help="Show what each step printed.")
def command(with_nvcc: bool, find_links: str | None, rebuild: bool, yes: bool, dry_run: bool, verbose: bool) -> int:
    """Let kernels run on the GPU of a machine that has NVIDIA's driver and no CUDA toolkit.

    PyCUDA, which ships as source, is built into this environment against headers from NVIDIA's wheels; kernels are
    then compiled by NVRTC. A C++ compiler and Python's headers must be there. At the end a first kernel is run and
    verified; without a driver, as where an image is made, PyCUDA is built and no kernel is run. A second call finds
    everything done, and checks it.
    """
    from cudabench.compile import compiler
    from cudabench.devices import probe
    from cudabench.devices import pycuda_build as build

    driver, nvrtc = probe.driver(), compiler.nvrtc_version()
    where = build.environment()
    if find_links is not None and not Path(find_links).is_dir():
        raise UsageError(f"--find-links {find_links} is not a folder: name one that holds wheels and PyCUDA's source.")
    there, why = build.state(where.python)
    steps = []
    if rebuild or there is None:
        steps += build.build_steps(where, find_links, again=rebuild or probe.pycuda().usable)
    if with_nvcc and not probe.nvcc().usable:
        steps.append(build.nvcc_step(where, find_links, nvrtc))
    check = [build.check_step(where.python)] if driver.usable else []
    if dry_run:
        click.echo(build.script([*steps, *check]), nl=False)
        return 0
    if steps and not yes:
        build.refuse_foreign(where)
    if driver.usable:
        build.refuse_old_driver(driver.version, nvrtc)
    if steps:
        build.refuse_without_compiler()
    if there and not rebuild:
        click.echo(text.line(f"PyCUDA {there} is in {where.prefix} already."))
    elif not there and probe.pycuda().usable:
        click.echo(f"The PyCUDA that is here does not load ({text.line(why)}), so it is built anew.")
    with tempfile.TemporaryDirectory(prefix="cudabench-setup-") as folder:
        work = Path(folder)
        for at, step in enumerate([*steps, *check], 1):
            click.echo(f"{at}/{len(steps) + len(check)} {step.title}: {step.why} ... ", nl=False)
            try:
                seconds, printed = build.carry_out(step, work)
            except build.StepFailed as failed:
                click.echo("failed")
                if verbose:
                    click.echo(text.log(failed.log), err=True)
                raise
            click.echo(f"{seconds:.0f} s" if seconds >= 1 else "done")
            if verbose:
                click.echo(text.log(printed), err=True)
        first = json.loads((work / "first.json").read_text(encoding="utf-8")) if check else None
    if steps:
        _confirm(build.state(where.python), where.prefix)
    if first is None:
        why = text.line(str(driver.problem))
        click.echo(f"No kernel was run, since {why}: run 'cudabench setup-gpu' again where the GPU is.")
        return 0
    (result,) = first["results"]
    rate = result["bandwidth_gbps"]
    speed = "no GPU ran it, so there is no bandwidth" if rate is None else f"{rate:.0f} GB/s"
    click.echo(
        f"The first kernel, vecadd, ran on {text.line(first['device']['name'])} and was verified: {speed}. "
        "Next: cudabench transpose"
    )
    return 0


def _confirm(state: tuple[str | None, str], prefix: str) -> None:
    """Say which PyCUDA is there now; DeviceUnusable where it does not load after all."""
    version, why = state
    if version is None:
        raise DeviceUnusable(
            f"PyCUDA was installed and does not load ({text.line(why)}): repeat with --rebuild --verbose and look for "
            "the first warning of the linker."
        )
    click.echo(text.line(f"PyCUDA {version} is in {prefix}."))
