"""The kernel that a name means, with template arguments and overloads as C++ writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cudabench.errors import UsageError, did_you_mean
from cudabench.toolchain.c_types import canonical
from cudabench.toolchain.kernels import KernelSource, SourceFile
from cudabench.toolchain.signatures import Parameter, types_listed, types_of
from cudabench.toolchain.tokens import spell, split, words_of


def find(source: SourceFile, name: str | None = None) -> KernelSource:
    """Return the kernel of this name, or the file's only one where the name is None.

    A name may be qualified ('ns::f'), may carry template arguments ('f<float, 32>', then the parameters' types have
    them put in) or the parameters' types ('f(float*, int)', to choose between overloads). UsageError where it is not in
    the file, is ambiguous, or is a template without arguments.
    """
    if not source.kernels:
        raise UsageError(f"{source.path} has no __global__ function with a body: give a file that defines a kernel.")
    listed = ", ".join(dict.fromkeys(map(_called, source.kernels)))
    if name is None:
        if len(source.kernels) > 1:
            raise UsageError(f"{source.path} has {len(source.kernels)} kernels: choose one with --kernel: {listed}.")
        return _instance(source.kernels[0], "")

    plain, arguments, types = _split_expression(name)
    matches = [kernel for kernel in source.kernels if kernel.qualified_name == plain]
    if not matches:
        matches = [kernel for kernel in source.kernels if ("::" + kernel.qualified_name).endswith("::" + plain)]
    if not matches:
        known = [word for kernel in source.kernels for word in (kernel.name, kernel.qualified_name)]
        hint = did_you_mean(plain, known)
        raise UsageError(f"{source.path} has no kernel '{name}', it has: {listed}.{hint}")
    if arguments:
        matches = [kernel for kernel in matches if kernel.template_parameters] or matches
    if types is not None:
        wanted = tuple(canonical(part) for part in types)
        takers = [kernel for kernel in matches if bool(arguments) == bool(kernel.template_parameters)]
        fitting = [kernel for kernel in takers if types_of(_instance(kernel, arguments).parameters) == wanted]
        if not fitting:
            known_signatures = "; ".join(kernel.signature for kernel in matches)
            raise UsageError(f"{source.path} has no kernel '{name}', it has: {known_signatures}.")
        matches = fitting
    if len(matches) > 1:
        qualified = {kernel.qualified_name for kernel in matches}
        if len(qualified) > 1:
            raise UsageError(f"'{name}' is ambiguous in {source.path}: write one of {', '.join(sorted(qualified))}.")
        choices = ", ".join(f"'{plain}{types_listed(kernel.parameters)}'" for kernel in matches)
        raise UsageError(f"'{name}' is overloaded in {source.path}: write one of {choices}.")
    return _instance(matches[0], arguments)


def _called(kernel: KernelSource) -> str:
    """Return what a message calls a kernel: its name, and where others have it too the types of its parameters."""
    return kernel.qualified_name + (types_listed(kernel.parameters) if kernel.overloaded else "")


def _split_expression(name: str) -> tuple[str, str, tuple[str, ...] | None]:
    """'ns::f<float, 32>(float*)' -> 'ns::f', 'float, 32', ('float*',)."""
    match = re.fullmatch(r"\s*(?:::)?\s*([\w\s:]*?)\s*(<.*>)?\s*(\(.*\))?\s*", name, re.S)
    if match is None:
        return name.strip(), "", None
    plain = re.sub(r"\s+", "", match[1])
    types = None
    if match[3] is not None:
        types = tuple(spell(part) for part in split(words_of(match[3][1:-1]), ",") if part)
    return plain, match[2] or "", types


def _likely_argument(kind: str) -> str:
    """Return what a template may be given for a parameter, or for one of a pack: a type, or a value of its type."""
    kind = kind.rstrip(".")
    if kind in ("typename", "class"):
        return "float"
    return "true" if kind == "bool" else "32"


def template_arguments(kernel: KernelSource) -> dict[str, str]:
    """Return what an instance of a template is given, by the names of its parameters."""
    words = split(words_of(kernel.expression.partition("<")[2].rpartition(">")[0]), ",")
    return {one.name: spell(part) for one, part in zip(kernel.template_parameters, words, strict=False)}


def _instance(kernel: KernelSource, arguments: str) -> KernelSource:
    """Put template arguments ('<float, 32>', or '' for none) in the place of the parameters."""
    cast = types_listed(kernel.parameters) if kernel.overloaded else ""
    if not kernel.template_parameters:
        if arguments:
            raise UsageError(f"'{kernel.qualified_name}{arguments}': {kernel.qualified_name} is not a template.")
        return replace(kernel, expression=kernel.qualified_name + cast)
    example = ", ".join(
        parameter.default or _likely_argument(parameter.type) for parameter in kernel.template_parameters
    )
    if not arguments:
        raise UsageError(
            f"{kernel.signature} is a template: name an instantiation, such as '{kernel.qualified_name}<{example}>'."
        )
    given = [spell(part) for part in split(words_of(arguments[1:-1]), ",") if part]
    variadic = any(parameter.type.endswith("...") for parameter in kernel.template_parameters)
    if len(given) > len(kernel.template_parameters) and not variadic:
        raise UsageError(
            f"'{kernel.qualified_name}{arguments}' has {len(given)} template arguments, "
            f"{kernel.signature} takes {len(kernel.template_parameters)}: write '{kernel.qualified_name}<{example}>'."
        )
    values: dict[str, str] = {}
    for index, parameter in enumerate(kernel.template_parameters):
        value = given[index] if index < len(given) else _substitute(parameter.default, values)
        if value and parameter.name and not parameter.type.endswith("..."):
            values[parameter.name] = value
    parameters = []
    for formal in _unpacked(kernel, given):
        words = words_of(_substitute(formal.type, values))
        pointer, const = formal.pointer, formal.const
        if not pointer and words[-1:] == ["*"]:  # f<float*>(T x)
            words, pointer, const = words[:-1], True, "const" in words
        parameters.append(replace(formal, type=spell([w for w in words if w != "const"]), pointer=pointer, const=const))
    cast = types_listed(parameters) if kernel.overloaded else ""
    expression = f"{kernel.qualified_name}<{', '.join(given)}>{cast}"
    return replace(kernel, parameters=tuple(parameters), expression=expression)


def _unpacked(kernel: KernelSource, given: Sequence[str]) -> Iterator[Parameter]:
    """The parameters of a template's instance, those of a pack one by one: `Ts... x` of two types is x0 and x1."""
    names = [parameter.name for parameter in kernel.template_parameters]
    last = kernel.template_parameters[-1]
    for formal in kernel.parameters:
        words = [word for word in words_of(formal.type) if word != "."]
        if not last.type.endswith("...") or last.name not in words:
            yield formal
            continue
        for at, value in enumerate(given[len(names) - 1 :]):
            yield replace(
                formal, name=formal.name and f"{formal.name}{at}", type=_substitute(spell(words), {last.name: value})
            )


def _substitute(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"(?<![\w:])[^\W\d]\w*", lambda match: values.get(match[0], match[0]), text)
