"""The cached text of a results file that is written after each kernel."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests import reports


@pytest.mark.slow
def test_the_text_is_that_of_the_document() -> None:
    """After a result is replaced, text() has the new result, and the rest is unchanged."""
    file = reports.timed()
    assert json.loads(file.text()) == json.loads(json.dumps(file.document()))
    first = file.text()
    file.results[0] = replace(file.results[0], kernel="another")
    assert json.loads(file.text())["results"][0]["kernel"] == "another"
    assert file.text() == first.replace(
        f'"kernel": "{json.loads(first)["results"][0]["kernel"]}"', '"kernel": "another"', 1
    )
