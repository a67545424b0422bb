"""GPU products by the label that NVIDIA's device plugin and feature discovery put on nodes.

Memory is what the driver reports, rounded down: from it the engine takes its share. Interconnect is that of the usual
board; a product is not proof of how a node is wired.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"
"""Mebibytes of one GPU, as feature discovery writes it."""

Interconnect = Literal["NVLink", "NVLink in pairs", "PCIe"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One product."""

    name: str
    memory_bytes: float
    interconnect: Interconnect
    fp8: bool
    """Whether it computes in 8-bit floats; older ones only store them."""


_GIB = float(2**30)

# NVIDIA's data sheets; memory as nvidia-smi shows it. The first pattern that fits counts.
_PRODUCTS: tuple[tuple[str, float, Interconnect, bool], ...] = (
    (r"GB200", 185.0, "NVLink", True),
    (r"B200", 178.0, "NVLink", True),
    (r"GH200-144", 140.0, "NVLink", True),
    (r"GH200", 95.0, "NVLink", True),
    (r"H200-NVL", 140.0, "NVLink in pairs", True),
    (r"H200", 140.0, "NVLink", True),
    (r"H100-NVL", 93.0, "NVLink in pairs", True),
    (r"H100-PCIe", 79.0, "PCIe", True),
    (r"H100", 79.0, "NVLink", True),
    (r"H800", 79.0, "NVLink", True),
    (r"H20", 95.0, "NVLink", True),
    (r"A100-(SXM4-)?80GB-PCIe|A100-PCIE-80GB", 79.0, "PCIe", False),
    (r"A100-PCIE-40GB", 39.0, "PCIe", False),
    (r"A100-SXM4-80GB|A100-SXM-80GB", 79.0, "NVLink", False),
    (r"A100-SXM4-40GB", 39.0, "NVLink", False),
    (r"A40", 44.0, "PCIe", False),
    (r"A30", 23.0, "PCIe", False),
    (r"A10G?", 22.0, "PCIe", False),
    (r"L40S?", 44.0, "PCIe", True),
    (r"L4", 22.0, "PCIe", True),
    (r"RTX-PRO-6000", 95.0, "PCIe", True),
    (r"RTX-6000-Ada", 47.0, "PCIe", True),
    (r"RTX-A6000", 47.0, "PCIe", False),
    (r"GeForce-RTX-5090", 31.0, "PCIe", True),
    (r"GeForce-RTX-4090", 23.0, "PCIe", True),
    (r"GeForce-RTX-3090", 23.0, "PCIe", False),
    (r"V100-SXM2-32GB", 31.0, "NVLink", False),
    (r"V100-SXM2-16GB", 15.0, "NVLink", False),
    (r"V100-PCIE-32GB", 31.0, "PCIe", False),
    (r"V100-PCIE-16GB", 15.0, "PCIe", False),
    (r"T4", 14.0, "PCIe", False),
)


def product(label: str) -> Gpu | None:
    """The product that a label names; None when it is not in the table.

    A part of a GPU (MIG) has the memory that its profile names, and no link to other parts.
    """
    for pattern, gib, interconnect, fp8 in _PRODUCTS:
        if re.search(rf"(^|-)({pattern})($|-)", label, re.IGNORECASE):
            part = re.search(r"MIG-\d+g\.(\d+)gb", label, re.IGNORECASE)
            if part is not None:
                return Gpu(label, 0.9 * float(part.group(1)) * _GIB, "PCIe", fp8)
            return Gpu(label, gib * _GIB, interconnect, fp8)
    return None
