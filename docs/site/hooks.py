"""MkDocs hooks: the front page, files of the repository that pages link to, and stars in the navigation.

The front page is the repository's README. A link that leaves ``docs/`` keeps working on the site: the file behind it
is put below ``repository/``, Markdown as a page and everything else as text that a browser shows. What a link leads to
must exist; MkDocs in strict mode ends the build otherwise.
"""

from __future__ import annotations

import posixpath
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = "repository"
"""Folder of the site that holds files from outside ``docs/``."""
_LINK = re.compile(r"(\]\(|^\[[^\]\n]+\]:\s+)([^)\s]+)(\)?)", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the front page and every file that is linked from a page, and from those pages in turn."""
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            uri = _uri(target)
            if uri.startswith(f"{OUTSIDE}/") and files.get_file_from_path(uri) is None:
                added = File.generated(config, uri, abs_src_path=str(ROOT / target))
                files.append(added)
                if added.is_documentation_page():
                    waiting.append(added)
    config.nav = _expand(config.nav, {file.src_uri for file in files if file.is_documentation_page()})
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Turn links between files of the repository into links between files of the site."""
    here = _origin(page.file)

    def turned(match: re.Match[str]) -> str:
        link, _, heading = match[2].partition("#")
        target = _resolve(here, link)
        if target is None:
            return match[0]
        uri = _uri(target)
        relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{relative}{'#' + heading if heading else ''}{match[3]}"

    return _outside_code(markdown, lambda text: _LINK.sub(turned, text))


def _targets(page: File) -> list[str]:
    found: list[str] = []
    here = _origin(page)
    text = Path(page.abs_src_path or "").read_text(encoding="utf-8")
    for _, link, _ in _LINK.findall(text):
        target = _resolve(here, link.partition("#")[0])
        if target is not None:
            found.append(target)
    return found


def _origin(file: File) -> str:
    """Where a file of the site is in the repository."""
    return str(Path(file.abs_src_path or "").resolve().relative_to(ROOT))


def _resolve(here: str, link: str) -> str | None:
    """The path in the repository that a link leads to; None for links that are not ours."""
    if not link or re.match(r"[a-z]+:", link):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), link))
    if (ROOT / path).is_dir():
        path = posixpath.join(path, "README.md")
    return path if (ROOT / path).is_file() else None


def _uri(path: str) -> str:
    """The place on the site of a file of the repository. Code bears ``.txt``: a browser shows that, and offers other
    names for download."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    shown = path.endswith((".md", ".svg", ".png"))
    return f"{OUTSIDE}/{path}" if shown else f"{OUTSIDE}/{path}.txt"


def _outside_code(markdown: str, change: Any) -> str:
    parts = re.split(r"(^ *```.*?^ *```\s*?$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _expand(nav: Any, names: set[str]) -> Any:
    """The navigation with each star replaced; a section without any page is left out."""
    named = set(_leaves(nav))

    def walk(item: Any) -> list[Any]:
        if isinstance(item, dict):
            ((title, value),) = item.items()
            if isinstance(value, str):
                return [item]
            inside = [found for part in value for found in walk(part)]
            return [{title: inside}] if inside else []
        if "*" not in item:
            return [item]
        fits = sorted(name for name in names - named if fnmatchcase(name, item) and not name.startswith(f"{OUTSIDE}/"))
        named.update(fits)
        return list(fits)

    return [found for item in nav for found in walk(item)]


def _leaves(item: Any) -> list[str]:
    if isinstance(item, str):
        return [] if "*" in item else [item]
    children = item.values() if isinstance(item, dict) else item
    return [leaf for child in children for leaf in _leaves(child)]
