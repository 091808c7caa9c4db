"""Computes the memory layouts of types from libclang's information."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clang.cindex import Cursor, CursorKind, Type, TypeKind

from cudabench.source.cursors import RECORDS
from cudabench.source.parameters import ARRAYS, parameter_from, unqualified
from cudabench.source.records import Layout, Parameter, uniform
from cudabench.source.types import NAMED, numpy_type, vector_type

Faulty = Callable[[Cursor], bool]
_DEPTH = 16  # the maximum number of levels of nested members
_OPAQUE = frozenset(["__nv_bfloat16", "__nv_bfloat162", "__nv_fp8_e4m3", "__nv_fp8_e5m2", "__half2"])


def layout_of(kind: Type, faulty: Faulty, depth: int = 0, member: str = "", *, pointers: bool = True) -> Layout | None:
    """Return the layout of a type; None if it has an error, or a part whose value --arg cannot give.

    Such parts are unions, bit-fields, references, virtual functions, base classes with members, pointers to pointers
    and, if `pointers` is false, all pointers. `faulty`: a function that tells whether a declaration has an error.
    `member`: the name of the member with this type.
    """
    canonical = kind.get_canonical()
    name = unqualified(canonical)
    size, align = kind.get_size(), kind.get_align()
    if size < 0 or align < 1 or depth > _DEPTH:
        return None
    if canonical.kind == TypeKind.ENUM:
        name = unqualified(canonical.get_declaration().enum_type.get_canonical())
    dtype = numpy_type(name)
    if dtype and canonical.kind != TypeKind.POINTER:
        return Layout(unqualified(kind), size, align, dtype)
    if canonical.kind == TypeKind.CONSTANTARRAY:
        inner = kind.element_type if kind.kind == TypeKind.CONSTANTARRAY else canonical.element_type
        element = layout_of(inner, faulty, depth + 1, pointers=pointers)
        return element and Layout(unqualified(canonical), size, align, count=canonical.element_count, element=element)
    if canonical.kind == TypeKind.POINTER and pointers:
        pointee = typed(parameter_from(member, kind), kind, faulty)
        inner = canonical.get_pointee().kind
        if not pointee.pointer or inner in (TypeKind.POINTER, TypeKind.CONSTANTARRAY):
            return None
        scope = kind.get_pointee().get_declaration().semantic_parent
        if scope is not None and scope.kind in RECORDS:  # a type inside a class is looked up only by its qualified name
            pointee = replace(pointee, type=unqualified(canonical.get_pointee()))
        return Layout(f"{pointee.type}*", size, align, pointee=pointee)
    if canonical.kind != TypeKind.RECORD or name in _OPAQUE:
        return None
    return _record(kind, canonical, name, faulty, depth, pointers)


def _record(kind: Type, canonical: Type, name: str, faulty: Faulty, depth: int, pointers: bool) -> Layout | None:
    declared = canonical.get_declaration()
    if declared.kind == CursorKind.UNION_DECL or faulty(declared):
        return None
    methods = (CursorKind.CXX_METHOD, CursorKind.DESTRUCTOR)
    if any(
        (child.kind in methods and child.is_virtual_method())
        or (child.kind == CursorKind.CXX_BASE_SPECIFIER and list(child.type.get_fields()))
        for child in declared.get_children()
    ):
        return None
    members: list[tuple[str, int, Layout]] = []
    for field in canonical.get_fields():
        offset = field.get_field_offsetof()
        own = layout_of(field.type, faulty, depth + 1, field.spelling, pointers=pointers)
        if own is None or field.is_bitfield() or not field.spelling or offset < 0 or offset % 8:
            return None
        members.append((field.spelling, offset // 8, own))
    vector = vector_type(name) is not None or name == "dim3"
    return Layout(unqualified(kind), kind.get_size(), kind.get_align(), members=tuple(members), vector=vector)


def typed(parameter: Parameter, kind: Type, faulty: Faulty) -> Parameter:
    """Return the parameter with `element` and `parts` set from its type; unchanged if the type is unknown."""
    if not parameter.meaning:
        return parameter
    if parameter.pointer:
        kind = _inner(kind)
    while kind.kind in ARRAYS:
        kind = kind.element_type
    element = kind
    while element.kind in (TypeKind.ELABORATED, TypeKind.TYPEDEF) and unqualified(element) not in NAMED:
        named = element.kind == TypeKind.ELABORATED
        element = element.get_named_type() if named else element.get_declaration().underlying_typedef_type
    while kind.get_canonical().kind == TypeKind.POINTER:
        kind = _inner(kind)
    layout = layout_of(kind.get_canonical(), faulty, pointers=False)
    return replace(parameter, element=unqualified(element), parts=uniform(layout) if layout else None)


def _inner(kind: Type) -> Type:
    canonical = kind.get_canonical()
    sugared = kind.element_type if kind.kind in ARRAYS else kind.get_pointee()
    if sugared.kind != TypeKind.INVALID:
        return sugared
    return canonical.element_type if canonical.kind in ARRAYS else canonical.get_pointee()
