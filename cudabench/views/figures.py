"""The common parts of all pictures: width, colours, markers, and the escaping of names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudabench.errors import CudabenchError
from cudabench.text import line

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # annotations need the names; matplotlib takes long to import, so it is imported only when something is drawn
    Axes = Figure = Any

WIDTH_IN = 7.2
DPI = 150
# colours of cards or files, chosen so that people with any kind of colour blindness can distinguish them
COLOURS = ("#0b4f8a", "#e8943a", "#1f8a70", "#c9c3e6")
HATCHES = ("", "///", "...", "xxx")
MARKERS = "osD^vP*X<>"


def new_figure(height: float) -> Figure:
    """Return an empty figure, `height` inches high. Raises CudabenchError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure as NewFigure
    except ImportError:
        raise CudabenchError("Plots need matplotlib, which is missing: pip install 'cudabench[plot]'.") from None
    return NewFigure(figsize=(WIDTH_IN, height), dpi=DPI, layout="constrained")


def escaped(name: str) -> str:
    """Return a text escaped for matplotlib, which draws text between dollar signs as a formula."""
    return line(name).replace("$", r"\$")
