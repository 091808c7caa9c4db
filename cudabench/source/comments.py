"""Extracts the text of comments in a source, and their first sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable


def cleaned(comments: Iterable[str]) -> str:
    """Return the text of comments without slashes, stars and lines of dashes or the like; paragraphs are kept."""
    lines: list[str] = []
    for comment in comments:
        if comment.startswith("//"):
            lines += [re.sub(r"^\s*//+[!<]?\s?", "", line) for line in comment.split("\n")]
        else:
            first, *rest = re.sub(r"^/\*+!?|\*+/$", "", comment).split("\n")
            rest = [re.sub(r"^\s*\*+(?!\w)\s?", "", line) for line in rest]
            margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
            lines += [first.lstrip(), *(line[margin:] for line in rest)]
    lines = ["" if re.fullmatch(r"[-=*#~_/\s]+", line) else line.rstrip() for line in lines]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def first_sentence(comment: str) -> str:
    """Return the first sentence of a cleaned comment on one line, or ''.

    A period ends the sentence at the end of the text, or before a word that does not begin with a lower-case letter; so
    'e.g. this' does not end it.
    """
    return next(iter(sentences(comment.strip().split("\n\n")[0])), "")


def sentences(comment: str) -> list[str]:
    """Return the sentences of a cleaned comment, each on one line."""
    words = " ".join(comment.split())
    return re.split(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bcf\.)\s+(?=[^a-z\s])", words) if words else []


def comment_above(text: str, position: int) -> str:
    """Return the text of the comments directly above a position, on lines of their own; '' without them."""
    lines = text[:position].split("\n")
    if lines.pop().strip():
        return ""
    block: list[str] = []
    while lines:
        line = lines.pop().strip()
        if line.startswith("//"):
            block.insert(0, line)
        elif line.endswith("*/"):
            comment = [line]
            while "/*" not in comment[0] and lines:
                comment.insert(0, lines.pop().rstrip())
            if not comment[0].lstrip().startswith("/*"):
                break
            block.insert(0, "\n".join([comment[0].lstrip(), *comment[1:]]))
        else:
            break
    return cleaned(block)
