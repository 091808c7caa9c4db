"""`cudabench setup-gpu`: installs PyCUDA, and nvcc on request, into this environment, without a CUDA toolkit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench import text
from cudabench.cli.help import headed
from cudabench.cli.options import PLACE, option
from cudabench.errors import DeviceUnusable, UsageError

if TYPE_CHECKING:
    from cudabench.devices.pycuda_build import Step


@headed(
    "setup-gpu",
    option("--nvcc", "Install nvcc's wheels too, about 600 MB. Default: NVRTC compiles.", "with_nvcc"),
    option("--find-links DIR", "Take every package from this folder, nothing from the network.", type=PLACE),
    option("--rebuild", "Build PyCUDA even if an installed one loads."),
    option("--yes", "Continue outside a virtual environment."),
    option("--dry-run", "Print the commands, as a shell script that does the same."),
    option("-v, --verbose", "Show the output of each step."),
)
def command(with_nvcc: bool, find_links: str | None, rebuild: bool, yes: bool, dry_run: bool, verbose: bool) -> int:
    """Let kernels run on the GPU of a machine with NVIDIA's driver but without a CUDA toolkit.

    PyCUDA, which ships as source, is built into this environment against headers from NVIDIA's wheels; NVRTC then
    compiles the kernels. A C++ compiler and Python's headers are needed. At the end a first kernel is run and verified.
    Without a driver, for example in the build of an image, PyCUDA is built but kernels are not run. A second call
    finds everything done, and checks it.
    """
    from cudabench.compile import compiler
    from cudabench.devices import probe
    from cudabench.devices import pycuda_build as build

    driver, nvrtc = probe.driver(), compiler.nvrtc_version()
    target = build.environment()
    if find_links is not None and not Path(find_links).is_dir():
        raise UsageError(f"--find-links {find_links} is not a folder: name one that holds wheels and PyCUDA's source.")
    installed, why = build.state(target.python)
    steps = []
    if rebuild or installed is None:
        steps += build.build_steps(target, find_links, again=rebuild or probe.pycuda().usable)
    if with_nvcc and not probe.nvcc().usable:
        steps.append(build.nvcc_step(target, find_links, nvrtc))
    check = [build.check_step(target.python)] if driver.usable else []
    if dry_run:
        click.echo(build.script([*steps, *check]), nl=False)
        return 0
    if steps and not yes:
        build.refuse_foreign(target)
    if driver.usable:
        build.refuse_old_driver(driver.version, nvrtc)
    if steps:
        build.refuse_without_compiler()
    if installed and not rebuild:
        click.echo(text.line(f"PyCUDA {installed} is in {target.prefix} already."))
    elif not installed and probe.pycuda().usable:
        click.echo(f"The installed PyCUDA does not load ({text.line(why)}), so it is built again.")
    with tempfile.TemporaryDirectory(prefix="cudabench-setup-") as folder:
        work = Path(folder)
        run_steps([*steps, *check], work, verbose)
        results = json.loads((work / "first.json").read_text(encoding="utf-8")) if check else None
    if steps:
        version, why = build.state(target.python)
        if version is None:
            raise DeviceUnusable(
                f"PyCUDA was installed, but does not load ({text.line(why)}): repeat with --rebuild --verbose and look "
                "for the first warning of the linker."
            )
        click.echo(text.line(f"PyCUDA {version} is in {target.prefix}."))
    click.echo(first_kernel(results) if results else not_run(str(driver.problem)))
    return 0


def run_steps(steps: Sequence[Step], folder: Path, verbose: bool) -> None:
    """Run the steps in a folder. For each step, print its reason, its time and, with `verbose`, its output."""
    from cudabench.devices import pycuda_build as build

    for number, step in enumerate(steps, 1):
        click.echo(f"{number}/{len(steps)} {step.title}: {step.why} ... ", nl=False)
        try:
            seconds, printed = build.run_step(step, folder)
        except build.StepFailed as failed:
            click.echo("failed")
            if verbose:
                click.echo(text.log(failed.log), err=True)
            raise
        click.echo(f"{seconds:.0f} s" if seconds >= 1 else "done")
        if verbose:
            click.echo(text.log(printed), err=True)


def not_run(problem: str) -> str:
    """Return a sentence that kernels were not run, because the driver has this problem."""
    why = text.line(problem)
    return f"Kernels were not run, because {why}: run 'cudabench setup-gpu' again on the machine with the GPU."


def first_kernel(document: dict[str, Any]) -> str:
    """Return a sentence on the speed of the first kernel, from its results file."""
    (result,) = document["results"]
    rate = result["bandwidth_gbps"]
    speed = "no GPU ran it, so the bandwidth is unknown" if rate is None else f"{rate:.0f} GB/s"
    name = text.line(document["device"]["name"])
    return f"The first kernel, vecadd, ran on {name} and was verified: {speed}. Next: cudabench transpose"
