"""What the GPUs of _gpu_table.py are called, and where their figures come from. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["NAMES", "OLDER", "SHARED", "Named"]


class Named(NamedTuple):
    """What a GPU is called, and where its figures come from."""

    title: str
    source: str
    also: tuple[str, ...] = ()
    """Other names: what drivers report, and short forms."""


_V100_SHEET = "NVIDIA V100 datasheet and Volta GV100 whitepaper"
_TURING_PAPER = "NVIDIA Turing GPU architecture whitepaper"
_A100_SHEET = "NVIDIA A100 datasheet and Ampere GA100 whitepaper"
_A800 = "NVIDIA A100 datasheet: the A800 differs in NVLink alone"
_GA102_PAPER = "NVIDIA Ampere GA102 GPU architecture whitepaper v2"
_ADA_PAPER = "NVIDIA Ada GPU architecture whitepaper"
_HOPPER_PAPER = "NVIDIA H100 Tensor Core GPU architecture whitepaper"
_RTX_BLACKWELL_PAPER = "NVIDIA RTX Blackwell GPU architecture whitepaper"
_PRODUCT_PAGE = "NVIDIA product page"
_HALF_OF_AI_TOPS = "tensor figure: half of the sparse AI TOPS"
_HALF_OF_SPARSE = "tensor figures: half of the sparse ones"
_DRIVER_L2 = "L2 as drivers report it"
# Such tables print the size of a whole chip for some boards of which drivers then report less.
_TABLE_L2 = "L2 from tables of specifications, not from a driver"
_LAPTOP_BOOST = "by power limit, here the highest"

NAMES: Mapping[str, Named] = {
    "titan-v": Named("NVIDIA TITAN V", f"{_PRODUCT_PAGE}; its tensor figure is at no clock that is public"),
    "v100-sxm-16gb": Named(
        "NVIDIA V100 SXM 16GB",
        _V100_SHEET,
        ("Tesla V100-SXM2-16GB", "v100", "v100-16gb", "v100-sxm", "v100-sxm2", "v100-sxm2-16gb"),
    ),
    "v100-sxm-32gb": Named(
        "NVIDIA V100 SXM 32GB", _V100_SHEET, ("Tesla V100-SXM2-32GB", "v100-32gb", "v100-sxm2-32gb")
    ),
    "v100-pcie-16gb": Named("NVIDIA V100 PCIe 16GB", _V100_SHEET, ("Tesla V100-PCIE-16GB", "v100-pcie")),
    "v100-pcie-32gb": Named("NVIDIA V100 PCIe 32GB", _V100_SHEET, ("Tesla V100-PCIE-32GB",)),
    "v100s-pcie-32gb": Named(
        "NVIDIA V100S PCIe 32GB", "NVIDIA V100 datasheet (V100S)", ("Tesla V100S-PCIE-32GB", "v100s")
    ),
    "t4": Named("NVIDIA T4", "NVIDIA T4 datasheet and product brief", ("Tesla T4",)),
    "titan-rtx": Named("NVIDIA TITAN RTX", f"{_PRODUCT_PAGE} and {_TURING_PAPER} (the whole TU102)"),
    "quadro-rtx-6000": Named("NVIDIA Quadro RTX 6000", _TURING_PAPER),
    "quadro-rtx-8000": Named(
        "NVIDIA Quadro RTX 8000", f"NVIDIA Quadro RTX 8000 datasheet and {_TURING_PAPER}"
    ),
    "gtx-1650": Named(
        "NVIDIA GeForce GTX 1650",
        f"{_PRODUCT_PAGE} (the GDDR5 card; the GDDR6 one has 1590 MHz and 192 GB/s); {_TABLE_L2}",
    ),
    "gtx-1650-super": Named("NVIDIA GeForce GTX 1650 SUPER", f"{_PRODUCT_PAGE}; {_TABLE_L2}"),
    "gtx-1660-super": Named("NVIDIA GeForce GTX 1660 SUPER", f"{_PRODUCT_PAGE}; {_DRIVER_L2}"),
    "gtx-1660-ti": Named("NVIDIA GeForce GTX 1660 Ti", f"{_PRODUCT_PAGE}; {_TABLE_L2}"),
    "rtx-2060": Named(
        "NVIDIA GeForce RTX 2060", _PRODUCT_PAGE + " (the 6 GB card; the 12 GB one has 34 SMs)"
    ),
    "rtx-2060-super": Named("NVIDIA GeForce RTX 2060 SUPER", _PRODUCT_PAGE),
    "rtx-2070": Named("NVIDIA GeForce RTX 2070", _TURING_PAPER),
    "rtx-2070-super": Named("NVIDIA GeForce RTX 2070 SUPER", f"{_PRODUCT_PAGE}; {_TABLE_L2}"),
    "rtx-2080": Named("NVIDIA GeForce RTX 2080", _TURING_PAPER + " (reference clocks)"),
    "rtx-2080-super": Named("NVIDIA GeForce RTX 2080 SUPER", f"{_PRODUCT_PAGE}; {_TABLE_L2}"),
    "rtx-2080-ti": Named("NVIDIA GeForce RTX 2080 Ti", _TURING_PAPER + " (reference clocks)"),
    "a100-sxm-40gb": Named(
        "NVIDIA A100 SXM 40GB", _A100_SHEET, ("NVIDIA A100-SXM4-40GB", "a100-40gb", "a100-sxm4-40gb")
    ),
    "a100-sxm-80gb": Named(
        "NVIDIA A100 SXM 80GB",
        _A100_SHEET,
        ("NVIDIA A100-SXM4-80GB", "a100", "a100-sxm", "a100-80gb", "a100-sxm4-80gb"),
    ),
    "a100-pcie-40gb": Named("NVIDIA A100 PCIe 40GB", _A100_SHEET, ("NVIDIA A100-PCIE-40GB",)),
    "a100-pcie-80gb": Named("NVIDIA A100 PCIe 80GB", _A100_SHEET, ("NVIDIA A100 80GB PCIe", "a100-pcie")),
    "a800-sxm-80gb": Named(
        "NVIDIA A800 SXM 80GB",
        _A800,
        ("NVIDIA A800-SXM4-80GB", "a800", "a800-sxm", "a800-80gb", "a800-sxm4-80gb"),
    ),
    "a800-pcie-80gb": Named("NVIDIA A800 PCIe 80GB", _A800, ("NVIDIA A800 80GB PCIe", "a800-pcie")),
    "a30": Named("NVIDIA A30", "NVIDIA A30 datasheet", ("a30-24gb",)),
    "a2": Named("NVIDIA A2", f"NVIDIA A2 datasheet and product brief; {_TABLE_L2}"),
    "a10": Named("NVIDIA A10", "NVIDIA A10 datasheet"),
    "a10g": Named(
        "NVIDIA A10G",
        f"NVIDIA A10G datasheet as Amazon Web Services prints it; SMs as drivers report; {_DRIVER_L2}",
    ),
    "a16": Named("NVIDIA A16", f"NVIDIA A16 datasheet, one of the card's four GPUs; {_TABLE_L2}"),
    "a40": Named("NVIDIA A40", _GA102_PAPER),
    "rtx-3050": Named(
        "NVIDIA GeForce RTX 3050", f"{_PRODUCT_PAGE} (the 8 GB card; the 6 GB one has 18 SMs); {_TABLE_L2}"
    ),
    "rtx-3060-laptop": Named(
        "NVIDIA GeForce RTX 3060 Laptop GPU",
        f"{_PRODUCT_PAGE}, boost 1283 to 1703 MHz {_LAPTOP_BOOST}; {_DRIVER_L2}",
        ("rtx-3060-mobile",),
    ),
    "rtx-3060": Named(
        "NVIDIA GeForce RTX 3060",
        _PRODUCT_PAGE + " (the 12 GB card); L2 as drivers report it, marketed as 3 MB",
    ),
    "rtx-3060-ti": Named(
        "NVIDIA GeForce RTX 3060 Ti",
        f"{_PRODUCT_PAGE} (the GDDR6 card; the GDDR6X one has 608 GB/s); {_DRIVER_L2}, marketed as 4 MB",
    ),
    "rtx-3070-laptop": Named(
        "NVIDIA GeForce RTX 3070 Laptop GPU",
        f"{_PRODUCT_PAGE}, boost 1290 to 1620 MHz {_LAPTOP_BOOST}; {_DRIVER_L2}",
        ("rtx-3070-mobile",),
    ),
    "rtx-3070": Named("NVIDIA GeForce RTX 3070", _GA102_PAPER),
    "rtx-3070-ti": Named("NVIDIA GeForce RTX 3070 Ti", f"{_PRODUCT_PAGE}; {_TABLE_L2}"),
    "rtx-3080-laptop": Named(
        "NVIDIA GeForce RTX 3080 Laptop GPU",
        f"{_PRODUCT_PAGE} (with 16 GB; there are some with 8), boost 1245 to 1710 MHz {_LAPTOP_BOOST}; {_TABLE_L2}",
        ("rtx-3080-mobile",),
    ),
    "rtx-3080": Named(
        "NVIDIA GeForce RTX 3080", _GA102_PAPER + " (the 10 GB card; the 12 GB one has 70 SMs)"
    ),
    "rtx-3080-12gb": Named("NVIDIA GeForce RTX 3080 12GB", f"{_PRODUCT_PAGE}; {_TABLE_L2}"),
    "rtx-3080-ti": Named("NVIDIA GeForce RTX 3080 Ti", f"{_PRODUCT_PAGE}; {_DRIVER_L2}"),
    "rtx-3090": Named("NVIDIA GeForce RTX 3090", _GA102_PAPER),
    "rtx-3090-ti": Named("NVIDIA GeForce RTX 3090 Ti", f"{_PRODUCT_PAGE}; {_TABLE_L2}"),
    "rtx-a4000": Named("NVIDIA RTX A4000", f"NVIDIA RTX A4000 datasheet; {_HALF_OF_SPARSE}; {_DRIVER_L2}"),
    "rtx-a5000": Named("NVIDIA RTX A5000", f"NVIDIA RTX A5000 datasheet; {_HALF_OF_SPARSE}; {_TABLE_L2}"),
    "rtx-a6000": Named("NVIDIA RTX A6000", _GA102_PAPER),
    "jetson-orin-nano": Named(
        "NVIDIA Jetson Orin Nano 8GB",
        f"NVIDIA Jetson Orin Nano series datasheet; int8: half of 40 sparse TOP/s; {_DRIVER_L2}",
        ("orin-nano",),
    ),
    "jetson-orin-nano-super": Named(
        "NVIDIA Jetson Orin Nano Super",
        f"NVIDIA Jetson Orin Nano series datasheet; int8: half of 67 sparse TOP/s; {_DRIVER_L2}",
        ("orin-nano-super",),
    ),
    "jetson-orin-nx": Named(
        "NVIDIA Jetson Orin NX 16GB",
        f"NVIDIA Jetson Orin NX series datasheet; {_DRIVER_L2}",
        ("orin-nx", "jetson-orin-nx-16gb"),
    ),
    "jetson-agx-orin": Named(
        "NVIDIA Jetson AGX Orin 64GB",
        "NVIDIA Jetson AGX Orin series technical brief; int8: half of 170 sparse TOP/s",
        ("Orin", "agx-orin", "jetson-orin"),
    ),
    "l4": Named("NVIDIA L4", "NVIDIA L4 datasheet and product brief"),
    "l20": Named("NVIDIA L20", f"NVIDIA L20 datasheet as resellers print it; {_TABLE_L2}"),
    "l40": Named("NVIDIA L40", f"NVIDIA L40 datasheet; {_TABLE_L2}"),
    "l40s": Named("NVIDIA L40S", "NVIDIA L40S datasheet"),
    "rtx-4060": Named("NVIDIA GeForce RTX 4060", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}"),
    "rtx-4060-ti": Named(
        "NVIDIA GeForce RTX 4060 Ti",
        f"{_PRODUCT_PAGE} (with 8 GB; there are some with 16); {_HALF_OF_AI_TOPS}; {_DRIVER_L2}",
        ("rtx-4060-ti-8gb",),
    ),
    "rtx-4070": Named("NVIDIA GeForce RTX 4070", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}"),
    "rtx-4070-super": Named(
        "NVIDIA GeForce RTX 4070 SUPER", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}; {_DRIVER_L2}"
    ),
    "rtx-4070-ti": Named("NVIDIA GeForce RTX 4070 Ti", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}; {_TABLE_L2}"),
    "rtx-4070-ti-super": Named(
        "NVIDIA GeForce RTX 4070 Ti SUPER", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}; {_DRIVER_L2}"
    ),
    "rtx-4080-laptop": Named(
        "NVIDIA GeForce RTX 4080 Laptop GPU",
        f"{_PRODUCT_PAGE}, boost 1350 to 2280 MHz by power limit, here the highest; {_HALF_OF_AI_TOPS}",
        ("rtx-4080-mobile",),
    ),
    "rtx-4080": Named("NVIDIA GeForce RTX 4080", _ADA_PAPER),
    "rtx-4080-super": Named(
        "NVIDIA GeForce RTX 4080 SUPER", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}; {_DRIVER_L2}"
    ),
    "rtx-4090-laptop": Named(
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        f"{_PRODUCT_PAGE}, boost 1455 to 2040 MHz {_LAPTOP_BOOST} (its 686 sparse AI TOPS are at none of them); "
        + _DRIVER_L2,
        ("rtx-4090-mobile",),
    ),
    "rtx-4090": Named("NVIDIA GeForce RTX 4090", _ADA_PAPER),
    "rtx-4500-ada": Named(
        "NVIDIA RTX 4500 Ada Generation", f"NVIDIA RTX 4500 Ada Generation datasheet; {_TABLE_L2}"
    ),
    "rtx-5000-ada": Named(
        "NVIDIA RTX 5000 Ada Generation",
        f"NVIDIA RTX 5000 Ada Generation datasheet; {_HALF_OF_SPARSE}; {_TABLE_L2}",
    ),
    "rtx-6000-ada": Named(
        "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 6000 Ada Generation datasheet and " + _ADA_PAPER
    ),
    "h100-sxm": Named(
        "NVIDIA H100 SXM",
        _HOPPER_PAPER,
        ("NVIDIA H100 80GB HBM3", "h100", "h100-sxm5", "h100-sxm-80gb", "h100-80gb"),
    ),
    "h100-nvl": Named(
        "NVIDIA H100 NVL",
        f"NVIDIA H100 datasheet and H100 NVL product brief, one of the pair; {_HALF_OF_SPARSE}; {_DRIVER_L2}",
        ("h100-nvl-94gb",),
    ),
    "h100-pcie": Named("NVIDIA H100 PCIe", _HOPPER_PAPER, ("h100-pcie-80gb",)),
    "h800-sxm": Named(
        "NVIDIA H800 SXM",
        "NVIDIA H800 datasheet as resellers print it; an H100 SXM with less NVLink and fp64",
        ("NVIDIA H800", "h800-sxm5", "h800-sxm-80gb", "h800-80gb"),
    ),
    "h200": Named(
        "NVIDIA H200",
        "NVIDIA H200 datasheet, clocks of the H100 SXM; L2 and SMs as drivers report them",
        ("h200-sxm", "h200-sxm-141gb"),
    ),
    "gh200": Named(
        "NVIDIA GH200 96GB",
        "NVIDIA GH200 datasheet (HBM3 version); L2 and clocks as drivers report them",
        ("NVIDIA GH200 480GB", "NVIDIA GH200 120GB"),
    ),
    "gb200": Named(
        "NVIDIA GB200",
        "NVIDIA GB200 NVL72 datasheet, one of its GPUs; SMs, clocks and bus as drivers report them (the bandwidth is "
        "marketed as 8 TB/s); L2 of the B200",
    ),
    "b200": Named(
        "NVIDIA B200",
        "NVIDIA HGX B200 datasheet, an eighth of it; SMs, L2, clocks and bus as drivers report them "
        "(the bandwidth is marketed as 8 TB/s)",
        ("b200-sxm", "b200-180gb"),
    ),
    "b300": Named(
        "NVIDIA B300",
        "NVIDIA HGX B300 datasheet, an eighth of it; SMs, memory, L2, clocks and bus as drivers report them "
        "(marketed as 288 GB at 8 TB/s)",
        ("NVIDIA B300 SXM6 AC", "b300-sxm"),
    ),
    "jetson-agx-thor": Named(
        "NVIDIA Jetson AGX Thor",
        "NVIDIA Jetson T5000 datasheet; fp4, fp8: half of the sparse figures; SMs, L2 as drivers report them",
        ("NVIDIA Thor", "thor", "agx-thor", "jetson-thor", "jetson-t5000"),
    ),
    "rtx-5060": Named("NVIDIA GeForce RTX 5060", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}; {_DRIVER_L2}"),
    "rtx-5060-ti": Named(
        "NVIDIA GeForce RTX 5060 Ti",
        f"{_PRODUCT_PAGE} (with 16 GB; there are some with 8); {_HALF_OF_AI_TOPS}; {_DRIVER_L2}",
        ("rtx-5060-ti-16gb",),
    ),
    "rtx-5070": Named("NVIDIA GeForce RTX 5070", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}"),
    "rtx-5070-ti": Named("NVIDIA GeForce RTX 5070 Ti", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}; {_TABLE_L2}"),
    "rtx-5080": Named("NVIDIA GeForce RTX 5080", _RTX_BLACKWELL_PAPER),
    "rtx-5090-laptop": Named(
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        f"{_PRODUCT_PAGE}, boost 1597 to 2160 MHz {_LAPTOP_BOOST} (its 1824 sparse AI TOPS are at none of them); "
        + _TABLE_L2,
        ("rtx-5090-mobile",),
    ),
    "rtx-5090": Named("NVIDIA GeForce RTX 5090", _RTX_BLACKWELL_PAPER),
    "rtx-pro-6000-blackwell": Named(
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        f"NVIDIA RTX PRO 6000 Blackwell datasheet; {_HALF_OF_AI_TOPS}",
        ("rtx-pro-6000", "rtx-6000-blackwell"),
    ),
    "gb10": Named(
        "NVIDIA GB10",
        "NVIDIA DGX Spark user guide; fp4: half of 1 PFLOP/s sparse; SMs, L2, clock as drivers report them",
        ("dgx-spark",),
    ),
}

SHARED: Mapping[str, tuple[str, ...]] = {
    "jetson-agx-orin": ("jetson-orin-nano", "jetson-orin-nano-super", "jetson-orin-nx"),
    "rtx-3080": ("rtx-3080-12gb",),
}
"""Boards that a driver calls by the name of another: "Orin", and "NVIDIA GeForce RTX 3080"."""

OLDER = (
    r"(?:quadro|titan)?(?:gp100|p(?:4|6|40|100)|m(?:4|6|40|60)|k(?:10|20|40|80))(?!\d)\w*",
    r"titan(?:x|z|black)(?!\d)\w*",
    r"quadro[kmp]\d+\w*",
    r"(?:gtx?)?(?:[4-9][1-9]0|10[1-8]0)(?:ti|super|m|mobile|laptop|\dgb|maxq)*",
    r"(?:jetson)?(?:agx)?(?:tx[12]|nano)\w*",
)
"""Names of GPUs from before compute capability 7.0, once spelling no longer counts, as patterns."""
