"""The report's page in a real Chromium: phone and desktop, light and dark, with the keyboard and with accessibility
rules."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from cudabench.views import report
from tests import fleets
from tests.reports import HOSTILE, hostile, ladder, timed

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.machine_code,
    pytest.mark.slow,  # a browser takes seconds to start
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="no Chromium with its driver: apt-get install chromium chromium-driver"
    ),
]
SIZES = {"phone": (375, 812), "desk": (1280, 900)}
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Start a Chromium without network access."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the pages to test: of a simulated run, a timed run, a comparison, hostile names, and a fleet."""
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "simulated": report.page([ladder()], ["simulated.json"]),
        "timed": report.page([timed()], ["timed.json"]),
        "two": report.page([timed(), timed(0.8)], ["old.json", "new.json"]),
        "hostile": report.page([hostile(ladder())], [HOSTILE]),
        "fleet": fleets.page(folder, HOSTILE),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


Open = Callable[..., Any]


@pytest.fixture
def opened(chromium: Any, pages: dict[str, Path]) -> Open:
    """Open a page with a size and colour scheme, and check that the console is empty.

    By default all sections are unfolded; `kernel` unfolds only one section, and `unfold=False` unfolds no further
    section.
    """

    def open_page(
        name: str, size: str = "desk", scheme: str = "light", *, unfold: bool = True, kernel: str = ""
    ) -> Any:
        width, height = SIZES[size]
        mobile = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", mobile)
        feature = [{"name": "prefers-color-scheme", "value": scheme}]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
        chromium.get_log("browser")
        chromium.get("about:blank")
        chromium.get(pages[name].as_uri())
        if kernel:
            chromium.execute_script("arguments[0].open = true", section(chromium, kernel))
        elif unfold:
            chromium.execute_script(
                "const all = document.getElementById('unfold');"
                "if (all) all.click(); else document.querySelectorAll('details').forEach(each => each.open = true)"
            )
        assert chromium.get_log("browser") == []
        return chromium

    return open_page


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [  # each page on each screen, each screen in each scheme
        ("simulated", "phone", "light"), ("timed", "phone", "dark"), ("two", "phone", "light"),
        ("hostile", "phone", "dark"), ("simulated", "desk", "dark"), ("timed", "desk", "light"),
        ("two", "desk", "dark"), ("hostile", "desk", "light"),
        ("fleet", "phone", "light"), ("fleet", "desk", "dark"),
    ],
)  # fmt: skip
def test_nothing_overflows(opened: Open, name: str, size: str, scheme: str) -> None:
    """The page is not wider than the screen; a wider element scrolls in a box that the keyboard can focus."""
    page = opened(name, size, scheme)
    assert page.execute_script("return document.documentElement.scrollWidth") <= SIZES[size][0]
    wide = page.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1"
        " && getComputedStyle(e).overflowX === 'auto' && e.tabIndex < 0).map(e => e.className)"
    )
    assert wide == []
    outside = page.execute_script(
        "const boxed = e => e.closest('.scroll, pre, svg, .hidden, .skip');"
        "const over = e => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1;"
        "return [...document.querySelectorAll('body *')].filter(e => !boxed(e) && over(e)).map(e => e.outerHTML)"
    )
    assert outside == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colours_follow_the_scheme(opened: Open, scheme: str) -> None:
    """The dark scheme has a dark background, and the light scheme a light one."""
    page = opened("simulated", "desk", scheme, unfold=False)
    back = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    level = sum(map(int, back.removeprefix("rgb(").removesuffix(")").split(",")))
    assert (level < 150) == (scheme == "dark")


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("simulated", "phone", "dark"), ("two", "desk", "light"), ("hostile", "desk", "light"),
     ("fleet", "phone", "dark"), ("fleet", "desk", "light")],
)  # fmt: skip
def test_axe_finds_nothing(opened: Open, name: str, size: str, scheme: str) -> None:
    """The axe accessibility checker finds no violation."""
    page = opened(name, size, scheme, kernel="smem" if name in ("simulated", "two") else "")
    page.execute_script(resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    page.set_script_timeout(120)
    found = page.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {resultTypes: ['violations']}).then(r => done(JSON.stringify(r.violations)))"
    )
    said = [f"{rule['id']}: {[node['html'][:200] for node in rule['nodes'][:3]]}" for rule in json.loads(found)]
    assert said == []


def test_hostile_names_are_inert(opened: Open) -> None:
    """Names with markup or control codes create no element, run no script, and are shown as text."""
    page = opened("hostile")
    assert page.execute_script("return document.querySelectorAll('img').length") == 0
    assert page.execute_script("return document.scripts.length") == 2
    assert "onerror=alert(1)" in page.execute_script("return document.body.innerText")
    assert "\x1b" not in page.execute_script("return document.body.innerText")
    assert "\u202e" not in page.execute_script("return document.body.innerText")


def section(page: Any, kernel: str) -> Any:
    """Return the section of a kernel."""
    return page.find_element("xpath", f"//details[summary/h3='{kernel}']")


def test_machine_code_unfolds_by_keyboard(opened: Open) -> None:
    """Enter on a line number shows the line's machine code and sets aria-expanded; Enter again hides it."""
    from selenium.webdriver.common.keys import Keys

    page = opened("simulated")
    smem = section(page, "smem")
    fold = smem.find_elements("css selector", "th button")[-2]
    assert fold.get_attribute("aria-expanded") == "false"
    fold.send_keys(Keys.ENTER)
    assert fold.get_attribute("aria-expanded") == "true"
    code = smem.find_element("css selector", "tr.machine pre").text
    line = int(fold.get_attribute("aria-label").split()[-1])
    result = next(r for r in ladder().results if r.kernel == "smem")
    (expected,) = [each for each in result.lines or () if each.line == line]
    shown, own = code.split("\n"), [" ".join(text.split()) for text in expected.code]
    if shown[-1].startswith("… "):  # a page of many kernels shows only the first instructions of each line
        assert len(shown) - 1 + int(shown[-1].split()[1]) == len(own)
        shown = shown[:-1]
    assert shown == own[: len(shown)] != []
    fold.send_keys(Keys.ENTER)
    assert smem.find_elements("css selector", "tr.machine") == []


def test_banks_step_through_the_passes(opened: Open) -> None:
    """The drawing of the banks starts with the worst conflict; an arrow key shows the next pass, and the text names
    it."""
    from selenium.webdriver.common.keys import Keys

    page = opened("simulated")
    picture = section(page, "smem").find_element("css selector", ".banks")
    result = next(r for r in ladder().results if r.kernel == "smem")
    worst = max(result.banks or (), key=lambda request: len(request.passes) - request.ideal)
    slider = picture.find_element("css selector", "input[type=range]")
    for at, served in enumerate(worst.passes):
        now = {
            bank: cell.text
            for bank, cell in enumerate(picture.find_elements("css selector", ".cell"))
            if "now" in cell.get_attribute("class")
        }
        assert now == {bank: f"{ln[0]}{'+' if len(ln) > 1 else ''}" for bank, ln in enumerate(served) if ln}
        assert f"Pass {at + 1} of {len(worst.passes)}" in picture.find_element("css selector", ".told").text
        slider.send_keys(Keys.ARROW_RIGHT)


def test_threads_move_elements(opened: Open) -> None:
    """The sliders choose step and thread, and the drawing shows the recorded element."""
    from selenium.webdriver.common.keys import Keys

    page = opened("simulated")
    picture = section(page, "naive-row").find_element("css selector", ".steps")
    time, thread = picture.find_elements("css selector", "input[type=range]")
    told = picture.find_element("css selector", ".told")
    assert "reads in[0, 0]" in told.text
    thread.send_keys(Keys.ARROW_RIGHT)
    assert "Thread (1, 0, 0) of block (0, 0, 0) reads in[0, 1]" in told.text
    time.send_keys(Keys.ARROW_RIGHT)
    assert "writes out[1, 0]" in told.text
    _, out = picture.find_elements("css selector", ".array")
    assert "active" in out.get_attribute("class")
    mine = out.find_elements("css selector", "rect")
    assert [at for at, cell in enumerate(mine) if "me" in cell.get_attribute("class").split()] == [12]


def test_keyboard_reaches_everything(opened: Open) -> None:
    """The Tab key reaches all controls, starting with a skip link, and the focus is visible."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    page = opened("simulated", unfold=False)
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("class") == "skip"
    names = []
    for _ in range(400):
        page.switch_to.active_element.send_keys(Keys.TAB)
        active = page.switch_to.active_element
        if active.tag_name == "body":
            break
        names.append(active.tag_name)
        width = page.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert width != "none", active.get_attribute("outerHTML")[:120]
    assert set(names) >= {"a", "summary", "button", "input", "div"}
    assert names.count("summary") == len(ladder().results)


def test_a_link_opens_its_kernel(opened: Open) -> None:
    """A link in the ladder opens the kernel's section."""
    page = opened("simulated", unfold=False)
    link = page.find_element("xpath", "//table[@class='ladder']//a[text()='vector']")
    page.execute_script("arguments[0].click()", link)
    assert section(page, "vector").get_attribute("open")


def test_it_prints(opened: Open) -> None:
    """When printed, the page opens every kernel's section."""
    page = opened("timed", unfold=False)
    printed = page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(base64.b64decode(printed["data"])) > 20_000
    assert page.execute_script("return [...document.querySelectorAll('details.kernel')].every(d => d.open)")


def test_without_its_script_it_still_says_the_numbers(chromium: Any, opened: Open) -> None:
    """Without JavaScript the page shows the ladder, and hides the buttons."""
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = opened("timed", unfold=False)
        text = page.find_element("css selector", "body").text
        assert "prefetch is fastest" in text
        assert "need this page's own script" in text
        assert not page.find_element("id", "unfold").is_displayed()
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
