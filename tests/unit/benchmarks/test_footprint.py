"""What the image's packages are found to take."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.footprint.__main__ import page, sizes

MIB = 2**20


def test_a_module_and_its_compiled_form_count_once_each(tmp_path: Path) -> None:
    compiled = f"wide/__pycache__/one.{sys.implementation.cache_tag}.pyc"
    for name, size in (("wide/one.py", MIB), (compiled, 2 * MIB), ("narrow.py", MIB // 2), ("stray.py", MIB)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"#" * size)
    record = f"wide/one.py,,\n{compiled},,\nnarrow.py,,\nabsent.py,,\n"
    (tmp_path / "wide-1.dist-info").mkdir()
    (tmp_path / "wide-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: wide\nVersion: 1\n")
    (tmp_path / "wide-1.dist-info/RECORD").write_text(record)
    assert sizes(tmp_path) == {"wide": 3.5}


def test_small_packages_are_told_as_one() -> None:
    installed = {"large": 10.0, "small": 1.0, "tiny": 0.5}
    text = page({"date": "", "python": "", "processor": "", "installed_mib": installed, "start_seconds": {"x": 0.5}})
    assert "| large | 10 |\n| 2 others | 1.5 |" in text
    assert "**12 MiB**" in text
