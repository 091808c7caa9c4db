"""Finds a kernel by its name in C++ syntax, which may have template arguments or the parameter types of an overload."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from cudabench.errors import UsageError, did_you_mean
from cudabench.source import clang_parse
from cudabench.source.records import Kernel, Parameter, Question, SourceFile
from cudabench.source.types import canonical
from cudabench.source.words import listed_words


def find_kernel(source: SourceFile, name: str | None = None) -> Kernel:
    """Return the kernel with this name, or the file's only kernel if the name is None.

    A name may be qualified ('ns::f'). It may have template arguments ('f<float, 32>'), which replace the template
    parameters in the returned kernel. It may have parameter types, to choose an overload ('f(float*, int)'). Raises
    UsageError for a name that is unknown, ambiguous, or a template without arguments.
    """
    if not source.kernels:
        raise UsageError(f"{source.path} lacks a __global__ function with a body: give a file that defines a kernel.")
    called = (
        kernel.qualified_name + (types_listed(kernel.parameters) if kernel.overloaded else "")
        for kernel in source.kernels
    )
    listed = ", ".join(dict.fromkeys(called))
    if name is None:
        if len(source.kernels) > 1:
            raise UsageError(f"{source.path} has {len(source.kernels)} kernels: choose one with --kernel: {listed}.")
        return _instance(source, source.kernels[0], "")

    plain, arguments, types = _split_expression(name)
    matches = [kernel for kernel in source.kernels if ("::" + kernel.qualified_name).endswith("::" + plain)]
    matches = [kernel for kernel in matches if kernel.qualified_name == plain] or matches
    if not matches:
        hint = did_you_mean(plain, [word for kernel in source.kernels for word in (kernel.name, kernel.qualified_name)])
        raise UsageError(f"{source.path} lacks a kernel '{name}'; it has: {listed}.{hint}")
    if arguments:
        matches = [kernel for kernel in matches if kernel.template_parameters] or matches
    if types is not None:
        wanted = tuple(map(canonical, types))
        takers = [kernel for kernel in matches if bool(arguments) == bool(kernel.template_parameters)]
        fitting = [kernel for kernel in takers if _has_types(_instance(source, kernel, arguments), wanted)]
        if not fitting:
            signatures = "; ".join(kernel.signature for kernel in matches)
            raise UsageError(f"{source.path} lacks a kernel '{name}'; it has: {signatures}.")
        matches = fitting
    if len(matches) > 1:
        qualified = {kernel.qualified_name for kernel in matches}
        if len(qualified) > 1:
            raise UsageError(f"'{name}' is ambiguous in {source.path}: write one of {', '.join(sorted(qualified))}.")
        choices = ", ".join(f"'{plain}{types_listed(kernel.parameters)}'" for kernel in matches)
        raise UsageError(f"'{name}' is overloaded in {source.path}: write one of {choices}.")
    return _instance(source, matches[0], arguments)


def _has_types(kernel: Kernel, wanted: tuple[str, ...]) -> bool:
    """Return whether the `wanted` types are the kernel's parameter types, as written or with typedefs resolved."""
    spellings = [
        {canonical(parameter.ctype), canonical(parameter.meaning or parameter.ctype)} for parameter in kernel.parameters
    ]
    return len(wanted) == len(spellings) and all(
        wanted_type in names for wanted_type, names in zip(wanted, spellings, strict=True)
    )


def types_listed(parameters: Iterable[Parameter]) -> str:
    """Return the types of parameters as text, such as '(const float*, int)'."""
    return f"({', '.join(parameter.ctype for parameter in parameters)})"


def _split_expression(name: str) -> tuple[str, str, tuple[str, ...] | None]:
    """Split 'ns::f<float, 32>(float*)' into 'ns::f', '<float, 32>', ('float*',). The types are None without
    brackets."""
    match = re.fullmatch(r"\s*(?:::)?\s*([\w\s:]*?)\s*(<.*>)?\s*(\(.*\))?\s*", name, re.S)
    if match is None:
        return name.strip(), "", None
    types = None if match[3] is None else tuple(listed_words(match[3][1:-1]))
    return re.sub(r"\s+", "", match[1]), match[2] or "", types


def template_arguments(kernel: Kernel) -> dict[str, str]:
    """Return the template arguments of an instance, keyed by the names of the template parameters."""
    given = listed_words(kernel.expression.partition("<")[2].rpartition(">")[0])
    return {parameter.name: part for parameter, part in zip(kernel.template_parameters, given, strict=False)}


def _instance(source: SourceFile, kernel: Kernel, arguments: str) -> Kernel:
    """Return the instance of a template kernel with these arguments ('<float, 32>'; '' for other kernels)."""
    if not kernel.template_parameters:
        if arguments:
            raise UsageError(f"'{kernel.qualified_name}{arguments}': {kernel.qualified_name} is not a template.")
        cast = types_listed(kernel.parameters) if kernel.overloaded else ""
        return replace(kernel, expression=kernel.qualified_name + cast)
    example = ", ".join(
        template_parameter.default
        or {"typename": "float", "class": "float", "bool": "true"}.get(template_parameter.type.rstrip("."), "32")
        for template_parameter in kernel.template_parameters
    )
    if not arguments:
        raise UsageError(
            f"{kernel.signature} is a template: name an instantiation, such as '{kernel.qualified_name}<{example}>'."
        )
    given = listed_words(arguments[1:-1])
    variadic = any(parameter.type.endswith("...") for parameter in kernel.template_parameters)
    if len(given) > len(kernel.template_parameters) and not variadic:
        raise UsageError(
            f"'{kernel.qualified_name}{arguments}' has {len(given)} template arguments, "
            f"{kernel.signature} takes {len(kernel.template_parameters)}: write '{kernel.qualified_name}<{example}>'."
        )
    expression = f"{kernel.qualified_name}<{', '.join(given)}>"
    parameters = _instance_parameters(source, kernel, expression)
    expression += types_listed(parameters) if kernel.overloaded else ""
    return replace(kernel, parameters=parameters, expression=expression)


def _instance_parameters(source: SourceFile, kernel: Kernel, name: str) -> tuple[Parameter, ...]:
    """Return the parameters of the template instance `name`; if the parser cannot make the instance, the parameters of
    the template."""
    if source.task is None:
        return kernel.parameters
    place = re.compile(rf"\b{kernel.name}(?=\s*\()").search(source.text, kernel.start) if not kernel.file else None
    at = place.start() if place and kernel.overloaded else None
    resolved = clang_parse.answer_of(source.task, Question(name, at=at)).parameters
    if resolved is None:
        return kernel.parameters
    return tuple(
        replace(parameter, name=name, restrict=restrict)
        for parameter, (name, restrict) in zip(resolved, _instance_names(kernel, len(resolved)), strict=False)
    )


def _instance_names(kernel: Kernel, count: int) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it is __restrict__) for each parameter of an instance.

    `count`: the number of the instance's parameters. A parameter pack `x` with two arguments gives x0 and x1.
    """
    for formal in kernel.parameters:
        pack = formal.type.endswith("...") and formal.name != ""
        for at in range(count - len(kernel.parameters) + 1 if formal.type.endswith("...") else 1):
            yield f"{formal.name}{at}" if pack else formal.name, formal.restrict
