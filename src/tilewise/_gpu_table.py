"""The figures behind gpus.py, in the units that datasheets use. Data only; gpus.py turns it into SI.

PER_CAPABILITY holds what all GPUs of one compute capability share: the limits of a launch and of a
multiprocessor, and how many multiply-adds a multiprocessor retires per clock. HARDWARE, PUBLISHED and
NAMES hold what differs from GPU to GPU. A peak rate is SMs × multiply-adds × 2 × clock where the rate per
clock is public, and the vendor's own figure where it is not. Every figure is dense: none counts
structured sparsity.

A figure that could not be found is None, or missing from its mapping. None is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "HARDWARE",
    "KINDS",
    "LIMITS_SOURCE",
    "NAMES",
    "PER_CAPABILITY",
    "PUBLISHED",
    "TENSOR_MHZ",
    "Hardware",
    "Named",
    "PerCapability",
]

LIMITS_SOURCE = (
    "CUDA programming guide, technical specifications per compute capability; "
    "cuda_occupancy.h and arch_traits.h of CUDA 13.5"
)

_SMALL = (0, 8, 16, 32, 64, 100)
_MIDDLE = (*_SMALL, 132, 164)
_LARGE = (*_MIDDLE, 196, 228)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerCapability:
    """What all GPUs of one compute capability share."""

    architecture: str
    arch: str
    """What to compile for: the arch-specific instructions (the trailing a) included, where there are any."""
    threads_per_sm: int
    blocks_per_sm: int
    barriers_per_sm: int
    carveouts: tuple[int, ...]
    """The sizes that the shared memory of a multiprocessor can be set to, in KiB; the last is all of it."""
    shared_reserved: int = 1_024
    shared_unit: int = 128
    cluster_blocks: int = 1
    cluster_blocks_optin: int = 1
    cycles: tuple[int, int, int]
    """Typical latency of an L1 hit, an L2 hit and a miss in both, rounded."""
    per_clock: Mapping[str, int]
    """Multiply-adds per clock per multiprocessor, by kind (the fields of gpus.Peaks)."""


_TURING = {"fp32": 64, "fp64": 2, "fp16_fp16": 512, "fp16_fp32": 512, "int8": 1024}
# GeForce parts of 7.5, 8.6, 8.9 and 12.0 run what accumulates in fp32 at half the rates given here.
_GA10X = {"fp32": 128, "fp64": 2, "fp16_fp16": 512, "fp16_fp32": 512, "bf16": 512, "tf32": 256, "int8": 1024}
_ADA = {**_GA10X, "fp8_fp16": 1024, "fp8_fp32": 1024}
_GA100 = {
    "fp32": 64,
    "fp64": 32,
    "fp64_tensor": 64,
    "fp16_fp16": 1024,
    "fp16_fp32": 1024,
    "bf16": 1024,
    "tf32": 512,
    "int8": 2048,
}
_HOPPER = {
    "fp32": 128,
    "fp64": 64,
    "fp64_tensor": 128,
    "fp16_fp16": 2048,
    "fp16_fp32": 2048,
    "bf16": 2048,
    "tf32": 1024,
    "fp8_fp16": 4096,
    "fp8_fp32": 4096,
    "int8": 4096,
}

PER_CAPABILITY: Mapping[tuple[int, int], PerCapability] = {
    (7, 5): PerCapability(
        architecture="Turing",
        arch="sm_75",
        threads_per_sm=1024,
        blocks_per_sm=16,
        barriers_per_sm=32,
        carveouts=(32, 64),
        shared_reserved=0,
        shared_unit=256,
        cycles=(30, 240, 500),
        per_clock=_TURING,
    ),
    (8, 0): PerCapability(
        architecture="Ampere",
        arch="sm_80",
        threads_per_sm=2048,
        blocks_per_sm=32,
        barriers_per_sm=64,
        carveouts=_MIDDLE,
        cycles=(40, 210, 600),
        per_clock=_GA100,
    ),
    (8, 6): PerCapability(
        architecture="Ampere",
        arch="sm_86",
        threads_per_sm=1536,
        blocks_per_sm=16,
        barriers_per_sm=16,
        carveouts=_SMALL,
        cycles=(40, 210, 600),
        per_clock=_GA10X,
    ),
    # Of Orin's tensor cores the int8 rate is public, and fp16 runs at half of int8 on every Ampere tensor
    # core; whether accumulating in fp32 halves it again is not public, so those kinds are missing.
    (8, 7): PerCapability(
        architecture="Ampere",
        arch="sm_87",
        threads_per_sm=1536,
        blocks_per_sm=16,
        barriers_per_sm=16,
        carveouts=_MIDDLE,
        cycles=(40, 210, 600),
        per_clock={"fp32": 128, "fp16_fp16": 1024, "int8": 2048},
    ),
    (8, 8): PerCapability(
        architecture="Ampere",
        arch="sm_88",
        threads_per_sm=1536,
        blocks_per_sm=16,
        barriers_per_sm=16,
        carveouts=_SMALL,
        cycles=(40, 210, 600),
        per_clock={},
    ),
    (8, 9): PerCapability(
        architecture="Ada",
        arch="sm_89",
        threads_per_sm=1536,
        blocks_per_sm=24,
        barriers_per_sm=24,
        carveouts=_SMALL,
        cycles=(40, 300, 640),
        per_clock=_ADA,
    ),
    (9, 0): PerCapability(
        architecture="Hopper",
        arch="sm_90a",
        threads_per_sm=2048,
        blocks_per_sm=32,
        barriers_per_sm=64,
        carveouts=_LARGE,
        cluster_blocks=8,
        cluster_blocks_optin=16,
        cycles=(40, 280, 690),
        per_clock=_HOPPER,
    ),
    # The vendor quotes the tensor figures of 10.0 and 10.3 at no public clock: they are taken as printed.
    (10, 0): PerCapability(
        architecture="Blackwell",
        arch="sm_100a",
        threads_per_sm=2048,
        blocks_per_sm=32,
        barriers_per_sm=64,
        carveouts=_LARGE,
        cluster_blocks=8,
        cluster_blocks_optin=16,
        cycles=(40, 300, 860),
        per_clock={"fp32": 128, "fp64": 64},
    ),
    (10, 3): PerCapability(
        architecture="Blackwell",
        arch="sm_103a",
        threads_per_sm=2048,
        blocks_per_sm=32,
        barriers_per_sm=32,
        carveouts=_LARGE,
        cluster_blocks=8,
        cluster_blocks_optin=16,
        cycles=(40, 300, 860),
        per_clock={"fp32": 128},
    ),
    (11, 0): PerCapability(
        architecture="Blackwell",
        arch="sm_110a",
        threads_per_sm=1536,
        blocks_per_sm=24,
        barriers_per_sm=24,
        carveouts=_LARGE,
        cluster_blocks=8,
        cluster_blocks_optin=8,
        cycles=(40, 300, 860),
        per_clock={"fp32": 128, "fp16_fp32": 4096, "bf16": 4096, "fp8_fp32": 8192, "fp4": 16384},
    ),
    (12, 0): PerCapability(
        architecture="Blackwell",
        arch="sm_120a",
        threads_per_sm=1536,
        blocks_per_sm=24,
        barriers_per_sm=24,
        carveouts=_SMALL,
        cluster_blocks=8,
        cluster_blocks_optin=8,
        cycles=(40, 360, 900),
        per_clock={**_ADA, "fp4": 2048},
    ),
    (12, 1): PerCapability(
        architecture="Blackwell",
        arch="sm_121a",
        threads_per_sm=1536,
        blocks_per_sm=24,
        barriers_per_sm=24,
        carveouts=_SMALL,
        cluster_blocks=8,
        cluster_blocks_optin=8,
        cycles=(40, 360, 900),
        per_clock={"fp32": 128},
    ),
}


class Hardware(NamedTuple):
    """What differs from one GPU to the next."""

    capability: tuple[int, int]
    sms: int
    memory: float
    """GiB as marketed; a driver shows up to a few percent less."""
    bus: int
    """Bits."""
    memory_clock: float | None
    """MHz as a driver reports it; the data rate of one pin is twice that."""
    bandwidth: float
    """GB/s."""
    l2: float
    """MiB as a driver reports it, which on some parts is less than marketed."""
    base: float | None
    boost: float
    """MHz. Peaks are at the boost clock."""


na = None  # not published, or not found

# fmt: off
HARDWARE: Mapping[str, Hardware] = {
    # name                        capability  SMs   GiB   bus memory   GB/s    L2  base boost
    "t4":                     Hardware((7, 5),   40,    16,  256,  5001,   320,     4,  585, 1590),
    "rtx-2060":               Hardware((7, 5),   30,     6,  192,  7001,   336,     3, 1365, 1680),
    "rtx-2060-super":         Hardware((7, 5),   34,     8,  256,  7001,   448,     4, 1470, 1650),
    "rtx-2070":               Hardware((7, 5),   36,     8,  256,  7001,   448,     4, 1410, 1620),
    "rtx-2080-ti":            Hardware((7, 5),   68,    11,  352,  7001,   616,   5.5, 1350, 1545),
    "a100-sxm-40gb":          Hardware((8, 0),  108,    40, 5120,  1215,  1555,    40, 1095, 1410),
    "a100-sxm-80gb":          Hardware((8, 0),  108,    80, 5120,  1593,  2039,    40, 1275, 1410),
    "a100-pcie-40gb":         Hardware((8, 0),  108,    40, 5120,  1215,  1555,    40,  765, 1410),
    "a100-pcie-80gb":         Hardware((8, 0),  108,    80, 5120,  1512,  1935,    40, 1065, 1410),
    "a30":                    Hardware((8, 0),   56,    24, 3072,  1215,   933,    24,  930, 1440),
    "a10":                    Hardware((8, 6),   72,    24,  384,  6251,   600,     6,  885, 1695),
    "a40":                    Hardware((8, 6),   84,    48,  384,  7251,   696,     6, 1305, 1740),
    "rtx-3060":               Hardware((8, 6),   28,    12,  192,  7501,   360,  2.25, 1320, 1777),
    "rtx-3070":               Hardware((8, 6),   46,     8,  256,  7001,   448,     4, 1500, 1725),
    "rtx-3080":               Hardware((8, 6),   68,    10,  320,  9501,   760,     5, 1440, 1710),
    "rtx-3090":               Hardware((8, 6),   82,    24,  384,  9751,   936,     6, 1395, 1695),
    "rtx-a6000":              Hardware((8, 6),   84,    48,  384,  8001,   768,     6, 1410, 1800),
    "jetson-agx-orin":        Hardware((8, 7),   16,    64,  256,  3200, 204.8,     4,   na, 1300),
    "l4":                     Hardware((8, 9),   58,    24,  192,  6251,   300,    48,  795, 2040),
    "l40s":                   Hardware((8, 9),  142,    48,  384,  9001,   864,    96, 1110, 2520),
    "rtx-4060":               Hardware((8, 9),   24,     8,  128,  8501,   272,    24, 1830, 2460),
    "rtx-4070":               Hardware((8, 9),   46,    12,  192, 10501,   504,    36, 1920, 2475),
    "rtx-4080-laptop":        Hardware((8, 9),   58,    12,  192,  9001,   432,    48,   na, 2280),
    "rtx-4080":               Hardware((8, 9),   76,    16,  256, 11201, 716.8,    64, 2205, 2505),
    "rtx-4090":               Hardware((8, 9),  128,    24,  384, 10501,  1008,    72, 2235, 2520),
    "rtx-6000-ada":           Hardware((8, 9),  142,    48,  384, 10001,   960,    96,  915, 2505),
    "h100-sxm":               Hardware((9, 0),  132,    80, 5120,  2619,  3350,    50,   na, 1980),
    "h100-pcie":              Hardware((9, 0),  114,    80, 5120,  1593,  2039,    50,   na, 1755),
    "h200":                   Hardware((9, 0),  132,   141, 6144,    na,  4800,    60,   na, 1980),
    "gh200":                  Hardware((9, 0),  132,    96, 6144,  2619,  4000,    60,   na, 1980),
    "b200":                   Hardware((10, 0), 148,   180, 7680,  3996,  7672, 126.5,   na, 1965),
    "b300":                   Hardware((10, 3), 148, 268.6, 7680,  3996,  7672,   126,   na, 2032),
    "jetson-agx-thor":        Hardware((11, 0),  20,   128,  256,  4266,   273,    32,   na, 1575),
    "rtx-5070":               Hardware((12, 0),  48,    12,  192, 14001,   672,    48, 2325, 2512),
    "rtx-5080":               Hardware((12, 0),  84,    16,  256, 15001,   960,    64, 2295, 2617),
    "rtx-5090":               Hardware((12, 0), 170,    32,  512, 14001,  1792,    96, 2017, 2407),
    "rtx-pro-6000-blackwell": Hardware((12, 0), 188,    96,  512, 14001,  1792,   128,   na, 2617),
    "gb10":                   Hardware((12, 1),  48,   128,  256,    na,   273,    24,   na, 2418),
}

# The kinds of peak rate. fp16_fp32 takes fp16 and accumulates in fp32, and so on. fp32 and fp64 are without
# tensor cores, fp64_tensor is with them, and all others have no other way.
KINDS = ("fp32", "fp64", "fp64_tensor", "fp16_fp16", "fp16_fp32", "bf16", "tf32",
         "fp8_fp16", "fp8_fp32", "int8", "fp4")

# The vendor's own dense figures: TFLOP/s, and TOP/s for int8. Where only a sparse one is printed, its half.
PUBLISHED: Mapping[str, tuple[float | None, ...]] = {
    # name                      fp32  fp64  64tc  16/16  16/32   bf16   tf32   8/16   8/32   int8    fp4
    "t4":                     (  8.1,   na,   na,    na,    65,    na,    na,    na,    na,   130,    na),
    "rtx-2060":               (  6.5,   na,   na,  51.6,    na,    na,    na,    na,    na,    na,    na),
    "rtx-2060-super":         (  7.2,   na,   na,  57.4,    na,    na,    na,    na,    na,    na,    na),
    "rtx-2070":               (  7.5,   na,   na,  59.7,  29.9,    na,    na,    na,    na, 119.4,    na),
    "rtx-2080-ti":            ( 13.4,   na,   na, 107.6,  53.8,    na,    na,    na,    na, 215.2,    na),
    "a100-sxm-40gb":          ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a100-sxm-80gb":          ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a100-pcie-40gb":         ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a100-pcie-80gb":         ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a30":                    ( 10.3,  5.2, 10.3,    na,   165,   165,    82,    na,    na,   330,    na),
    "a10":                    ( 31.2,   na,   na,    na,   125,   125,  62.5,    na,    na,   250,    na),
    "a40":                    ( 37.4,   na,   na,    na, 149.7, 149.7,  74.8,    na,    na, 299.3,    na),
    "rtx-3060":               ( 12.7,   na,   na,    na,    na,    na,    na,    na,    na,    na,    na),
    "rtx-3070":               ( 20.3,   na,   na,  81.3,  40.6,  40.6,  20.3,    na,    na, 162.6,    na),
    "rtx-3080":               ( 29.8,   na,   na,   119,  59.5,  59.5,  29.8,    na,    na,   238,    na),
    "rtx-3090":               ( 35.6,   na,   na,   142,    71,    71,  35.6,    na,    na,   284,    na),
    "rtx-a6000":              ( 38.7,   na,   na, 154.8, 154.8, 154.8,  77.4,    na,    na, 309.7,    na),
    "jetson-agx-orin":        (  5.3,   na,   na,    na,    na,    na,    na,    na,    na,    85,    na),
    "l4":                     ( 30.3,   na,   na,    na,   121,   121,    60,    na, 242.5, 242.5,    na),
    "l40s":                   ( 91.6,   na,   na,    na, 362.1, 362.1,   183,    na,   733,   733,    na),
    "rtx-4060":               ( 15.1,   na,   na,    na,    na,    na,    na,   121,    na,    na,    na),
    "rtx-4070":               ( 29.1,   na,   na,    na,    na,    na,    na,   233,    na,    na,    na),
    "rtx-4080-laptop":        (   na,   na,   na,    na,    na,    na,    na,   271,    na,    na,    na),
    "rtx-4080":               ( 48.7,   na,   na, 194.9,  97.5,  97.5,  48.7, 389.9, 194.9, 389.9,    na),
    "rtx-4090":               ( 82.6,   na,   na, 330.3, 165.2, 165.2,  82.6, 660.6, 330.3, 660.6,    na),
    "rtx-6000-ada":           ( 91.1,   na,   na,    na, 364.2, 364.2, 182.1,    na, 728.5, 728.5,    na),
    "h100-sxm":               ( 66.9, 33.5, 66.9, 989.4, 989.4, 989.4, 494.7,  1979,  1979,  1979,    na),
    "h100-pcie":              ( 51.2, 25.6, 51.2,   756,   756,   756,   378,  1513,  1513,  1513,    na),
    "h200":                   (   67,   34,   67,    na,   989,   989, 494.5,    na,  1979,  1979,    na),
    "gh200":                  (   67,   34,   67,    na,   990,   990,   494,    na,  1979,  1979,    na),
    "b200":                   (   75,   37,   37,  2250,  2250,  2250,  1125,  4500,  4500,  4500,  9000),
    "b300":                   (   75, 1.25,   na,  2250,  2250,  2250,  1125,  4500,  4500,    na, 13500),
    "jetson-agx-thor":        ( 8.06,   na,   na,    na,    na,    na,    na,    na, 517.5,    na,  1035),
    "rtx-5070":               ( 30.9,   na,   na,    na,    na,    na,    na,    na,    na,    na,   494),
    "rtx-5080":               ( 56.3,   na,   na, 225.1, 112.6, 112.6,  56.3, 450.2, 225.1, 450.2, 900.4),
    "rtx-5090":               (104.8,   na,   na,   419, 209.5, 209.5, 104.8,   838,   419,   838,  1676),
    "rtx-pro-6000-blackwell": (  125,   na,   na,    na,    na,    na,    na,    na,    na,    na,  2000),
    "gb10":                   (   na,   na,   na,    na,    na,    na,    na,    na,    na,    na,   500),
}
# fmt: on

TENSOR_MHZ: Mapping[str, float] = {"h100-sxm": 1830, "h100-pcie": 1620, "h200": 1830, "gh200": 1830}
"""The clock of the vendor's tensor figures, where it is not the boost clock (fp64 is at the boost clock)."""


class Named(NamedTuple):
    """What a GPU is called, and where its figures come from."""

    title: str
    source: str
    also: tuple[str, ...] = ()
    """Other names: what drivers report, and short forms."""


_TURING_PAPER = "NVIDIA Turing GPU architecture whitepaper"
_A100_SHEET = "NVIDIA A100 datasheet and Ampere GA100 whitepaper"
_GA102_PAPER = "NVIDIA Ampere GA102 GPU architecture whitepaper v2"
_ADA_PAPER = "NVIDIA Ada GPU architecture whitepaper"
_HOPPER_PAPER = "NVIDIA H100 Tensor Core GPU architecture whitepaper"
_RTX_BLACKWELL_PAPER = "NVIDIA RTX Blackwell GPU architecture whitepaper"
_PRODUCT_PAGE = "NVIDIA product page"
_HALF_OF_AI_TOPS = "tensor figure: half of the sparse AI TOPS"

NAMES: Mapping[str, Named] = {
    "t4": Named("NVIDIA T4", "NVIDIA T4 datasheet and product brief", ("Tesla T4",)),
    "rtx-2060": Named(
        "NVIDIA GeForce RTX 2060", _PRODUCT_PAGE + " (the 6 GB card; the 12 GB one has 34 SMs)"
    ),
    "rtx-2060-super": Named("NVIDIA GeForce RTX 2060 SUPER", _PRODUCT_PAGE),
    "rtx-2070": Named("NVIDIA GeForce RTX 2070", _TURING_PAPER),
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
    "a30": Named("NVIDIA A30", "NVIDIA A30 datasheet", ("a30-24gb",)),
    "a10": Named("NVIDIA A10", "NVIDIA A10 datasheet"),
    "a40": Named("NVIDIA A40", _GA102_PAPER),
    "rtx-3060": Named(
        "NVIDIA GeForce RTX 3060",
        _PRODUCT_PAGE + " (the 12 GB card); L2 as drivers report it, marketed as 3 MB",
    ),
    "rtx-3070": Named("NVIDIA GeForce RTX 3070", _GA102_PAPER),
    "rtx-3080": Named(
        "NVIDIA GeForce RTX 3080", _GA102_PAPER + " (the 10 GB card; the 12 GB one has 70 SMs)"
    ),
    "rtx-3090": Named("NVIDIA GeForce RTX 3090", _GA102_PAPER),
    "rtx-a6000": Named("NVIDIA RTX A6000", _GA102_PAPER),
    "jetson-agx-orin": Named(
        "NVIDIA Jetson AGX Orin 64GB",
        "NVIDIA Jetson AGX Orin series technical brief; int8: half of 170 sparse TOP/s",
        ("Orin", "agx-orin", "jetson-orin"),
    ),
    "l4": Named("NVIDIA L4", "NVIDIA L4 datasheet and product brief"),
    "l40s": Named("NVIDIA L40S", "NVIDIA L40S datasheet"),
    "rtx-4060": Named("NVIDIA GeForce RTX 4060", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}"),
    "rtx-4070": Named("NVIDIA GeForce RTX 4070", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}"),
    "rtx-4080-laptop": Named(
        "NVIDIA GeForce RTX 4080 Laptop GPU",
        f"{_PRODUCT_PAGE}, boost 1350 to 2280 MHz by power limit, here the highest; {_HALF_OF_AI_TOPS}",
        ("rtx-4080-mobile",),
    ),
    "rtx-4080": Named("NVIDIA GeForce RTX 4080", _ADA_PAPER),
    "rtx-4090": Named("NVIDIA GeForce RTX 4090", _ADA_PAPER),
    "rtx-6000-ada": Named(
        "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 6000 Ada Generation datasheet and " + _ADA_PAPER
    ),
    "h100-sxm": Named(
        "NVIDIA H100 SXM",
        _HOPPER_PAPER,
        ("NVIDIA H100 80GB HBM3", "h100", "h100-sxm5", "h100-sxm-80gb", "h100-80gb"),
    ),
    "h100-pcie": Named("NVIDIA H100 PCIe", _HOPPER_PAPER, ("h100-pcie-80gb",)),
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
    "rtx-5070": Named("NVIDIA GeForce RTX 5070", f"{_PRODUCT_PAGE}; {_HALF_OF_AI_TOPS}"),
    "rtx-5080": Named("NVIDIA GeForce RTX 5080", _RTX_BLACKWELL_PAPER),
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
