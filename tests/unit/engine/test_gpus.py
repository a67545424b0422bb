"""GPU products by their label."""

from __future__ import annotations

import pytest

from outrider.engine.gpus import product


@pytest.mark.parametrize(
    ("label", "gib", "interconnect", "fp8"),
    [
        ("NVIDIA-H100-80GB-HBM3", 79, "NVLink", True),
        ("NVIDIA-H100-PCIe", 79, "PCIe", True),
        ("NVIDIA-H100-NVL", 93, "NVLink in pairs", True),
        ("NVIDIA-H200", 140, "NVLink", True),
        ("NVIDIA-H20", 95, "NVLink", True),
        ("NVIDIA-A100-SXM4-80GB", 79, "NVLink", False),
        ("NVIDIA-A100-80GB-PCIe", 79, "PCIe", False),
        ("NVIDIA-A100-PCIE-40GB", 39, "PCIe", False),
        ("NVIDIA-A10G-SHARED", 22, "PCIe", False),
        ("NVIDIA-L4", 22, "PCIe", True),
        ("NVIDIA-L40S", 44, "PCIe", True),
        ("Tesla-T4", 14, "PCIe", False),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", 36, "PCIe", False),
    ],
)
def test_products(label: str, gib: float, interconnect: str, fp8: bool) -> None:
    gpu = product(label)
    assert gpu is not None
    assert gpu.memory_bytes == pytest.approx(gib * 2**30)
    assert (gpu.interconnect, gpu.fp8) == (interconnect, fp8)


@pytest.mark.parametrize("label", ["", "AMD-MI300X", "NVIDIA-H1000", "NVIDIA-XL4"])
def test_a_label_that_names_none(label: str) -> None:
    assert product(label) is None
