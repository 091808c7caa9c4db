"""An instance of a kernel template, for lines that messages suggest: as host code names one, followed through its own
templates to where they are called, or of what the parameters are likely to be given."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cudabench.toolchain.kernels import KernelSource, SourceFile
from cudabench.toolchain.named import likely_argument
from cudabench.toolchain.signatures import TemplateParameter
from cudabench.toolchain.tokens import split, words_of
from cudabench.userkernel.arguments import NoLine
from cudabench.userkernel.suggested.callers import is_sure
from cudabench.userkernel.suggested.host_launch import HostLaunch, host_of
from cudabench.userkernel.suggested.index_types import is_whole


def instance(kernel: KernelSource, file: SourceFile, launch: HostLaunch | None, aliases: Mapping[str, str]) -> str:
    """Return an instance of a template that the file itself names, else one of defaults, floats and 32.

    Raises NoLine where a parameter stands for a type with members that no type of the file has.
    """
    name, parameters = kernel.qualified_name, kernel.template_parameters
    places = len(parameters)
    last = name.rpartition("::")[2]
    named = [list(launch.template)] if launch and launch.template else []
    named += [
        [word.strip() for word in match[1].split(",")]
        for match in re.finditer(rf"\b{last}\s*<([\w\s,:]+)>\s*(?:<\s*<\s*<|\()", file.text)
    ]
    variadic = any(one.type.endswith("...") for one in parameters)
    for words in named:
        if (len(words) == places or (variadic and len(words) >= places)) and all(map(is_sure, words)):
            return f"{name}<{', '.join(words)}>"
    for found in host_of(file.text, tuple(aliases.items())).callers.named(last):
        if len(found) <= places and any(found):
            rest = parameters[len(found) :]
            chosen = [word or _likely(one, kernel, file.text) for word, one in zip(found, parameters, strict=False)]
            chosen += [one.default or _likely(one, kernel, file.text) for one in rest]
            return f"{name}<{', '.join(chosen)}>"
    return f"{name}<{', '.join(one.default or _likely(one, kernel, file.text) for one in parameters)}>"


def _likely(parameter: TemplateParameter, kernel: KernelSource, text: str) -> str:
    """Return what a template may be given for a parameter: for a type that the kernel calls, a functor of the file."""
    own = re.escape(parameter.name or "")
    space = kernel.qualified_name.rpartition("::")[0]
    if parameter.type.startswith("template"):
        raise NoLine(_no_line(parameter, kernel, "a class template"))
    if own and parameter.type in ("typename", "class"):
        member = re.search(rf"\b{own}\s*::\s*(\w+)\s*\(", kernel.text)
        called = rf"\b{member[1]}" if member else r"\boperator\s*\(\s*\)"
        functors = "|".join([rf"\b{own}\s*(?:\(\s*\)|\{{\s*\}})", *(rf"(?<![\w.>:]){one}" for one in _of(own, kernel))])
        body_of_kernel = kernel.text.partition("{")[2]
        if member or re.search(rf"(?:{functors})\s*\(", body_of_kernel):
            call = re.search(rf"(?:{functors})\s*\(([^;]*)\)\s*;", body_of_kernel)
            wanted = len(split(words_of(call[1]), ",")) if call else 0
            body = rf"\b(?:struct|class)\s+(\w+)\s*\{{[^{{}}]*{called}\s*\(([^()]*)\)"
            for functor, taken in re.findall(body, text):
                if not wanted or len(split(words_of(taken), ",")) == wanted:
                    return f"{space}::{functor}" if space else functor
            if not member:
                raise NoLine(_no_line(parameter, kernel, "a type that the kernel calls, as a functor"))
        if members := set(re.findall(rf"\b{own}\s*::\s*(?:template\s+)?(\w+)", kernel.text)):
            return _with_members(parameter, members, kernel, text)
        pointed = [one.name for one in kernel.parameters if one.pointer and one.name and one.type == own]
        states = "|".join([*pointed, *re.findall(rf"\b{own}\s*[*&]?\s*(\w+)\s*=", kernel.text)] if pointed else [])
        if states and re.search(rf"\bcurand\w*\s*\([^;]*&?\s*\b(?:{states})\b", kernel.text):
            return "curandState"
        if is_whole(own, kernel):
            return "int"
    if function := _of_pointer(parameter.type, text):
        return function
    return likely_argument(parameter.type, text)


def _with_members(parameter: TemplateParameter, members: set[str], kernel: KernelSource, text: str) -> str:
    """Return a type of the text that has these members. Raises NoLine."""
    for match in re.finditer(r"\b(?:struct|class)\s+(\w+)\s*(?:final\s*)?(?::[^{};]*)?\{", text):
        template = re.search(r"template\s*<[^;{}]*>\s*$", text[: match.start()])
        body = _block(text, match.end())
        if not template and all(re.search(rf"\b{one}\b", body) for one in members):
            return match[1]
    listed = ", ".join(f"{parameter.name}::{one}" for one in sorted(members)[:4])
    raise NoLine(_no_line(parameter, kernel, f"a type with {listed}"))


def _no_line(parameter: TemplateParameter, kernel: KernelSource, kind: str) -> str:
    name = kernel.qualified_name
    return (
        f"no line can be suggested, for {parameter.name} of {name} is {kind} that nothing here says: name an instance, "
        f"--kernel '{name}<TYPE>', with a type that the file has."
    )


def _of(own: str, kernel: KernelSource) -> list[str]:
    """Return a kernel's parameters of a type, as values or references."""
    return [one.name for one in kernel.parameters if not one.pointer and one.name and one.type.rstrip("&") == own]


def _of_pointer(kind: str, text: str) -> str:
    """Return a function of the text that a type of pointers to functions points at, '' for another type."""
    name = re.escape(kind.partition("<")[0].strip())
    found = re.search(rf"\btypedef\b[^;]*\(\s*\*\s*{name}\s*\)\s*\(([^()]*)\)", text)
    found = found or re.search(rf"\busing\s+{name}\s*=[^;]*\(\s*\*\s*\)\s*\(([^()]*)\)", text)
    if not found:
        return ""
    wanted = _types(found[1])
    for match in re.finditer(r"__device__[^;{}()]*?\b(\w+)\s*\(([^()]*)\)\s*\{", text):
        if _types(match[2]) == wanted:
            return match[1]
    return ""


def _types(parameters: str) -> list[str]:
    """Return the types of parameters without their names."""
    parts = [[word for word in words_of(part) if word != "__restrict__"] for part in parameters.split(",")]
    return ["".join(words[:-1] if len(words) > 1 and re.match(r"\w", words[-1]) else words) for words in parts]


def _block(text: str, start: int) -> str:
    """Return what stands up to the bracket that closes the one before a place."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start:at]
    return ""
