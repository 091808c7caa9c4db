"""A right command line for a kernel, for messages: from its signature, its text and what was given already."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from cudabench.toolchain import source
from cudabench.toolchain.source import KernelSource, Parameter, SourceFile
from cudabench.userkernel import pointers, tensor_maps, textures
from cudabench.userkernel.accessors import accessor_of
from cudabench.userkernel.by_value import layout_of
from cudabench.userkernel.request import UserRequest

ELEMENTS = "1048576"
CHECKED = "10007"  # of `check`: arrays end within a block, where faults are
SIDES = {2: "256", 3: "64"}  # of a problem with so many dimensions, or more
UNKNOWN_BYTES = 64  # of an element that is declared nowhere
SHARED_BYTES = "16384"  # where the kernel declares dynamic shared memory
_FLAGS = re.compile(r"(?:which|mode|flags?|kind|type|op|seed|offset|shift|iters?|iterations|n?steps|turns|level|axis)$")


def instance(kernel: KernelSource, file: SourceFile) -> str:
    """Return an instance of a template that the file itself names, else one of defaults, floats and 32."""
    name, places = kernel.qualified_name, len(kernel.template_parameters)
    last = name.rpartition("::")[2]
    for match in re.finditer(rf"\b{last}\s*<([\w\s,:]+)>\s*(?:<<<|\()", file.text):
        words = [word.strip() for word in match[1].split(",")]
        known = (word in ("true", "false") or word.isdigit() or source.numpy_dtype(word) for word in words)
        if len(words) <= places and all(known):
            return f"{name}<{', '.join(words)}>"
    chosen = (one.default or _template_argument(one.type, file.text) for one in kernel.template_parameters)
    return f"{name}<{', '.join(chosen)}>"


def _template_argument(kind: str, text: str) -> str:
    """Return what a template may be given for a parameter: a type, or a value of the parameter's type."""
    if kind in ("typename", "class"):
        return "float"
    if kind == "bool":
        return "true"
    enumeration = re.search(rf"\benum\s+(class\s+|struct\s+)?{re.escape(kind)}\b[^{{;]*\{{\s*(\w+)", text)
    if enumeration:
        return f"{kind}::{enumeration[2]}" if enumeration[1] else enumeration[2]
    return "32"


def example_line(
    request: UserRequest, file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str], command: str = "run"
) -> str:
    """Return a whole command line for a kernel.

    Whole numbers that are no flags are the problem's extents, and arrays hold their product. A kernel that asks for
    threadIdx.y is launched in two dimensions.
    """
    name = kernel.expression or kernel.qualified_name
    if kernel.template_parameters and "<" not in name:
        name = instance(kernel, file)
        kernel = source.find(file, name)
    given = dict(text.partition("=")[::2] for text in request.arguments)
    extents = [p.name for p in kernel.parameters if _whole(p, aliases) and not _FLAGS.search(p.name.lower())]
    side = SIDES.get(min(len(extents), 3), CHECKED if command == "check" else ELEMENTS)
    count = "*".join(extents[:3])
    words = []
    outputs = [p for p in kernel.parameters if p.pointer and not p.const]
    for at, parameter in enumerate(kernel.parameters):
        own = parameter.name or f"arg{at}"
        if parameter.type == tensor_maps.TYPE:
            value = tensor_maps.EXAMPLE
        elif parameter.pointer:
            many = _elements(parameter, file.text, aliases)
            shape = f"{many}*{count}" if many > 1 and count else count or str(many * int(side))
            start = "zeros" if outputs and parameter is outputs[-1] else "random"
            value = f"{pointers.like(parameter, aliases)}[{shape}]:{start}"
        elif parameter.type == textures.TYPE:
            value = "texture(float32[1024,1024]:random)"
        elif accessor := accessor_of(parameter.type, file.text, aliases):
            value = accessor.example(pointers.like(accessor.parameter(own), aliases))
        else:
            layout = layout_of(parameter.type, file.text, aliases)
            value = side if own in extents else "1" if _whole(parameter, aliases) else ""
            value = value or (layout.example() if layout else "2.5")
        words += ["--arg", f"{own}={given.get(own, value)}"]
    words += [word for text in request.expect for word in ("--expect", text)]
    launch = _launch(request, kernel, extents, count or side)
    if request.shared is None and _dynamic_shared(kernel, file.text):
        launch += ["--shared", SHARED_BYTES]
    return " ".join(map(shlex.quote, ["cudabench", command, file.path, "--kernel", name, *launch, *words]))


def _launch(request: UserRequest, kernel: KernelSource, extents: Sequence[str], count: str) -> list[str]:
    """Return --grid and --block."""
    axes = [axis for axis in "xyz" if re.search(rf"\b(?:threadIdx|blockIdx)\s*\.\s*{axis}\b", kernel.text)]
    deep = {"z": 3, "y": 2}.get(axes[-1] if axes else "x", 1)
    if deep > 1 and len(extents) >= deep:
        block = [16, 16] if deep == 2 else [8, 8, 4]
        grid = ",".join(f"cdiv({extent},{side})" for extent, side in zip(extents, block, strict=False))
        own = ",".join(map(str, block))
    else:
        grid, own = f"cdiv({count},256)", "256"
    return ["--grid", request.grid or grid, "--block", request.block or own]


def _dynamic_shared(kernel: KernelSource, text: str) -> bool:
    names = re.findall(
        r"\bextern\s+__shared__\s+[^;\[\]]*?(\w+)\s*\[\s*\]|\b__shared__\s+extern\s+[^;\[\]]*?(\w+)\s*\[", text
    )
    return any(re.search(rf"\b{name}\b", kernel.text) for pair in names for name in pair if name)


def _elements(parameter: Parameter, text: str, aliases: Mapping[str, str]) -> int:
    """Return how many elements of an array's type one of a pointer takes."""
    many = pointers.elements(parameter, aliases)
    if many is not None:
        return many
    layout = layout_of(parameter.type, text, aliases)
    return layout.size if layout else UNKNOWN_BYTES


def _whole(parameter: Parameter, aliases: Mapping[str, str]) -> bool:
    """Return whether a parameter is a whole number with a name."""
    dtype = None if parameter.pointer else source.numpy_dtype(parameter.type, aliases)
    return bool(dtype and parameter.name) and np.dtype(dtype).kind in "iu"
