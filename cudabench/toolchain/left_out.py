"""What was left out of a text because a compiler refused it, and whether a kernel comes to it.

Nothing may take its place: where another overload, the template of a specialisation or a name of an outer scope is
found instead, the kernel does something else than its source says. So a kernel that names what was left out is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cudabench.symbols import readable
from cudabench.toolchain.declarations import Declaration, declarations
from cudabench.toolchain.signatures import template_head
from cudabench.toolchain.tokens import Scan, closing_angle, closing_bracket, is_name, opening_angle

Macros = Mapping[str, frozenset[str]]
_UNRESOLVED = re.compile(r"(?:Unresolved extern|Cannot take address of) function '([\w$]+)'")
_EXTERN = re.compile(r"^\s*\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)", re.M)
_OF_RUNTIME = ("cuda", "__", "vprintf", "malloc", "free")
ANY = "*"  # the name of what any code may come to
_NAMES_TYPE = re.compile(r"[<&\w]")  # what stands behind a type, and behind no name of a parameter
_TYPES = frozenset(["struct", "class", "union"])
_PLAIN = frozenset(
    """alignas asm auto bool char char16_t char32_t class const constexpr consteval constinit decltype double enum
    explicit extern final float friend inline int long mutable noexcept operator override private protected public
    register requires short signed sizeof static static_assert struct template this thread_local typedef typename union
    unsigned using virtual void volatile wchar_t __device__ __host__ __global__ __constant__ __shared__ __managed__
    __forceinline__ __noinline__ __inline__ __restrict__ __align__ __launch_bounds__ __attribute__""".split()  # noqa: SIM905
)
# Words before a name that is used, not declared.
_BEFORE_USES = frozenset(
    """return else case goto throw new delete sizeof typename struct class enum typedef using do operator co_return
    co_yield and or not xor template""".split()  # noqa: SIM905
)
_QUALIFIERS = frozenset(["const", "volatile", "static", "constexpr", "inline", "extern", "register", "mutable"])
_CONDITIONS = frozenset(["for", "if", "while", "switch", "catch"])
# What only the host has values of: no argument that a kernel gives is converted to one.
_OF_HOST = frozenset(
    """string string_view vector ostream istream iostream ofstream ifstream fstream stringstream ostringstream
    istringstream map unordered_map multimap set unordered_set list deque queue stack shared_ptr unique_ptr weak_ptr
    mutex thread path exception random_device mt19937""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class LeftOut:
    """A declaration that is left out; the names by which code comes to it, and the compiler's refusal of it.

    `member`: those of a class, which code may also name behind a '.'. `objects`: what objects of the class of that name
    need, but not who names it for `C::f` alone. `takes`: the words of the types that a function takes. `body`: only the
    body is left out; who calls the function comes to an undefined one.
    """

    names: frozenset[str]
    log: str
    member: bool = False
    objects: bool = False
    takes: frozenset[str] = frozenset()
    body: bool = False


def left_out(text: str, one: Declaration, inside: Sequence[Declaration], log: str, *, body: bool) -> LeftOut:
    """Return the record of a declaration that is left out of a text, a member of the last class of `inside`."""
    words = _words(text, one)
    found = names(words, one)
    if body:
        return LeftOut(found, log, bool(inside), body=True)
    if _takes_hosts(words, one):
        return LeftOut(frozenset(), log, bool(inside))
    if inside:
        whole = _words(text, inside[-1])
        of_class = names(whole, inside[-1])
        special = "operator" in words or found & of_class or ("virtual" in words and whole.count("virtual") == 1)
        if special or _is_variable(words, one):
            # How large one is, how it is made, copied and converted.
            return LeftOut(of_class, log, member=True, objects=True)
    return LeftOut(found, log, bool(inside), takes=_taken(words) if one.function else frozenset())


def replaced(
    gone: Iterable[LeftOut],
    texts: Iterable[str],
    kept: Collection[str],
    asked: Iterable[str],
    macros: Macros,
    *,
    incomplete: bool = False,
) -> LeftOut | None:
    """Return the first of what is left out of texts that a kernel called as one of `kept` comes to by name; else None.

    `asked` are the C++ expressions of those kernels. What only lacks its body is none of them: calls show it. Where a
    function lost its body before its head, the record is that of the body. `incomplete` says that headers are missing:
    a function that takes a type of theirs, which a kernel never names, is none that it calls.
    """
    gone, texts = list(gone), list(texts)
    one = _named(gone, texts, kept, asked, macros, incomplete=incomplete)
    return next((body for body in gone if one and body.body and body.names == one.names), one)


def _named(
    gone: Collection[LeftOut],
    texts: Collection[str],
    kept: Collection[str],
    asked: Iterable[str],
    macros: Macros,
    *,
    incomplete: bool,
) -> LeftOut | None:
    named = [one for one in gone if one.names and not one.body]
    if not named:
        return None
    found = _reached(texts, kept, asked, macros)
    if found is None:
        return named[0]
    plain = {name.removesuffix("::") for name in found}
    behind = {name.removeprefix(".") for name in plain}
    # Types of headers that are missing, by the names of their namespaces and those that this text gave them.
    spaces = {word for one in named for word in one.takes if not re.search(rf"\b{word}\b(?!\s*::)", "".join(texts))}
    absent = {name for one in named if not one.takes for name in one.names} | spaces
    pastes = any("#" in macros.get(name, ()) for name in behind)
    for one in named:
        if incomplete and one.takes & absent - plain:
            continue
        if ANY in one.names or one.names & (found if one.objects else behind if one.member else plain):
            return one
        if any(pasted[1:] in name for pasted in one.names if pasted[0] == "#" for name in behind):
            return one
        if pastes and any(_is_made_of(name, behind) for name in one.names):
            return one
    return None


def called(text: str, one: Declaration) -> str:
    """Return the name of a function as calls mean it: 'f', 'operator+'; '' for one of a class, `T C::f()`."""
    words = _words(text, one)
    words = words[template_head(words)[1] :]
    if "(" not in words:
        return ""
    at = words.index("(")
    if "operator" in words[:at]:
        begin = words.index("operator")
        qualified = words[begin - 1] == "::" if begin else False
        return "" if qualified else "".join(words[begin : max(at, begin + 2)])
    index = _name_before_brackets(words, at) if at > 1 else None
    return "" if index is None or words[index - 1] == "::" else words[index]


def is_defined_outside(text: str, one: Declaration) -> bool:
    """Whether a function is declared elsewhere, `T C::f() {...}`, and no specialisation."""
    words = _words(text, one)
    return words[:3] != ["template", "<", ">"] and not called(text, one) and "::" in words[: words.index("(")]


def undefined(log: str, ptx: str, gone: Collection[LeftOut]) -> tuple[str, LeftOut] | None:
    """Return the function without its body that machine code or PTX calls, as they name it, and its record.

    `log` is ptxas' refusal of machine code, '' where it took it; None where nothing calls one.
    """
    bodies = [one for one in gone if one.body]
    calls = [*_UNRESOLVED.findall(log), *_EXTERN.findall(ptx)] if bodies else []
    for name in calls:
        if name.startswith(_OF_RUNTIME):
            continue
        known = readable(name).split("::")
        return name, next((one for one in bodies if one.names & set(known[-2:])), bodies[0])
    return None


def _is_made_of(name: str, parts: Collection[str]) -> bool:
    """Whether a macro may have put a name together of these."""
    ends = {0}
    for end in range(1, len(name) + 1):
        if any(name[start:end] in parts for start in ends):
            ends.add(end)
    return len(name) in ends


def names(words: Sequence[str], one: Declaration) -> frozenset[str]:
    """Return the names that a declaration of these words declares; of an operator, those of the types that it takes."""
    start = template_head(words)[1]
    of_template, words = start > 0, list(words[start:])
    if not words:
        return frozenset()
    if words[0] in ("static_assert", "_Static_assert", "#"):
        return frozenset()
    if one.function:
        return _of_function(words, one)
    if words[0] == "using":
        if words[1:2] == ["namespace"]:
            return frozenset()
        return frozenset([words[1]] if words[2:3] == ["="] else [word for word in words[-2:] if is_name(word)])
    kinds = [at for at, word in enumerate(words) if word in (*_TYPES, "enum")]
    brace = words.index("{") if "{" in words else len(words)
    if kinds and kinds[0] < brace < len(words) and "=" not in words[:brace]:
        return _of_class(words, kinds[0], brace)
    if words[0] == "friend" or (kinds and len(kinds) == len(words) - 1):
        return frozenset(words[-1:])
    if words[0] == "namespace":
        return frozenset(words[1:2])
    return _declared(words, of_template=of_template)


def _of_function(words: list[str], one: Declaration) -> frozenset[str]:
    at = words.index("(")
    if at == 1 and {"{", ";"} & one.head:  # MACRO(...) that writes it
        arguments = {word for word in words[1:] if is_name(word)}
        return frozenset(arguments | {"#" + word for word in arguments if "#" in one.head})
    if "operator" in words[:at]:
        inner = words[at : closing_bracket(words, at) + 1]
        if inner == ["(", ")"] and words[at + 2 : at + 3] == ["("]:
            at += 2
            inner = words[at : closing_bracket(words, at) + 1]
        return _types_in(inner) or frozenset([ANY])
    index = _name_before_brackets(words, at)
    if index is not None:
        return frozenset([words[index]])
    return frozenset({word for word in words if is_name(word) and word not in _PLAIN} or {ANY})


def _types_in(parameters: Sequence[str]) -> frozenset[str]:
    """The names in a list of parameters but those of the parameters."""
    return frozenset(
        word
        for before, word, behind in zip(["", *parameters], parameters, [*parameters[1:], ""], strict=False)
        if is_name(word)
        and word not in _PLAIN
        and (behind not in (",", ")", "=", "[") or before in ("(", ",", "::", "const"))
    )


def _taken(words: Sequence[str]) -> frozenset[str]:
    words = list(words[template_head(words)[1] :])
    index = _name_before_brackets(words, words.index("(")) if "(" in words else None
    if index is None:
        return frozenset()
    at = words.index("(", index)
    return _types_in(words[at : closing_bracket(words, at) + 1])


def _name_before_brackets(words: list[str], at: int) -> int | None:
    """Where the name of the function is whose head has its first bracket at `at`, None where that is not plain."""
    while at > 0:
        end = closing_bracket(words, at) + 1
        following = words.index("(", end) if "(" in words[end:] else 0
        if words[at + 1 : at + 2] == ["*"] and words[at - 1] in _PLAIN:
            return None  # it returns a pointer to a function
        # Attributes have brackets, too: `__attribute__((used)) int f(int)`, `ALIGNED(8) int f(int)`.
        attribute = end < len(words) and is_name(words[end]) and words[end] not in ("const", "noexcept", "override")
        if following and (words[at - 1] in _PLAIN or attribute):
            at = following
            continue
        index = opening_angle(words, at - 1) - 1 if words[at - 1] == ">" else at - 1  # a specialisation: f<int>(
        return index if index >= 0 and is_name(words[index]) and words[index] not in _PLAIN else None
    return None


def _of_class(words: list[str], kind: int, brace: int) -> frozenset[str]:
    head, at = [], kind + 1
    while at < brace:
        if words[at] == "<":
            at = closing_angle(words, at)
        elif words[at] == "(":
            at = closing_bracket(words, at)
        elif words[at] == ":":
            break
        elif is_name(words[at]) and words[at] not in _PLAIN:
            head.append(words[at])
        at += 1
    end = closing_bracket(words, brace)
    found = set(head[-1:]) | _declared(words[end + 1 :])
    if words[kind] == "enum":
        found |= {word for word in words[brace:end] if is_name(word)}
    return frozenset(found or {ANY})


def _declared(words: Sequence[str], *, of_template: bool = False) -> frozenset[str]:
    """The names of variables and typedefs, as far as their places show: `int a = 3, *b, c[4];`, `void (*f)(int)`."""
    found, angles = set(), 0
    for at, word in enumerate(words):
        behind = words[at + 1] if at + 1 < len(words) else ";"
        angles = max(angles + (word == "<") - (word == ">"), 0)
        ends = behind in ("=", ",", ";", "[", "{", "(", ")") or (of_template and behind == "<")
        if angles == 0 and ends and is_name(word) and word not in _PLAIN:
            found.add(word)
    return frozenset(found)


def _is_variable(words: Sequence[str], one: Declaration) -> bool:
    start = template_head(words)[1]
    first = words[start : start + 1]
    return not one.function and not set(first) & {*_TYPES, "enum", "using", "typedef", "static_assert", "friend"}


def _takes_hosts(words: Sequence[str], one: Declaration) -> bool:
    """Whether a function takes what a kernel has none of."""
    if not one.function or "(" not in words:
        return False
    at = words.index("(")
    listed = [*words[at : closing_bracket(words, at)], ""]
    return any(
        word in _OF_HOST
        and (listed[index - 2] == "std" if listed[index - 1] == "::" else _NAMES_TYPE.match(listed[index + 1]))
        for index, word in enumerate(listed)
    )


def _words(text: str, one: Declaration) -> list[str]:
    scan = Scan(text[one.start : one.end])
    scan.leave_out(scan.hidden_spans())
    return scan.words[:-1] if scan.words[-1:] == [";"] else scan.words


# What a kernel comes to ----------------------------------------------------------------------------------------------


def _reached(
    texts: Iterable[str], kept: Collection[str], asked: Iterable[str], macros: Macros
) -> frozenset[str] | None:
    """The names that kernels come to, of members as '.m', before a '::' as 'C::'; None where no text shows the kernels.

    More rather than less: through all functions, classes and variables of a name, and operators of the types named.
    """
    uses: dict[str, set[str]] = {}
    waiting = {word for name in asked for word in re.findall(r"\w+", name) if word not in kept}
    begun = False
    for text in texts:
        for one in declarations(text, macros):
            own = _with_macros(set(_used_by(text, one)), macros)
            if "__global__" in one.head and (not kept or one.head & set(kept)):
                waiting |= own
                begun = True
            for name in names(_words(text, one), one):
                uses.setdefault(ANY if name[0] == "#" else name, set()).update(own)
    if not begun:
        return None
    found: set[str] = set()
    waiting |= uses.get(ANY, set())
    while waiting:
        found |= waiting
        waiting = {word for name in waiting for word in uses.get(_bare(name), ())} - found
    return frozenset(found)


def _used_by(text: str, one: Declaration, of_class: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names that a declaration uses, of a class those that its members do but for their constructors' own."""
    words = _words(text, one)
    if not one.members:
        head = {at for at in range(len(words) - 1) if words[at] in of_class and words[at + 1] == "("}
        yield from _uses([word for at, word in enumerate(words) if at not in head], function=one.function)
        return
    own = names(words, one)
    yield from _uses(words[: words.index("{")], function=False) - own
    for member in one.members:
        yield from _used_by(text, member, own)


def _bare(name: str) -> str:
    return name.removeprefix(".").removesuffix("::")


def _with_macros(words: set[str], macros: Macros) -> set[str]:
    found: set[str] = set()
    waiting = set(words)
    while waiting:
        found |= waiting
        meant = (word for name in waiting for word in macros.get(_bare(name), ()))
        waiting = {word for word in meant if is_name(word)} - found
    return found


def _uses(words: Sequence[str], *, function: bool) -> set[str]:
    """The names that a definition uses, but where a parameter or a variable of its own has them."""
    found: set[str] = set()
    parameters, first = template_head(words)
    scopes: list[set[str]] = [{one.name for one in parameters}]
    pending: set[str] = set()  # of a head, `for` or parameters, for the block or statement that follows
    opened: list[str] = []
    for at, word in enumerate(words):
        if word in ("(", "["):
            opened.append(words[at - 1] if at else "")
        elif word in (")", "]"):
            del opened[-1:]
        elif word == "{":
            scopes.append(pending)
            pending, opened = set(), []
        elif word == "}":
            if len(scopes) > 1:
                del scopes[-1:]
            pending = set()
        elif word == ";" and not opened:
            pending = set()
        elif is_name(word):
            before, behind = words[at - 1 : at] or [""], words[at + 1 : at + 2] or [";"]
            if before == ["."] or list(words[max(at - 2, 0) : at]) == ["-", ">"]:
                found.add("." + word)
            elif at >= first and _is_declared(words, at, parameter=_lists(opened, scopes, function=function)):
                if opened and opened[-1] not in (*_CONDITIONS, "]") and not (function and len(scopes) == 1):
                    found.add(word)
                else:
                    (pending if opened else scopes[-1]).add(word)
            elif word not in pending and not any(word in scope for scope in scopes):
                found.add(word + "::" * (behind == ["::"]))
    return found


def _lists(opened: Sequence[str], scopes: Sequence[object], *, function: bool) -> bool:
    """Whether brackets are those of parameters: of the function, of a lambda or of `catch`."""
    return bool(opened) and (opened[-1] in ("]", "catch") or (function and len(scopes) == 1))


def _is_declared(words: Sequence[str], at: int, *, parameter: bool) -> bool:
    """Whether a variable or a parameter is declared at `at`: its type stands before it."""
    before, behind = (words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ";")
    if behind not in ("=", ";", "[", ",", ")", "{", ":"):
        return False
    if is_name(before):
        if before in _QUALIFIERS and (at < 2 or not (is_name(words[at - 2]) or words[at - 2] in ("*", "&", ">"))):
            return False  # `f(const T)`
        return before not in _BEFORE_USES
    if before not in ("*", "&", ">") or behind not in (
        ("=", ";", ":", ",", ")", "[") if parameter else ("=", ";", ":")
    ):
        return False
    start = at - 1
    while start >= 0 and (words[start] in ("*", "&", ">", "<", "::") or is_name(words[start])):
        start -= 1
    first = words[start + 1]
    if not is_name(first) or first in _BEFORE_USES:
        return False
    return start < 0 or words[start] in (";", "{", "}", "(", ",")
