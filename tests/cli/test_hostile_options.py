"""Every command refuses an option of one value that is given twice; commands added later are tested too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from cudabench import cli, operations


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that is not a group, with the words that call it."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, (*words, "k.cu" if name == "FILE.cu" else name))


TREE = dict(leaves(cli.group))


def single(command: click.Command) -> list[click.Option]:
    """Return a command's options that may be given only once, with one value or one list of values."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return [one for one in options if not (one.multiple or one.is_flag or one.count)]


def value_of(option: click.Option) -> list[str]:
    """Return words that are a valid value of an option."""
    return ["1"] * max(option.nargs, 1)


def test_the_tree_is_whole() -> None:
    """The tree holds operations, commands and subcommands, and most of them have options of one value."""
    assert {words[0] for words in TREE} == {*operations.SUMMARIES, *cli.COMMANDS}
    assert {("fleet", "shard"), ("fleet", "submit"), ("fleet", "resume"), ("fleet", "report")} <= {*TREE}
    assert sum(bool(single(command)) for command in TREE.values()) > 0.8 * len(TREE)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("words", TREE, ids=" ".join)
def test_an_option_of_one_value_is_given_once(
    cudabench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """An option given twice, under any of its names, is a usage error that names the option and both values; nothing
    runs."""
    invoke = click.Command.invoke

    def run(command: click.Command, context: click.Context) -> Any:
        assert isinstance(command, click.Group), f"{words} ran"
        return invoke(command, context)

    monkeypatch.setattr(click.Command, "invoke", run)
    for option in single(TREE[words]):
        value = value_of(option)
        for first, second in [(option.opts[0], option.opts[-1]), (option.opts[-1], option.opts[0])]:
            ran = cudabench(*words, first, *value, second, *value)
            assert ran.code == 2, (option.opts, ran.err)
            assert f"{max(option.opts, key=len)} is given 2 times, {' '.join(value)} and" in ran.err, ran.err
