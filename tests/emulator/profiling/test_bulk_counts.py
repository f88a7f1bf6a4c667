"""What bulk copies and asynchronous products are counted as, against an H200 (``tests/golden/hardware/bulk.json``)."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.hardware import bulk
from tests.hardware.bulk import TURNS, Case, Map
from tests.hardware.keep import KEPT
from tests.triton.compiler import golden
from tests.triton.runs import prepare
from tests.triton.runs import profiled as run_profiled
from tilewise.emulator.families.wgmma import shared_bytes_of
from tilewise.emulator.profiling.copies import CopyFigure
from tilewise.emulator.profiling.tracing import BYPASS, PREFETCH, READ, WRITE
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.instruments.bulk_accesses import _by_line
from tilewise.instruments.profile import Profile
from tilewise.toolchain.compile import compile_source
from tilewise.toolchain.lines import MachineInstruction

RECORDED: dict[str, Any] = json.loads((KEPT / "bulk.json").read_text())
_ALIGNED = 256


def test_the_record_is_of_these_cases() -> None:
    for part in ("copies", "products"):
        told = json.loads(json.dumps(bulk._told(part)))
        assert [row["case"] for row in RECORDED[part]] == told


@cache
def ptx() -> str:
    return compile_source(bulk.source(), bulk.ENTRIES, "sm_90a", filename="bulk.cu").ptx


def case_of(row: dict[str, Any]) -> Case:
    told = dict(row["case"])
    if told["map"]:
        tensor: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told["map"].items()}
        told["map"] = Map(**tensor)
    return Case(**told | {"coordinates": tuple(told["coordinates"])})


def described(tensor: Map, address: int) -> tw.TensorMap:
    given: dict[str, Any] = {
        "dtype": {"u8": "uint8", "f16": "float16", "f32": "float32"}[tensor.element],
        "shape": tensor.sizes[::-1], "strides": tensor.pitch[::-1], "swizzle": tensor.swizzle or None, "l2_promotion": None,
    }  # fmt: skip
    if tensor.corners:
        (low, high), (channels, pixels) = tensor.corners, tensor.box
        return tw.TensorMap.im2col(
            address, lower=(low,), upper=(high,), channels=channels, pixels=pixels, **given
        )
    steps = (*[1] * (len(tensor.sizes) - 2), tensor.step, 1)
    return tw.TensorMap(address, tensor.box[::-1], element_strides=steps, **given)


def profiled(case: Case, cache: bool = False) -> Profile:
    """A case on the emulator, from PTX alone."""
    room: Any = tw.device("emulator").array(np.zeros((8 << 20) + 2 * _ALIGNED, np.uint8))
    base = room.ptr + -room.ptr % _ALIGNED + case.base
    told: Any = bytes(128)
    if case.map:
        told = described(case.map, base)
    what = np.array(case.what, np.int32)
    kernel = tw.Kernel.from_ptx(ptx(), case.entry)
    return kernel.profile(case.blocks, 32, [told, what, base], 1 << 16, gpu="h200", cache=cache)


def moved(profile: Profile, what: CopyFigure) -> float:
    return sum(float(copied[what].sum()) for copied in profile.counts.copies())


NAMES = {
    "in": "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",
    "in multicast": "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld_dest_multicast.sum",
    "out": "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum",
    "out bytes": "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",
    "out reduced": "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum",
    "sent": "l1tex__m_l1tex2xbar_write_sectors_mem_dshared_op_tma_st.sum",
    "sent reduced": "l1tex__m_l1tex2xbar_write_sectors_mem_dshared_op_tma_red.sum",
    "received": "l1tex__m_xbar2l1tex_read_sectors_mem_dshared_op_tma_st.sum",
    "shared wavefronts": "",
    "copies": "smsp__sass_inst_executed_op_tma.sum",
    "loads": "smsp__sass_inst_executed_op_tma_ld.sum",
    "stores": "smsp__sass_inst_executed_op_tma_st.sum",
    "reductions": "smsp__sass_inst_executed_op_tma_red.sum",
    "sends": "smsp__sass_inst_executed_op_dshared_tma_st.sum",
    "sent reductions": "smsp__sass_inst_executed_op_dshared_tma_red.sum",
    "remote stores": "smsp__sass_inst_executed_op_dshared_stas.sum",
    "remote reductions": "smsp__sass_inst_executed_op_dshared_redas.sum",
}


@pytest.mark.few(
    "bulk_load", "bulk_multi4", "bulk_reduce", "bulk_send_add", "red_async", "tensor_multi2", "tensor_store"
)
@pytest.mark.parametrize("entry", sorted({row["case"]["entry"] for row in RECORDED["copies"]}))
def test_copies(entry: str) -> None:
    """Every counter of the copy engine, exactly; and none of it is in the counters of shared memory's pipe."""
    rows = [row for row in RECORDED["copies"] if row["case"]["entry"] == entry]
    for row in random.sample(rows, min(len(rows), 6)):
        case, counts = case_of(row), row["counts"]
        profile = profiled(case)
        for key, name in NAMES.items():
            if name:
                assert profile[name] == counts.get(key, 0), f"{case}: {key}"
        assert profile["memory_l1_wavefronts_shared"] == 0
        asked = moved(profile, CopyFigure.SECTORS)
        if entry.endswith(("load", "load3", "pixels")) or "multi" in entry:
            # Requests for one sector may meet on their way, most often for what lies outside a tensor.
            inside, outside = asked, moved(profile, CopyFigure.OUTSIDE)
            assert 0.98 * inside <= counts["L2 read"] <= inside + outside + 3, case
            # Setting mbarriers up writes a few words.
            assert (
                0 <= counts["bank writes"] - moved(profile, CopyFigure.ALL_BYTES) / 4 <= 32 * case.blocks
            ), case
        elif "prefetch" in entry:
            assert asked <= counts["L2"] <= asked + 3, case
        elif "store" in entry or "reduce" in entry:
            assert counts["L2 written" if "store" in entry else "L2 reduced"] == asked, case
            assert 0 <= counts["bank reads"] - moved(profile, CopyFigure.BYTES) / 4 <= 8, case


def test_to_several_blocks_a_sector_comes_with_its_neighbour() -> None:
    """Wherever a copy begins: of one that lies in one sector alone, the even one and the odd one of a pair come."""
    rows = [row for row in RECORDED["copies"] if row["case"]["entry"] == "bulk_multi2"]
    for row in rows:
        case = case_of(row)
        assert profiled(case)[NAMES["in multicast"]] == row["counts"]["in multicast"], case
    lone = [case for case in map(case_of, rows) if case.base % 64 >= 32 and case.base % 32 + case.size <= 32]
    assert lone and {case.size for case in lone} == {16}


@pytest.mark.parametrize(
    ("coordinates", "inside", "outside"), [((0, 0), 4, 0), ((8, 0), 2, 2), ((-8, 0), 2, 2), ((0, 1), 2, 2), ((16, 0), 0, 4)]
)  # fmt: skip
def test_sectors_of_a_box_are_within_the_tensor_and_without(
    coordinates: tuple[int, int], inside: int, outside: int
) -> None:
    """Two rows of 64 bytes, of a tensor and of the box."""
    tensor = Map("f32", (16, 2), (64,), (16, 2))
    case = Case("tensor_load", 128, step=0, coordinates=(*coordinates, 0), map=tensor)
    profile = profiled(case, cache=True)
    found = [moved(profile, which) for which in (CopyFigure.SECTORS, CopyFigure.OUTSIDE)]
    assert found == [TURNS * inside, TURNS * outside]
    # No block asks for those without, and yet they come to its multiprocessor.
    traffic = profile.traffic
    assert traffic is not None
    assert profile["l1tex__m_xbar2l1tex_read_sectors.sum"] == traffic.l1_read + TURNS * outside
    assert profile.trace is not None
    assert (profile.trace.blocks[0][1] == BYPASS).sum() == TURNS * inside


@pytest.mark.parametrize("entry", ["tensor_store", "tensor_reduce"])
@pytest.mark.parametrize(("coordinates", "inside"), [((0, 0), 4), ((8, 0), 2), ((0, 1), 2)])
def test_what_a_box_has_outside_a_tensor_is_not_written(
    entry: str, coordinates: tuple[int, int], inside: int
) -> None:
    """Sectors of two rows of 64 bytes, and their bytes."""
    tensor = Map("f32", (16, 2), (64,), (16, 2))
    profile = profiled(Case(entry, 128, step=0, coordinates=(*coordinates, 0), map=tensor))
    which = (CopyFigure.SECTORS, CopyFigure.OUTSIDE, CopyFigure.BYTES, CopyFigure.ALL_BYTES)
    assert [moved(profile, figure) / TURNS for figure in which] == [inside, 0, 32 * inside, 32 * inside]


def test_elements_that_do_not_lie_side_by_side_are_asked_for_one_by_one() -> None:
    """Every second slice of 16 bytes: each is in a sector of its own."""
    room: Any = tw.device("emulator").array(np.zeros(4096, np.uint8))
    base = room.ptr + -room.ptr % _ALIGNED
    given: dict[str, Any] = {"dtype": "float32", "shape": (2, 1, 16, 4), "interleave": 16}
    tensor = tw.TensorMap(base, (2, 1, 16), element_strides=(1, 1, 2), **given)
    what = np.array(Case("tensor_load3", 256, step=0).what, np.int32)
    kernel = tw.Kernel.from_ptx(ptx(), "tensor_load3")
    profile = kernel.profile(1, 32, [tensor, what, base], 1 << 16, gpu="h200", cache=True)
    assert profile.trace is not None
    assert (profile.trace.blocks[0][0] - base // 32)[-16:].tolist() == list(range(16))
    assert moved(profile, CopyFigure.SECTORS) == TURNS * 16


# Two blocks; the first loads for both, and copies in every other way. Places in shared memory are not those in global.
EVERY_WAY = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data) .reqnctapercluster 2
{
  .reg .u64 %g; .reg .u32 %n, %there, %other; .reg .pred %p, %done; .reg .b32 %x;
  .shared .align 128 .b8 room[512]; .shared .align 8 .b64 bar;
  ld.param.u64 %g, [data]; mov.u32 %n, %cluster_ctarank; setp.ne.u32 %p, %n, 0; selp.u32 %n, 128, 64, %p;
  ld.global.u32 %x, [%g+1536];
  mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
  mbarrier.arrive.expect_tx.shared.b64 _, [bar], %n;
  mov.u32 %there, room; mov.u32 %other, bar;
  mapa.shared::cluster.u32 %there, %there, 1; mapa.shared::cluster.u32 %other, %other, 1;
  @%p bra WAIT;
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%there+256], [room+128], 64, [%other];
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [room+16], [%g], 64, [bar], 3;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %done, [bar], 0; @!%done bra WAIT;
  @%p bra END;
  cp.async.bulk.prefetch.L2.global [%g+288], 128;
  fence.proxy.async;
  cp.async.bulk.global.shared::cta.bulk_group [%g+512], [room+16], 64;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%g+1024], [room+16], 32;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:
  barrier.cluster.arrive; barrier.cluster.wait; ret;
}
"""


def test_copies_of_every_kind_ask_for_their_sectors_alone() -> None:
    """The L2 for those of global memory, as the trace says; what goes from block to block asks it for none."""
    room: Any = tw.device("emulator").array(np.zeros(2048, np.uint8))
    base = room.ptr + -room.ptr % _ALIGNED
    profile = tw.Kernel.from_ptx(EVERY_WAY, "k").profile(2, 1, [base], gpu="h200", cache=True)
    which = (CopyFigure.BYTES, CopyFigure.ALL_BYTES, CopyFigure.SECTORS, CopyFigure.ALL_SECTORS)
    found = {copied.kind: [int(copied[one].sum()) for one in which] for copied in profile.counts.copies()}
    # The prefetch goes from sector 9 to 12, across a line of global memory, and has no place in shared memory.
    assert found == {
        "multicast": [64, 128, 2, 4], "send": [64, 64, 2, 2], "prefetch": [128, 128, 4, 4],
        "store": [64, 64, 2, 2], "reduce": [32, 32, 1, 1],
    }  # fmt: skip
    assert profile.trace is not None
    asked = [
        [*zip((sectors - base // 32).tolist(), kinds.tolist(), strict=True)]
        for sectors, kinds in profile.trace.blocks.values()
    ]
    # The blocks run by turns: what the first one asks for before the second runs and behind it is there together.
    assert asked == [[
        (48, READ), (0, BYPASS), (1, BYPASS), *((sector, PREFETCH) for sector in range(9, 13)),
        (16, WRITE), (17, WRITE), (32, WRITE),
    ], [(48, READ)]]  # fmt: skip


def test_each_lane_makes_a_copy_of_its_own() -> None:
    text = (
        EVERY_WAY.split("{")[0]
        + """{
  .reg .u64 %g, %a; .reg .u32 %t, %n; .reg .pred %p;
  ld.param.u64 %g, [data]; mov.u32 %t, %tid.x; mul.wide.u32 %a, %t, 256; add.u64 %g, %g, %a; shl.b32 %n, %t, 5;
  setp.lt.u32 %p, %t, 5; setp.gt.and.u32 %p, %t, 1, %p;
  @%p cp.async.bulk.prefetch.L2.global [%g], %n;
  ret;
}
"""
    )
    profile = tw.Kernel.from_ptx(text, "k").profile(2, 32, [np.zeros(8192, np.uint8)], gpu="h200")
    (copied,) = profile.counts.copies()
    which = (CopyFigure.RUNS, CopyFigure.COPIES, CopyFigure.BYTES, CopyFigure.TENSORS)
    assert [int(copied[one].sum()) for one in which] == [2, 2 * 3, 2 * 32 * (2 + 3 + 4), 0]


def test_products() -> None:
    """A product takes a wavefront for each 128 bytes of B, and of A if that is in shared memory, however they lie;
    it never has a conflict."""
    text = compile_source(
        bulk.wgmma_source(), bulk._entries(bulk.wgmma_source()), "sm_90a", filename="w.cu"
    ).ptx
    module = parse(text)
    for row in RECORDED["products"]:
        function = module.function(row["case"]["entry"])
        assert function is not None
        (size,) = [
            shared_bytes_of(item)
            for item in function.body
            if isinstance(item, Instruction) and item.opcode == "wgmma" and item.parts[0] == "mma_async"
        ]
        counts = row["counts"]
        assert counts["gmma bytes"] == TURNS * size, row["case"]
        assert counts["gmma wavefronts"] == counts["sass wavefronts"] == TURNS * size // 128, row["case"]
        assert counts.get("gmma conflicts", 0) == 0 and counts["bank reads"] == TURNS * size // 4, row["case"]


def test_a_product_in_a_profile() -> None:
    """Four warps, one product a turn."""
    text = bulk.wgmma_source()
    kernel = tw.Kernel(text, "f16_s_16", "sm_90a")
    a, b = bulk.Product("f16_s_16", (0, 0, 128, 256), (0, 0, 128, 256)).descriptors()
    args = [np.uint64(a), np.uint64(b), np.int32(3), np.zeros(128, np.float32)]
    for made in (kernel, tw.Kernel.from_ptx(kernel.build("sm_90a").ptx, "f16_s_16")):
        profile = made.profile(1, 128, args, shared=160 << 10, gpu="h200")
        assert profile["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"] == 3 * (16 + 4)
        assert profile["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum"] == 0
        assert profile["smsp__sass_data_bytes_mem_shared_op_gmma.sum"] == 3 * 32 * (64 + 16)
        assert profile["smsp__sass_inst_executed_op_shared_gmma.sum"] == 12
        label = "exact" if profile.level == "machine code" else "predicted"
        assert profile.metrics["smsp__sass_data_bytes_mem_shared_op_gmma.sum"].label == label


# What rung 13 ran with where it was recorded: a tile for each block, two blocks to a cluster.
PAIRS: dict[str, Any] = {"partition": "128x128x64", "cluster": 2, "tiles": 1}


def test_a_part_of_the_clusters() -> None:
    """Whole clusters are run, and stand for the others of their kind."""
    rung = tw.ladder["13_warp_specialised"]
    whole, part = (rung.profile(768, 256, 64, gpu="h200", sample=blocks, **PAIRS) for blocks in (None, 1))
    assert "sampled: 6 of 12 blocks" in part.notes[-1]
    for name in (
        NAMES["in"],
        NAMES["in multicast"],
        NAMES["out"],
        "memory_l1_wavefronts_shared",
        "sm__warps_launched.max",
    ):
        assert part[name] == whole[name], name
    assert part.metrics[NAMES["in"]].label == "sampled" and whole.metrics[NAMES["in"]].label == "exact"


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["described-sm_90", "host_specialised-sm_90", "matmul_f16_clusters-sm_90"])
def test_without_machine_code(key: str) -> None:
    """Kernels of Triton: bytes as their products and tiles ask for, labelled as predicted."""
    made = golden()[key]
    profile = run_profiled(made, prepare(made, np.random.default_rng()), "h200")
    assert profile.level == "predicted"
    name = "tilewise__bytes_shared_op_gmma.sum"
    assert profile[name] > 0 and profile.metrics[name].label == "predicted"
    if "described" in key or "host" in key:
        loaded, stored = (profile.metrics[f"tilewise__bytes_global_op_tma_{op}.sum"] for op in ("ld", "st"))
        assert loaded.value >= stored.value > 0 and loaded.label == "predicted"


def test_the_last_rung_on_the_gpu() -> None:
    """Rung 13 loads, multicasts, multiplies and stores in bulk: as on an H200."""
    row = next(row for row in RECORDED["rungs"] if row["case"]["rung"].startswith("13"))
    m, n, k = row["case"]["size"]
    profile = tw.ladder["13_warp_specialised"].profile(m, n, k, gpu="h200", **PAIRS)
    assert profile[NAMES["in"]] == row["counts"]["L1 read"]
    assert profile[NAMES["out"]] == row["counts"]["L2 tex written"]
    moved = {
        op: profile[f"tilewise__bytes_shared_op_{op}.sum"] for op in ("tma_ld", "tma_mc", "tma_st", "gmma")
    }
    tiles = m * n // (128 * 128)
    assert moved["tma_ld"] + moved["tma_mc"] == tiles * 2 * (128 + 128) * k
    assert moved["tma_st"] == 2 * m * n
    bounds = {bound.name: bound.amount for bound in profile.roofline.bounds}
    copied = moved["tma_ld"] + moved["tma_mc"] + moved["tma_st"]
    assert bounds["bulk copies in shared memory"] == copied / 128
    assert bounds["L1 and shared memory"] >= profile["memory_l1_wavefronts_shared"] >= moved["gmma"] / 128
    assert profile.roofline.flops == 2 * m * n * k


@pytest.mark.parametrize(
    ("placed", "wanted"),
    [((3, 4, 9), {1: 3, 2: 5, 3: 9}), ((2, 9, 4), {1: 3, 2: 9, 3: 5}), ((3, 4, 3), {1: 3, 3: 3})],
)
def test_a_copy_with_the_line_of_a_neighbour_is_of_the_line_that_lacks_one(
    placed: tuple[int, ...], wanted: dict[int, int]
) -> None:
    """In their order; where the lines are not as many as such copies, these are of none."""
    code = [
        (1.0, MachineInstruction(offset, "UBLKCP [UR8], [UR4], UR10 ;", ptx=line))
        for offset, line in enumerate(placed, 1)
    ]
    found = _by_line([9, 5, 3], [code[i] for i in (2, 0, 1)], ("UBLKCP",))
    assert {item.offset: line for line, there in found.items() for _, item in there} == wanted
    assert all(item.ptx == line for line, there in found.items() for _, item in there)
