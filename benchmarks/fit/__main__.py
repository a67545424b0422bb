"""``python -m benchmarks.fit``: errors of the step-time model, printed and written to build/fit.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.fit.measured import errors
from benchmarks.fit.published import figures

OUTPUT = Path("build/fit.json")


def report() -> dict[str, Any]:
    """Mean absolute errors in percent; ``reference`` is the plain fit that each is compared with."""
    measured = errors()
    named = {"heldout_load": measured.batch, "heldout_k": measured.k, "extrapolated": measured.load}
    return {
        **{f"mape_{name}_percent": round(100.0 * (error or 0.0), 2) for name, error in named.items()},
        "published": {
            figure.name: {"mape_percent": round(figure.percent, 2), "reference_percent": figure.reference_percent}
            for figure in figures()
        },
    }


def main() -> None:
    """Run all of them."""
    results = report()
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=2) + "\n")
    for name, value in results.items():
        if name != "published":
            print(f"{name:<45} {value:6.2f}")
    for name, row in results["published"].items():
        reference = "" if row["reference_percent"] is None else f"   reference {row['reference_percent']:6.2f}"
        print(f"{name:<45} {row['mape_percent']:6.2f}{reference}")


if __name__ == "__main__":
    main()
