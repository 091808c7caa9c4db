"""`--sizes`: several sizes in one command, written as a range or a list."""

from __future__ import annotations

import re

from cudabench.errors import UsageError, refuse

MOST = 64  # sizes of one command
DIGITS = 18


def sizes(text: str) -> tuple[int, ...]:
    """Return the sizes that a text means: 'A..B*2' doubles from A up to B, 'A..B+S' adds S, 'A,B,C' lists them."""
    where = f"--sizes {text}"
    number = rf"\d{{1,{DIGITS}}}"
    if re.fullmatch(rf"{number}(,{number})*", text, re.ASCII):
        found = list(dict.fromkeys(map(int, text.split(","))))
    else:
        match = re.fullmatch(rf"({number})\.\.({number})(?:([*+])({number}))?", text, re.ASCII)
        if not match:
            raise UsageError(f"{where} is not a range: write A..B*2, as in 1024..1048576*2, A..B+STEP, or A,B,C.")
        first, last = int(match[1]), int(match[2])
        grows, step = match[3] or "*", int(match[4] or 2)
        refuse(
            (first > last, f"{where} is empty: {first} is beyond {last}."),
            (
                (grows == "*" and (step < 2 or first == 0)) or step == 0,
                f"{where} never ends: multiply a number of at least 1 by 2 or more, or add 1 or more.",
            ),
        )
        found = [first]
        while len(found) <= MOST and (size := found[-1] * step if grows == "*" else found[-1] + step) <= last:
            found.append(size)
    if len(found) > MOST:
        raise UsageError(f"{where} means more than {MOST} sizes: take larger steps.")
    return tuple(found)
