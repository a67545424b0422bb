"""What each vLLM version can do, as data with its evidence.

    versions          the versions that were looked at, and how a history over them is read
    methods           ways to draft, and which of them run on the engine that vLLM once had
    features          settings and combinations; asked: which of them a configuration needs
    flags_by_version  arguments of the server that came, went or were renamed
    live              how a method is run, and whether K may change while it runs

A new version is one more entry of `LOOKED_AT`, one row of `TABLE`, and the spans that it changes.
"""

from outrider.engine.capabilities.asked import REJECTION, asked
from outrider.engine.capabilities.features import (
    FEATURES,
    HISTOGRAM_BUCKETS_SINCE,
    SHUTDOWN_TIMEOUT_SINCE,
    TABLE_SINCE,
    Feature,
    has,
    supports,
)
from outrider.engine.capabilities.flags_by_version import FLAGS_BY_VERSION, flag_name
from outrider.engine.capabilities.live import (
    TABLE,
    capabilities,
    no_table_because,
    runner,
    table_possible,
)
from outrider.engine.capabilities.methods import METHODS, OLD_ENGINE, method_there, methods_of, on_old_engine
from outrider.engine.capabilities.versions import KNOWN_BEST, LOOKED_AT, History, Version, is_later, parse_version

__all__ = [
    "FEATURES",
    "FLAGS_BY_VERSION",
    "HISTOGRAM_BUCKETS_SINCE",
    "KNOWN_BEST",
    "LOOKED_AT",
    "METHODS",
    "OLD_ENGINE",
    "REJECTION",
    "SHUTDOWN_TIMEOUT_SINCE",
    "TABLE",
    "TABLE_SINCE",
    "Feature",
    "History",
    "Version",
    "asked",
    "capabilities",
    "flag_name",
    "has",
    "is_later",
    "method_there",
    "methods_of",
    "no_table_because",
    "on_old_engine",
    "parse_version",
    "runner",
    "supports",
    "table_possible",
]
