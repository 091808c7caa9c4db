"""`cudabench list|info|completion`: the kernels, what this machine can run, and completion for a shell."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from click.shell_completion import get_completion_class

from cudabench import operations
from cudabench.cli import complete
from cudabench.cli.help import headed
from cudabench.cli.options import option
from cudabench.devices import probe
from cudabench.source.comments import first_sentence
from cudabench.text import json as json_text
from cudabench.views import catalogue


@headed(
    "list",
    click.Argument(
        ["names"], nargs=-1, metavar="[OPERATION [KERNEL ...]]", shell_complete=complete.words(operations.SUMMARIES)
    ),
)
def listing(names: tuple[str, ...]) -> int:
    """Show the kernels of OPERATION, or of all operations: id, name, idea, default block."""
    from cudabench.plan import cases, chapters

    for name in names[:1] or operations.SUMMARIES:
        chosen = operations.get(name)
        kernels = [kernel.name for kernel, _ in cases.select_kernels(chosen, names[1:])]
        comments = chapters.ideas(chosen, whole=True)
        sentences = {kernel: first_sentence(comment) for kernel, comment in comments.items()}
        catalogue.show_kernels(chosen, operations.SUMMARIES[name], sentences, kernels)
    return 0


@headed("info", option("--json", "Print JSON.", "as_json"))
def info(as_json: bool) -> int:
    """Show driver, GPUs, nvcc, PyCUDA, NVML, NVRTC and engine, and the command that installs each missing part."""
    driver = probe.driver()
    parts = [driver, probe.nvcc(), probe.pycuda(), probe.nvml(), probe.nvrtc(), probe.engine(), probe.runtime()]
    parts += [probe.cupti()] if driver.usable else []
    gpus = [probe.gpu(index) for index in range(driver.device_count)]
    if as_json:
        document = {"host": probe.host(), "parts": [asdict(part) for part in parts], "gpus": [asdict(g) for g in gpus]}
        click.echo(json_text(json.dumps(document, indent=2)))
        return 0
    from cudabench.views import machine

    machine.show_machine(parts, gpus)
    return 0


HOW = {
    "bash": 'eval "$(cudabench completion bash)"      in ~/.bashrc',
    "zsh": 'eval "$(cudabench completion zsh)"       in ~/.zshrc, after compinit',
    "fish": "cudabench completion fish | source      in ~/.config/fish/config.fish",
}


@headed("completion", click.Argument(["shell"], type=click.Choice([*HOW])), epilog="\b\n" + "\n".join(HOW.values()))
def completion(shell: str) -> int:
    """Print the script that completes operations, kernels, types, devices and files in a shell."""
    from cudabench.cli import group

    shell_class = get_completion_class(shell)
    assert shell_class is not None, "click knows the shells of the list above"
    # click's method source() is not used, because it starts bash to read bash's version.
    script = shell_class(group, {}, "cudabench", "_CUDABENCH_COMPLETE")
    click.echo(script.source_template % script.source_vars())
    return 0


commands = {command.name: command for command in (listing, info, completion)}
