"""What every picture shares: its width, colours, markers, and names as matplotlib shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudabench.errors import CudabenchError
from cudabench.text import line

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # all pictures name them, and matplotlib is imported by what draws
    Axes = Figure = Any

WIDTH_IN = 7.2
DPI = 150
COLOURS = ("#0b4f8a", "#e8943a", "#1f8a70", "#c9c3e6")  # of cards or files, apart for every kind of colour vision
HATCHES = ("", "///", "...", "xxx")
MARKERS = "osD^vP*X<>"


def new_figure(height: float) -> Figure:
    """Return an empty figure, so many inches high. Raises CudabenchError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure as NewFigure
    except ImportError:
        raise CudabenchError("Plots need matplotlib, which is not here: pip install 'cudabench[plot]'.") from None
    return NewFigure(figsize=(WIDTH_IN, height), dpi=DPI, layout="constrained")


def shown(name: str) -> str:
    """Return text as matplotlib shows it as it is: between dollars it would set a formula."""
    return line(name).replace("$", r"\$")
