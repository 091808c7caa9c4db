"""What stands for helper_math.h of NVIDIA's samples, and cutil_math.h before it, where a file comes without them.

Arithmetic on CUDA's vectors, as kernels of the samples and of what was made from them use it: an own text with the
same names.
"""

from __future__ import annotations

HEADERS = ("helper_math.h", "cutil_math.h")

_HEAD = "static inline __host__ __device__"


def _returns(kind: str, head: str, value: str) -> str:
    return f"{_HEAD} {kind} {head} {{ return {value}; }}"


def _all(size: int, part: str, between: str = ", ") -> str:
    """Write a part for each member, `$` for its name."""
    return between.join(part.replace("$", axis) for axis in "xyzw"[:size])


def _arithmetic(base: str, size: int) -> str:
    """The operators on vectors of one type, with vectors and with numbers."""
    vector, scalar = f"{base}{size}", "unsigned int" if base == "uint" else base
    make, lines = f"make_{vector}", []
    for mark in "+-*/":
        if mark == "/" and base != "float":
            continue
        lines += [
            _returns(vector, f"operator{mark}({vector} a, {vector} b)", f"{make}({_all(size, f'a.${mark}b.$')})"),
            _returns(vector, f"operator{mark}({vector} a, {scalar} b)", f"{make}({_all(size, f'a.${mark}b')})"),
            _returns(vector, f"operator{mark}({scalar} a, {vector} b)", f"{make}({_all(size, f'a{mark}b.$')})"),
            f"{_HEAD} void operator{mark}=({vector} &a, {vector} b) {{ {_all(size, f'a.${mark}=b.$;', ' ')} }}",
            f"{_HEAD} void operator{mark}=({vector} &a, {scalar} b) {{ {_all(size, f'a.${mark}=b;', ' ')} }}",
        ]
    if base != "uint":
        lines.append(f"{_HEAD} {vector} operator-({vector} a) {{ return {make}({_all(size, '-a.$')}); }}")
    lines.append(f"{_HEAD} {vector} {make}({scalar} s) {{ return {make}({_all(size, 's')}); }}")
    least, most = ("fminf", "fmaxf") if base == "float" else ("min", "max")
    for name in (least, most):
        lines.append(
            f"{_HEAD} {vector} {name}({vector} a, {vector} b) {{ return {make}({_all(size, f'{name}(a.$, b.$)')}); }}"
        )
    inside = f"{most}(low, {least}(v, high))"
    lines += [
        f"{_HEAD} {vector} clamp({vector} v, {scalar} low, {scalar} high) "
        f"{{ return {make}({_all(size, 'clamp(v.$, low, high)')}); }}",
        f"{_HEAD} {vector} clamp({vector} v, {vector} low, {vector} high) "
        f"{{ return {make}({_all(size, 'clamp(v.$, low.$, high.$)')}); }}",
        f"{_HEAD} {scalar} dot({vector} a, {vector} b) {{ return {_all(size, 'a.$*b.$', '+')}; }}",
    ]
    clamps = f"{_HEAD} {scalar} clamp({scalar} v, {scalar} low, {scalar} high) {{ return {inside}; }}"
    return "\n".join([clamps, *lines] if size == 2 else lines)


def _floats(size: int) -> str:
    """The functions of vectors of floats."""
    vector, make = f"float{size}", f"make_float{size}"
    lines = [
        f"{_HEAD} {vector} lerp({vector} a, {vector} b, float t) {{ return a + t*(b-a); }}",
        f"{_HEAD} float length({vector} v) {{ return sqrtf(dot(v, v)); }}",
        f"{_HEAD} {vector} normalize({vector} v) {{ return v * rsqrtf(dot(v, v)); }}",
        f"{_HEAD} {vector} reflect({vector} i, {vector} n) {{ return i - 2.0f * n * dot(n, i); }}",
        f"{_HEAD} {vector} fmodf({vector} a, {vector} b) {{ return {make}({_all(size, 'fmodf(a.$, b.$)')}); }}",
        f"{_HEAD} {vector} fracf({vector} v) {{ return {make}({_all(size, 'v.$ - floorf(v.$)')}); }}",
        f"{_HEAD} {vector} fabs({vector} v) {{ return {make}({_all(size, 'fabsf(v.$)')}); }}",
        f"{_HEAD} {vector} floorf({vector} v) {{ return {make}({_all(size, 'floorf(v.$)')}); }}",
        f"{_HEAD} {vector} smoothstep({vector} a, {vector} b, {vector} x) "
        f"{{ {vector} y = clamp((x - a) / (b - a), 0.0f, 1.0f); return y*y*({make}(3.0f) - {make}(2.0f)*y); }}",
    ]
    return "\n".join(lines)


def _conversions(base: str) -> str:
    """The vectors from shorter and longer ones."""
    scalar = "unsigned int" if base == "uint" else base
    return "\n".join(
        [
            f"{_HEAD} {base}2 make_{base}2({base}3 v) {{ return make_{base}2(v.x, v.y); }}",
            f"{_HEAD} {base}2 make_{base}2({base}4 v) {{ return make_{base}2(v.x, v.y); }}",
            f"{_HEAD} {base}3 make_{base}3({base}2 v) {{ return make_{base}3(v.x, v.y, 0); }}",
            f"{_HEAD} {base}3 make_{base}3({base}2 v, {scalar} s) {{ return make_{base}3(v.x, v.y, s); }}",
            f"{_HEAD} {base}3 make_{base}3({base}4 v) {{ return make_{base}3(v.x, v.y, v.z); }}",
            f"{_HEAD} {base}4 make_{base}4({base}3 v) {{ return make_{base}4(v.x, v.y, v.z, 0); }}",
            f"{_HEAD} {base}4 make_{base}4({base}3 v, {scalar} s) {{ return make_{base}4(v.x, v.y, v.z, s); }}",
        ]
    )


def _between(one: str, other: str) -> str:
    """The vectors of one type from those of another, of the same size."""
    lines = []
    for size in (2, 3, 4):
        members = _all(size, f"({'unsigned int' if one == 'uint' else one})v.$")
        lines.append(f"{_HEAD} {one}{size} make_{one}{size}({other}{size} v) {{ return make_{one}{size}({members}); }}")
    return "\n".join(lines)


def _text() -> str:
    bases = ("float", "int", "uint")
    parts = ["#pragma once", "typedef unsigned int uint;", "typedef unsigned short ushort;"]
    parts += [f"{_HEAD} float lerp(float a, float b, float t) {{ return a + t*(b-a); }}"]
    parts += [f"{_HEAD} float fracf(float v) {{ return v - floorf(v); }}"]
    for base in bases:
        parts += [_arithmetic(base, size) for size in (2, 3, 4)]
        parts.append(_conversions(base))
    parts += [_between(one, other) for one in bases for other in bases if one != other]
    parts += [_floats(size) for size in (2, 3, 4)]
    parts.append(
        f"{_HEAD} float3 cross(float3 a, float3 b) "
        "{ return make_float3(a.y*b.z - a.z*b.y, a.z*b.x - a.x*b.z, a.x*b.y - a.y*b.x); }"
    )
    return "\n".join(parts) + "\n"


TEXT = _text()
