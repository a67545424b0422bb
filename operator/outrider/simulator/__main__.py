"""``python -m outrider.simulator``: an engine behind every engine pod of a cluster, in real time."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence
from pathlib import Path

from outrider.simulator.kubelet import Kubelet
from outrider.simulator.pod_api import KubePodApi
from outrider.simulator.profile import load_profile, read_profile

logger = logging.getLogger("outrider.simulator")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="outrider.simulator", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="of a user who may read Secrets and write pod status")
    parser.add_argument("--dilation", type=float, default=1.0, help="times slower than the measured card, 1 or more")
    parser.add_argument("--profile", type=Path, help="measured rows of another card; default: the one in the package")
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    options = parser.parse_args(arguments)
    if options.dilation < 1:
        parser.error("--dilation must be 1 or more: a faster card was not measured")
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    profile = load_profile() if options.profile is None else read_profile(options.profile)
    api = await KubePodApi.connect(options.kubeconfig)
    task = asyncio.create_task(Kubelet(api, profile.slowed(options.dilation)).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    logger.info("simulating %s, %g times slower", profile.name, options.dilation)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        await api.close()


if __name__ == "__main__":
    main()
