"""The traces of the package by name.

Apart from `traces`, which needs numpy: the command line's help lists the names, and must come at once.
"""

from __future__ import annotations

from collections.abc import Mapping

RECORDED: Mapping[str, str] = {
    "azure-conversation": "azure_llm_2023_conv.csv",
    "azure-code": "azure_llm_2023_code.csv",
    "mooncake-conversation": "mooncake_fast25_conversation.csv",
}
RATES: Mapping[str, str] = {"servegen-small": "servegen_m_small_10min.csv"}
TRACES = (*RECORDED, *RATES)
"""Every name that `traces.trace` knows."""
