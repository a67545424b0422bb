"""``outrider top``: rows, sorting, sizes, and how one leaves."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from outrider.cli.measured import Now
from outrider.cli.seen import see
from outrider.cli.top_screen import SORTS, Row, picture
from outrider.core.histogram import Histogram
from tests.unit.cli.conftest import Ask
from tests.unit.cli.fake_cluster import FakeCluster, busy, service, serving

SLOW = Histogram(count=10, buckets=((0.03, 4), (0.05, 10), (float("inf"), 10)))
FAST = Histogram(count=10, buckets=((0.01, 10), (float("inf"), 10)))


def rows() -> list[Row]:
    return [
        Row(see(service("a")), Now(in_flight=3, tokens_per_second=900, tpot=FAST)),
        Row(see(service("b")), Now(in_flight=40, tokens_per_second=100, tpot=SLOW)),
        Row(see(service("c"))),
    ]


def drawn(width: int, height: int = 20) -> list[str]:
    console = Console(width=width, height=height, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(picture(rows(), width=width, height=height, title="now", notes=["the store is away"]))
    return console.export_text().splitlines()


def test_once_it_shows_a_row_a_service(ask: Ask) -> None:
    result = ask(busy(FakeCluster(service(), service("code"))), "top", "--once", "--prometheus", "STORE")
    assert result.exit_code == 0, result.output
    chat = next(line for line in result.stdout.splitlines() if line.startswith("ml/chat"))
    assert chat.split() == ["ml/chat", "3", "2.41", "43", "3/3", "20", "45.0/40", "p95", "812", "Ready"]
    code = next(line for line in result.stdout.splitlines() if line.startswith("ml/code"))
    assert code.split()[3] == "–", "of this one the store knows nothing"


def test_a_store_that_is_away_leaves_dashes_and_a_sentence(ask: Ask) -> None:
    result = ask(FakeCluster(service()), "top", "--once", "--prometheus", "http://127.0.0.1:9")
    assert result.exit_code == 0
    assert "no connection" in result.stdout
    assert "ml/chat  3" in result.stdout


def test_the_document_has_the_same_numbers(ask: Ask) -> None:
    result = ask(busy(FakeCluster(service())), "top", "-o", "json", "--prometheus", "STORE")
    (one,) = json.loads(result.stdout)["services"]
    assert (one["inFlight"], one["tokensPerSecond"], one["tpotMilliseconds"]) == (43, 812, 45)


@pytest.mark.parametrize(("sort", "first"), [("name", "a"), ("load", "b"), ("tokens", "a"), ("headroom", "b")])
def test_what_comes_first(sort: str, first: str) -> None:
    assert sorted(rows(), key=SORTS[sort])[0].seen.name == first


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_every_width_shows_name_state_and_nothing_beyond_the_edge(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    assert any(line.startswith("ml/a") for line in lines)
    assert ("TARGET" in "".join(lines)) == (width >= 78)


def test_services_that_have_no_place_are_counted() -> None:
    assert any("and 2 more" in line for line in drawn(100, height=6))


def test_on_a_terminal_it_lives_until_q_or_ctrl_c(tmp_path: Path) -> None:
    """In a pseudo-terminal, as over ssh: the screen is given back either way, and the status is 0."""
    with serving(busy(FakeCluster(service())), tmp_path) as kubeconfig:
        for leave in (b"q", signal.SIGINT):
            main, other = pty.openpty()
            process = subprocess.Popen(
                [sys.executable, "-c", "from outrider.cli.main import main; main()", "top"],
                stdin=other, stdout=other, stderr=other, close_fds=True, start_new_session=True,
                env={**os.environ, "KUBECONFIG": str(kubeconfig), "TERM": "xterm-256color"},
            )  # fmt: skip
            os.close(other)
            said = _until(main, b"ml/chat")
            if isinstance(leave, bytes):
                os.write(main, leave)
            else:
                process.send_signal(leave)
            said += _until(main, b"\x1b[?1049l")
            assert process.wait(timeout=120) == 0
            os.close(main)
            assert b"\x1b[?1049h" in said, "it takes a screen of its own"
            assert b"\x1b[?1049l" in said, "and gives it back"
            assert b"Traceback" not in said


def _until(terminal: int, wanted: bytes, patience_s: float = 300.0) -> bytes:
    """What the terminal shows up to and with these bytes."""
    said, end_s = b"", time.monotonic() + patience_s
    while wanted not in said and time.monotonic() < end_s:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                said += os.read(terminal, 65536)
            except OSError:  # the other side has closed
                break
    return said
