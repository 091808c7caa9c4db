"""Parses PTX text into the records of `ptx`.

Only the syntax is handled here (PTX ISA, chapters 4, 5, 10 and 11); the package `isa` implements the instructions.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field
from functools import partial

from cudabench.simulator.errors import PtxError
from cudabench.simulator.program import debug_info
from cudabench.simulator.program.ptx import (
    BITS,
    Address,
    Function,
    Functions,
    Immediate,
    Instruction,
    Label,
    Location,
    Module,
    Negated,
    Operand,
    Pair,
    Prototype,
    Symbol,
    Variable,
    Vector,
)

_COMMENT = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.S)
# `__trap()` in the source becomes a `trap` in inline assembly. Any other `trap` was added by the compiler.
_ASM = re.compile(r"// begin inline asm.*?// end inline asm", re.S)
_TOP = re.compile(
    r"\s*(?:"
    r"\.version\s+(?P<version>[\d.]+)"
    r"|\.target\s+(?P<target>[^\n]*)"
    r"|\.address_size\s+(?P<bits>\d+)"
    r"|(?P<skip>\.section[^{]*\{[^}]*\}|\.loc\s[^\n]*|\.file\s[^\n]*|\.pragma[^;]*;|\.alias[^;]*;)"
    r"|(?P<linkage>(?:\.(?:visible|extern|weak|common)\s+)*)\.(?P<kind>entry|func)\b(?P<header>[^{;]*)(?P<end>[{;])"
    r"|(?P<variable>[^;]+);"
    r"|(?P<blank>;)"
    r")"
)
_MODULE_DATA = re.compile(r"^\s*\.(?:global|const)\b", re.M)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_BODY = re.compile(
    r"\s*(?:(?P<loc>\.loc\s[^\n]*)|(?P<skip>\.pragma[^;]*;|\.file\s[^\n]*|\.section[^{]*\{[^}]*\})"
    r"|(?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)|(?P<brace>[{}])|(?P<statement>[^;]*);)"
)
_REG = re.compile(r"\.reg\s*((?:\.\w+\s*)+)(.*)$", re.S)
_PROTOTYPE = re.compile(r"\.callprototype\s*(?:\((?P<results>[^()]*)\))?\s*[\w$%]+\s*(?:\((?P<takes>[^()]*)\))?", re.S)
_HEADER = re.compile(r"\s*(?:\((?P<results>[^)]*)\)\s*)?(?P<name>[\w$%]+)\s*(?:\((?P<takes>.*)\))?(?P<rest>.*)", re.S)
_SPACES = ("global", "shared", "const", "local", "param", "tex")
_HANDLES = ("texref", "samplerref", "surfref")
# A part between two commas; a bracket with its content, in which brackets may be nested once, is not divided.
_PART = re.compile(r"(?:[^,\[{(]+|[\[{(](?:[^\[\]{}()]|[\[{(][^\[\]{}()]*[\]})])*[\]})]|[\[{(])+")
_BRACKET = re.compile(r"[\[{(]")
_NUMBER = re.compile(r"[-+]?\d")
_SYMBOL = re.compile(r"([A-Za-z_$%][\w$.]*)\s*([+-]\s*-?\s*[\w]+)?$")
# Headers of the CUDA toolkit: if a line comes from an inlined function of such a header, the caller's line is shown.
_TOOLKIT = re.compile(
    r"(^|/)(include|targets|cuda-?[\d.]*|nvidia|cccl)/.*\.(h|hpp|cuh|inl)$|\.hpp$|__nv_nvrtc|cooperative_groups"
    r"|(^|/)cccl/|(^|/)cuda/(std/|__|barrier$|pipeline$|ptx$|atomic$|semaphore$|latch$)"
    r"|(^|/)(cuda_|device_|sm_|math_|texture_|surface_|crt/)[\w/]*\.h$"
)


def integer(text: str) -> int:
    """Return the value of a PTX integer literal (PTX ISA 4.5.1): as in C, or binary digits after `0b`."""
    digits = text.replace(" ", "").rstrip("U").lstrip("+-")
    value = int(digits, 8 if digits[:1] == "0" and digits.isdigit() else 0)
    return -value if text.count("-") % 2 else value


def literal(text: str) -> Immediate:
    """Parse an integer or floating-point literal (PTX ISA 4.5)."""
    if text[:2] in ("0f", "0F") and len(text) == 10:
        return Immediate(int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D") and len(text) == 18:
        return Immediate(int(text[2:], 16), 64)
    if "." in text or (("e" in text or "E" in text) and text[:2] not in ("0x", "0X")):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return Immediate(integer(text))


def split(text: str) -> list[str]:
    """Split a text at the commas that are outside of all brackets; empty parts are left out."""
    if _BRACKET.search(text) is None:
        return [part for piece in text.split(",") if (part := piece.strip())]
    return [part for match in _PART.findall(text) if (part := match.strip())]


def array_size(dims: str) -> tuple[int, bool]:
    """Return (number of elements in `[a][b]`, whether a dimension is empty); 0 elements if a dimension is empty."""
    sides = [side.strip() for side in re.findall(r"\[([^\]]*)\]", dims)]
    return (math.prod(map(integer, sides)), False) if all(sides) else (0, True)


def named(text: str, what: str, shown: str) -> Symbol:
    """Parse a name with an optional offset; `what`, `shown`: words of the error message if the text is not a name."""
    match = _SYMBOL.match(text)
    if match is None:
        raise PtxError(f"cannot read the {what} '{shown}'.")
    return Symbol(match[1], integer(match[2]) if match[2] else 0)


def extents(directive: str, header: str) -> tuple[int, int, int] | None:
    """Return the extents (x, y, z) of a performance directive such as `maxntid`; None if the header lacks it.

    Missing extents are 1.
    """
    match = re.search(rf"\.{directive}\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", header)
    return (int(match[1]), int(match[2] or 1), int(match[3] or 1)) if match else None


@dataclass
class _Scope:
    """The names declared in one `{ }`.

    Names of a nested `{ }` get its number as a suffix, such as `%r1@2`, so that all names of a function are unique.
    """

    number: int
    names: set[str] = field(default_factory=set)
    ranges: dict[str, int] = field(default_factory=dict)

    def holds(self, name: str) -> bool:
        prefix = name.rstrip("0123456789")
        return name in self.names or (prefix != name and int(name[len(prefix) :]) < self.ranges.get(prefix, 0))


def placed(code: list[Instruction | Label]) -> tuple[Instruction | Label, ...]:
    """Return the code of a function in which each instruction has a source line.

    Line 0 marks an instruction that the compiler moved, such as a load that it moved out of a loop. Such an instruction
    gets the place of the next instruction that has a line; at the end of the function, the place of the last
    instruction that has a line.
    """
    for order in (range(len(code) - 1, -1, -1), range(len(code))):
        known = Location(0, 0)
        for at in order:
            item = code[at]
            if isinstance(item, Instruction):
                if item.location.line:
                    known = item.location
                elif known.line:
                    code[at] = item._replace(location=known._replace(ptx_line=item.location.ptx_line))
    return tuple(code)


class _Parser:
    def __init__(self, text: str) -> None:
        self.files: dict[int, str] = {int(number): path for number, path in _FILE.findall(text)}
        text = _ASM.sub(lambda match: re.sub(r"\btrap;", "trap.asked;", match[0]), text) if "trap;" in text else text
        self.text = _COMMENT.sub(lambda match: match.group(1) or " " + "\n" * match[0].count("\n"), text)
        self.toolkit = {number for number, path in self.files.items() if _TOOLKIT.search(path)}
        self.location = Location(0, 0)
        self.scopes: list[_Scope] = []
        self.known: dict[str, Operand] = {}

    def module(self) -> Module:
        version = target = ""
        functions = Functions()
        variables: dict[str, Variable] = {}
        text, position = self.text, 0
        while match := _TOP.match(text, position):
            position = match.end()
            if match["version"]:
                version = match["version"]
            elif match["target"]:
                target = match["target"].strip()
            elif match["bits"]:
                if match["bits"] != "64":
                    raise PtxError(f"PTX with .address_size {match['bits']} is not supported: compile for 64 bits.")
            elif match["kind"]:
                position = self.define(functions, match, position)
            elif match["variable"] and match["variable"].strip():
                for variable in self.variables(match["variable"]):
                    if variable.name not in variables or variable.initial or variable.size:
                        variables[variable.name] = variable
        if text[position:].strip():
            raise PtxError(f"cannot read this PTX near '{text[position:].strip()[:60]}'.")
        if not version:
            raise PtxError("this is not PTX: it has no .version directive.")
        kept = debug_info.local_variables(text) if "debug" in target else {}
        return Module(version, target, self.files, functions, variables, kept)

    def define(self, functions: Functions, match: re.Match[str], position: int) -> int:
        """Add a function or declaration, and return where its text ends; `match`: its header, up to `position`."""
        body, first = None, 0
        if match["end"] == "{":
            end = self.closing(position)
            body = self.text[position:end]
            first = self.text.count("\n", 0, position) + 1
            position = end + 1
        header = _HEADER.match(match["header"])
        if header is None:
            raise PtxError(f"cannot read the function header '{match['header'].strip()[:60]}'.")
        name, entry = header["name"], match["kind"] == "entry"
        if body is not None or name not in functions:
            functions.add(name, partial(self.function, entry, header, body, first))
        if body is not None:
            functions.bodies[name] = None
            functions.entries |= {name: None} if entry else {}
            functions.holding |= {name: None} if _MODULE_DATA.search(body) else {}
        return position

    def closing(self, position: int) -> int:
        depth = 1
        for match in re.compile(r'[{}]|"[^"]*"').finditer(self.text, position):
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if depth == 0:
                return match.start()
        raise PtxError("a function body in this PTX has no closing brace.")

    def variables(self, text: str) -> list[Variable]:
        if ".branchtargets" in text or ".callprototype" in text:
            return []
        head = re.match(r"\s*((?:\.[\w:]+\s*(?:\([^)]*\)\s*)?|\d+\s+)*)", text)
        assert head is not None
        plain = re.sub(r"\([^)]*\)", " ", head[1])
        words = re.findall(r"\.([\w:]+)", plain)
        # The first state space is that of the variable: in `.param .u64 .ptr .global`, `.global` is the space that the
        # pointer points to.
        space = next((word for word in words if word in _SPACES), "")
        type_ = next((word for word in reversed(words) if word in BITS or word in _HANDLES), "")
        # `.ptr .align N` gives the alignment of the memory that a pointer points to, not that of the parameter.
        own = re.sub(r"\.ptr\b[^,)]*?\.align\s+\d+", "", plain)
        align = int([0, *re.findall(r"\.align\s+(\d+)", own)][-1])
        width = BITS.get(type_, 64) // 8 * (2 if "v2" in words else 4 if "v4" in words else 1)
        variables = []
        rest = text[head.end() :]
        declared, _, initial = rest.partition("=")
        for name in split(declared):
            match = re.match(r"([%\w$]+)\s*((?:\[[^\]]*\]\s*)*)$", name)
            if match is None:
                continue
            count, dynamic = array_size(match[2])
            values = tuple(self.initial(initial.strip(), BITS.get(type_, 64) // 8)) if initial else ()
            size = count * width
            if dynamic and values:
                size, dynamic = values[-1][0] + values[-1][1], False
            variables.append(Variable(match[1], space, type_, align or width, size, dynamic, values, self.location))
        return variables

    def initial(self, text: str, width: int) -> list[tuple[int, int, Immediate | Symbol, int]]:
        values: list[tuple[int, int, Immediate | Symbol, int]] = []
        for offset, item in enumerate(split(re.sub(r"[{}]", " ", text))):
            mask = -1
            masked = re.match(r"(0[xX][0-9a-fA-F]+)\s*\((.*)\)$", item)
            if masked:
                mask, item = integer(masked[1]), masked[2].strip()
            generic = re.match(r"generic\s*\(\s*([^)]*)\)\s*([+-]\s*\d+)?$", item)
            if generic:
                item = generic[1].strip() + (generic[2] or "")
            value = literal(item) if _NUMBER.match(item) else named(item, "initial value", item)
            values.append((offset * width, width, value, mask))
        return values

    def function(self, entry: bool, match: re.Match[str], body: str | None, first: int) -> Function:
        """Parse a function from the match of its header and the text of its body, which begins on line `first`."""
        results, parameters = self.parameters(match["results"]), self.parameters(match["takes"])
        most, needs, cluster = (extents(word, match["rest"]) for word in ("maxntid", "reqntid", "reqnctapercluster"))
        code = None
        self.registers: dict[str, str] = {}
        self.locals: list[Variable] = []
        self.tables: dict[str, tuple[str, ...]] = {}
        self.prototypes: dict[str, Prototype] = {}
        self.inlined: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        self.scope_count = 0
        self.location = Location(0, 0)
        start = self.location
        if body is not None:
            code, start = self.body(body, first)
        return Function(
            match["name"], entry, parameters, results, code, self.registers, tuple(self.locals), self.tables, start,
            self.prototypes, None if most is None else math.prod(most), needs, cluster,
        )  # fmt: skip

    def parameters(self, text: str | None) -> tuple[Variable, ...]:
        return tuple(variable for part in split(text or "") for variable in self.variables(part))

    def line(self, text: str) -> Location:
        """Return the place that a `.loc` directive gives; for a header of the toolkit, the caller's place."""
        match = _LOC.match(text)
        if match is None:
            return self.location
        place = (int(match[1]), int(match[2]), int(match[3]))
        group = "cooperative_groups" in self.files.get(place[0], "")
        caller: tuple[int, ...] = ()
        if match[4]:
            caller = self.inlined[place] = (int(match[4]), int(match[5]), int(match[6]))
        for _ in range(32):
            if place[0] not in self.toolkit or place not in self.inlined:
                break
            place = self.inlined[place]
        return Location(place[0], place[1], 0, place[2], group, caller)

    def body(self, text: str, number: int) -> tuple[tuple[Instruction | Label, ...], Location]:
        """Parse a function's body, which begins on line `number` of the PTX.

        Return (its instructions and labels, the first place in the source).
        """
        counted = 0
        code: list[Instruction | Label] = []
        self.scopes = [_Scope(0)]
        branches: list[tuple[int, list[_Scope]]] = []
        pending, position = "", 0
        start = Location(0, 0)
        while match := _BODY.match(text, position):
            begin = match.start(match.lastgroup or 0)
            number += text.count("\n", counted, begin)
            position, counted = match.end(), begin
            if match["loc"]:
                self.location = self.line(match["loc"])
                if start.line == 0:
                    start = self.location
            elif match["label"]:
                pending = match["label"]
                self.scopes[-1].names.add(pending)
                code.append(Label(self.scoped(pending, self.scopes[-1])))
            elif match["brace"] == "{":
                self.scope_count += 1
                self.scopes.append(_Scope(self.scope_count))
            elif match["brace"] == "}":
                self.scopes.pop()
            elif match["statement"] is not None:
                statement = match["statement"].strip()
                if not statement:
                    continue
                if statement.startswith("."):
                    self.declaration(statement, pending)
                    continue
                instruction = self.instruction(statement, number)
                if instruction.opcode in ("bra", "brx"):
                    branches.append((len(code), [*self.scopes]))
                code.append(instruction)
        if text[position:].strip():
            raise PtxError(f"cannot read this PTX near '{text[position:].strip()[:60]}'.")
        for place, self.scopes in branches:  # a label may come after the branch
            instruction = code[place]  # type: ignore[assignment]
            names = (Symbol(self.resolve(x.name)) if isinstance(x, Symbol) else x for x in instruction.operands)
            code[place] = instruction._replace(operands=tuple(names))
        return placed(code), start

    @staticmethod
    def scoped(name: str, scope: _Scope) -> str:
        return f"{name}@{scope.number}" if scope.number else name

    def declaration(self, statement: str, label: str) -> None:
        scope = self.scopes[-1]
        if statement.startswith(".reg"):
            match = _REG.match(statement)
            if match is None:
                raise PtxError(f"cannot read '{statement[:60]}'.")
            type_ = match[1].split()[-1].lstrip(".")
            for name in split(match[2]):
                ranged = re.match(r"([%\w$]+)\s*<\s*(\d+)\s*>$", name)
                if ranged:
                    scope.ranges[ranged[1]] = int(ranged[2])
                    self.registers[self.scoped(ranged[1], scope) + "<>"] = type_
                else:
                    scope.names.add(name)
                    self.registers[self.scoped(name, scope)] = type_
        elif statement.startswith(".branchtargets"):
            self.tables[label] = tuple(split(statement[len(".branchtargets") :].strip()))
        elif statement.startswith(".callprototype"):
            match = _PROTOTYPE.match(statement)
            if match is not None:
                sizes = (tuple(item.size for item in self.parameters(match[key])) for key in ("results", "takes"))
                self.prototypes[label] = Prototype(*sizes)
        elif not statement.startswith((".calltargets", ".pragma")):
            for variable in self.variables(statement):
                scope.names.add(variable.name)
                self.locals.append(variable._replace(name=self.scoped(variable.name, scope)))

    def resolve(self, name: str) -> str:
        for scope in reversed(self.scopes[1:]):
            if scope.holds(name):
                return self.scoped(name, scope)
        return name

    def instruction(self, statement: str, number: int) -> Instruction:
        guard, inverted = None, False
        text = statement
        if text.startswith("@"):
            inverted = text[1] == "!"
            guard, text = re.split(r"\s+", text[1 + inverted :], maxsplit=1)
            guard = self.resolve(guard)
        word, _, rest = text.replace("\n", " ").replace("\t", " ").partition(" ")
        word = word.replace("::", ":")
        opcode, *modifiers = word.split(".")
        operands = tuple(map(self.operand, split(rest)))
        place = self.location
        location = Location(place.file, place.line, number, place.column, place.group, place.caller)
        return Instruction(opcode, tuple(modifiers), operands, guard, inverted, location, word)

    def operand(self, text: str) -> Operand:
        """Parse an operand; results are cached, except in a nested `{ }`, where names may be redeclared."""
        if len(self.scopes) > 1:
            return self._operand(text)
        if text not in self.known:
            self.known[text] = self._operand(text)
        return self.known[text]

    def _operand(self, text: str) -> Operand:
        first = text[0]
        if first == "[":
            inner = text[1:-1].strip()
            if "," in inner:
                # `[map, {x, y}]`: a texture or tensor map and its coordinates.
                return Vector(tuple(map(self.operand, split(inner))))
            if _NUMBER.match(inner):
                return Address(None, integer(inner))
            name, offset = named(inner, "address", text)
            return Address(self.resolve(name), offset)
        if first in "{(" and text[-1] in "})":
            return Vector(tuple(map(self.operand, split(text[1:-1]))))
        if first == "!" or text[:2] == "-%":
            return Negated(self.resolve(text[1:].strip()))
        if "|" in text:
            return Pair(*(self.operand(part.strip()) for part in text.split("|", 1)))
        if first.isdigit() or (first in "+-" and len(text) > 1):
            return literal(text.replace(" ", ""))
        name, offset = named(text, "operand", text)
        return Symbol(self.resolve(name), offset)


def parse(text: str) -> Module:
    """Parse PTX text; raises PtxError if the text is not PTX for 64-bit addresses."""
    return _Parser(text).module()
