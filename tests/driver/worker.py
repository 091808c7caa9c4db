"""The worker that owns a GPU, without nvdisasm: for tests that are not marked `machine_code`."""

from __future__ import annotations

import sys

from cudabench.compile import nvdisasm
from cudabench.measure.worker import _measuring, serve

if __name__ == "__main__":
    nvdisasm.path = lambda: None  # type: ignore[assignment]
    serve(sys.argv[1:], _measuring)
