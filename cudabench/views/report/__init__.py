"""Results as a page: `page` returns the text of an HTML file that works offline.

The page contains everything that it shows, and its content security policy forbids all fetches. Only its own script and
style are allowed, by their hashes, so that a name in a results file cannot add a script.
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

MOST_BYTES = 290_000  # size of a page, if possible
LEAST_BYTES = 40_000  # size that the results always get
MOST_SHOWN = 160  # characters of a name


def page(files: Sequence[ResultsFile], names: Sequence[str]) -> str:
    """Return the text of a page of results files; of two files the first is before, the second after.

    names: the files' names on the page. Raises CudabenchError if the files hold nothing to show.
    """
    from cudabench.views.report import content, embedded

    style, script = part("style.css"), part("page.js")
    template = compiled(part("page.html.jinja"))

    def rendered(held: embedded.Held) -> str:
        return template.render(
            page=content.page(files, names, held.files),
            style=style,
            script=script,
            policy=policy(style, script),
            held=held.texts,
            left_out=held.left_out,
            version=__version__,
        )

    alone = rendered(embedded.Held(tuple(files), (), ()))
    most = max(LEAST_BYTES, MOST_BYTES - len(alone.encode()))
    whole = rendered(embedded.documents(files, most))
    over = len(whole.encode()) - MOST_BYTES
    if over > 0 and most > LEAST_BYTES:  # the shortened results change the page around them
        whole = rendered(embedded.documents(files, max(LEAST_BYTES, most - over)))
    return whole


def part(name: str) -> str:
    """Return a file of this package: the style, the script, a template."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8").strip()


def policy(style: str, script: str | None = None) -> str:
    """Return the content security policy of a page with this style and this script, which forbids all fetches."""
    scripts = f"script-src '{_hash(script)}'; " if script is not None else ""
    return f"default-src 'none'; style-src '{_hash(style)}'; {scripts}base-uri 'none'; form-action 'none'"


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


@cache
def compiled(template: str) -> Template:
    """Return a template that escapes everything it prints and spells out control codes. Its filter `shown` cuts long
    names; `whole` prints trusted text unchanged."""
    import jinja2
    from markupsafe import Markup

    def harmless(value: Any) -> Any:
        """Spell out control codes in everything printed but trusted text."""
        return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = jinja2.Environment(
        autoescape=True, finalize=harmless, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"shown": shown, "said": sentence_html, "seconds": units.seconds, "percent": units.percent}
    environment.filters["whole"] = Markup  # for this package's own files and JSON whose '<' is escaped
    return environment.from_string(template)


def shown(name: str, most: int = MOST_SHOWN) -> str:
    """Return a name or a sentence cut to `most` characters, with its length if it was cut."""
    return name if len(name) <= most else f"{name[:most]}… ({len(name)} characters)"


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*\b")


def sentence_html(sentence: str, most: int = 900) -> str:
    """Return a sentence like `shown`, as HTML with unbreakable options."""
    from markupsafe import Markup

    whole = text.visible(shown(sentence, most))
    plain, options = OPTION.split(whole), OPTION.findall(whole)
    code = [Markup("<code>{}</code>").format(option) for option in options]
    return Markup("").join(part for pair in zip_longest(plain, code, fillvalue="") for part in pair)
