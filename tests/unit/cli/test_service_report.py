"""``outrider report``: its numbers, its page, and what is assumed of GPU-hours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from outrider.cli.report_data import Period
from outrider.cli.savings import saving
from outrider.core.steps import StepCell
from tests.unit.cli.conftest import Ask
from tests.unit.cli.fake_cluster import FakeCluster, busy, memory_map, service

VOID = {"meta", "link", "br", "path", "rect", "input", "img"}
RECENT = {"status.history": [
    {"time": "2099-01-01T00:00:00Z", "kind": "Target", "from": "1", "to": "2", "reason": "of another period"},
]}  # fmt: skip


class Page(HTMLParser):
    """Sees that every element is closed, and collects what a reader would look for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.svgs, self.links, self.scripts = 0, [], 0  # type: ignore[var-annotated]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.svgs += tag == "svg"
        self.scripts += tag == "script"
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID and tag != "p":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and tag != "p":
            assert self.open.pop() == tag


@pytest.fixture
def page(ask: Ask, tmp_path: Path) -> Path:
    result = ask(_with_memory(), "report", "chat", "--since", "30m", "--prometheus", "STORE", "--html", "chat.html")
    assert result.exit_code == 0, result.output
    assert "wrote chat.html" in result.stderr
    return tmp_path / "chat.html"


def _with_memory() -> FakeCluster:
    cluster = busy(FakeCluster(service(changes=RECENT)))
    cluster.objects["/api/v1/namespaces/ml/configmaps/chat-memory"] = memory_map()
    return cluster


def test_the_page_is_whole_and_loads_nothing_from_elsewhere(page: Path) -> None:
    text = page.read_text()
    seen = Page(text)
    assert seen.open == []
    assert seen.svgs == 6, "a plot each, without that of TTFT, of which nothing was measured"
    assert seen.links == ["data:,"]
    # The address of the store is text that names the source, and nothing that is loaded.
    assert not re.findall(r"url\(|@import|<(?:img|iframe|link rel=.stylesheet)", text)


def test_the_page_carries_its_numbers(page: Path) -> None:
    carried = re.search(r'id="result">(.*?)</script>', page.read_text(), re.S)
    assert carried is not None
    document = json.loads(carried[1])
    assert document["schema"] == "outrider.report/v1"
    assert document["totals"]["output_tokens"] == 812
    assert document["totals"]["tpot_met"] == pytest.approx(0.9)
    measured = document["policies"][0]["timeline"]
    assert len(measured["tpot_s"]) == len(document["edges_s"]) - 1
    assert set(measured["replicas"]) == {3}
    assert document["totals"]["gpu_hours"] == pytest.approx(1.5, rel=0.02), "three engines of one GPU for half an hour"
    assert document["decisions"] == [], "that of 2099 is not of this period"


def test_the_page_is_drawn_by_a_browser(page: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine: the page was only read by an HTML parser")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    watched = [*command, "--enable-logging=stderr", "--dump-dom", page.as_uri()]
    drawn = subprocess.run(watched, capture_output=True, text=True, timeout=120, check=True)
    assert drawn.stdout.count('class="cursor"') == 6
    assert "CONSOLE" not in drawn.stderr, "the script says nothing, so it ran"


def test_without_steps_nothing_is_claimed_to_be_saved(ask: Ask, tmp_path: Path) -> None:
    result = ask(FakeCluster(service()), "report", "chat", "--prometheus", "STORE")
    assert result.exit_code == 0, result.output
    assert result.stdout == "No token was generated in this period, as far as the metrics store knows.\n"
    assert "Not known: it takes steps counted by the runtime plugin" in (tmp_path / "ml-chat.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "soon", "--prometheus", "STORE"), "--since: 'soon' is no duration; write for example"),
        (("--since", "10m", "--until", "10m", "--prometheus", "STORE"), "--since 10m: must be 60s or more before"),
        (("--html", "/no/such/page.html", "--prometheus", "STORE"), "--html /no/such/page.html: cannot be written"),
        ((), "no metrics store is known"),
        (("--prometheus", "prometheus:9090"), "setting OUTRIDER_PROMETHEUS_URL"),
        (("--prometheus", "http://127.0.0.1:9"), "no connection"),
    ],
)
def test_a_mistake_names_its_option(ask: Ask, words: tuple[str, ...], said: str) -> None:
    result = ask(busy(FakeCluster(service())), "report", "chat", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_long_period_has_no_more_points_than_can_be_seen() -> None:
    assert Period(0.0, 7 * 86400.0).points <= 240
    assert Period(0.0, 60.0).points == 12


def test_a_saving_by_hand() -> None:
    # 1000 steps of 20 ms give 2.5 tokens each; without a drafter 2500 steps of 10 ms. 5 s of 2 GPUs are saved.
    rows = [StepCell(16, 3, False, 1000, 20.0, 12_000)]
    found = saving(rows, 2.5, 2.0, lambda batch: 0.010)
    assert found is not None
    assert found.gpu_hours == pytest.approx(5 * 2 / 3600)
    assert found.share == pytest.approx(0.2)
    assert found.covered == 1


def test_a_saving_by_steps_without_drafts_says_that_it_is_flattered() -> None:
    rows = [
        StepCell(16, 3, False, 1000, 20.0, 12_000),
        StepCell(16, 0, False, 100, 1.0, 1200),
        StepCell(32, 3, False, 1100, 30.0, 30_000),
    ]
    found = saving(rows, 2.5, 1.0, None)
    assert found is not None
    assert found.covered == pytest.approx(0.5), "of a batch of 32 no step without drafts was seen"
    assert "flattered" in found.assumption
    assert saving(rows[:1], 2.5, 1.0, None) is None


def test_speculation_that_costs_more_than_it_gives_saves_less_than_nothing() -> None:
    found = saving([StepCell(64, 5, False, 1000, 30.0, 50_000)], 1.5, 1.0, lambda batch: 0.010)
    assert found is not None
    assert found.gpu_hours < 0
