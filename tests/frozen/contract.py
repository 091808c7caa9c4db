"""Print the Python API of the `cudabench` on the path, one line for each parameter, field, property and return type.

Types are printed without their modules: users import public names from `cudabench`, or get them from its functions.
"""

import dataclasses
import inspect
import re
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import cudabench


def plain(annotation: Any) -> str:
    """Return a type as text, without modules and without the metadata of Annotated."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"^(?:typing\.)?Optional\[(.*)\]$", r"\1 | None", text.replace("NoneType", "None"))
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", text).replace("'", '"')


def reached(annotation: Any) -> list[type]:
    """Return this package's classes in a type."""
    inner = [one for argument in get_args(annotation) for one in reached(argument)]
    own = isinstance(annotation, type) and annotation.__module__.startswith("cudabench")
    return [annotation, *inner] if own else inner


def call(name: str, function: Any) -> list[str]:
    """Return a function's lines: each parameter with its kind, type and default, and the return type."""
    signature = inspect.signature(function)
    # Without defaults, because Python 3.10 adds `| None` to the type of a parameter with the default None.
    written = SimpleNamespace(__annotations__=function.__annotations__, __globals__=function.__globals__)
    hints = get_type_hints(written)
    found = []
    for at, parameter in enumerate(p for p in signature.parameters.values() if p.name != "self"):
        default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
        place = f" {at}" if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD else ""
        kind = f"{parameter.kind.description}{place}"
        found.append(f"{name}({parameter.name}): {kind}: {plain(hints.get(parameter.name, 'Any'))}{default}")
    return [*found, f"{name}() -> {plain(hints.get('return', 'Any'))}"]


def members(kind: type) -> tuple[list[str], list[type]]:
    """Return a class's lines (fields, properties, methods), and the classes of its fields and properties."""
    name, found, more = kind.__name__, [f"class {kind.__name__}"], []
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        found.append(f"{name}.{field.name}: {plain(hints[field.name])}")
        more += reached(hints[field.name])
    own = {key: value for base in reversed(kind.__mro__) if base.__module__.startswith("cudabench")
           for key, value in vars(base).items()}  # fmt: skip
    for key, value in own.items():
        if key.startswith("_") and key not in ("__getitem__", "__str__", "_repr_html_", "_repr_svg_"):
            continue
        if isinstance(value, property):
            given = get_type_hints(value.fget).get("return", Any)
            found.append(f"{name}.{key}: property: {plain(given)}")
            more += reached(given)
        elif inspect.isfunction(value):
            found += call(f"{name}.{key}", value)
            more += reached(get_type_hints(value).get("return"))
    return found, more


def contract() -> list[str]:
    """Return the lines of all public names and of every class that they return or contain."""
    lines, wanted, seen = [], list[type](), set[str]()
    for name in sorted(cudabench.__all__):
        value = getattr(cudabench, name)
        if isinstance(value, type):
            lines.append(f"{name}: class with {', '.join(sorted(key for key in vars(value) if key[0] != '_'))}")
        else:
            lines += call(name, value)
            wanted += reached(get_type_hints(value).get("return"))
    while wanted:
        kind = wanted.pop()
        if kind.__name__ not in seen:
            seen.add(kind.__name__)
            found, more = members(kind)
            lines += found
            wanted += more
    return sorted(lines)


if __name__ == "__main__":
    print("\n".join(contract()))
