"""`--arg NAME=VALUE` against a kernel's own signature: names, order, types, shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean
from cudabench.model import Surface
from cudabench.source.choose_kernel import template_arguments
from cudabench.source.named_types import layout_of
from cudabench.source.records import Kernel, Parameter, SourceFile
from cudabench.source.types import numpy_type, vector_type
from cudabench.userkernel import expressions, inits, surface_calls, tensor_maps, texture_calls, textures
from cudabench.userkernel.accessors import accessor_of
from cudabench.userkernel.by_value import Pointer, pack
from cudabench.userkernel.conforming import shape_text
from cudabench.userkernel.pointers import check_fit, like
from cudabench.userkernel.rows import RowsArray, of_pointers, row_of, rows_of
from cudabench.userkernel.tensor_maps import MapOf, MappedArray, is_tensor_map, read_tensor_map
from cudabench.userkernel.textures import Object, ObjectOf, SurfaceArray, TextureArray, is_object, read_object
from cudabench.userkernel.values import (
    CONSTANTS,
    TYPES,
    Argument,
    Array,
    Null,
    Record,
    Scalar,
    arrays_of,
    check_memory,
    load,
    numbers_of,
)

_POINTERS = (
    "pointers to pointers to pointers, which no argument can be: let it take one array, and compute the place of an "
    "element from its indices."
)


STEPS = "the steps"  # in place of the name of one kernel
GAP = "..."  # in a line, for what only the user knows


class NoLine(UsageError):
    """A kernel for which no command line can be suggested: one sentence that says what the user has to write."""


NO_FILE = SourceFile("", "", "", ())  # that declares nothing


def offered(lead: str, example: object) -> str:
    """Return how a message goes on: with a line that would be right, or why none can be suggested."""
    try:
        return led(lead, str(example))
    except NoLine as error:
        return str(error).rstrip(".")


def led(lead: str, line: str) -> str:
    """Return a line behind what leads to it, which says what its gaps are for."""
    return f"{lead}{f', with your own value for each {GAP}' if GAP in line else ''}: {line}"


def named(text: str, option: str, example: str) -> tuple[str, str]:
    """Return the two sides of NAME=VALUE; of --const the name may be qualified. Raises UsageError for no such text."""
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    bare = name.replace("::", "_") if option == "--const" else name
    if not equals or not re.fullmatch(r"[^\W\d]\w*", bare) or not value:
        raise UsageError(f"{option} '{text}' is not NAME=VALUE: write {option} {example}.")
    return name, value


def read(
    texts: Sequence[str],
    kernel: Kernel,
    aliases: Mapping[str, str],
    known: Mapping[str, Any],
    example: object,
    file: SourceFile = NO_FILE,
) -> tuple[Argument, ...]:
    """Return the arguments of a kernel, in the order of its parameters, whatever the order they are given in.

    `known` are further numbers that shapes may use; `example` is a line that would be right; `file` is the source,
    which declares structs. Scalars are read first, each behind those that it names, so a shape or a number may name one
    that stands behind it. Raises UsageError for whatever does not fit the signature.
    """
    given = [named(text, "--arg", "n=4096 or --arg 'x=float32[n]:random'") for text in texts]
    names = [name for name, _ in given]
    null = {name for name, value in given if value in ("null", "nullptr")}
    for parameter in kernel.parameters:
        said = None if parameter.name in null else textures.out_of_reach(parameter, file, aliases)
        if said:
            raise UsageError(f"{kernel.signature} takes {said}")
    lacking = next((p for p in kernel.parameters if p.name not in names and not takes(p, file, aliases)), None)
    if lacking is not None:
        raise UsageError(_by_value(lacking, kernel))
    check_names(names, kernel, example)
    given = in_order(given, kernel)
    scalars: dict[str, Any] = {**CONSTANTS, **known}
    found: dict[str, Any] = {}
    inside: dict[str, Sequence[Pointer]] = {}  # of structs
    pairs = list(zip(given, kernel.parameters, strict=True))
    for (name, value), parameter in numbers_first(pairs):
        if parameter.pointer or is_object(value) or is_tensor_map(value):
            continue
        if parameter.type == tensor_maps.TYPE:
            raise UsageError(f"--arg {name}={value}: '{parameter}' is a tensor map: write {tensor_maps.EXAMPLE}.")
        if parameter.type in textures.OBJECTS:
            raise UsageError(f"--arg {name}={value}: '{parameter}' is {_object_like(parameter, value)}.")
        if accessor_of(parameter):
            continue
        record = _record(name, value, parameter, file, aliases, scalars)
        if record is not None:
            found[name], inside[name] = record
            scalars.update(found[name].numbers)
            continue
        scalar = _scalar(name, value, parameter, kernel, aliases, scalars)
        found[name] = scalar
        scalars[name] = scalar.value
    for (name, value), parameter in pairs:
        if is_object(value):
            if textures.array_within(value)[1] not in names:
                found[name] = _object(name, value, parameter, kernel, aliases, scalars, {}, file)
        elif is_tensor_map(value):
            continue
        elif parameter.pointer:
            found[name] = _array(name, value, parameter, kernel, aliases, scalars)
        elif accessor := accessor_of(parameter):
            array = _array(name, value, accessor.parameter(name), kernel, aliases, scalars)
            if not isinstance(array, Array):
                raise UsageError(
                    f"--arg {name}={value}: '{parameter}' takes an array: write {name}={accessor.example('float32')}."
                )
            found[name] = accessor.record(array)
    arrays = {name: one for name, one in found.items() if isinstance(one, Array)}
    for name, within in inside.items():
        if within:
            found[name] = _pointing(found[name], within, kernel, aliases, scalars, arrays)
    for (name, value), parameter in pairs:
        if is_tensor_map(value):
            found[name] = _tensor_map(name, value, parameter, kernel, aliases, scalars, arrays)
        elif is_object(value) and name not in found:
            found[name] = _object(name, value, parameter, kernel, aliases, scalars, arrays, file)
    check_memory(arrays_of(found.values()))
    return tuple(found[name] for name, _ in given)


def in_order(given: Sequence[tuple[str, str]], kernel: Kernel) -> list[tuple[str, str]]:
    """Return arguments in the order of the parameters: by their names, and as given for parameters without one."""
    names = {parameter.name for parameter in kernel.parameters if parameter.name}
    named, others = {name: (name, value) for name, value in given}, [one for one in given if one[0] not in names]
    return [named[parameter.name] if parameter.name else others.pop(0) for parameter in kernel.parameters]


def numbers_first(
    pairs: Sequence[tuple[tuple[str, str], Parameter]],
) -> list[tuple[tuple[str, str], Parameter]]:
    """Return numbers and structs, each behind those that it names, then the arrays.

    Raises UsageError for numbers that name each other.
    """
    arrays = [pair for pair in pairs if pair[1].pointer or is_object(pair[0][1]) or is_tensor_map(pair[0][1])]
    waiting = [pair for pair in pairs if pair not in arrays]
    found: list[tuple[tuple[str, str], Parameter]] = []

    def waits(pair: tuple[tuple[str, str], Parameter]) -> bool:
        (own, value), _ = pair
        words = set(re.findall(r"\w+", re.sub(r"\b\w+\s*:", "", value)))  # of a struct its members' values
        members = (
            other
            for (other, text), _ in waiting
            if text.startswith("{") and any(w.startswith(f"{other}_") for w in words)
        )
        return bool(((words & {other for (other, _), _ in waiting}) | set(members)) - {own})

    while waiting:
        free = [pair for pair in waiting if not waits(pair)]
        if not free:
            lacking = " and ".join(f"--arg {name}={value}" for (name, value), _ in waiting)
            raise UsageError(f"{lacking} need each other: give one of them as a number.")
        found += free
        waiting = [pair for pair in waiting if pair not in free]
    return found + arrays


def takes(parameter: Parameter, file: SourceFile, aliases: Mapping[str, str]) -> bool:
    """Return whether some --arg can give a parameter, as far as its type tells; `file` declares structs."""
    ctype = parameter.type
    if parameter.pointer:
        return not ctype.endswith("*") or of_pointers(parameter)
    if ctype in textures.OBJECTS:
        return True
    if "(" in ctype:
        return False
    known = numpy_type(ctype, aliases) or layout_of(ctype, file, aliases)
    return bool(known or accessor_of(parameter)) or not _looks_like_struct(ctype, aliases)


def check_names(names: Sequence[str], kernel: Kernel, example: object) -> None:
    """Raise UsageError where the names are not the kernel's parameters, in any order; it prints the signature."""
    wanted = [parameter.name for parameter in kernel.parameters]
    doubled = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if doubled:
        raise UsageError(f"--arg {doubled}=... is given twice: keep one.")
    unknown = next((name for name in names if name not in wanted), None)
    missing = [name for name in wanted if name and name not in names]
    if len(names) == len(wanted) and not missing:
        return
    what = f"has no parameter '{unknown}'.{did_you_mean(unknown, missing or wanted)} It" if unknown and missing else ""
    plural, verb = "s" * (len(wanted) != 1), "is" if len(names) == 1 else "are"
    count = f"takes {len(wanted)} argument{plural}, {len(names)} {verb} given"
    lacks = f" ({', '.join(missing)} missing)" if missing and len(names) < len(wanted) else ""
    raise UsageError(f"{kernel.signature} {what} {count}{lacks}; {offered('write', example)}".replace("  ", " "))


# Numbers -------------------------------------------------------------------------------------------------------------


def _scalar(
    name: str,
    text: str,
    parameter: Parameter,
    kernel: Kernel,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
) -> Scalar:
    where = f"--arg {name}={text}"
    wanted = numpy_type(parameter.type, aliases)
    if "(" in parameter.type:
        raise UsageError(f"{where}: {kernel.signature} takes a function, which no command line can give.")
    if text.startswith(("@", "{")) or array_parts(text):
        if wanted is None:
            raise UsageError(f"{where}: {_by_value(parameter, kernel)}")
        raise UsageError(
            f"{where} is an array; {kernel.signature} takes one number: write --arg {name}={_number_like(wanted)}."
        )
    explicit, colon, rest = text.partition(":")
    if colon:
        check_type(explicit.strip(), where)
        if wanted is not None and explicit.strip() != wanted:
            raise UsageError(
                f"{where}: {name} is {parameter.type} in {kernel.signature}: write --arg {name}={wanted}:{rest} or "
                f"{name}={rest}."
            )
        wanted = explicit.strip()
        if wanted == "bfloat16":
            raise UsageError(f"{where}: {_by_value(parameter, kernel)}")
    if wanted is None or np.dtype(wanted).kind == "c":
        if wanted or vector_type(parameter.type, aliases) or _looks_like_struct(parameter.type, aliases):
            raise UsageError(f"{where}: {_by_value(parameter, kernel)}")
        raise UsageError(
            f"{where}: the type of '{parameter}' in {kernel.signature} is not known here: write it down, as in "
            f"--arg {name}=int32:{rest or text}."
        )
    value = expressions.parse(rest if colon else text, where, scalars).evaluate(scalars)
    return Scalar(name, wanted, fitting(value, wanted, where, parameter))


def _record(
    name: str,
    value: str,
    parameter: Parameter,
    file: SourceFile,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
) -> tuple[Record, Sequence[Pointer]] | None:
    """Return a struct or vector by value and its pointers; None where the parameter is a number, or a type that is not
    known here."""
    layout = None if "(" in parameter.type else layout_of(parameter.type, file, aliases)
    if layout is None or layout.dtype:
        return None
    where = f"--arg {name}={value}"
    if value.startswith("@"):
        content = np.ascontiguousarray(load(value[1:], where)).tobytes()
        if len(content) != layout.size:
            raise UsageError(f"{where} has {len(content)} bytes, {parameter.type} has {layout.size}: save one of it.")
        return Record(name, content, layout.align), ()

    def number(inner: str, dtype: str) -> Any:
        if is_object(inner):
            raise UsageError(
                f"{where}: '{inner}' is a texture or surface object, and --arg gives those only as parameters of their "
                "own: write a __global__ function beside it that takes it so."
            )
        found = expressions.parse(inner, where, scalars, label=f"{where}: '{inner}'").evaluate(scalars)
        return fitting(found, dtype, where, parameter)

    packed = pack(value, layout, where, number)
    numbers = tuple((f"{name}_{path}", one) for path, one in packed.numbers.items())
    return Record(name, bytes(packed.content), layout.align, numbers), packed.pointers


def _pointing(
    record: Record,
    within: Sequence[Pointer],
    kernel: Kernel,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Array],
) -> Record:
    """Return a struct whose pointers point: at arrays of their own, called `p_data` for p.data, or at other arguments'.

    Raises UsageError as for an array of the kernel.
    """
    pointers, own = [], []
    for one in within:
        title = f"{record.name}_{one.path}"
        other = arrays.get(one.text)
        if other is not None:
            check_fit(other, one.pointee, kernel, aliases, f"--arg {record.name}: {one.path}: {one.text}")
            if other.const and not one.pointee.const:
                raise UsageError(
                    f"--arg {record.name}: {one.path} may be written, and {one.text} is const in {kernel.signature}: "
                    "give it an array of its own."
                )
            pointers.append((one.offset, one.text))
            continue
        try:
            array = _array(title, one.text, replace(one.pointee, name=title), kernel, aliases, scalars)
        except UsageError as error:
            said = str(error).replace(f"--arg '{title}=", f"'{one.path}: ").replace(f"--arg {title}=", f"{one.path}: ")
            raise UsageError(f"--arg {record.name}: {said}") from None
        if isinstance(array, Array):
            if title in (parameter.name for parameter in kernel.parameters):
                raise UsageError(f"--arg {record.name}: {one.path} is called {title}, as a parameter of the kernel is.")
            pointers.append((one.offset, title))
            own.append(array)
    return replace(record, pointers=tuple(pointers), arrays=tuple(own))


def check_taken(kernel: Kernel, file: SourceFile, aliases: Mapping[str, str]) -> None:
    """Raise NoLine for a kernel with a parameter that no --arg can give; `file` declares structs."""
    for parameter in kernel.parameters:
        said = textures.out_of_reach(parameter, file, aliases)
        if said:
            raise NoLine(f"{kernel.signature} takes {said}")
        if parameter.type != tensor_maps.TYPE and not takes(parameter, file, aliases):
            raise NoLine(_by_value(parameter, kernel))


def _by_value(parameter: Parameter, kernel: Kernel) -> str:
    if parameter.pointer:
        return f"{kernel.signature} takes '{parameter}', {_POINTERS}"
    if "(" in parameter.type:
        return f"{kernel.signature} takes a function, which no command line can give."
    if parameter.type in textures.OBJECTS:
        return f"'{parameter}' of {kernel.signature} is {textures.OBJECTS[parameter.type]}."
    return (
        f"{kernel.signature} takes '{parameter}' by value, a struct whose members are not known here (a union, "
        "virtual functions, pointers to pointers, or a header that is not there): write a __global__ function beside "
        "it that takes them as numbers."
    )


def _looks_like_struct(ctype: str, aliases: Mapping[str, str]) -> bool:
    meant = aliases.get(ctype, ctype)
    return ctype in ("dim3", "uint3") or meant.startswith(("struct ", "class ", "union ")) or meant.endswith(">")


def _number_like(dtype: str) -> str:
    return "2.5" if np.dtype(dtype).kind in "fc" else "4096"


def fitting(value: Any, dtype: str, where: str, parameter: Parameter) -> Any:
    """Return a number as the type holds it; refuse what it cannot hold."""
    kind = np.dtype(dtype)
    if isinstance(value, tuple) or np.ndim(value):
        raise UsageError(f"{where} is no single number: write one, as in {_number_like(dtype)}.")
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, complex) and kind.kind != "c":
        raise UsageError(f"{where} is complex; '{parameter}' takes a real number.")
    if kind.kind in "iub":
        if isinstance(value, float):
            if not value.is_integer():
                raise UsageError(
                    f"{where} is no whole number, {value:g}; '{parameter}' takes one: use //, cdiv, floor or ceil."
                )
            value = int(value)
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        if not low <= value <= high:
            raise UsageError(f"{where} is {int(value)}; '{parameter}' holds {low} to {high}.")
        return bool(value) if kind.kind == "b" else int(value)
    with np.errstate(over="ignore"):
        held = kind.type(value)
    if np.isinf(held) and np.isfinite(value):
        raise UsageError(f"{where} is over the largest number of '{parameter}', {np.finfo(kind).max:g}.")
    return held.item()


# Arrays --------------------------------------------------------------------------------------------------------------


def _array(
    name: str,
    text: str,
    parameter: Parameter,
    kernel: Kernel,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
) -> Argument:
    where = f"--arg {name}={text}"
    wanted = like(parameter, aliases)
    if of_pointers(parameter):
        # What `const` says is that the pointers stay: the rows may be written.
        rows = replace(row_of(parameter), const=False)
        found = _array(name, text, rows, kernel, aliases, scalars)
        return rows_of(found, parameter, kernel, where) if isinstance(found, Array) else found
    if parameter.type.endswith("*"):
        raise UsageError(f"{where}: {kernel.signature} takes '{parameter}', {_POINTERS}")
    if text in ("null", "nullptr"):
        return Null(name)
    if text.startswith("@"):
        rule = None
        array = numbers_of(load(text[1:], where))
        dtype, shape, init = array.dtype.newbyteorder("=").name, tuple(array.shape) or (1,), "file"
        if dtype not in TYPES:
            raise UsageError(f"{where} holds {array.dtype}, which no kernel takes: save one of {', '.join(TYPES)}.")
        if not array.size:
            raise UsageError(f"{where} is empty, {shape_text(shape)}: a kernel needs at least one element.")
    else:
        parts = array_parts(text)
        if parts is None:
            raise UsageError(
                f"{where} is no array; {kernel.signature} takes a pointer: write --arg '{name}={wanted}[n]:random' or "
                f"--arg {name}=@FILE.npy."
            )
        dtype, extents, how = parts
        check_type(dtype, where)
        shape = extents_of(extents, where, scalars)
        rule = inits.read(how, dtype, shape, where, scalars)
        init = rule.word
        if init == "empty" and parameter.const:
            raise UsageError(
                f"{where}: {name} is const in {kernel.signature}, so 'empty' would leave it poison: use random, zeros, "
                "ones or arange."
            )
    array_ = Array(name, dtype, shape, init, text[1:] if init == "file" else None, parameter.const, rule)
    check_fit(array_, parameter, kernel, aliases, where)
    return array_


def _object_like(parameter: Parameter, value: str) -> str:
    """Return what a texture or surface object is given, with the array that was given for it if there is one."""
    said = textures.OBJECTS[parameter.type]
    kind = "texture" if parameter.type == textures.TYPE else "surface"
    return f"a {kind} object: write {kind}({value})" if array_parts(value) or value.startswith("@") else said


def _object(
    name: str,
    text: str,
    parameter: Parameter,
    kernel: Kernel,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
    others: Mapping[str, Array],
    file: SourceFile,
) -> Object:
    """Return a texture or a surface, of an array of its own or of one of the others; `file`: the source."""
    kind = text[:7]
    if kernel.expression == STEPS and parameter.type == "double":  # for one that no step is passed
        parameter = replace(parameter, type=textures.KINDS[kind][0])
    wrong = textures.misfit(kind, parameter, aliases)
    if wrong:
        raise UsageError(f"--arg {name}={text}: '{parameter}' in {kernel.signature} is no {kind} object, but {wrong}.")
    needs = f"--arg {name}={text}: a {kind} needs an array: write {kind}(float32[n,n]:random)."
    inner = replace(parameter, const=kind == "texture")
    array_of = _array_inside(name, inner, kernel, aliases, scalars, needs)
    found = read_object(
        name, text, array_of, others, fetches=texture_calls.wants_linear(parameter.name, kernel.text, file.text)
    )
    check_calls(found, parameter, kernel, aliases, f"--arg {name}={text}")
    return found


def check_calls(argument: Object, parameter: Parameter, kernel: Kernel, aliases: Mapping[str, str], where: str) -> None:
    """Raise UsageError where a kernel uses a surface or texture as one of other dimensions or texels. That shows in the
    text of a kernel, not in that of several."""
    if kernel.expression == STEPS:
        return
    made, types = argument.argument, {**aliases, **template_arguments(kernel)}
    if isinstance(made, Surface):
        wrong = surface_calls.misuse(made, parameter.name, kernel.text, types)
    else:
        wrong = texture_calls.misuse(made, parameter.name, kernel.text, types)
    if wrong:
        raise UsageError(f"{where}: {wrong}.")


def _array_inside(
    name: str,
    parameter: Parameter,
    kernel: Kernel,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
    needs: str,
) -> Callable[[str], Array]:
    """Return what reads the array that a texture or a tensor map is of; `needs` is said where it is none."""
    bytes_ = replace(parameter, type="void", pointer=True)

    def array_of(array: str) -> Array:
        if not array.startswith("@") and not array_parts(array):
            raise UsageError(needs)
        found = _array(name, array, bytes_, kernel, aliases, scalars)
        if not isinstance(found, Array):
            raise UsageError(needs)
        return found

    return array_of


def _tensor_map(
    name: str,
    text: str,
    parameter: Parameter,
    kernel: Kernel,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Array],
) -> Argument:
    if parameter.type not in (tensor_maps.TYPE, "CUtensorMap_st", "void"):
        raise UsageError(f"--arg {name}={text}: '{parameter}' in {kernel.signature} is no CUtensorMap.")
    needs = f"--arg {name}={text}: a tensor map needs an array: write {tensor_maps.EXAMPLE}."
    array_of = _array_inside(name, replace(parameter, const=False), kernel, aliases, scalars, needs)
    return read_tensor_map(name, text, array_of, arrays, scalars, parameter.pointer)


def array_parts(text: str) -> tuple[str, str, str] | None:
    """Return type, shape and start of TYPE[SHAPE]:INIT as they stand there; None for a text that is none."""
    head = re.match(r"\s*(\w+)\s*\[", text)
    if not head:
        return None
    depth = 1
    for at in range(head.end(), len(text)):
        depth += (text[at] == "[") - (text[at] == "]")
        if depth == 0:
            rest = text[at + 1 :].strip()
            if rest and not rest.startswith(":"):
                return None
            return head[1], text[head.end() : at], rest[1:].strip()
    return None


def extents_of(text: str, where: str, scalars: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape that a text gives. Raises UsageError for one that is none."""
    value = expressions.parse(text or "''", where, scalars).evaluate(scalars) if text.strip() else ()
    extents = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(extents) <= 8:
        raise UsageError(
            f"{where}: the shape [{text}] has {len(extents)} numbers; it takes 1 to 8, as in [n] or [n,m]."
        )
    return tuple(whole(extent, f"{where}: the shape [{text}]") for extent in extents)


def whole(value: Any, what: str, least: int = 1) -> int:
    """Return a number as a whole one; UsageError for one that is none or too small."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise UsageError(f"{what} gives {value}, no whole number: use // or cdiv(a,b) for /.")
    if value < least:
        raise UsageError(f"{what} gives {value}; at least {least} is needed.")
    return int(value)


def check_type(dtype: str, where: str) -> None:
    """Raise UsageError for what is no type."""
    if dtype not in TYPES:
        meant = numpy_type(dtype)
        hint = f" Write {meant} for C's {dtype}." if meant else did_you_mean(dtype, TYPES)
        raise UsageError(f"{where}: '{dtype}' is no type; there are {', '.join(TYPES)}.{hint}")


# Several kernels -----------------------------------------------------------------------------------------------------


def shared(
    arguments: Sequence[Argument], first: Kernel, kernels: Sequence[Kernel], aliases: Mapping[str, str]
) -> tuple[tuple[Argument, ...], list[tuple[str, ...]]]:
    """Return the arguments for several kernels, and for each kernel the names in the order of its parameters.

    `first` is the kernel that the arguments were read for. One whose parameters have the same names takes them by name,
    any other by position. An array is const where all kernels call it so. Raises UsageError for a
    kernel that the arguments do not fit.
    """
    by_name = {argument.name: argument for argument in arguments}
    orders = []
    for kernel in kernels:
        if kernel is first:
            orders.append(tuple(by_name))
            continue
        names = [parameter.name for parameter in kernel.parameters]
        order = tuple(names) if set(names) == set(by_name) else tuple(by_name)
        if len(names) != len(order):
            raise UsageError(
                f"{kernel.signature} takes {len(names)} arguments and {first.signature} {len(order)}: kernels that are "
                "compared share one set of arguments; run it by itself."
            )
        for name, parameter in zip(order, kernel.parameters, strict=True):
            argument = by_name[name]
            where = f"{kernel.signature} cannot take {name} of {first.signature}"
            if isinstance(argument, (MappedArray, MapOf)):
                if parameter.pointer != argument.argument.pointer or parameter.type != tensor_maps.TYPE:
                    raise UsageError(f"{where}: it wants no tensor map; run it by itself.")
                continue
            if isinstance(argument, (TextureArray, SurfaceArray, ObjectOf)):
                wrong = textures.misfit(textures.kind_of(argument), parameter, aliases)
                if wrong:
                    raise UsageError(f"{where}: '{parameter}' is {wrong.partition(':')[0]}; run it by itself.")
                check_calls(argument, parameter, kernel, aliases, where)
                continue
            if parameter.type in textures.OBJECTS:
                object_ = textures.OBJECTS[parameter.type].partition(":")[0]
                raise UsageError(f"{where}: '{parameter}' is {object_}; run it by itself.")
            if parameter.pointer == isinstance(argument, (Scalar, Record)):
                raise UsageError(
                    f"{where}: it wants {'an array' if parameter.pointer else 'a number'}; run it by itself."
                )
            if isinstance(argument, RowsArray) != of_pointers(parameter):
                raise UsageError(f"{where}: one takes an array, the other pointers to its rows; run it by itself.")
            if isinstance(argument, RowsArray):
                parameter = replace(row_of(parameter), const=False)
            if isinstance(argument, Array):
                check_fit(argument, parameter, kernel, aliases, where)
                if argument.const and not parameter.const:
                    by_name[name] = replace(argument, const=False)
            elif isinstance(argument, Scalar):
                wanted = numpy_type(parameter.type, aliases)
                if wanted not in (None, argument.dtype):
                    raise UsageError(f"{where}: it wants {wanted}, not {argument.dtype}; run it by itself.")
        orders.append(order)
    return tuple(by_name.values()), orders
