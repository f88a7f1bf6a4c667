"""The GPU table: rows agree with themselves and with what the vendor prints, and every name finds its GPU."""

from __future__ import annotations

import dataclasses
import json
import re
import string
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_text import assert_unchanged
from tests.gpu_figures import COMMAND, GOLDEN, list_figures
from tilewise import _gpu_names, gpus
from tilewise import _gpu_table as table
from tilewise.errors import ArgumentError, LaunchError, UnknownNameError
from tilewise.gpus import Gpu, find
from tilewise.launch import Launch, check_launch

every_gpu = pytest.mark.parametrize("gpu", list(gpus.GPUS.values()), ids=gpus.names())
KIB = 1024

# The multiprocessors of a whole chip, and the GPUs that are cut from it.
CHIPS = {
    ("GV100", 84): "titan-v v100-sxm-16gb v100-sxm-32gb v100-pcie-16gb v100-pcie-32gb v100s-pcie-32gb",
    ("TU117", 16): "gtx-1650",
    ("TU116", 24): "gtx-1650-super gtx-1660-super gtx-1660-ti",
    ("TU106", 36): "rtx-2060 rtx-2060-super rtx-2070",
    ("TU104", 48): "t4 rtx-2070-super rtx-2080 rtx-2080-super",
    ("TU102", 72): "rtx-2080-ti titan-rtx quadro-rtx-6000 quadro-rtx-8000",
    (
        "GA100",
        128,
    ): "a100-sxm-40gb a100-sxm-80gb a100-pcie-40gb a100-pcie-80gb a800-sxm-80gb a800-pcie-80gb a30",
    ("GA107", 20): "a2 a16 rtx-3050",
    ("GA106", 30): "rtx-3060 rtx-3060-laptop",
    ("GA104", 48): "rtx-3060-ti rtx-3070-laptop rtx-3070 rtx-3070-ti rtx-3080-laptop rtx-a4000",
    ("GA102", 84): "a10 a10g a40 rtx-3080 rtx-3080-12gb rtx-3080-ti rtx-3090 rtx-3090-ti rtx-a5000 rtx-a6000",
    ("GA10B", 16): "jetson-orin-nano jetson-orin-nano-super jetson-orin-nx jetson-agx-orin",
    ("AD107", 24): "rtx-4060",
    ("AD106", 36): "rtx-4060-ti",
    ("AD104", 60): "l4 rtx-4070 rtx-4070-super rtx-4070-ti rtx-4080-laptop rtx-4500-ada",
    ("AD103", 80): "rtx-4070-ti-super rtx-4080 rtx-4080-super rtx-4090-laptop",
    ("AD102", 144): "l20 l40 l40s rtx-4090 rtx-5000-ada rtx-6000-ada",
    ("GH100", 144): "h100-sxm h100-nvl h100-pcie h800-sxm h200 gh200",
    ("GB100", 160): "b200 gb200",
    ("GB110", 160): "b300",
    ("GB10B", 20): "jetson-agx-thor",
    ("GB206", 36): "rtx-5060 rtx-5060-ti",
    ("GB205", 50): "rtx-5070",
    ("GB203", 84): "rtx-5070-ti rtx-5080 rtx-5090-laptop",
    ("GB202", 192): "rtx-5090 rtx-pro-6000-blackwell",
    ("GB20B", 48): "gb10",
}


def test_a_gpu_is_shown_by_the_name_it_is_found_by() -> None:
    assert repr(find("NVIDIA H200")) == "Gpu('h200')"


def test_the_table_is_whole() -> None:
    assert len(gpus.names()) >= 80
    assert list(table.HARDWARE) == list(_gpu_names.NAMES) == gpus.names()
    assert list(table.PUBLISHED) == [name for name in gpus.names() if name in table.PUBLISHED]
    capabilities = [gpu.capability for gpu in gpus.GPUS.values()]
    assert capabilities == sorted(capabilities)
    words = [word for gpu in gpus.GPUS.values() for word in {gpu.name, gpu.title, *gpu.aliases}]
    assert len(words) == len(set(words))
    assert tuple(field.name for field in dataclasses.fields(gpus.Peaks)) == table.KINDS
    assert {gpu.capability for gpu in gpus.GPUS.values()} | {(8, 8)} == set(table.PER_CAPABILITY)
    others = [other for shared in _gpu_names.SHARED.values() for other in shared]
    assert {*table.TENSOR_MHZ, *table.RATES, *_gpu_names.SHARED, *others} <= set(gpus.names())


def test_no_gpu_has_more_multiprocessors_than_its_chip() -> None:
    assert sorted(" ".join(CHIPS.values()).split()) == sorted(gpus.names())
    for (chip, whole), cut in CHIPS.items():
        for gpu in map(find, cut.split()):
            assert 0 < gpu.sms <= whole, chip
            # Multiprocessors come in pairs, but on GH100 and the data centre's Blackwell, which count alike.
            assert gpu.sms % 2 == 0
        capabilities = {find(name).capability for name in cut.split()}
        assert len(capabilities) == 1, chip


def test_exceptions_to_a_capability_are_slower_than_it() -> None:
    for name, rates in table.RATES.items():
        usual = table.PER_CAPABILITY[find(name).capability].per_clock
        assert rates["fp32"] == usual["fp32"]
        assert all(rate <= usual[kind] for kind, rate in rates.items())
        assert rates != usual


@every_gpu
def test_a_row_agrees_with_itself(gpu: Gpu) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", gpu.name)
    assert re.fullmatch(r"sm_\d{2,3}a?", gpu.arch)
    assert gpu.arch.endswith("a") == (gpu.capability >= (9, 0))
    assert gpus.arch_capability(gpu.arch) == gpu.capability == gpu.limits.capability
    assert gpu.limits is gpus.limits(gpu.capability)
    assert gpu.base_mhz is None or gpu.base_mhz < gpu.boost_mhz
    assert gpu.tensor_mhz <= gpu.boost_mhz < 3500
    if gpu.capability not in ((8, 7), (12, 1)):  # clocks go in steps of 7.5 MHz, but for those beside a CPU
        assert {round(clock) % 15 for clock in (gpu.base_mhz, gpu.boost_mhz) if clock} <= {0, 7, 8}
    assert gpu.l2_bytes < gpu.memory_bytes
    assert gpu.peaks.fp32 == pytest.approx(gpu.fp32_peak)
    assert gpu.source
    assert all(word in gpu.title.lower() for word in gpu.name.split("-")), (
        "no name of another, nor of a source"
    )
    assert gpu.memory_bus_bits % 32 == 0  # a controller has 32 wires or more
    if gpu.memory_mhz is not None:  # two bits a clock on every wire of the bus
        assert gpu.memory_bandwidth == pytest.approx(
            gpu.memory_mhz * 1e6 * 2 * gpu.memory_bus_bits / 8, rel=0.01
        )


# Figures that the vendor printed of another clock, or rounded further.
ROUGH = {
    "v100-pcie-16gb": {"fp16_fp32"}, "v100-pcie-32gb": {"fp16_fp32"}, "rtx-3070": {"int8"},
    "l20": {"fp32", "fp16_fp32", "bf16", "tf32", "fp8_fp32", "int8"}, "l40s": {"fp16_fp32", "bf16"},
    "rtx-4070-super": {"fp32"}, "h200": {"fp64"}, "gh200": {"fp64", "fp16_fp32", "bf16"}, "b200": {"fp32"},
    "b300": {"fp32"}, "jetson-agx-thor": {"fp8_fp32", "fp4"}, "rtx-pro-6000-blackwell": {"fp4"},
}  # fmt: skip


@every_gpu
def test_derived_peaks_meet_the_vendors_figures(gpu: Gpu) -> None:
    """They are rounded to the last digit of those, or cut off there; of the half of one that is printed, to its half."""
    for kind in table.KINDS:
        printed, peak = getattr(gpu.published, kind), getattr(gpu.peaks, kind)
        if printed is None:
            continue
        assert peak == pytest.approx(printed, rel=0.03), kind
        digits = Decimal(f"{printed / 1e12:.7g}")
        is_half = digits % 1 and digits.as_tuple().digits[-1] == 5
        unit = Decimal(5 if is_half else 1).scaleb(min(int(digits.as_tuple().exponent), 0))
        off = (Decimal(peak) / 10**12 - digits) / unit
        assert Decimal("-0.501") < off < 1 or kind in ROUGH.get(gpu.name, ()), (kind, printed, peak)


def test_a_change_of_a_figure_is_seen() -> None:
    """If it is meant, the command writes the file anew, and the difference can be reviewed."""
    assert_unchanged(GOLDEN.read_text(encoding="utf-8"), list_figures(), "a figure", COMMAND)


@pytest.mark.parametrize(
    ("arch", "clusters"), [("sm_72", False), ("sm_91", True), ("sm_99a", True), ("sm_130", True)]
)
def test_what_the_table_lacks_has_the_widest_limits_and_clusters_since_hopper(
    arch: str, clusters: bool
) -> None:
    found = gpus.launch_limits(arch)
    assert (found.name, found.shared_bytes_per_block, found.clusters) == (arch, 227 * KIB, clusters)


def test_latencies_are_round_numbers_that_grow() -> None:
    for capability in table.PER_CAPABILITY.values():
        assert [*capability.cycles] == sorted(round(one, -1) for one in capability.cycles)


@every_gpu
def test_a_source_says_of_each_peak_whether_it_is_derived(gpu: Gpu) -> None:
    derived, _, printed = gpu.source.partition("Peaks derived: ")[2].partition("; as published: ")
    known = [kind for kind in table.KINDS if getattr(gpu.peaks, kind) is not None]
    assert sorted(derived.split(", ") + (printed.split(", ") if printed else [])) == sorted(known)
    assert all(getattr(gpu.published, kind) is not None for kind in printed.split(", ") if kind)


@every_gpu
def test_no_peak_is_a_sparse_one(gpu: Gpu) -> None:
    """Halving the elements doubles the dense rate; a sparse figure among dense ones would show as four."""
    peaks = gpu.peaks
    if peaks.int8 is not None and peaks.fp16_fp16 is not None:
        assert peaks.int8 == pytest.approx(2 * peaks.fp16_fp16, rel=0.01)
    if peaks.fp8_fp16 is not None and peaks.fp16_fp16 is not None:
        assert peaks.fp8_fp16 == pytest.approx(2 * peaks.fp16_fp16, rel=0.01)
    if peaks.tf32 is not None and peaks.bf16 is not None:
        assert peaks.bf16 == pytest.approx(2 * peaks.tf32, rel=0.01)
    if peaks.fp4 is not None and peaks.fp8_fp16 is not None:
        assert peaks.fp4 in (pytest.approx(2 * peaks.fp8_fp16, rel=0.01), 3 * peaks.fp8_fp16)  # 3: B300


@every_gpu
def test_every_name_finds_its_gpu(gpu: Gpu) -> None:
    for name in (gpu.name, gpu.title, *gpu.aliases):
        for spelt in (name, name.upper(), name.replace("-", " "), name.replace(" ", "_"), f"NVIDIA {name}"):
            assert find(spelt) is gpu, spelt
    assert find(gpu) is gpu
    assert gpus.from_driver_name(gpu.title, gpu.sms) is gpu
    assert gpus.from_driver_name(gpu.title, gpu.sms + 1) is None


@every_gpu
def test_a_gpu_is_plain_data(gpu: Gpu) -> None:
    told = json.loads(json.dumps(gpu.to_dict()))
    assert told["sms"] == gpu.sms
    assert told["arch"] == gpu.arch
    assert told["limits"]["shared_per_sm"] == gpu.shared_per_sm
    assert told["peaks"]["fp32"] == gpu.peaks.fp32
    assert gpu.title in str(gpu)
    assert f"{gpu.sms} SMs" in str(gpu)
    assert "None" not in str(gpu)
    assert hash(gpu) == hash(find(gpu.name))
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu.sms = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v100", "v100-sxm-16gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm-32gb"),
        ("NVIDIA V100 PCIe", "v100-pcie-16gb"),
        ("Tesla V100S-PCIE-32GB", "v100s-pcie-32gb"),
        ("TITAN V", "titan-v"),
        ("a100", "a100-sxm-80gb"),
        ("h100", "h100-sxm"),
        ("rtx2060super", "rtx-2060-super"),
        ("RTX 2060 SUPER", "rtx-2060-super"),
        ("rtx 2060", "rtx-2060"),
        ("NVIDIA H200", "h200"),
        ("4090", "rtx-4090"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA GeForce RTX 4080 Laptop GPU", "rtx-4080-laptop"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA Thor", "jetson-agx-thor"),
        ("NVIDIA GeForce GTX 1660 Ti", "gtx-1660-ti"),
        ("1650", "gtx-1650"),
        ("GTX1650 Super", "gtx-1650-super"),
        ("rtx 2080", "rtx-2080"),
        ("TITAN RTX", "titan-rtx"),
        ("Quadro RTX 8000", "quadro-rtx-8000"),
        ("RTX 3080 Ti", "rtx-3080-ti"),
        ("rtx3080ti", "rtx-3080-ti"),
        ("3080 ti", "rtx-3080-ti"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx-3080-ti"),
        ("RTX 3080 12GB", "rtx-3080-12gb"),
        ("NVIDIA RTX A5000", "rtx-a5000"),
        ("A4000", "rtx-a4000"),
        ("nvidia a10g", "a10g"),
        ("RTX 5000 Ada Generation", "rtx-5000-ada"),
        ("RTX 4500 Ada", "rtx-4500-ada"),
        ("4070TiSuper", "rtx-4070-ti-super"),
        ("RTX 4090 Laptop GPU", "rtx-4090-laptop"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H800", "h800-sxm"),
        ("A800", "a800-sxm-80gb"),
        ("NVIDIA A800 80GB PCIe", "a800-pcie-80gb"),
        ("NVIDIA GB200", "gb200"),
        ("GeForce RTX 5060 Ti", "rtx-5060-ti"),
        ("orin nano", "jetson-orin-nano"),
        ("Orin NX", "jetson-orin-nx"),
    ],
)
def test_aliases_and_driver_names(name: str, expected: str) -> None:
    assert find(name).name == expected
    found = gpus.from_driver_name(name)
    assert found is not None
    assert found.name == expected


def test_a_driver_name_of_several_boards_needs_the_multiprocessor_count() -> None:
    assert gpus.from_driver_name("Orin", 16) is find("jetson-agx-orin")
    assert gpus.from_driver_name("Orin", 8) is None  # a Nano or an NX
    assert gpus.from_driver_name("NVIDIA GeForce RTX 3080", 68) is find("rtx-3080")
    assert gpus.from_driver_name("NVIDIA GeForce RTX 3080", 70) is find("rtx-3080-12gb")
    assert gpus.from_driver_name("NVIDIA GeForce RTX 3080", 72) is None
    assert gpus.from_driver_name("NVIDIA GeForce RTX 2060", 34) is None  # the 12 GB card is not in the table
    assert gpus.from_driver_name("NVIDIA A100-SXM4-40GB MIG 1g.5gb") is None
    assert gpus.from_driver_name("llvmpipe") is None


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("h20", "h200"),
        ("rtx-4080-supra", "rtx-4080-super"),
        ("RTX 3050 Ti", "rtx-3050"),
        ("gtx-1660", "gtx-1660-ti"),
        ("RTX 4000 Ada", "rtx-5000-ada"),
        ("rtx-2060-supper", "rtx-2060-super"),
        ("b20", "b200"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(
        UnknownNameError, match=rf"^gpu '{wrong}' is not known; did you mean .*'{nearest}'"
    ) as caught:
        find(wrong)
    assert caught.value.argument == "gpu"


@pytest.mark.parametrize(
    "older",
    [
        "titan xp",
        "TITAN X Pascal",
        "p100",
        "Tesla P40",
        "P4",
        "Tesla K80",
        "gtx 1080 ti",
        "NVIDIA GeForce GTX 1060 6GB",
        "GTX 980",
        "1070",
        "Quadro P6000",
        "jetson nano",
    ],
)
def test_a_gpu_that_is_too_old_is_said_to_be(older: str) -> None:
    with pytest.raises(
        ArgumentError, match=rf"^gpu must be of compute capability 7\.0 or later, not '{older}'"
    ):
        find(older)
    assert gpus.from_driver_name(older) is None


@pytest.mark.parametrize(
    "near",
    [
        "v1000",
        "rtx 500",
        "rtx v",
        "a8000",
        "p",
        "titan",
        "gtx 1030 5",
        "quadro rtx 5000",
        "quadro gv100",
        "Jetson AGX Xavier",
    ],
)
def test_what_is_not_known_is_not_called_old(near: str) -> None:
    with pytest.raises(UnknownNameError):
        find(near)


@every_gpu
def test_no_gpu_of_the_table_is_called_old(gpu: Gpu) -> None:
    for name in (gpu.name, gpu.title, *gpu.aliases):
        folded = gpus._fold(name)
        assert not any(re.fullmatch(pattern, folded) for pattern in _gpu_names.OLDER), name


@pytest.mark.parametrize("wrong", ["", "   ", "nvidia", "gpu"])
def test_an_empty_name_is_not_a_gpu(wrong: str) -> None:
    with pytest.raises(UnknownNameError, match="known: 'titan-v'"):
        find(wrong)


@pytest.mark.parametrize("wrong", [None, 4090, b"h200"])
def test_a_gpu_is_asked_for_by_name(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="gpu must be a name"):
        find(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "dtype", "accumulate", "tera"),
    [
        ("v100", "float32", "float32", 15.7),
        ("v100", "float64", "float64", 7.8),
        ("v100-pcie", "float16", "float32", 112),
        ("titan-v", "float16", "float32", 110),
        ("titan-v", "float32", "float32", 14.9),
        ("t4", "float16", "float32", 65),
        ("t4", "float32", "float32", 8.1),
        ("rtx-2060-super", "float16", "float16", 57.4),
        ("rtx-2060-super", "float16", "float32", 28.7),
        ("a100", "float32", "float32", 19.5),
        ("a100", "float16", "float32", 312),
        ("a100", "float64", "float64", 19.5),
        ("a100", "tfloat32", "float32", 156),
        ("rtx-3090", "float16", "float32", 71),
        ("rtx-a6000", "float16", "float32", 154.8),
        ("rtx-4090", "float32", "float32", 82.6),
        ("rtx-4090", "float8_e4m3", "float16", 660.6),
        ("rtx-4090", "float8_e5m2", "float32", 330.3),
        ("h100-sxm", "bfloat16", "float32", 989),
        ("h100-sxm", "float8_e4m3fn", "float32", 1979),
        ("h100-pcie", "float16", "float32", 756),
        ("h200", "float64", "float32", 67),
        ("h200", "int8", "int32", 1979),
        ("b200", "float4", "float32", 9000),
        ("rtx-5090", "float4", "float32", 1676),
        ("rtx-2080", "float16", "float32", 40.3),
        ("titan-rtx", "float16", "float32", 130.5),
        ("quadro-rtx-6000", "float16", "float32", 130.5),
        ("a10g", "bfloat16", "float32", 70),
        ("rtx-a4000", "float16", "float32", 76.7),
        ("l20", "bfloat16", "float32", 119.5),
        ("l40", "float8_e4m3", "float32", 362),
        ("l40", "float16", "float32", 181.05),
        ("rtx-4070-super", "float8_e4m3", "float16", 284),
        ("rtx-5000-ada", "float8_e4m3", "float32", 522.2),
        ("h100-nvl", "bfloat16", "float32", 835.5),
        ("h800-sxm", "float16", "float32", 989),
        ("h800-sxm", "float64", "float64", 1),
        ("gb200", "float4", "float32", 10_000),
        ("rtx-5070-ti", "float4", "float32", 703),
        ("jetson-orin-nano-super", "int8", "int32", 33.5),
    ],
)
def test_published_peaks(name: str, dtype: str, accumulate: str, tera: float) -> None:
    assert find(name).peak(dtype, accumulate) == pytest.approx(tera * 1e12, rel=0.01)


@pytest.mark.parametrize(
    ("name", "dtype", "accumulate"),
    [
        ("v100", "bfloat16", "float32"),
        ("v100", "int8", "int32"),
        ("t4", "bfloat16", "float32"),
        ("t4", "tfloat32", "float32"),
        ("a100", "float8_e4m3", "float32"),
        ("h200", "float4", "float32"),
        ("h200", "bfloat16", "float16"),
        ("h200", "float64", "float16"),
        ("h200", "int64", "float32"),
        ("jetson-agx-orin", "float16", "float32"),
        ("gtx-1660-ti", "float16", "float32"),
        ("gtx-1660-ti", "int8", "int32"),
        ("a10g", "float16", "float16"),
    ],
)
def test_what_a_gpu_lacks_or_does_not_publish_is_none(name: str, dtype: str, accumulate: str) -> None:
    assert find(name).peak(dtype, accumulate) is None


def test_peak_refuses_names_it_does_not_know() -> None:
    with pytest.raises(UnknownNameError, match="dtype 'bfloat' is not known; did you mean 'bfloat16'"):
        find("h200").peak("bfloat")
    with pytest.raises(UnknownNameError, match="accumulate 'float23' is not known; did you mean 'float32'"):
        find("h200").peak("float16", "float23")


@pytest.mark.parametrize("name", ["gtx-1650", "gtx-1650-super", "gtx-1660-super", "gtx-1660-ti"])
def test_the_gtx_16s_have_no_tensor_cores(name: str) -> None:
    peaks = dataclasses.asdict(find(name).peaks)
    assert {kind for kind, rate in peaks.items() if rate is not None} == {"fp32", "fp64", "fp16_fp16"}
    assert peaks["fp16_fp16"] == 2 * peaks["fp32"]


@pytest.mark.parametrize("gpu", ["h200", "t4", "rtx-4090"])
def test_a_gpu_has_the_limits_of_its_capability(gpu: str) -> None:
    found = find(gpu)
    names = [name for name in dir(found.limits) if isinstance(getattr(type(found), name, None), property)]
    assert {"blocks_per_sm", "warps_per_sm", "threads_per_block"} <= {*names}
    assert [getattr(found, name) for name in names] == [getattr(found.limits, name) for name in names]


def test_hardware_figures() -> None:
    assert [find(name).sms for name in ("rtx-2060-super", "rtx-4080-laptop", "h200")] == [34, 58, 132]
    assert find("h200").memory_bandwidth == 4.8e12
    assert find("h200").l2_bytes == 60 * 2**20
    assert find("rtx-4080-laptop").memory_bytes == 12 * 2**30
    assert find("rtx-4080-laptop").l2_bytes == 48 * 2**20
    assert find("rtx-2060-super").cores_per_sm * 34 == 2176
    assert find("h100-sxm").shared_bandwidth == pytest.approx(33.45e12, rel=1e-3)


@pytest.mark.parametrize(
    ("capability", "threads", "blocks", "barriers", "shared", "optin"),
    [
        ((7, 0), 2048, 32, 64, 96, 96),
        ((7, 5), 1024, 16, 32, 64, 64),
        ((8, 0), 2048, 32, 64, 164, 163),
        ((8, 6), 1536, 16, 16, 100, 99),
        ((8, 7), 1536, 16, 16, 164, 163),
        ((8, 8), 1536, 16, 16, 100, 99),
        ((8, 9), 1536, 24, 24, 100, 99),
        ((9, 0), 2048, 32, 64, 228, 227),
        ((10, 0), 2048, 32, 64, 228, 227),
        ((10, 3), 2048, 32, 32, 228, 227),
        ((11, 0), 1536, 24, 24, 228, 227),
        ((12, 0), 1536, 24, 24, 100, 99),
        ((12, 1), 1536, 24, 24, 100, 99),
    ],
)
def test_limits(
    capability: gpus.Capability, threads: int, blocks: int, barriers: int, shared: int, optin: int
) -> None:
    bounds = gpus.limits(capability)
    assert gpus.limits(bounds.arch) is bounds
    assert (bounds.threads_per_sm, bounds.blocks_per_sm, bounds.barriers_per_sm) == (
        threads,
        blocks,
        barriers,
    )
    assert (bounds.shared_per_sm, bounds.shared_per_block_optin) == (shared * KIB, optin * KIB)
    assert bounds.shared_reserved_per_block == (0 if capability < (8, 0) else 1024)
    assert bounds.shared_unit == (256 if capability < (8, 0) else 128)
    assert bounds.warps_per_sm * bounds.threads_per_warp == threads
    assert bounds.shared_carveouts == tuple(sorted(bounds.shared_carveouts))
    assert bounds.shared_carveouts[-1] == bounds.shared_per_sm
    assert bounds.clusters == (capability >= (9, 0))
    assert (bounds.registers_per_sm, bounds.max_registers_per_thread, bounds.register_unit) == (
        65_536,
        255,
        256,
    )
    assert (bounds.threads_per_block, bounds.shared_per_block) == (1024, 48 * KIB)
    assert (bounds.barriers_per_block, bounds.min_registers_per_thread, bounds.partitions_per_sm) == (
        16,
        16,
        4,
    )
    assert (bounds.constant_bytes, bounds.local_per_thread, bounds.parameter_bytes) == (
        64 * KIB,
        512 * KIB,
        32_764,
    )


def test_unknown_capabilities() -> None:
    with pytest.raises(UnknownNameError, match=r"capability '7\.1' is not known; did you mean .*'7\.5'"):
        gpus.limits((7, 1))
    with pytest.raises(ArgumentError, match="capability must be a pair"):
        gpus.limits(90)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"capability\[0\] must be an integer"):
        gpus.limits((9.0, 0))  # type: ignore[arg-type]


@given(
    prefix=st.sampled_from(["sm_", "compute_"]),
    major=st.integers(1, 20),
    minor=st.integers(0, 9),
    suffix=st.sampled_from(["", "a", "f"]),
)
def test_any_arch_tells_its_capability(prefix: str, major: int, minor: int, suffix: str) -> None:
    assert gpus.arch_capability(f"{prefix}{major}{minor}{suffix}") == (major, minor)


@given(st.text(string.ascii_letters + string.digits + "_-. ", max_size=12))
def test_what_is_not_an_arch_is_refused(text: str) -> None:
    if re.fullmatch(r"(sm|compute)_\d\d+[af]?", text):
        assert gpus.arch_capability(text)
    else:
        with pytest.raises(UnknownNameError, match=r"^arch "):
            gpus.arch_capability(text)


def test_a_misspelt_arch_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="arch 'sm90a' is not known; did you mean 'sm_90a'"):
        gpus.arch_capability("sm90a")


def test_launch_limits() -> None:
    turing, hopper, future = (gpus.launch_limits(arch) for arch in ("sm_75", "sm_90a", "sm_199a"))
    assert (turing.shared_bytes_per_block, turing.clusters) == (64 * KIB, False)
    assert (hopper.shared_bytes_per_block, hopper.clusters) == (227 * KIB, True)
    assert (future.shared_bytes_per_block, future.clusters) == (227 * KIB, True)
    launch = Launch((1, 1, 1), (32, 1, 1), shared=100 * KIB)
    check_launch(launch, hopper)
    with pytest.raises(LaunchError, match="65,536 bytes on sm_75"):
        check_launch(launch, turing)


@every_gpu
def test_memory_spaces(gpu: Gpu) -> None:
    spaces = gpus.memory_spaces(gpu)
    assert [space.name for space in spaces] == ["register", "local", "shared", "constant", "global"]
    register, local, shared, constant, memory = spaces
    assert 0 == register.cycles < shared.cycles < memory.cycles == local.cycles
    assert register.size_bytes == 1020
    assert shared.size_bytes == gpu.shared_per_block_optin
    assert constant.size_bytes == 64 * KIB
    assert memory.size_bytes == gpu.memory_bytes
    assert shared.bandwidth is not None
    assert memory.bandwidth == gpu.memory_bandwidth < shared.bandwidth
    assert ("cluster" in shared.scope) == gpu.limits.clusters
    for space in (local, shared, constant, memory):
        assert gpus.LATENCY_LABEL in space.cost
        assert space.name in str(space)


def test_memory_spaces_by_name() -> None:
    assert gpus.memory_spaces("RTX 2060 SUPER") == gpus.memory_spaces(find("rtx-2060-super"))
    assert "64 KiB a block (48 KiB without opting in), 64 KiB an SM" in str(gpus.memory_spaces("t4")[2])


def is_power_of_two(number: int) -> bool:
    return number > 0 and not number & number - 1


def test_figures_of_a_multiprocessor_are_powers_of_two_or_whole_parts() -> None:
    """Multiply-adds a clock, sizes of clusters and of what shared memory is given out in; threads in whole warps."""
    for of in table.PER_CAPABILITY.values():
        rates = of.per_clock.values()
        assert all(map(is_power_of_two, (*rates, of.shared_unit, of.cluster_blocks, of.cluster_blocks_optin)))
        assert of.threads_per_sm % 512 == 0 and of.blocks_per_sm % 8 == 0 and of.barriers_per_sm % 8 == 0
        assert of.shared_reserved in (0, 1_024) and of.cluster_blocks <= of.cluster_blocks_optin
        assert [*of.carveouts] == sorted({*of.carveouts}) and all(size % 4 == 0 for size in of.carveouts)
    for rates_of in table.RATES.values():
        assert all(map(is_power_of_two, rates_of.values()))
