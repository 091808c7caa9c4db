"""`cudabench info`: what this machine can do, and what would mend each lack."""

from __future__ import annotations

import json

import click

from cudabench.cli.help import headed
from cudabench.cli.options import option
from cudabench.text import json as json_text


@headed("info", option("--json", "Print JSON.", "as_json"))
def command(as_json: bool) -> int:
    """Show driver, GPUs, nvcc, PyCUDA, NVML and NVRTC; each lack with the command that mends it."""
    from dataclasses import asdict

    from cudabench.devices import probe

    driver = probe.driver()
    parts = [driver, probe.nvcc(), probe.pycuda(), probe.nvml(), probe.nvrtc()]
    gpus = [probe.gpu(index) for index in range(driver.device_count)]
    if as_json:
        document = {"host": probe.host(), "parts": [asdict(part) for part in parts], "gpus": [asdict(g) for g in gpus]}
        click.echo(json_text(json.dumps(document, indent=2)))
        return 0
    from cudabench.views import machine

    machine.show(parts, gpus)
    return 0
