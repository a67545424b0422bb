"""The page of services that share a quota in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from outrider.replay.quota import page
from tests.unit.replay import browser
from tests.unit.replay.browser import NoBrowser

PROBE = """
const seen = {};
const button = document.querySelector('.legend button[data-name="code"]');
const lines = () => [...document.querySelectorAll('path[data-policy="code"]')];
button.click();
seen.hidden = lines().every((line) => getComputedStyle(line).display === "none");
const svg = document.querySelector('svg[data-key="gpus"]');
const box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 40 }));
seen.readout = document.querySelector(".readout").textContent;
seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const probe = document.createElement("pre");
probe.id = "probe";
probe.textContent = JSON.stringify(seen);
document.body.append(probe);
"""


def test_it_draws_and_answers_for_each_service_without_a_word_on_the_console(
    document: dict[str, Any], tmp_path: Path
) -> None:
    try:
        chromium = browser.find()
    except NoBrowser as error:
        pytest.skip(f"no browser to open the page in: {error}")
    path = tmp_path / "page.html"
    text = page.render(document, "outrider simulate")
    path.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    dom, console = chromium.dom(path, tmp_path / "profile")
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
    assert console == []
    assert found is not None
    seen = json.loads(found[1])
    assert seen["hidden"]
    assert re.fullmatch(r"\d\d:\d\d to \d\d:\d\d\nchat: \d\ncode: \d", seen["readout"])
    assert seen["overflow"] <= 0
