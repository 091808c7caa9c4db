"""The text of a results file that is written anew for each kernel."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests import reports


@pytest.mark.slow
def test_the_text_is_that_of_the_document() -> None:
    """Written again, with a result in the place of another one, it says what the file holds now."""
    file = reports.timed()
    assert json.loads(file.text()) == json.loads(json.dumps(file.document()))
    first = file.text()
    file.results[0] = replace(file.results[0], kernel="another")
    assert json.loads(file.text())["results"][0]["kernel"] == "another"
    assert file.text() == first.replace(
        f'"kernel": "{json.loads(first)["results"][0]["kernel"]}"', '"kernel": "another"', 1
    )
