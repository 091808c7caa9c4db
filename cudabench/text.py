"""Makes text from outside harmless before it is shown, with pure functions.

Names of devices and kernels, reasons, source lines, compiler messages and output of kernels come from files and
programs that a user need not trust. They may contain control codes for the terminal, characters that change the order
of letters, commands to a CI runner, or spreadsheet formulas. These functions change such text so that it is displayed
and has no other effect.
"""

from __future__ import annotations

import re

# The control characters C0 (except tab and newline), DEL and C1; soft hyphens; bidirectional marks, embeddings,
# overrides and isolates; invisible spaces and operators; line and paragraph separators; byte-order marks; annotations;
# tags; and surrogates without their partner.
HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
# CI systems execute commands in the output: GitHub executes '::command' at the start of a line and '##[command'
# anywhere in a line. Azure executes '##vso[' and TeamCity '##teamcity[' anywhere in a line.
_CI_LINE = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_CI_ANYWHERE = re.compile(r"##(?=\w*\[)")
_FORMULA = ("=", "+", "-", "@", "\t")


def visible(text: str) -> str:
    r"""Return text in which harmful characters are replaced by their escape sequences, such as \x1b or \u202e.

    Tabs and newlines stay; CR LF becomes one newline.
    """
    return HARMFUL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text.replace("\r\n", "\n"))


def line(text: str) -> str:
    r"""Return what `visible` returns, but on one line: newlines also become the escape sequence \n."""
    return visible(text).replace("\n", r"\n")


def log(text: str) -> str:
    r"""Return what `visible` returns, without commands to a CI runner: '::error' becomes '\x3a:error'."""
    return no_commands(visible(text))


def no_commands(text: str) -> str:
    """Return text without commands to CI runners; everything else stays, even the terminal's colour codes."""
    return _CI_ANYWHERE.sub(r"#\\x23", _CI_LINE.sub(r"\1\\x3a", text))


def cell(text: str) -> str:
    """Return what `log` returns, but with an apostrophe before a formula such as '=1+1', so that no spreadsheet
    computes it."""
    shown = log(text)
    return f"'{shown}" if shown.lstrip(" \n").startswith(_FORMULA) else shown


def markdown(text: str) -> str:
    """Return what `log` returns, for a cell of a Markdown table: Markdown is escaped, and newlines become <br>."""
    escaped = re.sub(r"[\\|<>*`\[\]~&]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", log(text))
    return escaped.replace("\n", "<br>")


def json(dumped: str) -> str:
    """Return the output of `json.dumps` with DEL and the '##' of CI runners' commands escaped."""
    return dumped.replace("\x7f", r"\u007f").replace("##", r"#\u0023")


def xml(text: str) -> str:
    """Return what `log` returns, with '?' for the other characters that XML 1.0 forbids. The caller escapes markup."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", log(text))
