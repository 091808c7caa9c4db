"""Parses the report on kernels that ptxas prints with `-v`."""

from __future__ import annotations

import re

from cudabench.compile.record import Resources


def resources(log: str, ptx: str) -> dict[str, Resources]:
    """Return the resources of each kernel from ptxas' report; `max_threads` comes from `.maxntid` in the PTX."""
    bounds = {}
    for match in re.finditer(r"\.entry\s+([\w$]+)\s*\([^)]*\)\s*((?:\.\w+[^\n{]*\n)*)", ptx):
        limit = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", match[2])
        if limit:
            bounds[match[1]] = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1)
    reports = {}
    for paragraph in re.split(r"Compiling entry function ", log)[1:]:
        entry = re.match(r"'([^']+)'", paragraph)
        if entry is None:
            continue
        own = paragraph[paragraph.find(f"Function properties for {entry[1]}") :]
        reports[entry[1]] = Resources(
            registers=_number(r"Used (\d+) registers", own),
            shared_bytes=_number(r"(\d+)(?:\+\d+)? bytes smem", own),
            local_bytes=_number(r"(\d+) bytes stack frame", own),
            constant_bytes=sum(map(int, re.findall(r"(\d+) bytes cmem", own))),
            spill_stores=_number(r"(\d+) bytes spill stores", own),
            spill_loads=_number(r"(\d+) bytes spill loads", own),
            barriers=_number(r"used (\d+) barriers", own),
            max_threads=bounds.get(entry[1]),
        )
    return reports


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0
