"""What `mkdocs build` adds to the pages of this folder: a page a chapter, the measurements, and the order of the menu.

A chapter's page is made from its `.cu` file: comments are its prose, and the simulator draws and counts its ladder as
the page is built. Pages that nobody put in order below are taken up by themselves.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

# The menu. What does not exist is left out, and what is not named here comes under MORE.
ORDER: dict[str, tuple[str, ...]] = {
    "Start here": ("index.md", "faq.md"),
    "Use": ("run.md", "explains.md", "sweep.md", "ab.md", "report.md", "python.md", "ci.md", "fleet.md", "peers.md"),
    "Trust": ("measures.md", "limits.md", "ceilings.md", "simulator.md", "compared.md"),
    "Reference": ("results.md",),
}
MORE = "More"
LADDERS = "Ladders"
MEASURED = "Measured"
SMALL = {"matmul": (64, 64, 64), "solve": (32,)}  # sizes for the simulator's pictures, where its own take long
MOST_ELEMENTS = 128  # of each dimension of a picture's problem


def on_config(config: Any) -> Any:
    """Put the menu together."""
    here = [path.name for path in sorted(Path(config["docs_dir"]).glob("*.md"))]
    named = {page for pages in ORDER.values() for page in pages}
    menu: list[dict[str, Any]] = []
    for heading, pages in ORDER.items():
        menu.append({heading: [page for page in pages if page in here]})
        if heading == "Start here":
            menu.append({LADDERS: [f"ladders/{name}.md" for name in chapters()]})
    others = [page for page in here if page not in named]
    menu += [{MORE: others}] if others else []
    menu.append({MEASURED: [f"measured/{path.name}" for path in measurements()]})
    config["nav"] = menu
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for name in chapters():
        if counted(name):
            files.append(File.generated(config, f"ladders/{name}.svg", content=picture(name)))
        files.append(File.generated(config, f"ladders/{name}.md", content=chapter(name)))
    for path in measurements():
        files.append(File.generated(config, f"measured/{path.name}", content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links to the measurements lead to their pages."""
    return re.sub(r"\]\(\.\./benchmarks/results/([\w.]+\.md)\)", r"](measured/\1)", markdown)


def chapters() -> list[str]:
    """Return the operations in the order of `cudabench list`."""
    from cudabench import operations

    return [*operations.SUMMARIES]


def counted(name: str) -> bool:
    """Tell whether a ladder is simulated: all are, or those that CUDABENCH_DOCS_LADDERS names, for a quick build."""
    wanted = os.environ.get("CUDABENCH_DOCS_LADDERS")
    return wanted is None or name in wanted.split(",")


def measurements() -> list[Path]:
    """Return the recorded measurements."""
    return sorted(RESULTS.glob("*.md"))


def simulated(name: str) -> Any:
    """Return the ladder as the simulator counts it, at a size that takes a second."""
    import cudabench
    from cudabench import operations

    if name in _SIMULATED:
        return _SIMULATED[name]
    operation = operations.get(name)
    size = SMALL.get(name) or tuple(
        min(one, MOST_ELEMENTS if len(operation.dimensions) > 1 else MOST_ELEMENTS**2)
        for one in operation.simulated_size or operation.default_size
    )
    _SIMULATED[name] = cudabench.simulate(name, size=size)
    return _SIMULATED[name]


_SIMULATED: dict[str, Any] = {}


def picture(name: str) -> str:
    """Return the ladder's drawing, as SVG."""
    svg: str = simulated(name).picture("ladder").svg
    return svg


def chapter(name: str) -> str:
    """Return the page of an operation's chapter, as Markdown."""
    from cudabench import operations

    operation = operations.get(name)
    parts = blocks((ROOT / "kernels_cu" / f"{name}.cu").read_text(encoding="utf-8"))
    names = {kernel.function: kernel.name for kernel in operation.kernels}
    lines = [f"# {name}", "", prose(parts[0][1]), ""]
    lines += [
        f"`cudabench {name}` runs the ladder; `cudabench explain {name} KERNEL` shows why a rung costs what it does."
    ]
    recorded = measured(name)
    if recorded:
        lines += ["", "## Measured", "", *recorded]
    if counted(name):
        lines += ["", "## Counted", "", "The simulator's counts, which need no GPU:", "", f"![{name}]({name}.svg)", ""]
        lines += ["```text", str(simulated(name)).rstrip(), "```"]
    lines += ["", "## The chapter", ""]
    for at, (kind, text) in enumerate(parts[1:], 1):
        code = text if kind == "code" else parts[at + 1][1] if at + 1 < len(parts) else ""
        headings = [names[one] for one in names if re.search(rf"\b{one}\s*\(", code)]
        if headings and (kind == "prose" or parts[at - 1][0] == "code"):
            lines += [f"### {', '.join(headings)}", ""]
        lines += ["```cuda", text, "```", ""] if kind == "code" else [prose(text), ""]
    return "\n".join(lines) + "\n"


def blocks(text: str) -> list[tuple[str, str]]:
    """Return a chapter as its parts in order: comments that start a line are prose, all else is code."""
    parts: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        kind = "prose" if line.startswith("//") else "code"
        if not parts or parts[-1][0] != kind:
            parts.append((kind, []))
        parts[-1][1].append(line.removeprefix("//").removeprefix(" ") if kind == "prose" else line)
    found = [(kind, "\n".join(lines).strip("\n")) for kind, lines in parts]
    return [(kind, body) for kind, body in found if body.strip()]


def prose(text: str) -> str:
    """Return a comment as Markdown that shows it as it is."""
    return re.sub(r"[\\`*_<>\[\]#|]", r"\\\g<0>", text)


def measured(name: str) -> list[str]:
    """Return the recorded ladder of an operation: the sections of the measurements that are headed by its name."""
    lines: list[str] = []
    for path in measurements():
        sections = re.split(r"^(?=#{1,3} )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        own = path.stem.startswith(name)
        for at, section in enumerate(sections):
            heading = section.partition("\n")[0].lstrip("# ")
            if heading.lower().startswith(name) or (own and (at == 1 or heading == "The ladder")):
                body = section.partition("\n")[2].strip()
                if "|" in body or "```" in body:
                    lines += [
                        f"From [{path.stem.replace('_', ' ')}](../measured/{path.name}), {heading}:",
                        "",
                        body,
                        "",
                    ]
    return lines
