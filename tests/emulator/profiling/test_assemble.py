"""Other people's PTX with machine code: profiled as if its source were here, and explained."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewise as tw
from tests.triton.compiler import golden
from tests.triton.runs import explained, prepare
from tilewise.errors import PtxError, ToolError
from tilewise.toolchain import assemble as module
from tilewise.toolchain.assemble import assemble, has_assembler
from tilewise.toolchain.compile import read_ptx
from tilewise.toolchain.nvrtc import version

PLAIN = """extern "C" __global__ void twice(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}"""


@pytest.fixture(autouse=True)
def assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWISE_ASSEMBLER")
    if not has_assembler():
        pytest.skip("needs nvJitLink: pip install nvidia-nvjitlink")


@pytest.mark.parametrize("rung", ["05_tiled_conflicted", "09_warp_tiled"])
def test_ptx_alone_gives_the_figures_of_the_source(rung: str) -> None:
    """The same assembler made both, if its version is the same."""
    own = tw.ladder[rung].kernel("sm_80").build()
    found = assemble(read_ptx(own.ptx), "sm_80")
    ((name, entry),) = own.entries.items()
    resources, known = found.entries[name].resources, entry.resources
    assert resources is not None and known is not None
    assert found.cubin is not None and found.arch == "sm_80"
    if module.assembler_version().startswith(".".join(map(str, version()))):
        assert (resources.registers, resources.spills) == (known.registers, known.spills)


def test_a_profile_of_ptx_has_machine_code_and_a_verdict() -> None:
    own = tw.Kernel(PLAIN, "twice", "sm_90")
    foreign = tw.Kernel.from_ptx(own.ptx, "twice")
    x = np.ones(5000, np.float32)
    ours, theirs = (one.profile(20, 256, [x.copy(), 5000], gpu="h200") for one in (own, foreign))
    assert theirs.level == "machine code" and theirs.verdict is not None and theirs.occupancy is not None
    (note,) = (note for note in theirs.notes if "nvJitLink" in note)
    assert re.fullmatch(r"machine code by nvJitLink [\d.]+; a driver may assemble the PTX otherwise", note)
    for name in ("smsp__inst_executed.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"):
        assert ours[name] == theirs[name] > 0
    assert theirs.lines[0].file == "kernel.ptx" and ours.lines[0].file == "kernel.cu"
    assert (x == 1).all()


def test_what_the_assembler_refuses_is_profiled_without_it() -> None:
    """A name that nothing defines: the emulator finds no fault as it is never called."""
    ptx = tw.Kernel(PLAIN, "twice", "sm_80").ptx
    body = ptx.index("ret;")
    broken = ptx[:body] + "bra.uni NOWHERE;\n" + ptx[body:]
    with pytest.raises(ToolError, match=r"the assembler does not take the PTX for sm_80: .*NOWHERE"):
        assemble(read_ptx(broken), "sm_80")
    with pytest.raises(ToolError, match="does not take the PTX for sm_75"):
        assemble(read_ptx(ptx), "sm_75")
    profile = tw.Kernel.from_ptx(ptx, "twice").profile(1, 32, [np.ones(32, np.float32), 32], gpu="t4")
    assert profile.level == "machine code"  # of its own arch, as the GPU is older
    assert any("would run other code" in note for note in profile.notes)


def test_a_text_may_end_without_a_new_line() -> None:
    """The assembler would read on behind it, which of a length that fills its memory to the end is a crash."""
    text = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k() {
.reg .b32 %r<4>; .reg .b64 %d<4>; .reg .b8 %b1; .shared .align 8 .b64 m;
mbarrier.arrive.expect_tx.shared.b64 _,[m],4;
ret; }"""
    for size in range(192, 257, 16):
        assert module._run(text.ljust(size), "sm_90a")["cubin"]


@pytest.mark.parametrize("count", ["2147483647", "0x7fffffffffffffff"])
def test_more_registers_than_the_assembler_makes_in_good_time_are_refused(count: str) -> None:
    """It would take 45 s of 2³¹ that nothing uses."""
    own = tw.Kernel(PLAIN, "twice", "sm_80").ptx
    ptx = re.sub(r"(\.reg \.b32\s*)%r<\d+>", rf"\1%free<{count}>, %r<99>", own)
    assert count in ptx
    with pytest.raises(ToolError, match=rf"not given {int(count, 0):,} registers"):
        assemble(read_ptx(ptx), "sm_80")
    with pytest.raises(PtxError, match=rf"{int(count, 0):,} registers, where a function may have 1,048,576"):
        tw.Kernel.from_ptx(ptx, "twice").profile(1, 32, [np.ones(32, np.float32), 32], gpu="a100")


def test_without_the_library_it_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_ASSEMBLER", "off")
    assert not has_assembler()
    ptx = tw.Kernel(PLAIN, "twice", "sm_80").ptx
    profile = tw.Kernel.from_ptx(ptx, "twice").profile(1, 32, [np.ones(32, np.float32), 32], gpu="a100")
    assert profile.level == "predicted" and profile.verdict is None


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["matmul_f16-sm_80", "matmul_bf16_turned-sm_90", "matmul_f32-sm_75"])
def test_a_matmul_of_tritons_is_explained(key: str) -> None:
    """Tiles, steps and owners, of arrays that are wider than their matrices, and of transposes."""
    made = golden()[key]
    run = prepare(made, np.random.default_rng())
    found = explained(made, run)
    sizes = {name: run.args[name] for name in "MNK"}
    tile = made.constants["BM"], made.constants["BN"], made.constants["BK"]
    rows, columns = (int(size) for size in re.findall(r"\d+", str(found.facts["levels.block"])))
    assert (rows, columns) == (min(tile[0], sizes["M"]), min(tile[1], sizes["N"]))
    assert found.facts["tiles.steps"] == -(-sizes["K"] // tile[2])
    assert "no verdict" not in found.verdict[0] and "residency" in {panel.key for panel in found.panels}
