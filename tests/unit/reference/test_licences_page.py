"""The page of licences: complete, current, and nothing in it that could not be shipped."""

from __future__ import annotations

from email.message import Message

import pytest

from outrider.reference import licences
from outrider.reference.__main__ import HEADER
from tests.unit.api.bodies import ROOT


def test_the_committed_page_is_what_the_packages_say() -> None:
    assert (ROOT / "docs" / "reference" / "licences.md").read_text(encoding="utf-8") == HEADER + licences.page()


def test_every_dependency_has_a_known_permissive_licence_or_a_reason() -> None:
    others = {one.name: one.licence for one in licences.dependencies() if not one.permissive}
    assert others.keys() == licences.ACCEPTED.keys(), f"look at these, then name them in ACCEPTED: {others}"
    assert all(licences.ACCEPTED[name].startswith(licence) for name, licence in others.items())


def test_the_page_has_every_package_of_the_lock_that_an_image_installs() -> None:
    lock = (ROOT / "requirements" / "operator.txt").read_text(encoding="utf-8")
    names = {line.split("==")[0] for line in lock.splitlines() if "==" in line and not line.startswith(" ")}
    found = {one.name for one in licences.dependencies()}
    assert names - found == {"colorama"}, "which is for Windows"
    assert len(found) > 40


def test_every_tool_of_the_local_cluster_is_named_by_the_module_that_it_is_built_of() -> None:
    folder = ROOT / "tests" / "testbed" / "tools"
    modules = {path.parent.name: path.read_text(encoding="utf-8") for path in folder.glob("*/go.mod")}
    assert modules.keys() == licences.TOOLS.keys()
    assert all(licences.TOOLS[name] in text for name, text in modules.items())


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        pytest.param({"License-Expression": "MIT", "License": "other"}, "MIT", id="an expression comes first"),
        pytest.param({"License": "Apache 2.0"}, "Apache-2.0", id="a short text"),
        pytest.param({"License": "Copyright\nall of it", "Classifier": "License :: OSI Approved :: BSD License"},
                     "BSD-3-Clause", id="a whole text leaves the classifier"),
        pytest.param({"Classifier": "Topic :: Internet"}, "", id="nothing"),
    ],
)  # fmt: skip
def test_metadata_of_every_form_are_read(fields: dict[str, str], licence: str) -> None:
    found = Message()
    for name, value in fields.items():
        found[name] = value
    assert licences.licence_of(found) == licence


def test_what_names_no_licence_or_an_unknown_one_is_not_permissive() -> None:
    for licence in ("", "GPL-3.0-only", "MIT AND LGPL-3.0-only", "proprietary"):
        assert not licences.Dependency("some", ("1",), licence).permissive
    assert licences.Dependency("some", ("1",), "MIT AND 0BSD").permissive
