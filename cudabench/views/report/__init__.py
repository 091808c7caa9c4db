"""Results as one page to look at: `page` gives the text of an HTML file that needs nothing else.

Everything that the page shows is in it, and its content security policy lets it fetch nothing. Its own script and style
are allowed by their hashes, so that no name in a results file can bring in another one.
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

if TYPE_CHECKING:
    from jinja2 import Template

MOST_BYTES = 290_000  # of a page, where that can be
LEAST_BYTES = 40_000  # that the results may take of it in any case
MOST_SHOWN = 160  # characters of a name


def page(files: Sequence[ResultsFile], names: Sequence[str]) -> str:
    """Return the text of a page of one results file or more; of two the first is before, the second after.

    names: what the page calls the files. Raises CudabenchError where they hold nothing to show.
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
    if over > 0 and most > LEAST_BYTES:  # without what the results lack, the page around them is another
        whole = rendered(embedded.documents(files, max(LEAST_BYTES, most - over)))
    return whole


def part(name: str) -> str:
    """Return a file of this package: the style, the script, a template."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8").strip()


def policy(style: str, script: str | None = None) -> str:
    """Return the content security policy of a page that has this style and this script and fetches nothing."""
    scripts = f"script-src '{_hash(script)}'; " if script is not None else ""
    return f"default-src 'none'; style-src '{_hash(style)}'; {scripts}base-uri 'none'; form-action 'none'"


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


@cache
def compiled(template: str) -> Template:
    """Return a template that escapes all that it prints and spells out control codes. Its filter `shown` cuts long
    names, `whole` prints what was made here as it is."""
    import jinja2
    from markupsafe import Markup

    def harmless(value: Any) -> Any:
        """Spell out control codes in all that is printed and was not made here."""
        return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = jinja2.Environment(
        autoescape=True,
        finalize=harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    environment.filters["said"] = said
    environment.filters["whole"] = Markup  # of this package's own files and of JSON whose '<' is escaped
    return environment.from_string(template)


def shown(said: str, most: int = MOST_SHOWN) -> str:
    """Return a name or a sentence as a page has room for, with its length where it is cut."""
    return said if len(said) <= most else f"{said[:most]}… ({len(said)} characters)"


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*\b")


def said(sentence: str, most: int = 900) -> str:
    """Return a sentence as `shown`, as HTML whose options are code, which no line breaks."""
    from markupsafe import Markup

    whole = text.visible(shown(sentence, most))
    plain, options = OPTION.split(whole), OPTION.findall(whole)
    code = [Markup("<code>{}</code>").format(option) for option in options]
    return Markup("").join(part for pair in zip_longest(plain, code, fillvalue="") for part in pair)
