"""C++ names of kernels and their entries in PTX and machine code.

NVRTC reports the entry of a C++ expression. For nvcc, `queries` appends an empty kernel for each name, whose mangled
name contains the name of the requested kernel, and `match` reads it. Both ways instantiate templates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudabench.compile.diagnostics import HEAD, OF_NAMES
from cudabench.errors import UsageError
from cudabench.source.files import parse_text

QUERY_FILE = "cudabench-names"
_QUERY = "_Z19cudabench_name_"  # with four digits, because the mangled name contains the length
ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)*\.entry\s+([\w$]+)", re.M)


def as_cpp(name: str) -> str:
    """Return a kernel's name as a C++ expression: 'f(float*, int)' becomes a cast that chooses the overload."""
    match = re.fullmatch(r"\s*([\w:]+\s*(?:<.*>)?)\s*\((.*)\)\s*", name, re.S)
    return f"(void(*)({match[2]}))&{match[1].strip()}" if match else name


def plain(name: str) -> str:
    """Return the last part of a kernel's name: 'f' of 'ns::f<float>(float*)'."""
    word = re.match(r"\s*(?:[\w:]*::\s*)?(\w+)", name)
    return word[1] if word else ""


def queries(names: Sequence[str]) -> str:
    """Return source text to append: an empty kernel for each C++ name of a kernel; it instantiates templates."""
    lines = [
        f"__global__ void cudabench_name_{index:04}(cudabench_tag<({as_cpp(name)})>*) {{}}\n"
        for index, name in enumerate(names)
    ]
    return f'#line 1 "{QUERY_FILE}"\ntemplate <auto> struct cudabench_tag;\n' + "".join(lines) if names else ""


def wrong_name(log: str, names: Sequence[str]) -> str | None:
    """Return the name whose query, or whose line in NVRTC's own text, is the only error of a log, or None."""
    files = [head["file"] for line in log.splitlines() if (head := HEAD.match(line)) and head["error"]]
    if not files or not names or not all(file.startswith(OF_NAMES) for file in files):
        return None
    if place := re.search(rf"{QUERY_FILE}\((\d+)\)", log):
        return names[min(max(int(place[1]) - 2, 0), len(names) - 1)]
    return next((name for name in names if f"#pragma nv_mangled_name {as_cpp(name)}\n" in log), None)


def match(names: Sequence[str], entries: Sequence[str]) -> dict[str, str]:
    """Return the entry of each name in a file that was compiled with `queries`.

    Mangling numbers back-references (S_, S0_, ...) from the start of the whole name, so the numbers differ between the
    query and the entry, and are ignored. A name without its own entry is left out.
    """
    own = [entry for entry in entries if not entry.startswith(_QUERY)]
    lowered = {}
    for index, name in enumerate(names):
        pattern = rf"{_QUERY}{index:04}P13cudabench_tagIX(?:ad)?L(_Z\w+)EEE$"
        query = next((match[1] for entry in entries if (match := re.match(pattern, entry))), None)
        if query is None:
            continue
        wanted = re.sub(r"S[0-9A-Z]*_", "S_", query)
        fitting = [entry for entry in own if re.sub(r"S[0-9A-Z]*_", "S_", entry) == wanted]
        plain = re.match(r"_Z(\d+)(\w+)", query)
        if not fitting and plain:  # extern "C": the entry is not mangled
            fitting = [entry for entry in own if entry == plain[2][: int(plain[1])]]
        if len(fitting) == 1:
            lowered[name] = fitting[0]
    return lowered


def without_queries(ptx: str) -> str:
    """Return PTX without the queries' entries and file."""
    ptx = re.sub(rf'^\s*\.file\s+\d+\s+"[^"]*{QUERY_FILE}"[^\n]*\n', "", ptx, flags=re.M)
    return re.sub(rf"^[^\n]*\.entry {_QUERY}[^{{]*\{{.*?^\}}\n", "", ptx, flags=re.M | re.S)


def no_such_name(name: str, source: str, filename: str) -> UsageError:
    """Return the error for a name that fits none or several of a file's kernels."""
    listed = "; ".join(kernel.signature for kernel in parse_text(source, filename).kernels) or "none"
    return UsageError(f"'{name}' fits none or several kernels of {filename}: use one of {listed}.")
