"""How a kernel reads and writes surfaces, by its text: `surf2Dwrite(v, s, x * sizeof(float), y)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cudabench.model import Surface
from cudabench.source.types import numpy_type, vector_type
from cudabench.userkernel.conforming import shape_text

_CALL = re.compile(r"\bsurf(1D|2D|3D)(Layered)?(read|write)\s*(?:<\s*([\w:\s]+?)\s*>)?\s*\(")


@dataclass(frozen=True)
class Call:
    """A read or write of a surface as it stands in a text: its dimensions, the C type of an element ("" where nothing
    says it; `likely` what parts of an expression have), and the coordinates as they are written, x first, the layer
    last."""

    sides: int
    layered: bool
    writes: bool
    ctype: str
    likely: str
    name: str
    places: tuple[str, ...]


def calls(text: str) -> list[Call]:
    """Return the reads and writes of surfaces in a text."""
    found = []
    for match in _CALL.finditer(text):
        sides, writes, layered = int(match[1][0]), match[3] == "write", bool(match[2])
        passed = _passed(text, match.end())
        value = None
        if writes or (passed and (passed[0].startswith("&") or (len(passed) > 1 + sides + layered and not match[4]))):
            value, passed = (passed[0] if passed else ""), passed[1:]
        if len(passed) < 1 + sides + layered:
            continue
        places = tuple(passed[1 : 1 + sides + layered])
        ctype = match[4] or _ctype(value or "", places[0], text)
        likely = ctype or _likely(value or "", text)
        found.append(Call(sides, layered, writes, ctype, likely, passed[0], places))
    return found


def taken_by(name: str, text: str, file: str) -> str:
    """Return the function of a file that a kernel, whose text is given, hands a surface on to; "" for none."""
    body = text.partition("{")[2]
    for called in re.findall(rf"\b(\w+)\s*(?:<[^<>;]*>)?\s*\((?:[^;{{}}()]|\([^()]*\))*?\b{name}\b", body):
        start = re.search(rf"\b{called}\s*\([^;{{}}]*\)\s*\{{", file)
        if start:
            return "{".join((start[0][:-1], ",".join(_passed(file, start.end()))))
    return ""


def texel(ctype: str, aliases: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the NumPy type and channels of a C type as texels of a surface have them; None for one that none has."""
    dtype = numpy_type(ctype, aliases)
    found = (dtype, 1) if dtype else vector_type(ctype, aliases)
    if found is None:
        return None
    dtype, channels = found
    if dtype in ("int64", "uint64", "float64"):  # which go as pairs of 32 bits
        dtype, channels = "uint32", 2 * channels
    if dtype == "bool" or np.dtype(dtype).kind not in "fiu" or channels not in (1, 2, 4):
        return None
    return dtype, channels


def example(kind: str, ctype: str, aliases: Mapping[str, str]) -> str:
    """Return a texture or surface of texels of a C type as --arg writes it, with a gap for how large it is."""
    dtype, channels = texel(ctype, aliases) or ("float32", 1)
    if channels > 1:
        return f"{kind}({dtype}[...,{channels}]:random, channels={channels})"
    return f"{kind}({dtype}[...]:random)"


def misuse(surface: Surface, name: str, text: str, aliases: Mapping[str, str]) -> str | None:
    """Return why a kernel, whose text is given, cannot use a surface as its parameter `name`, with the repair; None
    where nothing shows."""
    own = [one for one in calls(text) if one.name == name]
    has = len(surface.shape) - (surface.channels > 1) - surface.layered
    for one in own:
        if (one.sides, one.layered) != (has, surface.layered):
            wanted = array_text(surface.dtype, one.sides, one.layered, surface.channels, "zeros")
            return (
                f"{shape_text(surface.shape)} is a surface of {dimensions_text(has, surface.layered)}, and the kernel "
                f"uses it as a surface of {dimensions_text(one.sides, one.layered)}: write surface({wanted})"
            )
    have = np.dtype(surface.dtype).itemsize * surface.channels
    wrong = []
    for one in own:
        found = texel(one.ctype, aliases) if one.ctype else None
        if found is None:
            continue
        size = np.dtype(found[0]).itemsize * found[1]
        # A GPU takes an element of any size, such as one channel; who steps by it takes it for the texel.
        steps = _steps(one.places[0], aliases)
        if size == have or size not in steps or have in steps:
            return None
        wrong.append((one.ctype, size, found))
    if not wrong:
        return None
    ctype, size, (dtype, channels) = wrong[0]
    last, option = (f",{channels}", f", channels={channels}") if channels > 1 else ("", "")
    return (
        f"a texel has {have} byte{'s' * (have > 1)}, and the kernel uses {ctype} of {size} at every {size}th byte: "
        f"write surface({dtype}[...{last}]:zeros{option})"
    )


def _steps(place: str, aliases: Mapping[str, str]) -> set[int]:
    """Return the numbers of bytes by which a coordinate is multiplied: 4 in `x * 4` and `x * sizeof(float)`."""
    found = {int(one) for pair in re.findall(r"\*\s*(\d+)\b|\b(\d+)\s*\*", place) for one in pair if one}
    for ctype in re.findall(r"\bsizeof\s*\(\s*([\w:\s]+?)\s*\)", place):
        known = texel(ctype, aliases)
        found |= {np.dtype(known[0]).itemsize * known[1]} if known else set()
    return found


def dimensions_text(sides: int, layered: bool) -> str:
    """Return "2 dimensions and layers"."""
    return f"{sides} dimension{'s' * (sides > 1)}{' and layers' * layered}"


def array_text(dtype: str, sides: int, layered: bool, channels: int, start: str) -> str:
    """Return an array of such dimensions as a texture or surface is given, with its options."""
    axes = ["width", "height", "depth"][:sides] + ["layers"] * layered
    last, options = (f",{channels}", f", channels={channels}") if channels > 1 else ("", "")
    return f"{dtype}[{','.join(reversed(axes))}{last}]:{start}{options}{', layers=yes' * layered}"


def _ctype(value: str, x: str, text: str) -> str:
    """Return the type of a value that is written or read into, "" where the text does not tell."""
    made = re.match(r"make_(\w+)\s*\(", value) or re.match(r"\(\s*([^\W\d][\w\s]*?)\s*\)\s*[\w(]", value)
    name = re.match(r"&?\s*(\w+)\s*$", value)
    if made:
        return made[1]
    declared = _declared(name[1], text) if name else ""
    sized = re.search(r"\bsizeof\s*\(\s*([\w:\s]+?)\s*\)", x)
    return declared or (sized[1] if sized else "")


def _likely(value: str, text: str) -> str:
    """Return the type that an expression may have: of what it fetches, of its numbers, or of its first name."""
    fetched = re.search(r"\b(?:surf|tex)\w+\s*<\s*([\w:\s]+?)\s*>", value)
    if fetched:
        return fetched[1]
    if re.search(r"\d\.\d*f?|\df\b", value):
        return "float"
    if re.fullmatch(r"[-+]?\d+", value):
        return "int"
    return next((found for name in re.findall(r"[^\W\d]\w*", value) if (found := _declared(name, text))), "")


def _declared(name: str, text: str) -> str:
    """Return the type that a name is declared with, "" where it is not."""
    found = re.search(rf"\b([^\W\d][\w:]*(?:\s+(?:char|short|int|long))*)\s+{name}\s*[=;,\[)]", text)
    found = found or re.search(rf"\b([^\W\d]\w*)\s[^;(){{}}]{{0,200}},\s*{name}\s*[=;,]", text)
    return found[1] if found and found[1] not in ("return", "auto", "const", "else") else ""


def _passed(text: str, start: int) -> list[str]:
    """Return what a call passes whose bracket opens before `start`."""
    depth, parts = 0, [""]
    for letter in text[start:]:
        if letter in ")]}" and not depth:
            break
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
