"""Every kernel of a file as a request of its own, for what is to leave none out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudabench.errors import UsageError, did_you_mean
from cudabench.source.files import read_file
from cudabench.source.records import Kernel
from cudabench.userkernel.arguments import offered
from cudabench.userkernel.plan import numeric, select
from cudabench.userkernel.request import UserRequest, name_of
from cudabench.userkernel.suggestion import Example, file_of


@dataclass(frozen=True)
class Every:
    """Requests of one kernel each, and the kernels of their files that none of them is of, as 'FILE: NAME'."""

    requests: tuple[UserRequest, ...]
    left_out: tuple[str, ...]


def every(requests: Sequence[UserRequest], command: str) -> Every:
    """Return a request for each kernel that the given ones mean; one that names no kernel means all of its file.

    Of several kernels each takes those of --arg and --expect that are called like its parameters. Raises UsageError
    where a file has none, for templates that no name instantiates, and for an option that no kernel takes.
    `command` is what errors suggest a line of.
    """
    picked = [(request, kernel, name) for request in requests for kernel, name in _kernels(request, command)]
    found = [
        replace(_of(request, kernel) if len(picked) > 1 else request, kernels=(name,))
        for request, kernel, name in picked
    ]
    _check_taken(requests, found, [kernel for _, kernel, _ in picked])
    taken = {(request.file, kernel.qualified_name, kernel.line) for request, kernel, _ in picked}
    left_out = [
        f"{path}: {kernel.qualified_name}"
        for path in dict.fromkeys(request.file for request, _, _ in picked)
        for kernel in read_file(path).kernels
        if not kernel.file and (path, kernel.qualified_name, kernel.line) not in taken
    ]
    return Every(tuple(found), tuple(left_out))


def _kernels(request: UserRequest, command: str) -> list[tuple[Kernel, str]]:
    """Return the kernels that a request means, each with the name that means it alone."""
    whole = file_of(request)
    own = tuple(kernel for kernel in whole.kernels if not kernel.file)
    file = replace(whole, kernels=own) if own else whole  # what headers bring is theirs, unless there is nothing else
    if not request.kernels:
        templates = [kernel for kernel in file.kernels if kernel.template_parameters]
        if templates:
            line = Example(request, whole, templates[0], command)
            names = ", ".join(kernel.qualified_name for kernel in templates)
            verb = "is a template, which runs" if len(templates) == 1 else "are templates, which run"
            raise UsageError(
                f"{request.file}: {names} {verb} only as an instance: name all kernels, {offered('as in', line)}"
            )
        request = replace(request, kernels=("all",))
    try:
        found = select(file, request)
    except UsageError:
        with contextlib.suppress(UsageError):
            return [(kernel, name) for kernel, name, _ in select(whole, request)]
        raise
    return [(kernel, name) for kernel, name, _ in found]


def _of(request: UserRequest, kernel: Kernel) -> UserRequest:
    """Return a request with the arguments that a kernel takes, in its order; all where its parameters have no names.

    Numbers that are other kernels' arguments are still names for shapes and grids.
    """
    order = [parameter.name for parameter in kernel.parameters]
    if not all(order):
        return request
    given = {name_of(text): text for text in request.arguments}
    return replace(
        request,
        arguments=tuple(given[name] for name in order if name in given),
        expect=tuple(text for text in request.expect if name_of(text) in order),
        save=tuple(text for text in request.save if name_of(text) in order),
        numbers=numeric(request.given()),
    )


def _check_taken(requests: Sequence[UserRequest], found: Sequence[UserRequest], kernels: Sequence[Kernel]) -> None:
    """Raise UsageError for an --arg or --expect that no kernel takes."""
    names = list(dict.fromkeys(p.name for kernel in kernels for p in kernel.parameters if p.name))
    for option, kind in (("--arg", "arguments"), ("--expect", "expect")):
        taken = {text for request in found for text in getattr(request, kind)}
        left = next((text for request in requests for text in getattr(request, kind) if text not in taken), None)
        if left is not None:
            raise UsageError(
                f"{option} {left}: no kernel has a parameter of this name; there are {', '.join(names)}."
                f"{did_you_mean(name_of(left), names)}"
            )
