"""What a person sees: table, lines, report, page and picture."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demo import live, page, plot, report
from demo.facts import Decision
from demo.live import LineScreen, Picture, Row, TableScreen, line, open_screen
from demo.summary import summarize
from tests.unit.demo.builders import arms
from tests.unit.demo.builders import live as live_part

NOTHING = Row("chat", 0, 1, None, None, None, None, "", "0/0", None, None, 0.04, None)
BUSY = Row("chat", 3, 4, 41.0, 20, 12.4, 3, "1-24:5 25-256:3", "3/3", 2.412, 0.0443, 0.04, 812.3)
DECISION = Decision(92.0, "chat", "Schedule", "1-256:3", "1-256:1", "at batch 13 K 3→1: 24.3 ms a token predicted")


def picture(time_s: float = 10.0, *rows: Row, decisions: tuple[Decision, ...] = ()) -> Picture:
    return Picture("title", time_s, 300.0, "load rises", rows or (BUSY,), decisions)


def rendered(shown: Picture, width: int = 160) -> str:
    console = Console(file=StringIO(), width=width, force_terminal=False)
    console.print(live.render(shown))
    output = console.file
    assert isinstance(output, StringIO)
    return output.getvalue()


def test_the_table_shows_what_matters_of_a_service() -> None:
    text = rendered(picture(decisions=(DECISION,)))
    for part in (
        "load rises",
        "chat",
        "3/4",
        "41",
        "20",
        "12",
        "1-24:5 25-256:3",
        "2.41",
        "44/40 ms",
        "812",
        "24.3 ms",
    ):
        assert part in text


def test_what_is_unknown_is_a_dash() -> None:
    assert "-/40 ms" in rendered(picture(10.0, NOTHING))
    assert "in_flight=-" in line(NOTHING)


def test_lines_are_pairs_that_can_be_searched() -> None:
    pairs = dict(re.findall(r"(\w+)=('[^']*'|\S+)", line(BUSY)))
    assert pairs["service"] == "chat"
    assert pairs["replicas"] == "3/4"
    assert pairs["K"] == "3"
    assert pairs["schedule"] == "'1-24:5 25-256:3'"
    assert pairs["tpot_p95_ms"] == "44"


def test_lines_come_every_few_seconds_and_decisions_once(capsys: pytest.CaptureFixture[str]) -> None:
    screen = LineScreen()
    for time_s in (0.0, 0.5, 1.0, 5.0, 5.5):
        screen.show(picture(time_s, decisions=(DECISION,) if time_s >= 1.0 else ()))
    lines = capsys.readouterr().out.splitlines()
    assert [text.split(" ", 1)[0] for text in lines] == ["t=0s", "t=92s", "t=5s"]
    assert "kind=Schedule" in lines[1]


def test_a_terminal_gets_the_table_and_a_file_the_lines() -> None:
    assert isinstance(open_screen(Console(file=StringIO(), force_terminal=False)), LineScreen)
    screen = open_screen(Console(file=StringIO(), force_terminal=True))
    assert isinstance(screen, TableScreen)
    screen.show(picture())
    screen.close()


def timeline() -> list[dict[str, Any]]:
    def one(time_s: float, **changes: Any) -> dict[str, Any]:
        fields = ("running", "waiting", "acceptance_length", "speculative_tokens", "tpot_p95_s")
        return {"time_s": time_s, "replicas": 1, "ready": 1, "target": 32, **dict.fromkeys(fields)} | changes

    busy = {"running": 9.0, "waiting": 1.0, "acceptance_length": 2.4, "speculative_tokens": 3, "tpot_p95_s": 0.03}
    return [one(0.0), one(2.0, **busy), one(4.0, replicas=2, **busy)]


def test_picture_and_page_are_written_and_the_page_needs_nothing_else(tmp_path: Path) -> None:
    document = summarize(live_part(), arms(), {"total": 400.0})
    document["decisions"] = [
        {"time_s": 1, "service": "chat", "kind": "Target", "from": "32", "to": "20", "reason": "a <b> & c"}
    ]
    plot.draw(tmp_path / "demo.png", timeline(), [0.5, 1.0, 3.0], document, 40.0)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    page.write(tmp_path / "index.html", document, tmp_path / "demo.png", "make demo")
    text = (tmp_path / "index.html").read_text()
    assert "a &lt;b&gt; &amp; c" in text
    assert "best fixed K = 2" in text
    assert "4 times slower" in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)


def test_the_page_says_what_was_not_seen(tmp_path: Path) -> None:
    document = summarize(live_part(changes=[]), arms(), {})
    (tmp_path / "demo.png").write_bytes(b"")
    page.write(tmp_path / "index.html", document, tmp_path / "demo.png", "make demo")
    assert "the schedule must change at least twice" in (tmp_path / "index.html").read_text()


def test_the_report_puts_the_arms_side_by_side() -> None:
    console = Console(file=StringIO(), width=120, force_terminal=False)
    report.arms_table(console, summarize(live_part(), arms(), {}))
    output = console.file
    assert isinstance(output, StringIO)
    text = output.getvalue()
    assert [title for title in page.ARM_TITLES.values() if title in text] == list(page.ARM_TITLES.values())
    assert "worst fixed K = 5" in text
