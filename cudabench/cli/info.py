"""`cudabench info`: what this machine can do, and what would mend each lack."""

from __future__ import annotations

import json

import click

from cudabench.cli.help import Headed
from cudabench.text import json as json_text


@click.command("info", cls=Headed, short_help="Show what this machine can do.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
