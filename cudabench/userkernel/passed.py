"""An argument that was made for one parameter, given to another: of a kernel that is compared, or of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudabench.errors import UsageError
from cudabench.records.launch import Rows, Surface, TensorMap, Texture
from cudabench.source.records import Kernel, Parameter, SourceFile
from cudabench.userkernel import tensor_maps, textures
from cudabench.userkernel.object_uses import check_uses
from cudabench.userkernel.pointers import check_fit, of_pointers, row_of
from cudabench.userkernel.values import Argument, Array, Null, Scalar


def check_takes(argument: Argument, parameter: Parameter, kernel: Kernel, file: SourceFile, where: str) -> None:
    """Raise UsageError where a kernel's parameter cannot take an argument, but for the type of a number."""
    made, kind = argument.argument, type(argument.argument).__name__.lower()
    wrong = ""
    if isinstance(made, TensorMap):
        wrong = "not a tensor map" if parameter.pointer != made.pointer or parameter.type != tensor_maps.TYPE else ""
    elif isinstance(made, (Texture, Surface)):
        misfit = textures.misfit(kind, parameter)
        wrong = f"not a {kind}, but {misfit}" if misfit else ""
    elif parameter.type in textures.OBJECTS and not parameter.pointer:
        wrong = textures.OBJECTS[parameter.type]
    elif parameter.pointer != isinstance(argument, (Array, Null)):
        wrong = "a pointer: give it an array" if parameter.pointer else "not a pointer"
    if wrong:
        raise UsageError(f"{where}: '{parameter}' is {wrong}.")
    if isinstance(made, (Texture, Surface)):
        check_uses(made, parameter, kernel, file, where)
    elif isinstance(argument, Array) and not isinstance(made, TensorMap):
        if isinstance(made, Rows) != of_pointers(parameter):
            raise UsageError(f"{where}: one takes an array, the other pointers to its rows.")
        own = replace(row_of(parameter), const=False) if isinstance(made, Rows) else parameter
        check_fit(argument, own, kernel, where)


def for_each_kernel(
    arguments: Sequence[Argument], first: Kernel, kernels: Sequence[Kernel], file: SourceFile
) -> tuple[tuple[Argument, ...], list[tuple[str, ...]]]:
    """Return the arguments for several kernels, and for each kernel the names in the order of its parameters.

    `first` is the kernel that the arguments were read for. One whose parameters have the same names takes them by name,
    any other by position. An array is const where all kernels call it so. Raises UsageError for a
    kernel that the arguments do not fit.
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
