"""The documentation's site: what its navigation names is there. `make docs` builds it, and follows every link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def leaves(item: Any) -> Iterator[str]:
    if isinstance(item, str):
        yield item
    else:
        for child in item.values() if isinstance(item, dict) else item:
            yield from leaves(child)


def test_every_page_of_the_navigation_exists() -> None:
    named = [leaf for leaf in leaves(SITE["nav"]) if "*" not in leaf]
    assert len(named) > 25
    for leaf in named:
        path = leaf.removeprefix("repository/") if leaf.startswith("repository/") else f"docs/{leaf}"
        assert leaf == "index.md" or (ROOT / path).is_file(), leaf


def test_a_broken_link_ends_the_build_and_readers_load_nothing_from_elsewhere() -> None:
    assert set(SITE["validation"]["links"].values()) == {"warn"}
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert SITE["theme"]["font"] is False
    assert not {"extra_javascript", "extra_css"} & SITE.keys()
