"""The page of `outrider simulate` in a real browser: it draws, answers to pointer and keys, and has no complaint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from outrider.replay import page, report, runner
from outrider.replay.experiment import Experiment
from outrider.replay.load import AcceptanceClass, Load, Shift
from outrider.replay.virtual import SAMPLE, read_manifest
from tests.unit.replay import browser
from tests.unit.replay.browser import Browser, NoBrowser

LOAD = Load("azure-conversation", 2.0, 120.0, (AcceptanceClass("all", 1.0, (0.8, 0.6)),), (Shift(60.0, (0.3, 0.1)),))
WIDTHS = (1280, 800)

PROBE = """
const seen = {};
const button = document.querySelector('.legend button[data-name="k1"]');
const lines = () => [...document.querySelectorAll('path[data-policy="k1"]')];
button.click();
seen.hidden = lines().every((line) => getComputedStyle(line).display === "none");
button.click();
seen.shown = lines().every((line) => getComputedStyle(line).display !== "none");
const svg = document.querySelector('svg[data-key="goodput_tps"]');
const box = svg.getBoundingClientRect();
const [left, right] = [Number(svg.dataset.left), Number(svg.dataset.right)];
const middle = (left + 0.51 * (right - left)) / svg.viewBox.baseVal.width;
const at = { clientX: box.left + box.width * middle, clientY: box.top + 40 };
svg.dispatchEvent(new PointerEvent("pointermove", at));
seen.readout = document.querySelector(".readout").textContent;
seen.cursors = document.querySelectorAll('.cursor[visibility="visible"]').length;
svg.dispatchEvent(new PointerEvent("pointerleave"));
seen.gone = document.querySelector(".readout").hidden;
seen.heights = [...document.querySelectorAll("svg.panel")].map((one) => one.getBoundingClientRect().height);
seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
seen.strokes = [...new Set(lines().map((line) => getComputedStyle(line).stroke))];
const probe = document.createElement("pre");
probe.id = "probe";
probe.textContent = JSON.stringify(seen);
document.body.append(probe);
"""


@pytest.fixture(scope="module")
def chromium() -> Browser:
    try:
        return browser.find()
    except NoBrowser as error:
        pytest.skip(f"no browser to open the page in: {error}")


@pytest.fixture(scope="module")
def text() -> str:
    experiment = Experiment(read_manifest(SAMPLE), LOAD, replicas=None)
    policies = runner.run_all(experiment, ["k1", "outrider"], 1, lambda _name, _share: None)
    return page.render(report.document(experiment, policies), "outrider simulate")


def probed(chromium: Browser, text: str, place: Path, width: int) -> tuple[dict[str, Any], list[str]]:
    """What a script finds that is added to the page, and what the console heard."""
    path = place / f"{width}.html"
    path.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    dom, console = chromium.dom(path, place / f"profile-{width}", width)
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
    return ({} if found is None else json.loads(found[1])), console


@pytest.mark.parametrize("width", WIDTHS)
def test_it_draws_and_answers_without_a_word_on_the_console(
    chromium: Browser, text: str, tmp_path: Path, width: int
) -> None:
    seen, console = probed(chromium, text, tmp_path, width)
    assert console == []
    assert len(seen["heights"]) == text.count('<svg class="panel"') == 10
    assert min(seen["heights"]) > 50
    assert seen["overflow"] <= 0
    assert seen["strokes"] == ["rgb(109, 75, 184)"]
    assert seen["hidden"]
    assert seen["shown"]
    assert seen["cursors"] == 10
    assert re.fullmatch(r"01:00 to 01:05\nk1: [\d,.]+\noutrider: [\d,.]+", seen["readout"])
    assert seen["gone"]


def test_the_console_is_heard(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<!doctype html><title>bad</title><script>console.warn('a word'); nothing()</script>")
    _, console = chromium.dom(path, tmp_path / "profile")
    assert len(console) == 2
    assert "a word" in console[0]
    assert "nothing is not defined" in console[1]
