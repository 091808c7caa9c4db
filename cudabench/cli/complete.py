"""Completions for a shell: kernels, element types, devices, files. click calls these functions; they never raise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from cudabench.records.plan import Operation

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

# the architectures that are offered after `sim:`
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def _starting(incomplete: str, items: Iterable[tuple[str, str | None]]) -> list[CompletionItem]:
    return [CompletionItem(name, help=summary) for name, summary in items if name.startswith(incomplete)]


def words(names: Iterable[str]) -> Completer:
    """Return a function that completes a word from a fixed list."""
    items = [(word, None) for word in names]
    return lambda ctx, param, incomplete: _starting(incomplete, items)


def kernels(operation: Operation) -> Completer:
    """Return a function that completes the name of an operation's kernel, or `all`."""
    return words([*(kernel.name for kernel in operation.kernels), "all"])


def first_kernel(operation: Operation) -> Completer:
    """Return a function that completes a kernel's name as the first word only. The numbers of a block follow it."""
    completer = kernels(operation)
    return lambda ctx, param, incomplete: [] if ctx.params.get(str(param.name)) else completer(ctx, param, incomplete)


def result_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the key of one value of a result, such as time.median_s, for --print."""
    from cudabench.records.values import ANY, keys

    return _starting(incomplete, ((key.removesuffix(ANY), None) for key in keys()))


def kernels_of_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a kernel in FILE.cu, if the command line names the file and it can be read."""
    from cudabench.errors import CudabenchError
    from cudabench.source.files import read_file

    # If the user has typed `-k` without a value, click has not yet assigned the file to its parameter. The file is then
    # among the words that click has not read.
    path = ctx.params.get("file") or next((word for word in ctx.args if word.endswith((".cu", ".cuh"))), None)
    if not path:
        return []
    try:
        kernels_found = read_file(path).kernels
    except CudabenchError:
        return []
    return _starting(incomplete, ((kernel.qualified_name, None) for kernel in kernels_found))


def devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a device. GPUs are counted only for a word that begins with `cuda`, because counting takes time."""
    names: list[tuple[str, str | None]] = [
        ("auto", "a GPU if present, else the simulator"),
        ("all", "every GPU, one after the other"),
        ("cuda", "the first GPU"),
        ("sim", "the simulator"),
    ]
    if incomplete.startswith("cuda"):
        from cudabench.devices import probe

        names += [(f"cuda:{index}", None) for index in range(probe.driver().device_count)]
    if incomplete.startswith("sim"):
        names += [(f"sim:{name}", None) for name in ARCHITECTURES]
    return _starting(incomplete, names)
