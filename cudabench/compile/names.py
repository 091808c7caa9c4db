"""Finds the entry (mangled name in PTX and machine code) that belongs to the C++ name of a kernel.

NVRTC reports the entry of a C++ expression. nvcc does not, so `queries` appends an empty kernel to the source for each
name. The mangled name of the empty kernel contains that of the requested kernel, which `match` reads. With both
compilers, requested template instances are made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudabench.compile.diagnostics import HEAD, OF_NAMES
from cudabench.errors import UsageError
from cudabench.source.files import parse_text

QUERY_FILE = "cudabench-names"
# 19 is the length of 'cudabench_name_' plus four digits, so the number that follows must always have four digits
_QUERY = "_Z19cudabench_name_"
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
    """Return the text to append to a source: one empty kernel for each name in `names`, which instantiates
    templates."""
    lines = [
        f"__global__ void cudabench_name_{index:04}(cudabench_tag<({as_cpp(name)})>*) {{}}\n"
        for index, name in enumerate(names)
    ]
    return f'#line 1 "{QUERY_FILE}"\ntemplate <auto> struct cudabench_tag;\n' + "".join(lines) if names else ""


def wrong_name(log: str, names: Sequence[str]) -> str | None:
    """Return the requested name that the compiler does not accept, if all errors of the log are about names; else
    None."""
    files = [head["file"] for line in log.splitlines() if (head := HEAD.match(line)) and head["error"]]
    if not files or not names or not all(file.startswith(OF_NAMES) for file in files):
        return None
    if place := re.search(rf"{QUERY_FILE}\((\d+)\)", log):
        return names[min(max(int(place[1]) - 2, 0), len(names) - 1)]
    return next((name for name in names if f"#pragma nv_mangled_name {as_cpp(name)}\n" in log), None)


def match(names: Sequence[str], entries: Sequence[str]) -> dict[str, str]:
    """Return a dict from each name to its entry, for a file that was compiled with `queries`.

    Mangled names refer to their earlier parts by numbers (S_, S0_, ...), counted from the start of the whole name. So
    the numbers in a query's name and in the kernel's entry differ, and the comparison ignores these numbers. A name
    without exactly one matching entry is left out.
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
        if not fitting and plain:  # the kernel is extern "C", so its entry has the plain name
            fitting = [entry for entry in own if entry == plain[2][: int(plain[1])]]
        if len(fitting) == 1:
            lowered[name] = fitting[0]
    return lowered


def without_queries(ptx: str) -> str:
    """Return PTX without the empty kernels of `queries` and without their `.file` line."""
    ptx = re.sub(rf'^\s*\.file\s+\d+\s+"[^"]*{QUERY_FILE}"[^\n]*\n', "", ptx, flags=re.M)
    return re.sub(rf"^[^\n]*\.entry {_QUERY}[^{{]*\{{.*?^\}}\n", "", ptx, flags=re.M | re.S)


def no_such_name(name: str, source: str, filename: str) -> UsageError:
    """Return the error for a name that matches no kernel of a file, or several."""
    listed = "; ".join(kernel.signature for kernel in parse_text(source, filename).kernels) or "none"
    return UsageError(f"'{name}' matches no kernel or several kernels of {filename}: use one of {listed}.")
