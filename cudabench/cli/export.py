"""`cudabench export RESULTS.json --to FORMAT`: results for spreadsheets, pull requests and CI servers."""

from __future__ import annotations

from pathlib import Path

import click

from cudabench.errors import CudabenchError, UsageError

FORMATS = ("csv", "markdown", "junit", "github-benchmark")


@click.command("export", short_help="Convert a results file: CSV, Markdown, JUnit, github-action-benchmark.")
@click.argument("results_path", type=click.Path(), metavar="RESULTS.json")
@click.option("--to", "target_format", type=click.Choice(FORMATS), required=True, help="The format.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write to FILE, whole or not at all; left out, standard output.",
)
@click.option(
    "--metric",
    type=click.Choice(["time", "bandwidth"]),
    help="Of github-benchmark: time in µs and counts (default; the action's tool is customSmallerIsBetter), or "
    "bandwidth in GB/s (customBiggerIsBetter).",
)
def command(results_path: str, target_format: str, output: str | None, metric: str | None) -> int:
    """Convert a results file for other tools.

    \b
    csv               a row a kernel, in seconds, bytes and GB/s
    markdown          tables for a pull request or $GITHUB_STEP_SUMMARY
    junit             wrong and failed kernels and missed thresholds are failures
    github-benchmark  for benchmark-action/github-action-benchmark
    """
    from datetime import datetime, timezone

    from cudabench import outputs
    from cudabench.results import export
    from cudabench.results import file as results

    if metric and target_format != "github-benchmark":
        raise UsageError(f"--metric is of --to github-benchmark; {target_format} holds every figure: leave it out.")
    target = None
    if output not in (None, "-"):
        target = Path(str(output))
        outputs.check_target(target, "--output")
    file = results.load(results_path)
    if target_format == "csv":
        text = export.to_csv(file)
    elif target_format == "markdown":
        text = export.to_markdown(file)
    elif target_format == "junit":
        text = export.to_junit(file, datetime.fromtimestamp(Path(results_path).stat().st_mtime, timezone.utc))
    else:
        try:
            text = export.to_github_benchmark(file, metric or "time")
        except CudabenchError as error:
            raise CudabenchError(f"{results_path}: {error}") from None
    if target:
        outputs.write_whole(target, text.encode())
    else:
        click.echo(text, nl=False)
    return 0
