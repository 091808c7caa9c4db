"""The HTML page of results: `page` returns the text of an HTML file that works offline.

The file contains everything that the page shows, and its content security policy forbids loading anything. The policy
allows only the page's script and style, which it names by their hashes, so that a name in a results file cannot add a
script.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from cudabench import __version__, text
from cudabench.records.file import ResultsFile
from cudabench.results import units

if TYPE_CHECKING:
    from jinja2 import Template

MOST_BYTES = 290_000  # the desired largest size of a page
LEAST_BYTES = 40_000  # the embedded results may always take this many bytes, even if the page then exceeds MOST_BYTES
MOST_SHOWN = 160  # a name is cut to this many characters


def page(files: Sequence[ResultsFile], names: Sequence[str]) -> str:
    """Return the HTML text of a page of results files. Of two files, the first is 'before' and the second 'after'.

    `names`: the files' names on the page. Raises CudabenchError if the files hold nothing to show.
    """
    from cudabench.views.report import content, embedded

    style, script = part("style.css"), part("page.js")
    template = compiled(part("page.html.jinja"))

    def rendered(held: embedded.EmbeddedFiles) -> str:
        return template.render(
            page=content.page(files, names, held.files),
            style=style,
            script=script,
            policy=policy(style, script),
            held=held.texts,
            left_out=held.left_out,
            version=__version__,
        )

    alone = rendered(embedded.EmbeddedFiles(tuple(files), (), ()))
    most = max(LEAST_BYTES, MOST_BYTES - len(alone.encode()))
    whole = rendered(embedded.embed(files, most))
    over = len(whole.encode()) - MOST_BYTES
    # if the embedded results are shortened, the page contains sentences about the missing parts, which make it longer
    if over > 0 and most > LEAST_BYTES:
        whole = rendered(embedded.embed(files, max(LEAST_BYTES, most - over)))
    return whole


def part(name: str) -> str:
    """Return the text of a file of this package, such as 'style.css'."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8").strip()


def policy(style: str, script: str | None = None) -> str:
    """Return the content security policy of a page. Only this style and this script are allowed."""
    scripts = f"script-src '{_hash(script)}'; " if script is not None else ""
    return f"default-src 'none'; style-src '{_hash(style)}'; {scripts}base-uri 'none'; form-action 'none'"


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


@cache
def compiled(template: str) -> Template:
    """Return a compiled template. The template escapes every value that it prints, and shows control codes as text.

    In a template, the filter `shown` cuts long names, and the filter `whole` prints trusted text unchanged.
    """
    import jinja2
    from markupsafe import Markup

    def harmless(value: Any) -> Any:
        """Show control codes as text in everything that is printed, except trusted text."""
        return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = jinja2.Environment(
        autoescape=True, finalize=harmless, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"shown": shown, "said": sentence_html, "seconds": units.seconds, "percent": units.percent}
    environment.filters["whole"] = Markup  # only for files of this package, and for JSON in which '<' is escaped
    return environment.from_string(template)


def shown(name: str, most: int = MOST_SHOWN) -> str:
    """Return a name or a sentence; of a text longer than `most` characters, its beginning and its length."""
    return name if len(name) <= most else f"{name[:most]}… ({len(name)} characters)"


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*\b")


def sentence_html(sentence: str, most: int = 900) -> str:
    """Return a sentence, cut as by `shown`, as HTML in which options such as --size do not break over lines."""
    from markupsafe import Markup

    whole = text.visible(shown(sentence, most))
    plain, options = OPTION.split(whole), OPTION.findall(whole)
    code = [Markup("<code>{}</code>").format(option) for option in options]
    return Markup("").join(part for pair in zip_longest(plain, code, fillvalue="") for part in pair)
