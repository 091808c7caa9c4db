"""Pure functions that return results files as text in the formats of other tools.

Each format has one module in this folder, and one line in FORMATS.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from cudabench.results import ceilings as cards
from cudabench.views.export.run import Run

# Says what each format is for. The module with the format's name has a function `text` that returns the runs as text.
FORMATS = {
    "csv": "a row for each kernel, in seconds, bytes and GB/s",
    "markdown": "tables for a pull request or $GITHUB_STEP_SUMMARY",
    "junit": "wrong and failed kernels and missed thresholds are failures",
    "github": "annotations of hazards and wrong results at their lines, in a job of GitHub",
    "github-benchmark": "for benchmark-action/github-action-benchmark",
    "bencher": "for bencher run --adapter json: Bencher Metric Format",
    "sarif": "hazards, wrong results and regressions by file and line, for code scanning",
}


def export(target_format: str, runs: Sequence[Run], **options: object) -> str:
    """Return runs as text in a format. `options` are passed to the format's function `text`.

    Raises CudabenchError if the format cannot hold the runs.
    """
    files, names = [run.file for run in runs], [run.name for run in runs]
    if cards.all_ceilings(files, names):
        from cudabench.views.export import ceilings as writers

        if target_format not in writers.WRITERS:
            cards.refuse(files, names, f"--to {target_format} cannot hold", "use --to csv or --to markdown")
        return writers.WRITERS[target_format](runs)
    if target_format == "markdown" and runs and all(run.file.ab for run in runs):
        from cudabench.views.export import pairs

        return pairs.markdown(runs)
    for run in runs:
        run.file.measured(run.name)
    module = import_module(f"cudabench.views.export.{target_format.replace('-', '_')}")
    return str(module.text(runs, **options))
