"""Options and fixtures that all tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("outrider", deadline=None)  # a busy machine is no fault of the code
hypothesis.settings.load_profile("outrider")

pytest_plugins = ["tests.testbed.fixtures", "tests.failures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        help="write the golden files anew; read the diff before committing it",
    )
    parser.addoption(
        "--fuzz-examples",
        type=int,
        default=300,
        help="how many generated resources each fuzz test tries (default: %(default)s)",
    )
    chaos = parser.getgroup("chaos", "random faults")
    chaos.addoption("--chaos-passes", type=int, default=1_000, help="control passes in virtual time")
    chaos.addoption("--chaos-steps", type=int, default=30, help="steps on the local cluster")
    chaos.addoption("--chaos-seconds", type=float, help="end after so many seconds, whatever was played")
    chaos.addoption("--chaos-seed", type=int, default=0, help="what is played; a failure names its own")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare text with a golden file, or write the file when asked to."""
    refresh = request.config.getoption("--refresh-golden")

    def compare(path: Path, text: str) -> None:
        if refresh:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; write it with --refresh-golden and read it"
        assert text == path.read_text(), (
            f"{path.name} differs; if that is meant, use --refresh-golden and read the diff"
        )

    return compare
