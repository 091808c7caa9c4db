"""Comments of a source: their words, and the first sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable


def cleaned(comments: Iterable[str]) -> str:
    """The words of comments without slashes, stars or ruled lines; paragraphs are kept."""
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

    A full stop ends a sentence at the end of the text, or if the next word does not begin in lower case ('e.g. this'
    continues).
    """
    return next(iter(sentences(comment.strip().split("\n\n")[0])), "")


def sentences(comment: str) -> list[str]:
    """Return the sentences of a cleaned comment, each on one line."""
    words = " ".join(comment.split())
    return re.split(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bcf\.)\s+(?=[^a-z\s])", words) if words else []


def comment_above(text: str, position: int) -> str:
    """Return the words of the comments, on their own lines, directly above a position."""
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
