"""Results files in the formats of other tools: pure, records in and text out. A format is a module and a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from cudabench.results import ceilings as cards
from cudabench.views.export.run import Run


@dataclass(frozen=True)
class Format:
    """A format: its name, what it is for, and the module whose `text` writes runs in it."""

    name: str
    summary: str
    module: str

    @property
    def text(self) -> Callable[..., str]:
        """The writer: runs in, text out. Raises CudabenchError where the format cannot hold them."""
        found: Callable[..., str] = import_module(f"cudabench.views.export.{self.module}").text
        return found


FORMATS = {
    each.name: each
    for each in (
        Format("csv", "a row a kernel, in seconds, bytes and GB/s", "csv"),
        Format("markdown", "tables for a pull request or $GITHUB_STEP_SUMMARY", "markdown"),
        Format("junit", "wrong and failed kernels and missed thresholds are failures", "junit"),
        Format("github-benchmark", "for benchmark-action/github-action-benchmark", "github_benchmark"),
        Format("bencher", "for bencher run --adapter json: Bencher Metric Format", "bencher"),
        Format("sarif", "hazards, wrong results and regressions by file and line, for code scanning", "sarif"),
    )
}


def export(target_format: str, runs: Sequence[Run], **options: object) -> str:
    """Return runs in a format; `options` are those of its module. Raises CudabenchError where it cannot hold them."""
    files, names = [run.file for run in runs], [run.name for run in runs]
    if cards.all_ceilings(files, names):
        from cudabench.views.export import ceilings as writers

        if target_format not in writers.WRITERS:
            cards.refuse(files, names, f"--to {target_format} has no place for", "use --to csv or --to markdown")
        return writers.WRITERS[target_format](runs)
    if target_format == "markdown" and runs and all(run.file.ab for run in runs):
        from cudabench.views.export import pairs

        return pairs.markdown(runs)
    for run in runs:
        run.file.measured(run.name)
    return FORMATS[target_format].text(runs, **options)
