"""Decodes the operands that nvdisasm prints: registers, constants, immediates, addresses and predicates."""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from cudabench.simulator.machine_code import layout

ALL = 0xFFFFFFFF
PREDICATE = re.compile(r"!?U?P[T\d]")
_REGISTER = re.compile(r"(U?)R(Z|\d+)")
_PLAIN = re.compile(
    r"(?P<sign>[-~]?)(?P<size>\|?)(?:(?P<register>U?R(?:Z|\d+))|c\[(?P<bank>0x[0-9a-f]+)\]\[(?P<offset>0x[0-9a-f]+)\])"
    r"(?P<part>(?:\.[A-Z]\w*)*)\|?(?P<rest>(?:\.[A-Z]\w*)*)"
)
_ADDRESS = re.compile(
    r"(?:desc\[UR\d+\])?\[(?:(?P<register>R(?:Z|\d+))(?P<part>\.64|\.U32|\.X\d+)?\+?)?"
    r"(?:(?P<uniform>UR(?:Z|\d+))(?:\.64)?\+?)?(?P<offset>-?0x[0-9a-f]+)?\]"
)
CONSTANT = re.compile(r"c\[(0x[0-9a-f]+)\]\[(?:(U?R(?:Z|\d+))\+?)?(-?0x[0-9a-f]+)?\]")
_HALF = {"H0_H0": 1, "H0": 1, "H1_H1": 2, "H1": 2}
NUMBER = re.compile(r"[-+]?(?:0x[0-9a-f]+|\d[\d.]*(?:e[-+]?\d+)?|INF|QNAN|SNAN)")


class Unreadable(Exception):
    """The machine code contains an item that the simulator cannot decode; the message names it."""


class Reader:
    """Decodes the operands of a kernel's instructions, and collects the constants that they use.

    Constants are numbered like registers, from `layout.CONSTANTS` on. A constant is an int, or (bank, offset).
    """

    def __init__(self) -> None:
        self.constants: list[tuple[int, int] | int] = [0, 0]
        self.places: dict[tuple[object, object], int] = {(0, 0): layout.CONSTANTS}
        self._sources: dict[tuple[str, str], tuple[int, int, int, int, int]] = {}  # the results of `source`

    def constant(self, low: tuple[int, int] | int, high: tuple[int, int] | int = 0) -> int:
        """Return the register number of a pair of constant words; add the pair if it is new."""
        key = low, high
        if key not in self.places:
            self.places[key] = layout.CONSTANTS + len(self.constants)
            self.constants += key
        return self.places[key]

    def source(self, text: str, kind: str) -> tuple[int, int, int, int, int]:
        """Return the fields of `layout.SOURCE` for a source operand.

        kind: x for a 32-bit word, w for two words, f for float32, r for float64, h for two 16-bit floats.
        """
        found = self._sources.get((text, kind))
        if found is None:
            found = self._sources[text, kind] = self._source(text, kind)
        return found

    def _source(self, text: str, kind: str) -> tuple[int, int, int, int, int]:
        text = text.replace(".reuse", "")
        sign = {"f": 1 << 31, "r": 1 << 31, "h": 0x80008000}.get(kind)
        if NUMBER.fullmatch(text):
            if kind == "w" and len(text) > len("0x12345678"):  # the literal has 64 bits
                value = int(text, 0)
                return self.constant(value & ALL, value >> 32 & ALL), ALL, 0, 0, 0
            bits = number_bits(text, kind)
            if kind == "r":
                return self.constant(0, bits), ALL, 0, 0, 0
            return self.constant(bits, ALL if kind == "w" and bits >> 31 else 0), ALL, 0, 0, 0
        match = _PLAIN.fullmatch(text)
        if match is None:
            raise Unreadable(text)
        if match["register"]:
            place = register(match["register"])
        else:
            bank, offset = int(match["bank"], 16), int(match["offset"], 16)
            place = self.constant((bank, offset), (bank, offset + 4))
        parts = [part for part in f"{match['part']}{match['rest']}".split(".") if part]
        half = next((_HALF[part] for part in parts if part in _HALF), 0)
        known = (*(_HALF if kind == "h" else ()), "F32", "64", "U32")
        if any(part not in known for part in parts) or (match["size"] and sign is None):
            raise Unreadable(text)
        keep = ALL ^ sign if match["size"] and sign is not None else ALL
        if not match["sign"]:
            return place, keep, 0, 0, half
        if match["sign"] == "-" and sign is not None:
            return place, keep, sign, 0, half
        return place, keep, ALL, int(match["sign"] == "-"), half


def register(text: str) -> int:
    """Return the number of a register such as "R4" or "UR4"; that of RZ and URZ is the constant 0."""
    match = _REGISTER.fullmatch(text)
    if match is None:
        raise Unreadable(text)
    if match[2] == "Z":
        return layout.CONSTANTS
    return int(match[2]) + (layout.UNIFORM if match[1] else 0)


@lru_cache(maxsize=4096)
def address(text: str) -> dict[str, int]:
    """Return the fields of `layout.INSTRUCTION` for an address operand, keyed by name; do not change the result."""
    match = _ADDRESS.fullmatch(text.replace(".reuse", ""))
    if match is None or match[0].endswith("+]"):
        raise Unreadable(text)
    place, beside = (register(part or "RZ") for part in (match["register"], match["uniform"]))
    part = match["part"] or ""
    return {
        "address": -1 if place == layout.CONSTANTS else place,
        "beside": -1 if beside == layout.CONSTANTS else beside,
        "offset": int(match["offset"] or "0", 16),
        "wide": 64 if part == ".64" else 32,
        "scale": int(part[2:]).bit_length() - 1 if part.startswith(".X") else 0,
    }


def number_bits(text: str, kind: str) -> int:
    """Return the bits of an immediate; for kind r, the upper word of a float64. kind: see `Reader.source`."""
    minus, digits = text.startswith("-"), text.lstrip("+-")
    if digits.startswith("0x") or (kind in "xw" and digits.isdigit()):
        value = int(digits, 0)
        return (-value if minus else value) & ALL
    number = {"INF": float("inf"), "QNAN": float("nan"), "SNAN": float("nan")}.get(digits)
    number = float(digits) if number is None else number
    number = -number if minus else number
    if kind == "r":
        return int(struct.unpack("<Q", struct.pack("<d", number))[0]) >> 32
    if kind == "h":
        return int(struct.unpack("<H", struct.pack("<e", number))[0])
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


@lru_cache(maxsize=256)
def condition(text: str) -> tuple[int, int]:
    """Return the number of a predicate, and the mask to xor its lanes with: all ones for `!P0`, else 0."""
    if not PREDICATE.fullmatch(text):
        raise Unreadable(text)
    bare = text.lstrip("!")
    number = 7 if bare[-1] == "T" else int(bare[-1])
    return number + (8 if bare[0] == "U" else 0), ALL if text[0] == "!" else 0
