"""What tests of whole programs share."""

from __future__ import annotations

from contextlib import suppress

import pytest

from cudabench.system import native


@pytest.fixture(autouse=True, scope="session")
def runtimes_are_built() -> None:
    """Build the CUDA runtime of programs: the first that runs says so, where tests read what it prints."""
    with suppress(native.NotBuilt):
        native.runtimes()
