"""Checks which arrays a pointer parameter can take, and whether another kernel can take the same arguments.

A parameter that is a pointer to pointers (`float **a`) takes an array too: the kernel gets pointers to its rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cudabench.errors import UsageError, refuse
from cudabench.records.launch import Rows, Surface, TensorMap, Texture
from cudabench.source.records import Kernel, Parameter, SourceFile
from cudabench.userkernel import textures
from cudabench.userkernel.object_uses import check_uses
from cudabench.userkernel.values import Argument, Array, Null, Scalar, shape_text

# For each C type that NumPy lacks: (element type of the array that stores its values, array elements in one value).
_BITS = {
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16"), ("bfloat16", 1)),
    **dict.fromkeys(("c10::BFloat16", "at::BFloat16", "torch::BFloat16"), ("bfloat16", 1)),
    **dict.fromkeys(("__nv_bfloat162", "nv_bfloat162"), ("bfloat16", 2)),
    **dict.fromkeys(("__nv_fp8_e4m3", "__nv_fp8_e5m2"), ("uint8", 1)),
}
_SAME_BITS = {"bfloat16": ("uint16",), "int8": ("uint8",), "uint8": ("bool", "int8"), "bool": ("uint8",)}


def element_type(parameter: Parameter) -> str:
    """Return the element type of arrays that a pointer parameter can take; uint8 if NumPy lacks the pointee's type."""
    pointee = _pointee(parameter)
    return pointee[0] if pointee else "float32" if parameter.type == "void" else "uint8"


def elements(parameter: Parameter) -> int | None:
    """Return how many elements of `element_type` make one pointee: 4 for float4; None for a struct or unknown type."""
    pointee = _pointee(parameter)
    return pointee[1] if pointee else 1 if parameter.type == "void" else None


def check_fit(array: Array, parameter: Parameter, kernel: Kernel, where: str) -> None:
    """Raise UsageError if a pointer parameter cannot take an array.

    Reasons: the array has a wrong element type, or its number of elements is not a multiple of the elements in a
    pointee. `where`: the option as error messages show it.
    """
    if parameter.type == "void":
        return
    pointee = _pointee(parameter)
    if pointee is None or (array.dtype == "uint8" and pointee is parameter.parts):
        if array.dtype != "uint8":
            raise UsageError(
                f"{where}: {kernel.signature} takes a pointer to {parameter.type}, which NumPy does not have: give its "
                f"bytes, as in --arg '{array.name}=uint8[n*BYTES]:zeros' or --arg {array.name}=@FILE.npy of uint8 or "
                f"of records; if it is another name of a number, define it, as in -D {parameter.type}=float."
            )
        return
    dtype, count = pointee
    fits = {dtype, *_SAME_BITS.get(dtype, ())}
    pairs = {("float32", 2): "complex64", ("float64", 2): "complex128"}
    if array.dtype == pairs.get(pointee):
        return
    refuse(
        (
            array.dtype not in fits,
            f"{where}: {array.name} is '{parameter}' in {kernel.signature}: give {dtype}[...], not {array.dtype}.",
        ),
        (
            math.prod(array.shape) % count,
            f"{where}: {math.prod(array.shape)} elements of {array.dtype} are not a multiple of the {count} in "
            f"{parameter.type}: use a multiple of {count}.",
        ),
    )


def _pointee(parameter: Parameter) -> tuple[str, int] | None:
    """Return (NumPy type, count) of the numbers in a pointee; None if its type is unknown or mixes several types."""
    if parameter.number:
        return parameter.number, 1
    return parameter.vector or _BITS.get(parameter.element or parameter.type) or parameter.parts


# Rows -----------------------------------------------------------------------------------------------------------------


def of_pointers(parameter: Parameter) -> bool:
    """Return whether a parameter is a pointer to pointers to numbers or structs, such as `float **a`."""
    return parameter.pointer and parameter.type.endswith("*") and not parameter.type.endswith("**")


def row_of(parameter: Parameter) -> Parameter:
    """Return the parameter for one row of a pointer to pointers: `float *a` for `float **a`."""
    return replace(parameter, type=parameter.type[:-1].rstrip(), element=parameter.element[:-1])


def rows_of(array: Array, parameter: Parameter, kernel: Kernel, where: str) -> Array:
    """Return a copy of an array that is passed as pointers to its rows. Raises UsageError if it has one dimension."""
    if len(array.shape) < 2:
        raise UsageError(
            f"{where}: '{parameter}' in {kernel.signature} is an array of pointers, one to each row, and "
            f"{array.dtype}{shape_text(array.shape)} lacks rows: give rows and columns, as in "
            f"--arg '{array.name}={array.dtype}[16,{array.shape[0]}]:random'."
        )
    pitch = math.prod(array.shape[1:]) * np.dtype(array.storage).itemsize
    return replace(array, view=Rows(array.name, array.shape[0], pitch))


# Arguments that were read for one kernel and are passed to another ---------------------------------------------------


def check_takes(argument: Argument, parameter: Parameter, kernel: Kernel, file: SourceFile, where: str) -> None:
    """Raise UsageError if a kernel's parameter cannot take an argument; the types of scalars are not checked."""
    view, kind = argument.argument, type(argument.argument).__name__.lower()
    wrong = ""
    if isinstance(view, TensorMap):
        wrong = "not a tensor map" if parameter.pointer != view.pointer or parameter.type != textures.MAP_TYPE else ""
    elif isinstance(view, (Texture, Surface)):
        misfit = textures.misfit(kind, parameter)
        wrong = f"not a {kind}, but {misfit}" if misfit else ""
    elif parameter.type in textures.OBJECTS and not parameter.pointer:
        wrong = textures.OBJECTS[parameter.type]
    elif parameter.pointer != isinstance(argument, (Array, Null)):
        wrong = "a pointer: give it an array" if parameter.pointer else "not a pointer"
    if wrong:
        raise UsageError(f"{where}: '{parameter}' is {wrong}.")
    if isinstance(view, (Texture, Surface)):
        check_uses(view, parameter, kernel, file, where)
    elif isinstance(argument, Array) and not isinstance(view, TensorMap):
        if isinstance(view, Rows) != of_pointers(parameter):
            raise UsageError(f"{where}: one kernel takes an array, the other kernel takes pointers to its rows.")
        own = replace(row_of(parameter), const=False) if isinstance(view, Rows) else parameter
        check_fit(argument, own, kernel, where)


def for_each_kernel(
    arguments: Sequence[Argument], first: Kernel, kernels: Sequence[Kernel], file: SourceFile
) -> tuple[tuple[Argument, ...], list[tuple[str, ...]]]:
    """Return (the arguments, for each kernel the names of the arguments in the order of its parameters).

    `first`: the kernel for which the arguments were read. Another kernel gets the arguments by name if its parameters
    have the same names, else by position. An array is const only if all kernels declare its parameter const. Raises
    UsageError for a kernel that cannot take the arguments.
    """
    by_name = {argument.name: argument for argument in arguments}
    orders = []
    for kernel in kernels:
        names = [parameter.name for parameter in kernel.parameters]
        order = tuple(names) if set(names) == set(by_name) and kernel is not first else tuple(by_name)
        orders.append(order)
        if kernel is first:
            continue
        if len(names) != len(order):
            raise UsageError(
                f"{kernel.signature} takes {len(names)} arguments and {first.signature} {len(order)}: kernels that are "
                "compared share one set of arguments; run it by itself."
            )
        for name, parameter in zip(order, kernel.parameters, strict=True):
            argument = by_name[name]
            where = f"{kernel.signature} cannot take {name} of {first.signature}; run it by itself"
            check_takes(argument, parameter, kernel, file, where)
            if isinstance(argument, Scalar):
                if parameter.number not in (None, argument.dtype):
                    raise UsageError(f"{where}: it takes {parameter.number}, not {argument.dtype}.")
            elif isinstance(argument, Array) and argument.view is None and argument.const and not parameter.const:
                by_name[name] = replace(argument, const=False)
    return tuple(by_name.values()), orders
