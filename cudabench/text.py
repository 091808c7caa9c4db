"""Text from outside, made harmless before anyone sees it: pure.

Names of devices and kernels, reasons, source lines, compiler messages and what kernels print come from files and
programs that the reader of a terminal, a log or a spreadsheet need not trust. What a terminal would obey, what
turns the order of letters, what a CI runner takes for a command and what a spreadsheet computes is shown instead.
"""

from __future__ import annotations

import re

# C0 but tab and newline, DEL, C1; soft hyphen, bidirectional marks, embeddings, overrides and isolates, invisible
# spaces and operators, line and paragraph separators, byte-order marks, annotations, tags; lone surrogates.
HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
# GitHub reads '::command' at the start of a line, and '##[command' anywhere, as Azure does '##vso[' and TeamCity
# '##teamcity['.
_CI_LINE = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_CI_ANYWHERE = re.compile(r"##(?=\w*\[)")
_FORMULA = ("=", "+", "-", "@", "\t")


def visible(text: str) -> str:
    r"""Return text in which control codes, bidirectional marks and lone surrogates are spelled out: \x1b, \u202e.

    Tabs and newlines stay; CR LF is one newline.
    """
    return HARMFUL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text.replace("\r\n", "\n"))


def line(text: str) -> str:
    r"""Return visible text on one line: a newline is spelled out too."""
    return visible(text).replace("\n", r"\n")


def log(text: str) -> str:
    r"""Return visible text that cannot act as a command to a CI runner: '::error' becomes '\x3a:error'."""
    return no_commands(visible(text))


def no_commands(text: str) -> str:
    """Return text whose lines no CI runner takes for commands; all else, a terminal's colours too, stays."""
    return _CI_ANYWHERE.sub(r"#\\x23", _CI_LINE.sub(r"\1\\x3a", text))


def cell(text: str) -> str:
    """Return text as for a log that a spreadsheet shows and does not compute: '=1+1' gets an apostrophe before it."""
    shown = log(text)
    return f"'{shown}" if shown.lstrip(" \n").startswith(_FORMULA) else shown


def markdown(text: str) -> str:
    """Return text as for a log that GitHub shows as it is, in one line of a table."""
    escaped = re.sub(r"[\\|<>*`\[\]~&]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", log(text))
    return escaped.replace("\n", "<br>")


def json(dumped: str) -> str:
    """Return JSON, as `json.dumps` has it, without a DEL and without what a CI runner takes for a command."""
    return dumped.replace("\x7f", r"\u007f").replace("##", r"#\u0023")


def xml(text: str) -> str:
    """Return text as for a log without what XML 1.0 forbids besides control codes; the caller escapes markup."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", log(text))
