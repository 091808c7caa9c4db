"""`cudabench nvcc` and `cudabench-nvcc`: run nvcc with the options that `cudabench exec` needs, for build systems."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from cudabench.cli.help import Headed

HELP = """Run nvcc with the options that 'cudabench exec' needs: a shared CUDA runtime, line numbers, uncompressed
device code, and code for an H100 unless an architecture is named. All arguments are nvcc's; 'cudabench-nvcc' is the
same.

\b
make NVCC=cudabench-nvcc
cmake -DCMAKE_CUDA_COMPILER=cudabench-nvcc -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared .
"""


class _Passing(Headed):
    """A command that passes all its words to another program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep all words unparsed, except a lone --help, which shows the help of this command."""
        if args in (["-h"], ["--help"], ["--help-all"]):
            return super().parse_args(ctx, args[:1] if args != ["--help-all"] else ["--help"])
        ctx.params["words"] = tuple(args)
        return []


def _nvcc(words: Sequence[str]) -> int:
    from cudabench.cards import load as loading
    from cudabench.programs import build

    return build.run_nvcc(words, [loading.package_card(loading.DEFAULT).architecture])


command = _Passing("nvcc", callback=_nvcc, help=HELP, options_metavar="ARGS ...")


def main() -> NoReturn:
    """Run nvcc as the program `cudabench-nvcc`. All words go to nvcc, also --help."""
    from cudabench.errors import CudabenchError

    try:
        sys.exit(_nvcc(sys.argv[1:]))
    except CudabenchError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
