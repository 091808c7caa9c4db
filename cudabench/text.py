"""Makes text from outside harmless before it is shown: pure.

Names of devices and kernels, reasons, source lines, compiler messages and output of kernels come from files and
programs that the reader of a terminal, a log or a spreadsheet need not trust. Control codes of terminals, marks that
change the order of letters, commands of CI runners and formulas of spreadsheets are shown as text instead.
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
    """Return text without commands of CI runners; everything else, also a terminal's colours, stays."""
    return _CI_ANYWHERE.sub(r"#\\x23", _CI_LINE.sub(r"\1\\x3a", text))


def cell(text: str) -> str:
    """Return text as for a log that a spreadsheet does not compute: '=1+1' gets an apostrophe before it."""
    shown = log(text)
    return f"'{shown}" if shown.lstrip(" \n").startswith(_FORMULA) else shown


def markdown(text: str) -> str:
    """Return text as for a log with Markdown escaped, in one line of a table."""
    escaped = re.sub(r"[\\|<>*`\[\]~&]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", log(text))
    return escaped.replace("\n", "<br>")


def json(dumped: str) -> str:
    """Return the JSON of `json.dumps` without DEL and without commands of CI runners."""
    return dumped.replace("\x7f", r"\u007f").replace("##", r"#\u0023")


def xml(text: str) -> str:
    """Return text as for a log without the other characters that XML 1.0 forbids; the caller escapes markup."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", log(text))
