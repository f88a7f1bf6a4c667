"""Line tables: every machine instruction finds its CUDA line and its PTX line, and the two ways agree."""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from tilewise.errors import ArgumentError, ToolError, UnknownNameError
from tilewise.instruments import line_figures
from tilewise.instruments.line_figures import SourceFinder
from tilewise.toolchain import lines as module
from tilewise.toolchain import nvrtc
from tilewise.toolchain.cache import default
from tilewise.toolchain.compile import compile_source, own_headers
from tilewise.toolchain.lines import (
    LineTable,
    Location,
    MachineInstruction,
    SourceLine,
    disassemble,
    line_table,
    ptx_locations,
)

PACKAGE = Path(nvrtc.__file__).parents[1]
TILED = (PACKAGE / "kernels" / "ladder" / "rung_04_tiled.cu").read_text(encoding="utf-8")
SEVERAL = """
__device__ __forceinline__ float inner(float x) {
    return x * 3.0f      // not here
        + rsqrtf(x);     // inner
}
__device__ __forceinline__ float middle(const float *p, int i) {
    float v = p[i];      // load
    return inner(v);     // middle
}
__device__ __noinline__ float apart(float x, float y) {
    return x / y;        // division
}
extern "C" __global__ void first(float *out, const float *in) {
    int i = threadIdx.x;
    out[i] = middle(in, i); // store
}
template <int K> __global__ void second(float *out, const float *in) {
    float s = 0;
    for (int k = 0; k < K; ++k)
        s += apart(in[k], in[k + 1]); // calls
    out[threadIdx.x] = s;
}
template __global__ void second<3>(float *, const float *);
"""
SECOND = "_Z6secondILi3EEvPfPKf"
ARCHS = ["sm_75", "sm_80", "sm_90a", "sm_120"]
every_arch = pytest.mark.parametrize("arch", ARCHS)

# What PTX a machine instruction can only come from.
ORIGINS = {"LDG": "ld.global", "STG": "st.global", "LDS": "ld.shared", "STS": "st.shared", "BAR": "bar"}


@cache
def compiled(source: str, arch: str, filename: str = "some.cu", line_info: bool = True) -> tuple[str, bytes]:
    options = [f"--gpu-architecture={arch}", "--std=c++17", *(["-lineinfo"] if line_info else [])]
    output = nvrtc.compile_program(source, filename, options, own_headers())
    assert output.ok, output.log
    return output.ptx, output.cubin


def line_of(source: str, text: str) -> int:
    (found,) = (number for number, line in enumerate(source.splitlines(), 1) if text in line)
    return found


# The tables.


@pytest.mark.few(2)
@every_arch
def test_shared_accesses_of_the_tiled_rung_by_line_and_width(arch: str) -> None:
    _, cubin = compiled(TILED, arch, "rung_04_tiled.cu")
    table = line_table(cubin, "tiled")

    def accesses(text: str, families: tuple[str, ...]) -> Counter[tuple[str, int | None]]:
        first, lines = line_of(TILED, text), TILED.splitlines()
        last = next(line for line in range(first, len(lines) + 1) if lines[line - 1].endswith(";"))
        found = (item for line in range(first, last + 1) for item in table.at("rung_04_tiled.cu", line))
        return Counter((item.family, item.bits) for item in found if item.family in families)

    shared, all_memory = ("LDS", "STS"), ("LDS", "STS", "LDG", "STG")
    assert accesses("sum += widen(a_tile", all_memory) == {("LDS", 32): 32, ("LDS", 128): 8}
    assert accesses("a_tile[threadIdx.y][threadIdx.x] =", all_memory) == {("LDG", 32): 1, ("STS", 32): 1}
    assert accesses("b_tile[threadIdx.y][threadIdx.x] =", all_memory) == {("LDG", 32): 1, ("STS", 32): 1}
    assert accesses("c.at(row, column) = narrow<Element>(sum)", all_memory) == {("STG", 32): 1}
    assert sum(item.family in shared for item in table.instructions) == 42


def test_merged_loads_stand_at_the_first_of_the_ptx_loads() -> None:
    ptx, cubin = compiled(TILED, "sm_75", "rung_04_tiled.cu")
    text = ptx.split("\n")
    scalar = [number for number, line in enumerate(text, 1) if line.strip().startswith("ld.shared.f32")]
    assert len(scalar) == 64
    table = line_table(cubin, "tiled")
    loads = {
        number: [item.bits for item in table.by_ptx.get(number, ()) if item.family == "LDS"]
        for number in scalar
    }
    assert Counter(map(tuple, loads.values())) == {(32,): 32, (128,): 8, (): 24}
    merged = [text[number - 1] for number, bits in loads.items() if bits == [128]]
    assert [int((re.search(r"\+(\d+)\]", line) or [0, 0])[1]) for line in merged] == list(range(0, 128, 16))


@pytest.mark.few(3)
@every_arch
@pytest.mark.parametrize(("source", "entry"), [(TILED, "tiled"), (SEVERAL, "first"), (SEVERAL, SECOND)])
def test_the_cuda_line_is_the_one_that_the_ptx_line_names(arch: str, source: str, entry: str) -> None:
    ptx, cubin = compiled(source, arch)
    locations, text = ptx_locations(ptx), ptx.split("\n")
    table = line_table(cubin, entry)
    assert [item.offset for item in table.instructions] == list(range(0, 16 * len(table.instructions), 16))
    both = [(item.cuda, locations[item.ptx].source) for item in table.instructions if item.ptx in locations]
    assert len(both) > 10
    assert sum(direct == through_ptx for direct, through_ptx in both) >= 0.98 * len(both)
    accesses = [item for item in table.instructions if item.family in ORIGINS and not item.never]
    assert accesses
    for item in accesses:
        assert item.ptx
        assert ORIGINS[item.family] in text[item.ptx - 1]
        assert item.cuda == locations[item.ptx].source


@every_arch
def test_the_way_through_the_ptx_tells_calls_apart(arch: str) -> None:
    ptx, cubin = compiled(TILED, arch, "rung_04_tiled.cu")
    locations = ptx_locations(ptx)
    direct = line_table(cubin, "tiled")
    table = direct.through(ptx)
    for before, after in zip(direct.instructions, table.instructions, strict=True):
        assert (before.offset, before.text, before.ptx) == (after.offset, after.text, after.ptx)
        found = locations.get(after.ptx or 0)
        assert (after.cuda, after.callers) == (found or (None, ()))
    header = (PACKAGE / "include" / "tilewise" / "matrix.cuh").read_text(encoding="utf-8")
    at = line_of(header, "&at(unsigned")
    uses = ("a.at(row, a_column)", "b.at(b_row, column)", "c.at(row, column)")
    calls = {caller.line for item in table.at("matrix.cuh", at) for caller in item.callers}
    assert calls == {line_of(TILED, use) for use in uses}


@every_arch
def test_inlined_lines_carry_their_calls(arch: str) -> None:
    ptx, cubin = compiled(SEVERAL, arch)
    inner, middle, load, store = (
        line_of(SEVERAL, f"// {name}") for name in ("inner", "middle", "load", "store")
    )
    table = line_table(cubin, "first")
    (root,) = (item for item in table.instructions if item.opcode == "MUFU.RSQ")
    assert root.cuda
    assert root.ptx
    assert (root.cuda.line, [caller.line for caller in root.callers]) == (inner, [middle, store])
    assert Path(root.cuda.file).name == "some.cu"
    assert ptx_locations(ptx)[root.ptx] == Location(root.cuda, root.callers)
    (read,) = (item for item in table.instructions if item.family == "LDG")
    assert (read.cuda and read.cuda.line, [caller.line for caller in read.callers]) == (load, [store])
    (write,) = (item for item in table.instructions if item.family == "STG")
    assert (write.cuda and write.cuda.line, write.callers) == (store, ())


@every_arch
def test_entries_are_apart_and_the_assemblers_own_routines_have_no_line(arch: str) -> None:
    _, cubin = compiled(SEVERAL, arch)
    first, second = line_table(cubin, "first"), line_table(cubin, SECOND)
    calls, division = line_of(SEVERAL, "// calls"), line_of(SEVERAL, "// division")
    assert not first.at("some.cu", calls)
    assert second.at("some.cu", calls)
    checked = [item for item in second.instructions if item.opcode == "FCHK"]
    assert checked  # the division's quick path is ours, its slow path the assembler's
    assert {item.cuda and item.cuda.line for item in checked} == {division}
    slow = [item for item in second.instructions if item.cuda is None]
    assert slow
    assert all(item.ptx is None for item in slow)
    assert second.instructions[-len(slow) :] == tuple(slow)


def test_the_maps_hold_each_instruction_once() -> None:
    _, cubin = compiled(SEVERAL, "sm_80")
    table = line_table(cubin, SECOND)
    for groups in (table.by_cuda, table.by_ptx):
        mapped = [item for group in groups.values() for item in group]
        assert len(mapped) == len(set(mapped))
        assert set(mapped) == {item for item in table.instructions if item.cuda}
    assert table.at("else.cu", line_of(SEVERAL, "// calls")) == ()
    assert table.at("ome.cu", line_of(SEVERAL, "// calls")) == ()


def test_code_without_line_tables_has_instructions_and_no_lines() -> None:
    _, cubin = compiled(SEVERAL, "sm_80", line_info=False)
    table = line_table(cubin, "first")
    assert "MUFU.RSQ" in {item.opcode for item in table.instructions}
    assert (table.by_cuda, table.by_ptx) == ({}, {})


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "filename", ["with space.cu", "größe/é ü.cu", "日本.cu", "back\\slash.cu", "../up.cu"]
)
def test_the_two_sides_name_a_file_alike(filename: str) -> None:
    ptx, cubin = compiled(SEVERAL, "sm_75", filename)
    files = {location.source.file for location in ptx_locations(ptx).values()}
    assert files == {source.file for source in line_table(cubin, "first").by_cuda}
    assert all(file.endswith(filename) for file in files)
    assert line_table(cubin, "first").at(filename, line_of(SEVERAL, "// store"))


@pytest.mark.parametrize(
    ("text", "predicate", "opcode", "family", "bits"),
    [
        ("LDS.U.128 R12, [R21]", None, "LDS.U.128", "LDS", 128),
        ("@!P2 LDG.E.SYS R8, [R4]", "@!P2", "LDG.E.SYS", "LDG", 32),
        ("@P0 STG.E.64 desc[UR4][R2.64], R4", "@P0", "STG.E.64", "STG", 64),
        ("LDS.U16 R0, [R1]", None, "LDS.U16", "LDS", 16),
        ("LDG.E.S8.CONSTANT R0, [R2.64]", None, "LDG.E.S8.CONSTANT", "LDG", 8),
        ("LDGSTS.E.BYPASS.LTC128B.128 [R3], [R4.64]", None, "LDGSTS.E.BYPASS.LTC128B.128", "LDGSTS", 128),
        ("LDG.E.LTC128B R0, [R2.64]", None, "LDG.E.LTC128B", "LDG", 32),
        ("LDG.E.64.STRONG.GPU R2, [R4.64]", None, "LDG.E.64.STRONG.GPU", "LDG", 64),
        ("LDGSTS.E.64.LTC128B.32 [R3], [R4.64]", None, "LDGSTS.E.64.LTC128B.32", "LDGSTS", 32),
        ("LDS.16.128 R4, [R0]", None, "LDS.16.128", "LDS", 128),
        ("LDSM.16.M88.4 R4, [R0]", None, "LDSM.16.M88.4", "LDSM", None),
        ("@!UPT UIADD3 URZ, URZ, URZ, URZ", "@!UPT", "UIADD3", "UIADD3", None),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", None, "BAR.SYNC.DEFER_BLOCKING", "BAR", None),
        ("NOP", None, "NOP", "NOP", None),
    ],
)
def test_the_parts_of_an_instruction(
    text: str, predicate: str | None, opcode: str, family: str, bits: int | None
) -> None:
    item = MachineInstruction(0, text)
    assert (item.predicate, item.opcode, item.family, item.bits) == (predicate, opcode, family, bits)
    assert item.never == (predicate == "@!UPT")


def test_a_written_listing() -> None:
    listing = """
	.section	.text.one,"ax",@progbits
.text.one:
        /*0000*/                   NOP;
	//## File "a.cu", line 1 inlined at "a.cu", line 2
	//## File "other.cu", line 5 inlined at "b.cu", line 6
        /*0010*/              @!P0 MOV R1, R2 ;
.L_x_1:
	//## File ".nv_debug_ptx_txt", line 7
        /*0020*/                   BRA `(.L_x_1);
	.section	.text.two,"ax",@progbits
        /*0000*/                   EXIT ;
	.section	.nv.info,"",@"SHT_CUDA_INFO"
        /*0000*/ 	.byte	0x04, 0x37
"""
    other, call = SourceLine("other.cu", 5), (SourceLine("b.cu", 6),)
    assert module._read_listing(listing) == {
        "one": [
            MachineInstruction(0, "NOP"),
            MachineInstruction(16, "@!P0 MOV R1, R2", other, call),
            MachineInstruction(32, "BRA `(.L_x_1)", other, call, 7, ".L_x_1"),
        ],
        "two": [MachineInstruction(0, "EXIT")],
    }


# The PTX side.


def test_locations_of_written_ptx() -> None:
    ptx = r""".file 1 "//host/a /* {b.cu", 123, 456
.version 8.0 // .loc 1 1 1
.visible .entry one(.param .u64 p)
{
	.reg .b32 %r<4>;
	/* .loc 1 2 2
	} */ .loc 1 10 3
	{ mov.u32 %r1, 1; }
	.loc 2 5 7, function_name $info+4, inlined_at 1 10 3
	.loc	2 6 1 , function_name $info , inlined_at 2 5 7 // deep
	mov.u32 %r2, 2; // }
	.loc 1 0 3
	mov.u32 %r3, 3;
	.loc 1 12 3
	add.u32 %r3, %r3, 1;
	.loc 2 5 7, function_name $info, inlined_at 1 12 3
	.loc 2 6 1, function_name $info, inlined_at 2 5 7
	mov.u32 %r2, 3;
	ret;
}
.visible .func two() {
	ret;
	.loc 1 20 1
	ret; }
.file 2 "say \\ \303\251.cuh"
.section .debug_str { .loc 1 99 1 }
"""
    outer, header = "//host/a /* {b.cu", "say \\ é.cuh"
    plain = {number: (location.source, location.callers) for number, location in ptx_locations(ptx).items()}
    call = (header, 5), ((outer, 10),)
    deep = (header, 6), ((header, 5), (outer, 10))
    again = (header, 6), ((header, 5), (outer, 12))
    assert plain == {
        7: ((outer, 10), ()),
        8: ((outer, 10), ()),
        9: call,
        10: deep,
        11: deep,
        14: ((outer, 12), ()),
        15: ((outer, 12), ()),
        16: ((header, 5), ((outer, 12),)),
        17: again,
        18: again,
        19: again,
        20: again,
        23: ((outer, 20), ()),
        24: ((outer, 20), ()),
    }


def test_ptx_without_line_directives_has_no_locations() -> None:
    ptx, _ = compiled(SEVERAL, "sm_80", line_info=False)
    assert ptx_locations(ptx) == {}
    assert ptx_locations("") == {}


# The tool and the cache.


def test_a_listing_is_plain() -> None:
    _, cubin = compiled(SEVERAL, "sm_90a")
    listing = disassemble(cubin)
    assert "MUFU.RSQ" in listing
    assert f".text.{SECOND}:" in listing
    assert "## File" not in listing


def fresh_cubin(arch: str = "sm_80") -> bytes:
    """Machine code that no earlier test has put into the cache."""
    source = f'extern "C" __global__ void only(int *p) {{ *p = {random.randrange(2**31)}; }}'
    return compiled(source, arch)[1]


def forbid_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> NoReturn:
        raise AssertionError("nvdisasm ran again")

    monkeypatch.setattr(subprocess, "run", forbidden)


def test_a_second_question_is_answered_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = fresh_cubin()
    table = line_table(cubin, "only")
    forbid_the_tool(monkeypatch)
    assert line_table(cubin, "only") == table


def test_all_entries_of_one_code_are_cached_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, cubin = compiled(SEVERAL + f"// {random.random()}", "sm_80", f"{random.random()}.cu")
    line_table(cubin, "first")
    forbid_the_tool(monkeypatch)
    assert line_table(cubin, SECOND).instructions


OTHER_SHAPES = [
    b"", b"[]", b"{}", b"\xff", b'{"files":[],"rows":[[0,"NOP",[1,1],[],1]]}',
    b'{"files":[],"rows":[[0,"NOP",[1,1],[],1,""]]}',
]  # fmt: skip


def test_nothing_is_read_of_a_cached_table_of_another_shape() -> None:
    assert [module._load(content) for content in OTHER_SHAPES] == [None] * len(OTHER_SHAPES)


@pytest.mark.few(1)
@pytest.mark.parametrize("content", OTHER_SHAPES)
def test_a_cached_table_of_another_shape_is_made_again(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    cubin = fresh_cubin()
    table = line_table(cubin, "only")
    monkeypatch.setattr(type(default()), "get", lambda *_: {"only": content})
    assert line_table(cubin, "only") == table


def test_an_unknown_entry_is_named_with_the_nearest() -> None:
    _, cubin = compiled(SEVERAL, "sm_80")
    with pytest.raises(UnknownNameError, match="did you mean 'first'"):
        line_table(cubin, "frist")


@pytest.mark.parametrize("content", [b"", b".version 9.5", b"\x7fEL"])
def test_what_is_no_machine_code_is_refused(content: bytes) -> None:
    with pytest.raises(ArgumentError, match="cubin must be machine code"):
        disassemble(content)
    with pytest.raises(ArgumentError, match="cubin must be machine code"):
        line_table(content, "only")


def test_damaged_machine_code_is_an_error_of_one_line() -> None:
    cubin = fresh_cubin()
    with pytest.raises(ToolError, match="nvdisasm cannot read the machine code") as caught:
        line_table(cubin[: len(cubin) // 2], "only")
    assert "\n" not in str(caught.value)
    assert "kernel.cubin" not in str(caught.value)
    end = "); it may be damaged, or from a newer compiler: pip install -U nvidia-cuda-nvdisasm"
    assert str(caught.value).endswith(end)


def test_without_the_tool_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_found_in_wheel", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError) as caught:
        disassemble(fresh_cubin())
    assert str(caught.value) == (
        "nvdisasm, which reads machine code, is not installed; pip install nvidia-cuda-nvdisasm"
    )


@pytest.mark.parametrize("tool", ["missing", "directory", "no program"])
def test_a_tool_that_does_not_run_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tool: str
) -> None:
    place = tmp_path / "nvdisasm"
    if tool == "directory":
        place.mkdir()
    elif tool == "no program":
        place.write_bytes(b"\x00\x01")
        place.chmod(0o755)
    monkeypatch.setattr(module, "_found_in_wheel", lambda: str(place))
    told = rf"^{re.escape(str(place))} cannot be run \(.+\); pip install -U nvidia-cuda-nvdisasm$"
    for use in (lambda: line_table(fresh_cubin(), "only"), lambda: disassemble(fresh_cubin())):
        with pytest.raises(ToolError, match=told):
            use()


def test_a_full_disk_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ToolError) as caught:
        disassemble(fresh_cubin())
    assert str(caught.value) == (
        "no temporary file can be written for nvdisasm (No such file or directory); "
        "set TMPDIR to a directory with room"
    )


def test_of_a_header_that_lies_elsewhere_the_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "far" / "near"
    folder.mkdir(parents=True)
    (folder / "half.h").write_text("__device__ void half(float *x) {\n    *x *= 0.5f;\n}\n")
    source = '#include "near/half.h"\nextern "C" __global__ void k(float *x) { half(x); }'
    binary = compile_source(source, ["k"], "sm_80", include_dirs=[str(tmp_path / "far")])
    finder = SourceFinder(binary)
    found = {place for n in range(1, 1 + binary.ptx.count("\n")) if (place := finder.place(n))}
    assert ("near/half.h", 2, "*x *= 0.5f;") in found and {name for name, *_ in found} >= {"near/half.h"}
    file = folder / "half.h"
    for most, text in ((file.stat().st_size, "*x *= 0.5f;"), (file.stat().st_size - 1, "")):
        monkeypatch.setattr(line_figures, "_LARGEST_FILE", most)
        finder = SourceFinder(binary)
        places = {place for n in range(1, 1 + binary.ptx.count("\n")) if (place := finder.place(n))}
        assert ("near/half.h", 2, text) in places


def test_a_file_is_found_by_as_much_of_its_path_as_is_given() -> None:
    places = [SourceLine(f"/src/{folder}/k.cu", 3) for folder in ("one", "two")]
    table = LineTable(tuple(MachineInstruction(16 * i, "NOP", place) for i, place in enumerate(places)))
    assert [[one.offset for one in table.at(file, 3)] for file in ("k.cu", "one/k.cu", "/src/two/k.cu")] == [
        [0, 16], [0], [16],
    ]  # fmt: skip
