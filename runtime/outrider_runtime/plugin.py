"""vLLM's general plugin: runs in every process of vLLM, more than once in some, before an engine core is built."""

from __future__ import annotations

import logging

from outrider_runtime import vllm_adapter

logger = logging.getLogger("vllm.outrider")

_said = False


def _guard() -> None:
    try:
        vllm_adapter.install_graph_guard()
    except Exception as error:
        logger.warning("Outrider: no guard for the drafter's CUDA graphs: %s", error)


def register() -> None:
    """Make engines of this process controllable, if this vLLM is one that we know. Never raises."""
    global _said
    try:
        reason = vllm_adapter.fault()
        if not reason:
            vllm_adapter.install_engine_half()
            _guard()
            return
    except Exception as error:
        reason = f"the plugin failed: {error}"
    if not _said:
        _said = True
        logger.warning("Outrider: K stays as vLLM was started: %s", reason)
