"""`cudabench completion bash|zsh|fish`: the script that makes a shell complete commands, kernels and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cudabench.cli.help import Headed

HOW = {
    "bash": 'eval "$(cudabench completion bash)"      in ~/.bashrc',
    "zsh": 'eval "$(cudabench completion zsh)"       in ~/.zshrc, behind compinit',
    "fish": "cudabench completion fish | source      in ~/.config/fish/config.fish",
}


@click.command("completion", cls=Headed, epilog="\b\n" + "\n".join(HOW.values()))
@click.argument("shell", type=click.Choice([*HOW]))
def command(shell: str) -> int:
    """Print the script that completes operations, kernels, types, devices and files in a shell."""
    from cudabench.cli import group

    found = get_completion_class(shell)
    assert found is not None, "click knows the shells of the list above"
    # Not source(), which runs bash to ask for its version.
    script = found(group, {}, "cudabench", "_CUDABENCH_COMPLETE")
    click.echo(script.source_template % script.source_vars())
    return 0
