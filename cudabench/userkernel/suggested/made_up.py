"""Which arguments of a run are those that a message suggested, where nothing in the file says them.

A line that a message suggests is copied and run; what such a run finds holds for arguments that nobody chose. The line
is made again and compared, so nothing has to be kept between the two.
"""

from __future__ import annotations

from dataclasses import replace

from cudabench.errors import CudabenchError
from cudabench.toolchain import source
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.suggested.example import Guess, line_for
from cudabench.userkernel.type_names import aliases_of


def made_up(request: UserRequest, kernel: str) -> tuple[Guess, ...]:
    """Return the parts of a request for a kernel that are guesses of the suggested line, in its order.

    A request that has none of the line's guessed numbers is one's own, though it may write an array as the line does;
    so is one of several launches.
    """
    if request.steps:
        return ()
    bare = replace(request, kernels=(kernel,), grid=None, block=None, arguments=(), shared=None, constants=())
    given = {("--arg", _tight(text)) for text in request.arguments}
    given |= {("--const", _tight(text)) for text in request.constants}
    for option in ("grid", "block", "shared"):
        given.add((f"--{option}", _tight(getattr(request, option) or "")))
    try:
        file = source.preprocessed(source.read(request.file), request.defines, request.include)
        aliases = aliases_of(file, request.defines, request.include)
        found = source.resolved(source.find(file, kernel), aliases)
        for command in ("run", "check"):
            guesses = line_for(bare, file, found, aliases, command).guesses
            same = tuple(one for one in guesses if (one.option, _tight(one.text)) in given)
            numbers = [one for one in guesses if one.kind == "number" and one.option == "--arg"]
            if same and (set(numbers) & set(same) or (not numbers and len(same) == len(guesses))):
                return same
    except CudabenchError:  # a kernel that only the compiler sees has no line
        pass
    return ()


def _tight(text: str) -> str:
    return "".join(text.split())
