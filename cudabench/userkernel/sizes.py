"""`run --sizes`: a request at several values of one of its numbers."""

from __future__ import annotations

import re

from cudabench.errors import UsageError, did_you_mean
from cudabench.plan.sizes import sizes
from cudabench.userkernel.request import UserRequest

WHOLE = re.compile(r"\s*(\w+\s*:)?\s*\d+\s*")  # a whole number, with its type or without


def at_sizes(request: UserRequest, text: str) -> list[UserRequest]:
    """Return a request for each size of --sizes: 'n=A..B*2', or without a name where one --arg is a whole number."""
    name, kind, values = sized(request, text)
    if request.save:
        raise UsageError(f"--save {request.save[0]} with --sizes would keep the last one's: leave one of them out.")
    return [request.with_values({name: f"{kind}{size}"}) for size in values]


def sized(request: UserRequest, text: str) -> tuple[str, str, tuple[int, ...]]:
    """Return which number --sizes varies, its type as it is written ('int32:', or none), and the sizes."""
    given = request.given()
    name, equals, values = text.rpartition("=")
    name = name.strip()
    if not equals:
        whole = [one for one, value in given.items() if WHOLE.fullmatch(value)]
        if len(whole) != 1:
            several = f"{', '.join(whole)} are whole numbers" if whole else "no --arg is a whole number"
            raise UsageError(f"--sizes {text} needs a name: {(whole or ['n'])[0]}={text}; {several}.")
        (name,) = whole
    elif name not in given:
        raise UsageError(
            f"--sizes {text}: there is no --arg {name}, but {', '.join(given) or 'none'}.{did_you_mean(name, given)}"
        )
    kind = match[1] if (match := WHOLE.fullmatch(given[name])) and match[1] else ""
    return name, kind, sizes(values)
