"""The figures behind gpus.py, in the units that datasheets use. Data only; gpus.py turns it into SI.

PER_CAPABILITY holds what all GPUs of one compute capability share: the limits of a launch and of a
multiprocessor, and how many multiply-adds a multiprocessor retires per clock. HARDWARE, RATES and PUBLISHED
hold what differs from GPU to GPU; what each is called, and where its figures come from, lies in
_gpu_names.py. A peak rate is SMs × multiply-adds × 2 × clock where the rate per clock is public, and the
vendor's own figure where it is not. Every figure is dense: none counts structured sparsity.

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
    "PER_CAPABILITY",
    "PUBLISHED",
    "RATES",
    "TENSOR_MHZ",
    "Hardware",
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
    # NOTE: compilers of CUDA 13 make no code for 7.0: of these GPUs there are figures alone.
    (7, 0): PerCapability(
        architecture="Volta",
        arch="sm_70",
        threads_per_sm=2048,
        blocks_per_sm=32,
        barriers_per_sm=64,
        carveouts=(0, 8, 16, 32, 64, 96),
        shared_reserved=0,
        shared_unit=256,
        cycles=(30, 190, 400),
        per_clock={"fp32": 64, "fp64": 32, "fp16_fp16": 512, "fp16_fp32": 512},
    ),
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
    "titan-v":                Hardware((7, 0),   80,    12, 3072,   850,   653,   4.5, 1200, 1455),
    "v100-sxm-16gb":          Hardware((7, 0),   80,    16, 4096,   877,   900,     6,   na, 1530),
    "v100-sxm-32gb":          Hardware((7, 0),   80,    32, 4096,   877,   900,     6,   na, 1530),
    "v100-pcie-16gb":         Hardware((7, 0),   80,    16, 4096,   877,   900,     6,   na, 1380),
    "v100-pcie-32gb":         Hardware((7, 0),   80,    32, 4096,   877,   900,     6,   na, 1380),
    "v100s-pcie-32gb":        Hardware((7, 0),   80,    32, 4096,  1107,  1134,     6,   na, 1597),
    "t4":                     Hardware((7, 5),   40,    16,  256,  5001,   320,     4,  585, 1590),
    "titan-rtx":              Hardware((7, 5),   72,    24,  384,  7001,   672,     6, 1350, 1770),
    "quadro-rtx-6000":        Hardware((7, 5),   72,    24,  384,  7001,   672,     6,   na, 1770),
    "quadro-rtx-8000":        Hardware((7, 5),   72,    48,  384,  7001,   672,     6, 1395, 1770),
    "gtx-1650":               Hardware((7, 5),   14,     4,  128,  4001,   128,     1, 1485, 1665),
    "gtx-1650-super":         Hardware((7, 5),   20,     4,  128,  6001,   192,     1, 1530, 1725),
    "gtx-1660-super":         Hardware((7, 5),   22,     6,  192,  7001,   336,   1.5, 1530, 1785),
    "gtx-1660-ti":            Hardware((7, 5),   24,     6,  192,  6001,   288,   1.5, 1500, 1770),
    "rtx-2060":               Hardware((7, 5),   30,     6,  192,  7001,   336,     3, 1365, 1680),
    "rtx-2060-super":         Hardware((7, 5),   34,     8,  256,  7001,   448,     4, 1470, 1650),
    "rtx-2070":               Hardware((7, 5),   36,     8,  256,  7001,   448,     4, 1410, 1620),
    "rtx-2070-super":         Hardware((7, 5),   40,     8,  256,  7001,   448,     4, 1605, 1770),
    "rtx-2080":               Hardware((7, 5),   46,     8,  256,  7001,   448,     4, 1515, 1710),
    "rtx-2080-super":         Hardware((7, 5),   48,     8,  256,  7751,   496,     4, 1650, 1815),
    "rtx-2080-ti":            Hardware((7, 5),   68,    11,  352,  7001,   616,   5.5, 1350, 1545),
    "a100-sxm-40gb":          Hardware((8, 0),  108,    40, 5120,  1215,  1555,    40, 1095, 1410),
    "a100-sxm-80gb":          Hardware((8, 0),  108,    80, 5120,  1593,  2039,    40, 1275, 1410),
    "a100-pcie-40gb":         Hardware((8, 0),  108,    40, 5120,  1215,  1555,    40,  765, 1410),
    "a100-pcie-80gb":         Hardware((8, 0),  108,    80, 5120,  1512,  1935,    40, 1065, 1410),
    "a800-sxm-80gb":          Hardware((8, 0),  108,    80, 5120,  1593,  2039,    40,   na, 1410),
    "a800-pcie-80gb":         Hardware((8, 0),  108,    80, 5120,  1512,  1935,    40, 1065, 1410),
    "a30":                    Hardware((8, 0),   56,    24, 3072,  1215,   933,    24,  930, 1440),
    "a2":                     Hardware((8, 6),   10,    16,  128,  6251,   200,     2, 1440, 1770),
    "a10":                    Hardware((8, 6),   72,    24,  384,  6251,   600,     6,  885, 1695),
    "a10g":                   Hardware((8, 6),   80,    24,  384,  6251,   600,     6, 1320, 1710),
    "a16":                    Hardware((8, 6),   10,    16,  128,  6251,   200,     2, 1312, 1755),
    "a40":                    Hardware((8, 6),   84,    48,  384,  7251,   696,     6, 1305, 1740),
    "rtx-3050":               Hardware((8, 6),   20,     8,  128,  7001,   224,     2, 1552, 1777),
    "rtx-3060-laptop":        Hardware((8, 6),   30,     6,  192,  7001,   336,     3,   na, 1703),
    "rtx-3060":               Hardware((8, 6),   28,    12,  192,  7501,   360,  2.25, 1320, 1777),
    "rtx-3060-ti":            Hardware((8, 6),   38,     8,  256,  7001,   448,     3, 1410, 1665),
    "rtx-3070-laptop":        Hardware((8, 6),   40,     8,  256,  7001,   448,     4,   na, 1620),
    "rtx-3070":               Hardware((8, 6),   46,     8,  256,  7001,   448,     4, 1500, 1725),
    "rtx-3070-ti":            Hardware((8, 6),   48,     8,  256,  9501,   608,     4, 1575, 1770),
    "rtx-3080-laptop":        Hardware((8, 6),   48,    16,  256,  7001,   448,     4,   na, 1710),
    "rtx-3080":               Hardware((8, 6),   68,    10,  320,  9501,   760,     5, 1440, 1710),
    "rtx-3080-12gb":          Hardware((8, 6),   70,    12,  384,  9501,   912,     6, 1260, 1710),
    "rtx-3080-ti":            Hardware((8, 6),   80,    12,  384,  9501,   912,     6, 1365, 1665),
    "rtx-3090":               Hardware((8, 6),   82,    24,  384,  9751,   936,     6, 1395, 1695),
    "rtx-3090-ti":            Hardware((8, 6),   84,    24,  384, 10501,  1008,     6, 1560, 1860),
    "rtx-a4000":              Hardware((8, 6),   48,    16,  256,  7001,   448,     4,  735, 1560),
    "rtx-a5000":              Hardware((8, 6),   64,    24,  384,  8001,   768,     6, 1170, 1695),
    "rtx-a6000":              Hardware((8, 6),   84,    48,  384,  8001,   768,     6, 1410, 1800),
    "jetson-orin-nano":       Hardware((8, 7),    8,     8,  128,  2133,    68,     2,   na,  625),
    "jetson-orin-nano-super": Hardware((8, 7),    8,     8,  128,  3200,   102,     2,   na, 1020),
    "jetson-orin-nx":         Hardware((8, 7),    8,    16,  128,  3200, 102.4,     2,   na,  918),
    "jetson-agx-orin":        Hardware((8, 7),   16,    64,  256,  3200, 204.8,     4,   na, 1300),
    "l4":                     Hardware((8, 9),   58,    24,  192,  6251,   300,    48,  795, 2040),
    "l20":                    Hardware((8, 9),   92,    48,  384,  9001,   864,    96, 1440, 2520),
    "l40":                    Hardware((8, 9),  142,    48,  384,  9001,   864,    96,  735, 2490),
    "l40s":                   Hardware((8, 9),  142,    48,  384,  9001,   864,    96, 1110, 2520),
    "rtx-4060":               Hardware((8, 9),   24,     8,  128,  8501,   272,    24, 1830, 2460),
    "rtx-4060-ti":            Hardware((8, 9),   34,     8,  128,  9001,   288,    32, 2310, 2535),
    "rtx-4070":               Hardware((8, 9),   46,    12,  192, 10501,   504,    36, 1920, 2475),
    "rtx-4070-super":         Hardware((8, 9),   56,    12,  192, 10501,   504,    48, 1980, 2475),
    "rtx-4070-ti":            Hardware((8, 9),   60,    12,  192, 10501,   504,    48, 2310, 2610),
    "rtx-4070-ti-super":      Hardware((8, 9),   66,    16,  256, 10501,   672,    48, 2340, 2610),
    "rtx-4080-laptop":        Hardware((8, 9),   58,    12,  192,  9001,   432,    48,   na, 2280),
    "rtx-4080":               Hardware((8, 9),   76,    16,  256, 11201, 716.8,    64, 2205, 2505),
    "rtx-4080-super":         Hardware((8, 9),   80,    16,  256, 11501,   736,    64, 2295, 2550),
    "rtx-4090-laptop":        Hardware((8, 9),   76,    16,  256,  9001,   576,    64,   na, 2040),
    "rtx-4090":               Hardware((8, 9),  128,    24,  384, 10501,  1008,    72, 2235, 2520),
    "rtx-4500-ada":           Hardware((8, 9),   60,    24,  192,  9001,   432,    48, 2070, 2580),
    "rtx-5000-ada":           Hardware((8, 9),  100,    32,  256,  9001,   576,    72, 1155, 2550),
    "rtx-6000-ada":           Hardware((8, 9),  142,    48,  384, 10001,   960,    96,  915, 2505),
    "h100-sxm":               Hardware((9, 0),  132,    80, 5120,  2619,  3350,    50,   na, 1980),
    "h100-nvl":               Hardware((9, 0),  132,    94, 6016,  2619,  3938,    60, 1080, 1785),
    "h100-pcie":              Hardware((9, 0),  114,    80, 5120,  1593,  2039,    50,   na, 1755),
    "h800-sxm":               Hardware((9, 0),  132,    80, 5120,  2619,  3350,    50,   na, 1980),
    "h200":                   Hardware((9, 0),  132,   141, 6144,    na,  4800,    60,   na, 1980),
    "gh200":                  Hardware((9, 0),  132,    96, 6144,  2619,  4000,    60,   na, 1980),
    "gb200":                  Hardware((10, 0), 152,   186, 7936,  3996,  7928,   126,   na, 2062),
    "b200":                   Hardware((10, 0), 148,   180, 7680,  3996,  7672, 126.5,   na, 1965),
    "b300":                   Hardware((10, 3), 148, 268.6, 7680,  3996,  7672,   126,   na, 2032),
    "jetson-agx-thor":        Hardware((11, 0),  20,   128,  256,  4266,   273,    32,   na, 1575),
    "rtx-5060":               Hardware((12, 0),  30,     8,  128, 14001,   448,    24, 2280, 2497),
    "rtx-5060-ti":            Hardware((12, 0),  36,    16,  128, 14001,   448,    32, 2407, 2572),
    "rtx-5070":               Hardware((12, 0),  48,    12,  192, 14001,   672,    48, 2325, 2512),
    "rtx-5070-ti":            Hardware((12, 0),  70,    16,  256, 14001,   896,    48, 2295, 2452),
    "rtx-5080":               Hardware((12, 0),  84,    16,  256, 15001,   960,    64, 2295, 2617),
    "rtx-5090-laptop":        Hardware((12, 0),  82,    24,  256, 14001,   896,    64,   na, 2160),
    "rtx-5090":               Hardware((12, 0), 170,    32,  512, 14001,  1792,    96, 2017, 2407),
    "rtx-pro-6000-blackwell": Hardware((12, 0), 188,    96,  512, 14001,  1792,   128,   na, 2617),
    "gb10":                   Hardware((12, 1),  48,   128,  256,    na,   273,    24,   na, 2418),
}

# The kinds of peak rate. fp16_fp32 takes fp16 and accumulates in fp32, and so on. fp32 and fp64 are without
# tensor cores, fp64_tensor is with them, and all others have no other way (but fp16_fp16 on the GTX 16s).
KINDS = ("fp32", "fp64", "fp64_tensor", "fp16_fp16", "fp16_fp32", "bf16", "tf32",
         "fp8_fp16", "fp8_fp32", "int8", "fp4")

# The vendor's own dense figures: TFLOP/s, and TOP/s for int8. Where only a sparse one is printed, its half.
# A GPU of which none was found has no row.
PUBLISHED: Mapping[str, tuple[float | None, ...]] = {
    # name                      fp32  fp64  64tc  16/16  16/32   bf16   tf32   8/16   8/32   int8    fp4
    "titan-v":                (   na,   na,   na,    na,   110,    na,    na,    na,    na,    na,    na),
    "v100-sxm-16gb":          ( 15.7,  7.8,   na,    na,   125,    na,    na,    na,    na,    na,    na),
    "v100-sxm-32gb":          ( 15.7,  7.8,   na,    na,   125,    na,    na,    na,    na,    na,    na),
    "v100-pcie-16gb":         (   14,    7,   na,    na,   112,    na,    na,    na,    na,    na,    na),
    "v100-pcie-32gb":         (   14,    7,   na,    na,   112,    na,    na,    na,    na,    na,    na),
    "v100s-pcie-32gb":        ( 16.4,  8.2,   na,    na,   130,    na,    na,    na,    na,    na,    na),
    "t4":                     (  8.1,   na,   na,    na,    65,    na,    na,    na,    na,   130,    na),
    "titan-rtx":              ( 16.3,   na,   na,    na, 130.5,    na,    na,    na,    na,    na,    na),
    "quadro-rtx-6000":        ( 16.3,   na,   na, 130.5, 130.5,    na,    na,    na,    na,   261,    na),
    "quadro-rtx-8000":        ( 16.3,   na,   na,    na, 130.5,    na,    na,    na,    na,    na,    na),
    "rtx-2060":               (  6.5,   na,   na,  51.6,    na,    na,    na,    na,    na,    na,    na),
    "rtx-2060-super":         (  7.2,   na,   na,  57.4,    na,    na,    na,    na,    na,    na,    na),
    "rtx-2070":               (  7.5,   na,   na,  59.7,  29.9,    na,    na,    na,    na, 119.4,    na),
    "rtx-2080":               ( 10.1,   na,   na,  80.5,  40.3,    na,    na,    na,    na, 161.1,    na),
    "rtx-2080-ti":            ( 13.4,   na,   na, 107.6,  53.8,    na,    na,    na,    na, 215.2,    na),
    "a100-sxm-40gb":          ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a100-sxm-80gb":          ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a100-pcie-40gb":         ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a100-pcie-80gb":         ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a800-sxm-80gb":          ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a800-pcie-80gb":         ( 19.5,  9.7, 19.5,   312,   312,   312,   156,    na,    na,   624,    na),
    "a30":                    ( 10.3,  5.2, 10.3,    na,   165,   165,    82,    na,    na,   330,    na),
    "a2":                     (  4.5,   na,   na,    na,    18,    18,     9,    na,    na,    36,    na),
    "a10":                    ( 31.2,   na,   na,    na,   125,   125,  62.5,    na,    na,   250,    na),
    "a10g":                   (   na,   na,   na,    na,    na,    70,    na,    na,    na,    na,    na),
    "a16":                    (  4.5,   na,   na,    na,  17.9,  17.9,     9,    na,    na,  35.9,    na),
    "a40":                    ( 37.4,   na,   na,    na, 149.7, 149.7,  74.8,    na,    na, 299.3,    na),
    "rtx-3060":               ( 12.7,   na,   na,    na,    na,    na,    na,    na,    na,    na,    na),
    "rtx-3070":               ( 20.3,   na,   na,  81.3,  40.6,  40.6,  20.3,    na,    na, 162.6,    na),
    "rtx-3080":               ( 29.8,   na,   na,   119,  59.5,  59.5,  29.8,    na,    na,   238,    na),
    "rtx-3090":               ( 35.6,   na,   na,   142,    71,    71,  35.6,    na,    na,   284,    na),
    "rtx-3090-ti":            (   40,   na,   na,    na,    na,    na,    na,    na,    na,    na,    na),
    "rtx-a4000":              ( 19.2,   na,   na,    na,  76.7,    na,    na,    na,    na,    na,    na),
    "rtx-a5000":              ( 27.8,   na,   na,    na, 111.1,    na,    na,    na,    na,    na,    na),
    "rtx-a6000":              ( 38.7,   na,   na, 154.8, 154.8, 154.8,  77.4,    na,    na, 309.7,    na),
    "jetson-orin-nano":       (   na,   na,   na,    na,    na,    na,    na,    na,    na,    20,    na),
    "jetson-orin-nano-super": (   na,   na,   na,    na,    na,    na,    na,    na,    na,  33.5,    na),
    "jetson-agx-orin":        (  5.3,   na,   na,    na,    na,    na,    na,    na,    na,    85,    na),
    "l4":                     ( 30.3,   na,   na,    na,   121,   121,    60,    na, 242.5, 242.5,    na),
    "l20":                    ( 59.8,   na,   na,    na, 119.5, 119.5,  59.8,    na,   239,   239,    na),
    "l40":                    ( 90.5,   na,   na,    na,181.05,181.05,  90.5,    na,   362,   362,    na),
    "l40s":                   ( 91.6,   na,   na,    na, 362.1, 362.1,   183,    na,   733,   733,    na),
    "rtx-4060":               ( 15.1,   na,   na,    na,    na,    na,    na,   121,    na,    na,    na),
    "rtx-4060-ti":            (   22,   na,   na,    na,    na,    na,    na, 176.5,    na,    na,    na),
    "rtx-4070":               ( 29.1,   na,   na,    na,    na,    na,    na,   233,    na,    na,    na),
    "rtx-4070-super":         (   36,   na,   na,    na,    na,    na,    na,   284,    na,    na,    na),
    "rtx-4070-ti":            (   40,   na,   na,    na,    na,    na,    na, 320.5,    na,    na,    na),
    "rtx-4070-ti-super":      (   44,   na,   na,    na,    na,    na,    na,   353,    na,    na,    na),
    "rtx-4080-laptop":        (   na,   na,   na,    na,    na,    na,    na,   271,    na,    na,    na),
    "rtx-4080":               ( 48.7,   na,   na, 194.9,  97.5,  97.5,  48.7, 389.9, 194.9, 389.9,    na),
    "rtx-4080-super":         (   52,   na,   na,    na,    na,    na,    na,   418,    na,    na,    na),
    "rtx-4090":               ( 82.6,   na,   na, 330.3, 165.2, 165.2,  82.6, 660.6, 330.3, 660.6,    na),
    "rtx-4500-ada":           ( 39.6,   na,   na,    na,    na,    na,    na,    na,    na,    na,    na),
    "rtx-5000-ada":           ( 65.3,   na,   na,    na,    na,    na,    na,    na, 522.2,    na,    na),
    "rtx-6000-ada":           ( 91.1,   na,   na,    na, 364.2, 364.2, 182.1,    na, 728.5, 728.5,    na),
    "h100-sxm":               ( 66.9, 33.5, 66.9, 989.4, 989.4, 989.4, 494.7,  1979,  1979,  1979,    na),
    "h100-nvl":               (   60,   30,   60, 835.5, 835.5, 835.5, 417.5,    na,1670.5,1670.5,    na),
    "h100-pcie":              ( 51.2, 25.6, 51.2,   756,   756,   756,   378,  1513,  1513,  1513,    na),
    "h800-sxm":               (   67,    1,    1,    na,   989,   989,   494,    na,  1979,  1979,    na),
    "h200":                   (   67,   34,   67,    na,   989,   989, 494.5,    na,  1979,  1979,    na),
    "gh200":                  (   67,   34,   67,    na,   990,   990,   494,    na,  1979,  1979,    na),
    "gb200":                  (   80,   40,   40,  2500,  2500,  2500,  1250,  5000,  5000,  5000, 10000),
    "b200":                   (   75,   37,   37,  2250,  2250,  2250,  1125,  4500,  4500,  4500,  9000),
    "b300":                   (   75, 1.25,   na,  2250,  2250,  2250,  1125,  4500,  4500,    na, 13500),
    "jetson-agx-thor":        ( 8.06,   na,   na,    na,    na,    na,    na,    na, 517.5,    na,  1035),
    "rtx-5060":               (   na,   na,   na,    na,    na,    na,    na,    na,    na,    na,   307),
    "rtx-5060-ti":            (   na,   na,   na,    na,    na,    na,    na,    na,    na,    na, 379.5),
    "rtx-5070":               ( 30.9,   na,   na,    na,    na,    na,    na,    na,    na,    na,   494),
    "rtx-5070-ti":            (   na,   na,   na,    na,    na,    na,    na,    na,    na,    na,   703),
    "rtx-5080":               ( 56.3,   na,   na, 225.1, 112.6, 112.6,  56.3, 450.2, 225.1, 450.2, 900.4),
    "rtx-5090":               (104.8,   na,   na,   419, 209.5, 209.5, 104.8,   838,   419,   838,  1676),
    "rtx-pro-6000-blackwell": (  125,   na,   na,    na,    na,    na,    na,    na,    na,    na,  2000),
    "gb10":                   (   na,   na,   na,    na,    na,    na,    na,    na,    na,    na,   500),
}
# fmt: on

# fp16 without tensor cores runs at twice the rate of fp32, in units of its own.
_TU11X = {"fp32": 64, "fp64": 2, "fp16_fp16": 128}
# What accumulates in fp32 runs at half rate, and so does int8; the other kinds are not published.
_A10G = {"fp32": 128, "fp64": 2, "fp16_fp32": 256, "bf16": 256}
_L40 = {**_A10G, "tf32": 128, "fp8_fp32": 512, "int8": 512}

RATES: Mapping[str, Mapping[str, int]] = {
    "gtx-1650": _TU11X,
    "gtx-1650-super": _TU11X,
    "gtx-1660-super": _TU11X,
    "gtx-1660-ti": _TU11X,
    "a10g": _A10G,
    "l20": _L40,
    "l40": _L40,
    # Their tensor figures are quoted at no public clock.
    "titan-v": {"fp32": 64, "fp64": 32},
    "h100-nvl": {"fp32": 128, "fp64": 64, "fp64_tensor": 128},
    # An H100 whose fp64 is cut to what its datasheet prints.
    "h800-sxm": {kind: rate for kind, rate in _HOPPER.items() if kind not in ("fp64", "fp64_tensor")},
}
"""Multiply-adds per clock per multiprocessor of the GPUs that differ from others of their capability."""

TENSOR_MHZ: Mapping[str, float] = {
    "h100-sxm": 1830,
    "h100-pcie": 1620,
    "h800-sxm": 1830,
    "h200": 1830,
    "gh200": 1830,
}
"""The clock of the vendor's tensor figures, where it is not the boost clock (fp64 is at the boost clock)."""
