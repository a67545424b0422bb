"""A stand-in for the gateway in front of services: it exports how many requests it holds for each, as the test says."""

from __future__ import annotations

from tests.testbed.cluster import Cluster
from tests.testbed.pages import Pages


class Gateway(Pages):
    """Scraped by the cluster's Prometheus as job ``gateway``; use it as a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.requests: dict[str, int] = {}
        """By service, exported as ``gateway_requests{service="…"}``."""
        self.texts["/metrics"] = self._page
        cluster.add_scrape_target("gateway", self.address)

    def _page(self) -> str:
        held = [f'gateway_requests{{service="{name}"}} {count}\n' for name, count in self.requests.items()]
        return "".join(["# TYPE gateway_requests gauge\n", *held])
