"""What `mkdocs build` adds to the pages of this folder: a page a chapter, the measurements, a notebook's results, and
the order of the menu.

A chapter's page is made from its files: comments are its prose, its times are drawn from the records, and the
simulator draws and counts its ladder as the page is built. The cells of `notebook.md` run then too. Pages that nobody
put in order below are taken up by themselves.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

# The menu: pages by their names in it, where they are not called by their title. What does not exist is left out, and
# what is not named here comes under MORE.
ORDER: dict[str, dict[str, str]] = {
    "Start here": {"index.md": "", "faq.md": ""},
    "Learn": {
        "explains.md": "Why a kernel is slow",
        "limits.md": "Limits",
        "simulator.md": "The simulator",
        "notebook.md": "A notebook",
    },
    "Write": {
        "run.md": "Your own kernel",
        "programs.md": "A whole program",
        "sweep.md": "Sweep",
        "ab.md": "Two revisions",
        "report.md": "The report",
        "python.md": "From Python",
        "peers.md": "Beside libraries",
    },
    "Gate": {
        "ci.md": "CI",
        "sanitizer.md": "Beside compute-sanitizer",
    },
    "Buy": {
        "ceilings.md": "Ceilings",
        "fleet.md": "A fleet",
        "compared.md": "",
    },
    "Reference": {"measures.md": "", "results.md": ""},
}
MORE = "More"
LADDERS = "Ladders"
MEASURED = "Measured"
SMALL = {"matmul": (64, 64, 64), "solve": (32,)}  # sizes for the simulator's pictures, where its own take long
MOST_ELEMENTS = 128  # of each dimension of a picture's problem
CARDS = ("h100", "h200")  # whose recorded ladders are drawn
NOTEBOOK = "notebook.md"


def on_config(config: Any) -> Any:
    """Put the menu together."""
    here = [path.name for path in sorted(Path(config["docs_dir"]).glob("*.md"))]
    named = {page for pages in ORDER.values() for page in pages}
    menu: list[dict[str, Any]] = []
    for heading, pages in ORDER.items():
        menu.append({heading: [{name: page} if name else page for page, name in pages.items() if page in here]})
        if heading == "Learn":
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
        if recorded(name):
            files.append(File.generated(config, f"ladders/{name}-times.svg", content=times(name)))
        if counted(name):
            files.append(File.generated(config, f"ladders/{name}.svg", content=picture(name)))
            if conflict(name):
                files.append(File.generated(config, f"ladders/{name}-banks.svg", content=banks(name)))
        files.append(File.generated(config, f"ladders/{name}.md", content=chapter(name)))
    for path in measurements():
        files.append(File.generated(config, f"measured/{path.name}", content=path.read_text(encoding="utf-8")))
    cells = notebook()
    for cell in cells:
        if cell.svg:
            files.append(File.generated(config, cell.file, content=cell.svg))
    files.append(File.generated(config, "notebook.ipynb", content=ipynb(cells)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links to the measurements lead to their pages, and put the notebook's results below its cells."""
    if page.file.src_uri == NOTEBOOK:
        markdown = shown(notebook())
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
    _SIMULATED[name] = cudabench.simulate(name, size=size, watch=(0, 0))
    return _SIMULATED[name]


_SIMULATED: dict[str, Any] = {}


# Pictures -------------------------------------------------------------------------------------------------------------


def picture(name: str) -> str:
    """Return the ladder's drawing, as SVG."""
    svg: str = simulated(name).picture("ladder").svg
    return svg


def recorded(name: str) -> dict[str, dict[str, float]]:
    """Return the recorded median times of a ladder's kernels in seconds, by card, at the size nearest the standard."""
    from cudabench import operations

    wanted = operations.get(name).default_size
    found: dict[str, dict[str, float]] = {}
    for card in CARDS:
        record = json.loads((RESULTS / f"ladders_{card}.json").read_text(encoding="utf-8"))
        rows = [row for row in record["kernels"] if row["operation"] == name]
        if not rows:
            continue
        size = min((row["size"] for row in rows), key=lambda one: abs(one[0] - wanted[0]))
        title = f"{record['device']}, {' x '.join(map(str, size))}"
        found[title] = {row["kernel"]: row["seconds"] for row in rows if row["size"] == size}
    return found


def times(name: str) -> str:
    """Return the recorded times of a ladder, rung by rung and card by card, as SVG."""
    from cudabench.views.figures import COLOURS, HATCHES

    cards = recorded(name)
    kernels = list(next(iter(cards.values())))
    figure = new_figure(0.9 + 0.42 * len(kernels))
    axes = figure.subplots()
    height = 0.8 / len(cards)
    for at, (title, by_kernel) in enumerate(cards.items()):
        places = [rung + (at - (len(cards) - 1) / 2) * height for rung in range(len(kernels))]
        values = [by_kernel.get(kernel, float("nan")) * 1e6 for kernel in kernels]
        drawn = axes.barh(places, values, height, color=COLOURS[at], hatch=HATCHES[at], edgecolor="white", label=title)
        axes.bar_label(drawn, fmt="{:.4g}", padding=3, fontsize=7)
    axes.set_yticks(range(len(kernels)), kernels)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("median time in µs, cold L2, less is better")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(cards), frameon=False, fontsize=8)
    return svg_of(figure)


def conflict(name: str) -> tuple[tuple[Any, Any], ...]:
    """Return two pairs (result, request): a ladder's worst bank conflict, and that of a later rung without it.

    Return () if no kernel has a conflict, or if no later rung is without it.
    """
    results = {result.kernel: result for result in simulated(name).results}
    rungs = [results[kernel] for kernel in results if results[kernel].banks]
    worst = max(
        ((result, one) for result in rungs for one in result.banks),
        key=lambda pair: len(pair[1].passes) / pair[1].ideal,
        default=None,
    )
    if worst is None or len(worst[1].passes) <= worst[1].ideal:
        return ()
    for result in rungs[rungs.index(worst[0]) + 1 :]:
        alike = [one for one in result.banks if (one.op, one.bytes) == (worst[1].op, worst[1].bytes)]
        if alike and all(len(one.passes) <= one.ideal for one in alike):
            return worst, (result, alike[0])
    return ()


def banks(name: str) -> str:
    """Return two requests to shared memory as SVG: a column a bank, a row a wavefront, in each cell the lane served."""
    from cudabench.views.figures import COLOURS

    pairs = conflict(name)
    rows = [len(request.passes) for _, request in pairs]
    figure = new_figure(1.5 + 0.2 * sum(rows))
    for axes, (result, request) in zip(
        figure.subplots(len(pairs), squeeze=False, height_ratios=rows)[:, 0], pairs, strict=True
    ):
        for row, served in enumerate(request.passes):
            for bank, lanes in enumerate(served):
                axes.add_patch(rectangle(bank, row, COLOURS[0] if lanes else "#eeeeee"))
                if lanes:
                    axes.text(bank + 0.5, row + 0.5, lanes[0], color="white", size=6, ha="center", va="center")
        passes = "1 wavefront" if len(request.passes) == 1 else f"{len(request.passes)} wavefronts"
        axes.set_title(
            f"{result.kernel}, line {request.line}: a warp's {request.op} takes {passes}", size=9, loc="left"
        )
        axes.set(xlim=(0, 32), ylim=(len(request.passes), 0), ylabel="wavefront" if len(request.passes) > 2 else "")
        axes.set_xticks([bank + 0.5 for bank in range(0, 32, 4)], range(0, 32, 4))
        axes.set_yticks([row + 0.5 for row in range(len(request.passes))], range(1, len(request.passes) + 1))
        axes.tick_params(length=0, labelsize=7)
        axes.spines[:].set_visible(False)
    axes.set_xlabel("bank of shared memory; the numbers are the lanes that it serves")
    return svg_of(figure)


def new_figure(height: float) -> Any:
    """Return a figure as wide as those of `cudabench plot`."""
    from matplotlib.figure import Figure

    from cudabench.views.figures import WIDTH_IN

    return Figure(figsize=(WIDTH_IN, height), layout="constrained")


def rectangle(bank: int, row: int, colour: str) -> Any:
    """Return a cell of the picture of banks."""
    from matplotlib.patches import Rectangle

    return Rectangle((bank + 0.05, row + 0.05), 0.9, 0.9, color=colour, linewidth=0)


def svg_of(figure: Any) -> str:
    """Return a figure's SVG, the same for the same content."""
    from cudabench.views import plot

    return plot.render(figure, "svg").decode()


# The notebook ---------------------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """A cell: its prose or code, and what its last line shows as text or as a drawing in `file`."""

    kind: str
    source: str
    text: str = ""
    svg: str = ""
    file: str = ""


def notebook() -> list[Cell]:
    """Return the cells of the notebook's page with their results, run in order, once a build."""
    if not _CELLS:
        page = (ROOT / "docs" / NOTEBOOK).read_text(encoding="utf-8")
        names: dict[str, Any] = {}
        for at, part in enumerate(re.split(r"^```python\n(.*?)^```\n", page, flags=re.MULTILINE | re.DOTALL)):
            if at % 2 == 0:
                _CELLS.append(Cell("markdown", part.strip()))
                continue
            printed = io.StringIO()
            with redirect_stdout(printed):
                value = last_value(part, names)
            svg = value.svg if hasattr(value, "svg") else ""
            text = printed.getvalue() + ("" if svg or value is None else str(value))
            _CELLS.append(Cell("code", part.rstrip(), text.strip("\n"), svg, f"notebook-{at}.svg" if svg else ""))
    return _CELLS


_CELLS: list[Cell] = []


def last_value(code: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last line, as a notebook does; None if that is not an expression."""
    body = ast.parse(code).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), NOTEBOOK, "exec"), names)
    return eval(compile(ast.Expression(last.value), NOTEBOOK, "eval"), names) if isinstance(last, ast.Expr) else None


def shown(cells: list[Cell]) -> str:
    """Return the notebook's page: below each cell what it shows."""
    parts = []
    for cell in cells:
        parts.append(cell.source if cell.kind == "markdown" else f"```python\n{cell.source}\n```")
        if cell.text:
            parts.append("\n".join(f"    {row.rstrip()}".rstrip() for row in cell.text.strip().splitlines()))
        if cell.svg:
            parts.append(f"![{cell.source.splitlines()[-1]}]({cell.file})")
    parts.append("This page [as a notebook](notebook.ipynb), with the same results.")
    return "\n\n".join(parts) + "\n"


def ipynb(cells: list[Cell]) -> str:
    """Return the page as a Jupyter notebook, in its format 4."""
    made: list[dict[str, Any]] = []
    for cell in cells:
        common = {"cell_type": cell.kind, "metadata": {}, "source": cell.source}
        if cell.kind == "code":
            data = {"image/svg+xml": cell.svg} if cell.svg else {"text/plain": cell.text} if cell.text else {}
            output = {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
            common |= {"execution_count": None, "outputs": [output] if data else []}
        made.append(common)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {"kernelspec": kernel}, "cells": made}, indent=1)


# Chapters -------------------------------------------------------------------------------------------------------------


def chapter(name: str) -> str:
    """Return the page of an operation's chapter, as Markdown."""
    from cudabench import operations

    operation = operations.get(name)
    texts = {file: blocks((ROOT / "kernels_cu" / file).read_text(encoding="utf-8")) for file in files(name)}
    names = {kernel.function: kernel.name for kernel in operation.kernels}
    lines = [f"# {name}", "", prose(texts[f"{name}.cu"].pop(0)[1]), ""]
    lines += [
        f"`cudabench {name}` runs the ladder; `cudabench explain {name} KERNEL` shows why a rung costs what it does."
    ]
    records = measured(name)
    if recorded(name) or records:
        lines += ["", "## Measured", ""]
        if recorded(name):
            lines += [f"![The times of each rung on {' and on '.join(recorded(name))}]({name}-times.svg)", ""]
            drawn = {kernel for by_kernel in recorded(name).values() for kernel in by_kernel}
            missing = [kernel.name for kernel in operation.kernels if kernel.name not in drawn]
            lines += [f"Not in this record: {', '.join(missing)}.", ""] if missing else []
        lines += records
    if counted(name):
        lines += ["", "## Counted", "", "The simulator's counts, which need no GPU:", "", f"![{name}]({name}.svg)", ""]
        lines += ["```text", str(simulated(name)).rstrip(), "```"]
        lines += conflict_told(name)
    for file, parts in texts.items():
        lines += ["", f"## {file}", ""]
        for at, (kind, text) in enumerate(parts):
            code = text if kind == "code" else parts[at + 1][1] if at + 1 < len(parts) else ""
            headings = [names[one] for one in names if re.search(rf"\b{one}\s*\(", code)]
            if headings and (kind == "prose" or not at or parts[at - 1][0] == "code"):
                lines += [f"### {', '.join(headings)}", ""]
            lines += ["```cuda", text, "```", ""] if kind == "code" else [prose(text), ""]
    return "\n".join(lines) + "\n"


def files(name: str) -> list[str]:
    """Return the chapters of an operation, then their headers."""
    from cudabench import operations
    from cudabench.plan import chapters

    own = chapters.names(operations.get(name))
    headers = (header for file in own for header in chapters.headers(chapters.read_chapter(file)))
    return list(dict.fromkeys([*own, *headers]))


def conflict_told(name: str) -> list[str]:
    """Return the section on a ladder's bank conflict and the rung without it, or an empty list."""
    if not conflict(name):
        return []
    (slow, before), (fast, after) = conflict(name)
    lines = ["", f"## Why {fast.kernel} is free of bank conflicts", ""]
    lines += [
        "Shared memory has 32 banks of 4 bytes, and a bank serves one row of them at a time. Lanes of a warp that need "
        "different rows of one bank wait for each other: each pass is a wavefront.",
        "",
    ]
    for result, request in ((slow, before), (fast, after)):
        if request.pitch_bytes:
            words, rest = divmod(request.pitch_bytes, 4)
            step = words % 32
            where = "in the same bank as the one before" if step == 0 else f"{step} banks further than the one before"
            if rest == 0:
                lines += [f"* `{result.kernel}`: a row of its tile takes {words} words, so each row begins {where}."]
    lines += ["", f"![Which bank serves which lane: {slow.kernel}, and {fast.kernel}]({name}-banks.svg)", ""]
    lines += [f"`cudabench explain {name} -k {slow.kernel} -k {fast.kernel} --banks` prints it for any block and size."]
    return lines


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
