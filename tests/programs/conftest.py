"""Shared fixtures of the tests of whole programs."""

from __future__ import annotations

from contextlib import suppress

import pytest

from cudabench.system import native


@pytest.fixture(autouse=True, scope="session")
def runtimes_are_built() -> None:
    """Build the CUDA runtime of programs first, because the first build prints a line that tests would read."""
    with suppress(native.NotBuilt):
        native.runtimes()
