"""Reads the `--arg NAME=VALUE` options, and checks their names, types and shapes against the kernel's signature."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.source.brackets import closing, listed
from cudabench.source.named_types import layout_of
from cudabench.source.records import Kernel, Layout, Parameter, SourceFile
from cudabench.source.types import numpy_type
from cudabench.userkernel import expressions, object_uses, textures
from cudabench.userkernel.by_value import Leaf, accessor_of, leaves
from cudabench.userkernel.pointers import check_fit, element_type, of_pointers, row_of, rows_of
from cudabench.userkernel.textures import read_object, read_tensor_map
from cudabench.userkernel.values import (
    CONSTANTS,
    TYPES,
    Argument,
    Array,
    BufferView,
    Null,
    Record,
    Scalar,
    arrays_of,
    check_memory,
    load,
    numbers_of,
    read_start,
    shape_text,
)

NULL = ("null", "nullptr")
GAP = "..."  # stands, in a suggested command line, for a value that only the user knows


class NoSuggestion(UsageError):
    """Raised if no command line can be suggested for a kernel; the message says what the user must write."""


def suggestion_or_reason(lead: str, example: object) -> str:
    """Return the end of a message: `lead` and the suggested command line, or the reason why there is none.

    `example`: an object whose str() is the command line, or raises NoSuggestion.
    """
    try:
        return with_gap_note(lead, str(example))
    except NoSuggestion as error:
        return str(error).rstrip(".")


def with_gap_note(lead: str, line: str) -> str:
    """Return 'lead: line'; if the command line has gaps (...), also tell the user to fill them."""
    return f"{lead}{f', with your own value for each {GAP}' if GAP in line else ''}: {line}"


def split_name_value(text: str, option: str, example: str) -> tuple[str, str]:
    """Return (NAME, VALUE) of the text NAME=VALUE; for --const, NAME may be qualified. Raises UsageError otherwise."""
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    bare = name.replace("::", "_") if option == "--const" else name
    if not equals or not re.fullmatch(r"[^\W\d]\w*", bare) or not value:
        raise UsageError(f"{option} '{text}' is not NAME=VALUE: write {option} {example}.")
    return name, value


def parse_arguments(
    texts: Sequence[str], kernel: Kernel, known: Mapping[str, Any], example: object, file: SourceFile
) -> tuple[Argument, ...]:
    """Read the values of --arg (`texts`, in any order); return them in the order of the kernel's parameters.

    `known`: numbers, by name, that values may use too. `example`: an object whose str() is a valid command line, for
    messages.
    `file`: the source, which declares structs. Scalars are read before arrays, and each scalar after the scalars that
    its value names; so an --arg can refer to a later --arg. Raises UsageError for arguments that do not fit the
    signature.
    """
    given = [split_name_value(text, "--arg", "n=4096 or --arg 'x=float32[n]:random'") for text in texts]
    names = [name for name, _ in given]
    null = {name for name, value in given if value in NULL}
    for parameter in kernel.parameters:
        why = None if parameter.name in null else why_not_given(parameter, kernel, file)
        if why and (parameter.name not in names or textures.why_not_passable(parameter, file)):
            raise UsageError(why)
    check_names(names, kernel, example)
    reader = _Reader(kernel, file, {**CONSTANTS, **known})
    by_name, unnamed = (
        dict(given),
        iter([argument for argument in given if argument[0] not in {p.name for p in kernel.parameters}]),
    )
    ordered = [
        ArgumentOption(p.name, by_name[p.name], p) if p.name else ArgumentOption(*next(unnamed), p)
        for p in kernel.parameters
    ]
    for argument in numbers_first(ordered):
        reader.number(argument)
    arrays = [argument for argument in ordered if argument.name not in reader.arguments_read]
    arrays.sort(
        key=lambda argument: bool(argument.kind) and argument.inner_text in names
    )  # textures and similar objects are read last, because they refer to arrays of other arguments
    for argument in arrays:
        reader.array(argument)
    for name in reader.struct_pointers:
        reader.set_pointers(name)
    check_memory(arrays_of(reader.arguments_read.values()))
    return tuple(reader.arguments_read[argument.name] for argument in ordered)


@dataclass(frozen=True)
class ArgumentOption:
    """One --arg option; `text`: the value of the option; `parameter`: the parameter that gets the value."""

    name: str
    text: str
    parameter: Parameter

    @property
    def where(self) -> str:
        """The option as error messages show it."""
        return f"--arg {self.name}={self.text}"

    @property
    def kind(self) -> str:
        """Return "texture", "surface" or "tensormap" if the value is one of these objects, else ""."""
        return textures.view_kind(self.text)

    @property
    def inner_text(self) -> str:
        """The text of ARRAY in `texture(ARRAY, ...)` and the like: an array, or the name of another argument."""
        return next(iter(listed(self.text.partition("(")[2].removesuffix(")"))), "")


def numbers_first(given: Sequence[ArgumentOption]) -> list[ArgumentOption]:
    """Return the number and struct arguments in dependency order: each after the arguments that its value names.

    Raises UsageError for a cycle.
    """
    waiting = [argument for argument in given if not (argument.parameter.pointer or argument.kind)]
    ordered: list[ArgumentOption] = []

    def needs_another(argument: ArgumentOption) -> bool:
        # the names of struct members (before ':') are removed, because they are not references to other arguments
        words = set(re.findall(r"\w+", re.sub(r"\b\w+\s*:", "", argument.text)))
        names = {other.name for other in waiting} - {argument.name}
        structs = [other.name for other in waiting if other.text.startswith("{") and other is not argument]
        return bool(words & names) or any(word.startswith(f"{name}_") for word in words for name in structs)

    while waiting:
        free = [argument for argument in waiting if not needs_another(argument)]
        if not free:
            lacking = " and ".join(argument.where for argument in waiting)
            raise UsageError(f"{lacking} need each other: give one of them as a number.")
        ordered += free
        waiting = [argument for argument in waiting if argument not in free]
    return ordered


def check_names(names: Sequence[str], kernel: Kernel, example: object) -> None:
    """Raise UsageError, with the signature, unless each of the kernel's parameters is named once."""
    wanted = [parameter.name for parameter in kernel.parameters]
    if doubled := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise UsageError(f"--arg {doubled}=... is given twice: keep one.")
    unknown = next((name for name in names if name not in wanted), None)
    missing = [name for name in wanted if name and name not in names]
    if len(names) == len(wanted) and not missing:
        return
    what = f"lacks a parameter '{unknown}'.{did_you_mean(unknown, missing or wanted)} It" if unknown and missing else ""
    plural, verb = "s" * (len(wanted) != 1), "is" if len(names) == 1 else "are"
    count = f"takes {len(wanted)} argument{plural}, {len(names)} {verb} given"
    lacks = f" ({', '.join(missing)} missing)" if missing and len(names) < len(wanted) else ""
    raise UsageError(
        f"{kernel.signature} {what} {count}{lacks}; {suggestion_or_reason('write', example)}".replace("  ", " ")
    )


class _Reader:
    """Reads the arguments of a kernel; `arguments_read`: the arguments read so far; `scalars`: the numbers that values
    may name."""

    def __init__(self, kernel: Kernel, file: SourceFile, scalars: dict[str, Any]) -> None:
        self.kernel, self.file, self.scalars = kernel, file, scalars
        self.arguments_read: dict[str, Argument] = {}
        self.struct_pointers: dict[
            str, list[Leaf]
        ] = {}  # maps a struct's name to its pointers, which are read after the arrays

    # Numbers ----------------------------------------------------------------------------------------------------------

    def number(self, argument: ArgumentOption) -> None:
        """Read a number or a struct argument. Packed accessors are skipped; the method `array` reads them."""
        parameter = argument.parameter
        if needed := {**textures.OBJECTS, textures.MAP_TYPE: f"a tensor map: write {textures.MAP_EXAMPLE}"}.get(
            parameter.type
        ):
            if parameter.type in textures.OBJECTS and (array_parts(argument.text) or argument.text.startswith("@")):
                kind = "texture" if parameter.type == textures.TYPE else "surface"
                needed = f"a {kind} object: write {kind}({argument.text})"
            raise UsageError(f"{argument.where}: '{parameter}' is {needed}.")
        if accessor_of(parameter):
            return
        layout = layout_of(parameter.type, self.file)
        if layout is not None and not layout.dtype:
            self.arguments_read[argument.name] = record = self.record(argument, layout)
            self.scalars.update(record.numbers)
        else:
            self.arguments_read[argument.name] = scalar = self.scalar(argument)
            self.scalars[argument.name] = scalar.value

    def scalar(self, argument: ArgumentOption) -> Scalar:
        """Return a number argument, converted to the parameter's type."""
        where, text, parameter, kernel = argument.where, argument.text, argument.parameter, self.kernel
        wanted, by_value = parameter.number, f"{where}: {_by_value_message(parameter, kernel)}"
        array = text.startswith(("@", "{")) or array_parts(text)
        refuse(
            ("(" in parameter.type or (array and wanted is None), by_value),
            (
                array,
                f"{where} is an array; {kernel.signature} takes one number: write --arg "
                f"{argument.name}={_number_like(wanted)}.",
            ),
        )
        explicit, colon, rest = text.partition(":")
        dtype = explicit.strip() if colon else wanted or ""
        if colon:
            check_type(dtype, where)
        plain = dtype and not dtype.startswith(("bfloat", "complex"))
        refuse(
            (
                wanted not in (None, dtype),
                f"{where}: {argument.name} is {parameter.type} in {kernel.signature}: write --arg "
                f"{argument.name}={wanted}:{rest} or {argument.name}={rest}.",
            ),
            (not plain and (dtype or parameter.vector or _is_struct(parameter.type, self.file)), by_value),
            (
                not plain,
                f"{where}: the type of '{parameter}' in {kernel.signature} is not known here: write it down, as in "
                f"--arg {argument.name}=int32:{rest or text}.",
            ),
        )
        value = expressions.parse(rest if colon else text, where, self.scalars).evaluate(self.scalars)
        return Scalar(argument.name, dtype, convert_number(value, dtype, where, parameter))

    def record(self, argument: ArgumentOption, layout: Layout) -> Record:
        """Return a struct or vector argument; its pointers are set later, by `set_pointers`."""
        where = argument.where
        if argument.text.startswith("@"):
            content = np.ascontiguousarray(load(argument.text[1:], where)).tobytes()
            if len(content) != layout.size:
                size = f"{argument.parameter.type} has {layout.size}"
                raise UsageError(f"{where} has {len(content)} bytes, {size}: save a single value.")
            return Record(argument.name, content, layout.align)

        packed, numbers = bytearray(layout.size), []
        self.struct_pointers[argument.name] = pointers = []
        for leaf in leaves(argument.text, layout, where):
            at, text, kind, path = leaf
            if not kind.dtype:
                pointers.append(leaf)
                continue
            if textures.view_kind(text) in textures.KINDS:
                raise UsageError(
                    f"{where}: '{text}' is a texture or surface object, but --arg gives objects only to whole "
                    "parameters: write a __global__ function that takes the object as a parameter."
                )
            number = expressions.parse(text, where, self.scalars, label=f"{where}: '{text}'").evaluate(self.scalars)
            value = convert_number(number, kind.dtype, where, argument.parameter)
            numbers.append((f"{argument.name}_{path}", value))
            packed[at : at + kind.size] = np.dtype(kind.dtype).type(value).tobytes()
        return Record(argument.name, bytes(packed), layout.align, tuple(numbers))

    def set_pointers(self, name: str) -> None:
        """Set the pointers in the struct argument `name`.

        A pointer gets an array of another argument, or an array of its own, which is called `p_data` for p.data.
        """
        record, kernel = self.arguments_read[name], self.kernel
        assert isinstance(record, Record)
        pointers, own = [], []
        for at, text, layout, path in self.struct_pointers[name]:
            pointee, other = cast(Parameter, layout.pointee), self.arguments_read.get(text)
            title, where = f"{name}_{path}", f"--arg {name}: {path}"
            if isinstance(other, Array):
                check_fit(other, pointee, kernel, f"{where}: {text}")
                if other.const and not pointee.const:
                    raise UsageError(
                        f"{where} may be written, but {text} is const in {kernel.signature}: give it its own array."
                    )
                pointers.append((at, text))
                continue
            try:
                array = self.pointer_argument(ArgumentOption(title, text, replace(pointee, name=title)))
            except UsageError as error:
                message = re.sub(rf"--arg ('?){title}=", rf"\1{path}: ", str(error))
                raise UsageError(f"--arg {name}: {message}") from None
            if isinstance(array, Array):
                if title in (parameter.name for parameter in kernel.parameters):
                    raise UsageError(f"{where} is called {title}, the name of a parameter: rename it.")
                pointers.append((at, title))
                own.append(array)
        self.arguments_read[name] = replace(record, pointers=tuple(pointers), arrays=tuple(own))

    # Arrays -----------------------------------------------------------------------------------------------------------

    def array(self, argument: ArgumentOption) -> None:
        """Read an array, an object (texture, surface, tensor map, accessor) over an array, or a null pointer."""
        accessor = None if argument.parameter.pointer else accessor_of(argument.parameter)
        if argument.kind:
            self.arguments_read[argument.name] = (
                self.tensor_map(argument) if argument.kind == "tensormap" else self.view(argument)
            )
        elif accessor:
            array = self.pointer_argument(replace(argument, parameter=accessor.parameter(argument.name)))
            if not isinstance(array, Array):
                like_ = accessor.example("float32")
                raise UsageError(
                    f"{argument.where}: '{argument.parameter}' takes an array: write {argument.name}={like_}."
                )
            self.arguments_read[argument.name] = accessor.record(array)
        else:
            self.arguments_read[argument.name] = self.pointer_argument(argument)

    def pointer_argument(self, argument: ArgumentOption) -> Array | Null:
        """Return the array or the null pointer for a pointer parameter."""
        where, parameter, kernel = argument.where, argument.parameter, self.kernel
        if of_pointers(parameter):
            # In `float *const *a`, the const applies to the pointers, so the kernel may still write to the rows.
            array = self.pointer_argument(replace(argument, parameter=replace(row_of(parameter), const=False)))
            return rows_of(array, parameter, kernel, where) if isinstance(array, Array) else array
        if parameter.type.endswith("*"):
            raise UsageError(f"{where}: {_by_value_message(parameter, kernel)}")
        if argument.text in NULL:
            return Null(argument.name)
        parsed = read_array(argument.name, argument.text, where, self.scalars, parameter.const)
        if parsed is None:
            raise UsageError(
                f"{where} is not an array; {kernel.signature} takes a pointer: write --arg "
                f"'{argument.name}={element_type(parameter)}[n]:random' or --arg {argument.name}=@FILE.npy."
            )
        if parsed.init == "empty" and parameter.const:
            raise UsageError(
                f"{where}: {argument.name} is const in {kernel.signature}, so 'empty' would leave it without "
                "values: use random, zeros, ones or arange."
            )
        check_fit(parsed, parameter, kernel, where)
        return parsed

    def view(self, argument: ArgumentOption) -> Array | BufferView:
        """Return a texture or surface argument, which has an array of its own or uses the array of another argument."""
        kind, parameter, kernel = argument.kind, argument.parameter, self.kernel
        # in the combined signature, an argument has the type double if no step passes it to a kernel
        if kernel.expression == object_uses.STEPS and parameter.type == "double":
            parameter = Parameter(parameter.name, textures.KINDS[kind][0])
        if wrong := textures.misfit(kind, parameter):
            raise UsageError(
                f"{argument.where}: '{parameter}' in {kernel.signature} is not a {kind} object, but {wrong}."
            )
        needs = f"{argument.where}: a {kind} needs an array: write {kind}(float32[n,n]:random)."
        fetches = object_uses.reads_linear_memory(parameter.name, kernel.text, self.file.text)
        object_ = read_object(
            argument.name, argument.text, *self.read_inner_array(argument, kind == "texture", needs), fetches=fetches
        )
        object_uses.check_uses(object_.argument, parameter, kernel, self.file, argument.where)
        return object_

    def tensor_map(self, argument: ArgumentOption) -> Array | BufferView:
        """Return a tensor map argument, which has an array of its own or uses the array of another argument."""
        if argument.parameter.element not in (textures.MAP_TYPE, "CUtensorMap_st", "void"):
            raise UsageError(
                f"{argument.where}: '{argument.parameter}' in {self.kernel.signature} is not a CUtensorMap."
            )
        needs = f"{argument.where}: a tensor map needs an array: write {textures.MAP_EXAMPLE}."
        return read_tensor_map(
            argument.name,
            argument.text,
            *self.read_inner_array(argument, False, needs),
            self.scalars,
            argument.parameter.pointer,
        )

    def read_inner_array(self, argument: ArgumentOption, const: bool, needs: str) -> tuple[Array, bool]:
        """Return (the array of a texture, surface or tensor map, whether this array belongs to another argument).

        `const`: whether the kernel only reads the array; `needs`: the error message if there is no array.
        """
        if not argument.text.endswith(")"):
            raise UsageError(f"{argument.where} does not end with ')': add it, after the array and the options.")
        other, text = self.arguments_read.get(argument.inner_text), argument.inner_text
        if isinstance(other, Array):
            return other, True
        if argument.kind in textures.KINDS and re.fullmatch(r"[^\W\d]\w*", text) and text not in NULL:
            raise UsageError(
                f"{argument.where}: '{text}' is not an array of another argument: name one, or write "
                f"{argument.kind}(float32[n,n]:random)."
            )
        own = ArgumentOption(argument.name, text, Parameter(argument.parameter.name, "void", True, const))
        array = self.pointer_argument(own) if text.startswith("@") or array_parts(text) else None
        if not isinstance(array, Array):
            raise UsageError(needs)
        return array, False


def check_taken(kernel: Kernel, file: SourceFile) -> None:
    """Raise NoSuggestion if the kernel has a parameter that no --arg can give; `file`: the source, which declares
    structs."""
    for parameter in kernel.parameters:
        if parameter.type != textures.MAP_TYPE and (why := why_not_given(parameter, kernel, file)):
            raise NoSuggestion(why)


def why_not_given(parameter: Parameter, kernel: Kernel, file: SourceFile) -> str | None:
    """Return the reason why --arg cannot give this parameter, or None if it can."""
    if reason := textures.why_not_passable(parameter, file):
        return f"{kernel.signature} takes {reason}"
    ctype = parameter.type
    if parameter.pointer:
        able = not ctype.endswith("*") or of_pointers(parameter)
    else:
        plain = ctype in textures.OBJECTS or parameter.number or accessor_of(parameter) or not _is_struct(ctype, file)
        able = "(" not in ctype and bool(plain or layout_of(ctype, file))
    return None if able else _by_value_message(parameter, kernel)


def _by_value_message(parameter: Parameter, kernel: Kernel) -> str:
    """Return a message that says that --arg cannot give this parameter, and how the user can change the kernel."""
    if parameter.pointer:
        return (
            f"{kernel.signature} takes '{parameter}', pointers to pointers to pointers, which --arg cannot give: let "
            "it take one array, and compute the place of an element from its indices."
        )
    if "(" in parameter.type:
        return f"{kernel.signature} takes a function, which a command line cannot give."
    if parameter.type in textures.OBJECTS:
        return f"'{parameter}' of {kernel.signature} is {textures.OBJECTS[parameter.type]}."
    return (
        f"{kernel.signature} takes '{parameter}' by value, a struct whose members are not known here (a union, "
        "virtual functions, pointers to pointers, or a missing header): write a __global__ function beside "
        "it that takes them as numbers."
    )


def _is_struct(ctype: str, file: SourceFile) -> bool:
    alias = file.types.get(ctype, ctype)
    return ctype in ("dim3", "uint3") or alias.startswith(("struct ", "class ", "union ")) or alias.endswith(">")


def _number_like(dtype: str | None) -> str:
    return "2.5" if np.dtype(dtype).kind in "fc" else "4096"


def convert_number(value: Any, dtype: str, where: str, parameter: Parameter) -> Any:
    """Convert a number to the NumPy type `dtype`; return a Python number. Raises UsageError if it does not fit."""
    if np.ndim(value):
        raise UsageError(f"{where} is not a single number: write one, as in {_number_like(dtype)}.")
    kind, value = np.dtype(dtype), value.item() if isinstance(value, np.generic) else value
    whole = kind.kind in "iub"
    refuse(
        (isinstance(value, complex) and kind.kind != "c", f"{where} is complex; '{parameter}' takes a real number."),
        (
            whole and isinstance(value, float) and not value.is_integer(),
            f"{where} is {value:g}; '{parameter}' takes a whole number: use //, cdiv, floor or ceil.",
        ),
    )
    if whole:
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        if not low <= value <= high:
            raise UsageError(f"{where} is {int(value)}; '{parameter}' holds {low} to {high}.")
        return bool(value) if kind.kind == "b" else int(value)
    with np.errstate(over="ignore"):
        held = kind.type(value)
    if np.isinf(held) and np.isfinite(value):
        raise UsageError(f"{where} is over the largest number of '{parameter}', {np.finfo(kind).max:g}.")
    return held.item()


def array_parts(text: str) -> tuple[str, str, str] | None:
    """Return (TYPE, SHAPE, INIT) of the text TYPE[SHAPE]:INIT; INIT is '' if it is missing. None for other texts."""
    head = re.match(r"\s*(\w+)\s*\[", text)
    if not head:
        return None
    end = closing(text, head.end() - 1)
    start = None if end is None else re.fullmatch(r"\s*(?::(.*))?", text[end + 1 :], re.S)
    return (head[1], text[head.end() : end], (start[1] or "").strip()) if start else None


def read_array(name: str, text: str, where: str, scalars: Mapping[str, Any], const: bool) -> Array | None:
    """Return the array that the text TYPE[SHAPE]:INIT or @FILE.npy describes; None for other texts.

    `where`: the option as error messages show it; `const`: whether the kernel only reads the array.
    """
    if text.startswith("@"):
        held = numbers_of(load(text[1:], where))
        dtype, shape = held.dtype.newbyteorder("=").name, tuple(held.shape) or (1,)
        refuse(
            (
                dtype not in TYPES,
                f"{where} holds {held.dtype}, which kernels cannot take: save one of {', '.join(TYPES)}.",
            ),
            (not held.size, f"{where} is empty, {shape_text(shape)}: a kernel needs at least one element."),
        )
        return Array(name, dtype, shape, "file", text[1:], const)
    if not (parts := array_parts(text)):
        return None
    dtype, extents, how = parts
    check_type(dtype, where)
    shape = extents_of(extents, where, scalars)
    rule = read_start(how, dtype, shape, where, scalars)
    return Array(name, dtype, shape, rule.word, None, const, rule)


def extents_of(text: str, where: str, scalars: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape that a text such as 'n,2*m' gives. Raises UsageError for an invalid shape."""
    value = expressions.parse(text or "''", where, scalars).evaluate(scalars) if text.strip() else ()
    extents = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(extents) <= 8:
        raise UsageError(
            f"{where}: the shape [{text}] has {len(extents)} numbers; it takes 1 to 8, as in [n] or [n,m]."
        )
    return tuple(as_whole_number(extent, f"{where}: the shape [{text}]") for extent in extents)


def as_whole_number(value: Any, what: str, least: int = 1) -> int:
    """Return a number as an int. Raises UsageError if it is not whole or is less than `least`; `what`: the name of the
    number in the error message."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise UsageError(f"{what} is {value}; a whole number is needed: use // or cdiv(a,b) for /.")
    if value < least:
        raise UsageError(f"{what} is {value}; at least {least} is needed.")
    return int(value)


def check_type(dtype: str, where: str) -> None:
    """Raise UsageError if arrays and numbers cannot have this type."""
    if dtype not in TYPES:
        equivalent = numpy_type(dtype)
        hint = f" Write {equivalent} for C's {dtype}." if equivalent else did_you_mean(dtype, TYPES)
        raise UsageError(f"{where}: unknown type '{dtype}'; use one of {', '.join(TYPES)}.{hint}")
