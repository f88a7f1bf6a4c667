"""The kernel for Hopper's tensor cores in float32 by tf32, and in float16 with sums in float16, beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.emulator.kernels.test_mma_kernel import LAYOUTS, RANDOM, Array, Size, framed
from tests.framed import marked
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.wgmma_candidates import MOST_SUMS
from tilewise.kernels.gemm.wgmma_shapes import PARTITIONS_OF, TILES, Shape
from tilewise.matmul import multiply
from tilewise.planner import operands_of
from tilewise.planner.choose import choose, list_candidates
from tilewise.planner.target import target_of
from tilewise.reference import compare

SPEC = KERNELS["wgmma"]
ARITHMETIC = {"float32": "tf32", "float16": "f16"}
TYPES = tuple(ARITHMETIC)
UNEXCHANGED = {(one.m, one.n) for one in TILES}


def partition(m: int, n: int, element: str) -> str:
    return f"{m}x{n}x{32 if element == 'float32' else 64}"


def check(
    size: Size, element: str, layout: str = "nn", stack: tuple[int, ...] = (), lie: tuple[int, ...] = (0,) * 6,
    order: Any = "eager", fused: bool = False, copy: bool | None = None, **given: Any,
) -> Array:  # fmt: skip
    """Multiply random matrices, compare with float64; what lies beside the result must stay as it was."""
    m, n, k = size
    a = framed((*stack, m, k), element, layout[0] == "n", *lie[:2])
    b = framed((*stack, k, n), element, layout[1] == "n", *lie[2:4])
    given = {"partition": partition(64, 64, element), "result": element, **given}
    whole = marked((*stack, m, lie[4] + n + lie[5]), given["result"])
    before, out = whole.copy(), whole[..., lie[4] : lie[4] + n]
    row, full = RANDOM.standard_normal(n).astype(np.float32), RANDOM.standard_normal((n, m)).astype(element).T
    epilogue = tw.epilogue("tanh(acc * s + row) + full", s=0.1, row=row, full=full) if fused else None
    choice = Choice(specs=(SPEC,), settings=tuple(given.items()), arithmetic=ARITHMETIC[element], copy=copy)
    multiply(a, b, out, tw.device("emulator", order=order), choice, *([epilogue] if epilogue else []))
    compared = compare(out, a, b, terms=16 + 64 * fused, epilogue=epilogue, arithmetic=ARITHMETIC[element])
    assert compared.ok, (size, layout, lie, given, str(compared))
    whole[..., lie[4] : lie[4] + n] = before[..., lie[4] : lie[4] + n]
    assert whole.tobytes() == before.tobytes()
    return out


@pytest.mark.few(1)
@pytest.mark.parametrize("element", TYPES)
def test_any_tile_is_right(element: str) -> None:
    """Another one each time, in a grid of them, with sizes that end inside of one."""
    tiles = list(PARTITIONS_OF[element].items())
    name, tile = tiles[int(RANDOM.integers(len(tiles)))]
    alone = (tile.m, tile.n) in UNEXCHANGED
    size = tile.m + 9, tile.n + 24, 3 * tile.k + 7
    exchanged: dict[str, Any] = {} if alone else {"exchanged": 1}
    layout = LAYOUTS[int(RANDOM.integers(4))]
    check(
        size if alone else (size[1], size[0], size[2]), element, layout, partition=name, tiles=2, **exchanged
    )


@pytest.mark.parametrize(("element", "arithmetic"), [*ARITHMETIC.items(), ("bfloat16", None)])
def test_any_tile_can_be_asked_for_with_operands_exchanged(element: str, arithmetic: str | None) -> None:
    """However they lie: also a tile that is not proposed for such a problem."""
    for name, tile in PARTITIONS_OF[element].items():
        for layout in LAYOUTS:
            size = tile.n + 24, tile.m + 9, 3 * tile.k + 7
            operands = operands_of(*size, dtype=element, layout=layout, arithmetic=arithmetic)
            for more in ({}, {"tiles": 2}):
                found = choose(
                    operands,
                    target_of("h200"),
                    specs=[SPEC],
                    given={"partition": name, "exchanged": 1, **more},
                )
                assert found.settings["partition"] == name and found.settings["exchanged"]


SCHEDULES: tuple[dict[str, Any], ...] = (
    {}, {"split": 2}, {"parts": 2}, {"cluster": "2x1", "tiles": 2}, {"exchanged": 1}, {"pingpong": 1, "tiles": 3},
)  # fmt: skip


@examples(3, 8)
@given(
    m=st.integers(0, 150), n=st.integers(0, 150), k=st.integers(0, 140), layout=st.sampled_from(LAYOUTS),
    lie=st.tuples(*[st.sampled_from((0, 0, 1, 2, 4))] * 6), stack=st.sampled_from([(), (2, 3)]),
    fused=st.booleans(), element=st.sampled_from(TYPES), schedule=st.integers(0, len(SCHEDULES) - 1),
)  # fmt: skip
@example(70, 61, 90, "tn", (0, 0, 0, 1, 0, 1), (2,), True, "float32", 0)
@example(70, 61, 90, "nn", (1, 0, 0, 0, 0, 0), (), True, "float16", 1)
@example(1, 1, 2, "tt", (0,) * 6, (), False, "float32", 4)  # a single column may be rows, and lies along k
def test_any_size_layout_and_alignment(
    m: int,
    n: int,
    k: int,
    layout: str,
    lie: tuple[int, ...],
    stack: tuple[int, ...],
    fused: bool,
    element: str,
    schedule: int,
) -> None:
    given = {} if stack and "parts" in SCHEDULES[schedule] else SCHEDULES[schedule]
    check((m, n, k), element, layout, stack, lie, fused=fused, **given)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("element", "given"),
    [
        ("float16", {"partition": "128x256x64", "pingpong": 1, "tiles": 3}),  # too many sums in float32
        ("float32", {"partition": "128x128x32", "pingpong": 1, "tiles": 3, "cluster": "2x1"}),
        ("float16", {"parts": 2, "split": 2, "result": "float32"}),
        ("float32", {"exchanged": 1, "cluster": "2x1", "result": "bfloat16"}),
    ],
)
def test_any_order_of_copies_and_products(element: str, given: dict[str, Any]) -> None:
    order = ("late", int(RANDOM.integers(2**40)))[int(RANDOM.integers(2))]
    check((300, 280, 200), element, "nt", order=order, **given)


@pytest.mark.few(1)
@pytest.mark.parametrize("element", TYPES)
def test_groups_of_rows(element: str) -> None:
    """With a matrix each that has to be copied first in tf32, and one group of none."""
    a, b = framed((90, 72), element, True, 0, -1), framed((3, 72, 40), element, True, 0, -1)
    plan = tw.plan(90, 40, 72, dtype=element, groups=3, arithmetic=ARITHMETIC[element], gpu="h200")
    assert plan.kernel == "wgmma"
    out = tw.grouped_matmul(a, b, np.array([50, 50, 90], np.int32), plan=plan, device="emulator")
    for rows, which in ((slice(50), 0), (slice(50, 90), 2)):
        assert compare(out[rows], a[rows], b[which], arithmetic=ARITHMETIC[element]).ok


def test_the_copy_engine_rounds_to_tf32_to_the_nearest() -> None:
    """One product of each sum is not zero, so the result is that of the rounded operands, bit by bit."""
    a, b = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 24)))
    for values in (a, b):
        bits = values.view(np.uint32)
        bits[..., ::3] = bits[..., ::3] & np.uint32(0xFFFFE000) | np.uint32(0x1000)  # half a step, up or down
    a[np.arange(40) != np.arange(24)[:, None]] = 0

    def rounded(x: Array) -> Array:
        bits = x.view(np.uint32)
        up = np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))  # to the even one of two
        found: Array = (bits + up & np.uint32(0xFFFFE000)).view(np.float32)
        return found

    out = np.empty((24, 24), np.float32)
    multiply(a, b, out, tw.device("emulator"), Choice(specs=(SPEC,), arithmetic="tf32"))
    assert (out == np.diag(rounded(a[:, :24]))[:, None] * rounded(b[:24])).all()


@pytest.mark.parametrize("element", TYPES)
def test_what_is_not_finite_comes_through(element: str) -> None:
    a, b = framed((24, 40), element, True, 0, 0), framed((40, 24), element, True, 0, 0)
    a[3, 4], a[5, 6], b[7, 8] = np.inf, np.nan, -np.inf
    if element == "float32":
        a[8, 9], a[9, 9] = np.array([0x7FFFFFFF, 0x7F800001], np.uint32).view(
            np.float32
        )  # NaN by the last bits
    out = np.empty((24, 24), element)
    multiply(a, b, out, tw.device("emulator"), Choice(specs=(SPEC,), arithmetic=ARITHMETIC[element]))
    assert compare(out, a, b, arithmetic=ARITHMETIC[element]).ok


@pytest.mark.few(1)
@pytest.mark.parametrize("kernel", ["wgmma", "mma"])
def test_sums_are_kept_in_float16(kernel: str) -> None:
    """Of 2048 the next float16 is 2050; the instructions that read 1 begin from there."""
    a, b = np.ones((8, 64), np.float16), np.zeros((64, 8), np.float16)
    b[0], b[[20, 40]] = 2048, 1
    out = np.empty((8, 8), np.float32)
    multiply(a, b, out, tw.device("emulator"), Choice(specs=(KERNELS[kernel],), arithmetic="f16"))
    assert (out == 2048).all() and not compare(out, a, b).ok and compare(out, a, b, arithmetic="f16").ok


def test_sums_beyond_the_largest_float16_are_infinite() -> None:
    a = np.full((64, 64), 64, np.float16)
    out = tw.matmul(a, -a, arithmetic="f16", device="emulator")
    assert out.dtype == np.float16 and (out == -np.inf).all() and compare(out, a, -a, arithmetic="f16").ok


def test_a_plan_with_sums_in_float16_is_kept_and_followed(tmp_path: Any) -> None:
    made = tw.plan(24, 24, 90, dtype="float16", arithmetic="f16", gpu="h200")
    assert made.kernel == "wgmma" and "in f16, sums in float16" in str(made)
    made.save(tmp_path / "plan.json")
    loaded = tw.Plan.load(tmp_path / "plan.json")
    assert loaded == made and tw.check(loaded) == []
    a, b = framed((24, 90), "float16", True, 0, 0), framed((90, 24), "float16", True, 0, 0)
    found = tw.matmul(a, b, plan=loaded, device="emulator")
    assert not compare(found, a, b).ok and compare(found, a, b, arithmetic="f16").ok


@pytest.mark.few(1)
@pytest.mark.parametrize("element", TYPES)
def test_the_checker_finds_nothing_wrong(element: str) -> None:
    """In one of the schedules each time."""
    schedule = ({"split": 2}, {"parts": 2}, {"cluster": "2x1", "tiles": 2})[int(RANDOM.integers(3))]
    plan = plan_of((136, 72, 264), element, partition(64, 64, element), **schedule)
    assert tw.check(plan, "late") == [], schedule


@pytest.mark.few(1)
@pytest.mark.parametrize("element", TYPES)
def test_no_bank_conflicts(element: str) -> None:
    """Of what threads put into boxes for the engine: words, or sums that share registers."""
    plan = plan_of((64, 64, 64), element, partition(64, 64, element))
    assert tw.profile(plan)["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == 0


def plan_of(size: Size, element: str, partition: str, **given: Any) -> tw.Plan:
    """The kernel's plan of these settings for operands that lie along K."""
    operands = operands_of(
        *size, dtype=element, result=given.get("result"), layout="nt", arithmetic=ARITHMETIC[element]
    )
    given = {"a_in_rows": 1, "b_in_rows": 0, "partition": partition, **given}
    settings = SPEC.complete({**SPEC.for_types(operands), **given})
    SPEC.check(operands, settings)
    return SPEC.plan(operands, "h200", settings)


@pytest.mark.few(2)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("pingpong", [0, 1])
def test_the_machine_code_keeps_its_sums_in_registers(element: str, pingpong: int) -> None:
    """No spills, and no warning that products wait for one another, in any tile: another one each time."""
    in_pairs = element == "float16"
    tiles = [
        one for one in PARTITIONS_OF[element].values()
        if not pingpong or (one.n > 64 and Shape(one, True, in_pairs=in_pairs).sum_registers <= MOST_SUMS)
    ]  # fmt: skip
    tile = tiles[int(RANDOM.integers(len(tiles)))]
    name = partition(tile.m, tile.n, element)
    exchanged = not pingpong and (tile.m, tile.n) not in UNEXCHANGED
    built = SPEC.kernel(
        "sm_90a", element=element, accumulate="float16" if in_pairs else "float32", partition=name,
        pingpong=pingpong, exchanged=int(exchanged), b_in_rows=0,
    ).build()  # fmt: skip
    resources = built.entries["wgmma_gemm"].resources
    assert resources is not None
    assert resources.spill_store_bytes == resources.spill_load_bytes == 0, name
    assert not built.warnings, name


@pytest.mark.parametrize(
    ("element", "arithmetic", "given", "message"),
    [
        (
            "float32",
            "tf32",
            {"partition": "128x256x64"},
            "partition must be 32 deep for float32, such as 128x256x32",
        ),
        ("float16", "f16", {"partition": "128x256x32"}, "partition must be 64 deep for float16"),
        ("float16", "f16", {"accumulate": "float32"}, "accumulate must be float16 with arithmetic 'f16'"),
        ("float16", None, {"accumulate": "float16"}, "accumulate must be float32 with arithmetic None"),
        ("float32", None, {}, "arithmetic must be 'tf32' for wgmma with float32"),
        ("float32", "tf32", {"b_in_rows": 1}, "b_in_rows must be 0 for float32"),
        ("float32", "tf32", {"a_in_rows": 0}, "a_in_rows must be as the operand lies"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    element: str, arithmetic: str | None, given: dict[str, Any], message: str
) -> None:
    operands = operands_of(64, 64, 64, dtype=element, layout="nt", arithmetic=arithmetic)
    with pytest.raises(ArgumentError, match=message):
        SPEC.check(operands, SPEC.complete({**SPEC.for_types(operands), "b_in_rows": 0, **given}))


# Rows and columns of a tile, and how: of two warpgroups, of one, of two instructions each; few columns.
ACROSS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (128, 64, {"tiles": 2}), (64, 64, {"split": 2}), (256, 80, {"cluster": "2x1"}), (128, 128, {"tiles": 3}),
    (64, 80, {}), (64, 16, {"parts": 2}), (128, 8, {}), (64, 256, {"cluster": "2x1", "tiles": 2}),
)  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize(("rows", "columns", "how"), ACROSS)
def test_an_operand_across_k_goes_by_way_of_registers(rows: int, columns: int, how: dict[str, Any]) -> None:
    """A, or B after an exchange, and nothing is copied. K ends after one step, within an even or an odd one, or at once."""
    for exchanged, layout in enumerate(("tt", "nn")):
        k = (0, 4, 32, 72, 100, 160)[int(RANDOM.integers(6))]
        sizes = rows + 4 * int(RANDOM.integers(1, 18)), columns + 4 * int(RANDOM.integers(1, 7))
        size = (sizes[exchanged], sizes[1 - exchanged], k)
        stack = () if "parts" in how else ((), (2, 2))[int(RANDOM.integers(2))]
        order = ("eager", "late", int(RANDOM.integers(2**40)))[int(RANDOM.integers(3))]
        fused = columns < 256 and bool(RANDOM.integers(2))
        given = {
            **how,
            "partition": f"{rows}x{columns}x32",
            "exchanged": exchanged,
            "a_in_rows": 0,
            "b_in_rows": 0,
            "result": ("float32", "bfloat16")[int(RANDOM.integers(2))],
        }
        check(size, "float32", layout, stack, order=order, fused=fused, copy=False, **given)


@pytest.mark.few(2)
@pytest.mark.parametrize("how", [{}, {"split": 2}, {"parts": 2}, {"fused": 1}])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_rows_across_k_are_read_and_sums_put_without_conflicts(layout: str, how: dict[str, Any]) -> None:
    """Boxes of results, sums for the blocks of a cluster or for other parts of K, and sums for an epilogue with an array."""
    exchanged, settings = int(layout == "nn"), {key: value for key, value in how.items() if key != "fused"}
    size = (64, 128, 96) if exchanged else (128, 64, 96)
    full = np.zeros(size[:2], np.float32)
    operands = operands_of(
        *size,
        layout=layout,
        arithmetic="tf32",
        epilogue=tw.epilogue("acc + full", full=full) if "fused" in how else None,
    )
    given = {"a_in_rows": 0, "b_in_rows": 0, "exchanged": exchanged, "partition": "128x64x32", **settings}
    found = tw.profile(SPEC.plan(operands, "h200", SPEC.complete({**SPEC.for_types(operands), **given})))
    assert found["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == 0
    assert found["smsp__inst_executed_op_shared_ld.sum"] > 0


@pytest.mark.few(2)
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_the_machine_code_keeps_rows_across_k_in_registers(layout: str) -> None:
    """No spills, and no warning that products wait for one another, in any plan: of large products and of small ones."""
    for size in (
        (8192, 8192, 8192),
        (3072, 3072, 3072),
        (64, 4096, 8192),
        (4096, 2112, 7168),
        (300, 200, 1000),
    ):
        operands = operands_of(*size, layout=layout, arithmetic="tf32")
        if RANDOM.integers(2):
            row, full = np.zeros(size[1], np.float32), np.zeros(size[:2], np.float32)
            call = tw.epilogue("gelu(acc + row) + full", row=row, full=full)
            operands = operands_of(*size, layout=layout, arithmetic="tf32", epilogue=call)
        found, _ = list_candidates(operands, target_of("h200"), specs=[SPEC], copy=False)
        one = found[int(RANDOM.integers(len(found)))]
        assert one.settings["a_in_rows"] == 0 and not one.copies
        built = SPEC.code(one.settings, operands.epilogue).kernel("wgmma_gemm", "sm_90a").build()
        resources = built.entries["wgmma_gemm"].resources
        assert resources is not None
        assert resources.spill_store_bytes == resources.spill_load_bytes == 0, (size, one.settings)
        assert not built.warnings, (size, one.settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"partition": "192x64x32"},
            "partition must be a tile of one or two warpgroups where rows lie across k, not '192x64x32'",
        ),
        ({"partition": "256x160x32"}, "partition must be a smaller tile for float32, not '256x160x32'"),
        ({"pingpong": 1}, "pingpong must be 0 for float32 across k, not 1"),
        ({"exchanged": 1}, "a_in_rows must be as the operand lies"),
    ],
)
def test_tiles_whose_rows_across_k_find_no_registers_are_refused(given: dict[str, Any], message: str) -> None:
    operands = operands_of(256, 256, 64, layout="tt", arithmetic="tf32")
    settings = {**SPEC.for_types(operands), "partition": "128x128x32", "a_in_rows": 0, "b_in_rows": 0}
    SPEC.check(operands, SPEC.complete(settings))
    with pytest.raises(ArgumentError, match=message):
        SPEC.check(operands, SPEC.complete({**settings, **given}))


def test_a_refusal_names_the_setting_that_it_is_about_and_its_value() -> None:
    """Of random tiles, clusters and switches for operands of each kind."""
    generator, told = np.random.default_rng(7), set()
    products: tuple[dict[str, Any], ...] = (
        {"dtype": "bfloat16", "layout": "nt"},
        {"dtype": "bfloat16", "layout": "tn"},
        {"dtype": "int8", "layout": "nt"},
        {"dtype": "bfloat16", "b_dtype": "int8", "layout": "nt"},
        {"layout": "tt", "arithmetic": "tf32"},
    )
    for product in products:
        operands = operands_of(256, 256, 256, **product)
        lie = {"a_in_rows": int(product["layout"][0] == "n"), "b_in_rows": int(product["layout"][1] == "n")}
        kind = {"widened": product.get("b_dtype", "none"), **SPEC.for_types(operands), **lie}
        depths = {"float32": "x32", "int8": "x128"}
        depth = depths.get(operands.element, "x64")
        names = [name for name in SPEC.settings["partition"] if str(name).endswith(depth)]
        choices = {
            "partition": names,
            **{name: SPEC.settings[name] for name in ("cluster", "pingpong", "split")},
        }
        for _ in range(300):
            drawn = {name: some[int(generator.integers(len(some)))] for name, some in choices.items()}
            settings = SPEC.complete({**kind, **drawn})
            try:
                SPEC.check(operands, settings)
            except ArgumentError as error:
                told.add((error.argument, error.value, settings[error.argument]))
    assert all(value == asked for _, value, asked in told)
    assert {"partition", "cluster", "pingpong", "split"} <= {argument for argument, _, _ in told}


def test_8_bits_are_read_along_k_alone() -> None:
    """Also a single row, which lies in any way."""
    operands = operands_of(1, 64, 128, dtype="int8", layout="tt")
    settings = {**SPEC.for_types(operands), "partition": "64x64x128", "b_in_rows": 0}
    SPEC.check(operands, SPEC.complete(settings))
    with pytest.raises(ArgumentError, match="a_in_rows must be 1 for int8"):
        SPEC.check(operands, SPEC.complete({**settings, "a_in_rows": 0}))


def test_two_operands_across_k_are_refused_without_a_copy() -> None:
    a, b = framed((64, 64), "float32", False, 0, 0), framed((64, 64), "float32", True, 0, 0)
    out = np.empty((64, 64), np.float32)
    with pytest.raises(ArgumentError, match=r"a and b must not both lie across k for wgmma, not .*"):
        multiply(a, b, out, tw.device("emulator"), Choice(specs=(SPEC,), arithmetic="tf32", copy=False))


@pytest.mark.few(3)
@pytest.mark.parametrize("element", ["bfloat16", "float16", "float32", "int8"])
@pytest.mark.parametrize("columns", [64, 80, 128])
def test_results_of_32_bits_lie_across_in_boxes(element: str, columns: int) -> None:
    """Rows of C begin at multiples of 16 bytes or anywhere; what is the same along lines is added in the boxes."""
    deep = {"int8": 128, "float32": 32}.get(element, 64)
    m, n, k = columns + 4 * int(RANDOM.integers(1, 12)), 64 + int(RANDOM.integers(1, 5)) * 4, 2 * deep
    m, n = (m, n) if RANDOM.integers(2) else (m + 1, n - 1)
    a, b = framed((m, k), element, True, 0, 0), framed((k, n), element, False, 0, 0)
    result = "int32" if element == "int8" else "float32"
    out = marked((m, n), result)
    row, fused = RANDOM.standard_normal(n).astype(np.float32), element != "int8" and bool(RANDOM.integers(2))
    epilogue = tw.epilogue("max(acc + row, 0)", row=row) if fused else None
    arithmetic = "tf32" if element == "float32" else None
    given = (("partition", f"64x{columns}x{deep}"), ("exchanged", 1), ("result", result))
    choice = Choice(specs=(SPEC,), settings=given, arithmetic=arithmetic)
    multiply(a, b, out, tw.device("emulator", order="late"), choice, *([epilogue] if epilogue else []))
    if element == "int8":
        assert np.array_equal(out, a.astype(np.int64) @ b.astype(np.int64))
    else:
        assert compare(out, a, b, terms=80, epilogue=epilogue, arithmetic=arithmetic).ok
