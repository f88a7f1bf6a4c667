"""Which kernels are compiled, with which settings, for which targets: plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

__all__ = ["ARCHS", "CASES", "Case", "Setting", "matmul_case"]

ARCHS = (75, 80, 90)

Setting = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel with its settings. ``signature`` has Triton's type of every argument, in order; what is
    ``aligned`` is a multiple of 16, be it an address or a number; ``rows`` say what to run it on."""

    name: str
    module: str
    function: str
    signature: Mapping[str, str]
    constants: Mapping[str, Setting]
    aligned: tuple[str, ...]
    archs: tuple[int, ...] = ARCHS
    options: Mapping[str, Setting] = field(default_factory=dict)
    size: tuple[int, ...] = ()


def matmul_case(
    name: str,
    type_: str,
    tile: tuple[int, int, int],
    warps: int,
    stages: int,
    size: tuple[int, ...],
    archs: tuple[int, ...] = ARCHS,
    *,
    function: str = "matmul",
    out: str = "fp32",
    precision: str = "tf32",
    turned: str = "",
    **more: Setting,
) -> Case:
    """``size`` is m × n × k; where it is a multiple of the tile, nothing is masked. What is ``turned`` lies by
    columns."""
    bm, bn, bk = tile
    even = all(length % step == 0 for length, step in zip(size, tile, strict=True))
    signature = {"a": f"*{type_}", "b": f"*{type_}", "c": f"*{out}"}
    signature |= dict.fromkeys(("M", "N", "K", "lda", "ldb", "ldc"), "i32")
    constants: dict[str, Setting] = {"BM": bm, "BN": bn, "BK": bk}
    if function == "matmul":
        constants |= {"AT": "a" in turned, "BT": "b" in turned}
        constants |= {"EVEN": even, "PRECISION": precision, "SUMS": "int32" if out == "i32" else "float32"}
    constants |= more
    aligned = ("a", "b", "c", "lda", "ldb", "ldc", *(("M", "N", "K") if even else ()))
    options: dict[str, Setting] = {"num_warps": warps, "num_stages": stages}
    return Case(name, "matmuls", function, signature, constants, aligned, archs, options, size)


def _matmuls() -> Iterator[Case]:
    new = (80, 90)
    yield matmul_case("matmul_f16", "fp16", (64, 64, 32), 4, 3, (128, 64, 128))
    yield matmul_case("matmul_f16_wide", "fp16", (128, 128, 32), 8, 3, (128, 128, 160), new)
    yield matmul_case("matmul_f16_masked", "fp16", (32, 64, 32), 4, 2, (50, 70, 45), out="fp16")
    yield matmul_case("matmul_f16_one_stage", "fp16", (32, 32, 32), 2, 1, (64, 32, 96))
    yield matmul_case("matmul_f16_one_warp", "fp16", (16, 16, 16), 1, 4, (32, 16, 112), new)
    yield matmul_case("matmul_f16_turned_b", "fp16", (64, 64, 32), 4, 3, (64, 128, 160), new, turned="b")
    yield matmul_case("matmul_f16_turned_a", "fp16", (64, 32, 32), 4, 3, (64, 64, 96), new, turned="a")
    yield matmul_case("matmul_bf16_turned", "bf16", (64, 64, 64), 4, 3, (60, 70, 190), new, turned="ab")
    yield matmul_case("matmul_tf32_turned", "fp32", (64, 32, 32), 4, 3, (64, 32, 160), new, turned="ab")
    yield matmul_case("matmul_i8_turned", "i8", (64, 64, 64), 4, 3, (64, 64, 192), new, out="i32", turned="b")
    yield matmul_case("matmul_f8e4_turned", "fp8e4nv", (64, 64, 64), 4, 3, (64, 64, 192), (90,), turned="b")
    yield matmul_case("matmul_bf16", "bf16", (64, 32, 64), 4, 2, (64, 64, 256), new, out="bf16")
    yield matmul_case("matmul_tf32", "fp32", (64, 64, 32), 4, 3, (64, 64, 128), new)
    yield matmul_case("matmul_tf32x3", "fp32", (32, 32, 32), 4, 2, (32, 32, 64), new, precision="tf32x3")
    yield matmul_case("matmul_f32", "fp32", (32, 32, 16), 4, 2, (40, 50, 60), precision="ieee")
    yield matmul_case("matmul_i8", "i8", (64, 32, 64), 4, 3, (64, 32, 256), new, out="i32")
    yield matmul_case("matmul_f8e5", "fp8e5", (64, 64, 64), 4, 3, (64, 64, 256), (80, 90))
    yield matmul_case("matmul_f8e4", "fp8e4nv", (64, 64, 64), 4, 3, (64, 64, 256), (89, 90))


def _persistent_and_described() -> Iterator[Case]:
    new, newest = (80, 90), (90,)
    yield matmul_case(
        "persistent", "fp16", (32, 32, 32), 4, 3, (70, 100, 64), new, function="matmul_persistent", FLAT=False
    )
    yield matmul_case(
        "persistent_flat",
        "fp16",
        (64, 32, 32),
        4,
        3,
        (128, 70, 96),
        new,
        function="matmul_persistent",
        FLAT=True,
    )
    yield matmul_case(
        "described", "fp16", (64, 64, 32), 4, 3, (100, 72, 96), newest, function="matmul_described"
    )
    yield matmul_case(
        "persistent_described",
        "fp16",
        (64, 64, 64),
        4,
        3,
        (128, 168, 320),
        newest,
        function="matmul_persistent_described",
    )
    clusters = matmul_case("matmul_f16_clusters", "fp16", (128, 128, 64), 4, 3, (128, 256, 192), newest)
    yield replace(clusters, options={**clusters.options, "num_ctas": 2})
    for name, wide, specialised in (("host_described", 32, False), ("host_specialised", 64, True)):
        yield Case(
            name,
            "matmuls",
            "matmul_by_host_descriptors",
            {
                "a": f"tensordesc<fp16[64,{wide}]>",
                "b": f"tensordesc<fp16[{wide},64]>",
                "c": "tensordesc<fp32[64,64]>",
                "K": "i32",
            },
            {"BM": 64, "BN": 64, "BK": wide, "SPECIALISED": specialised},
            (),
            newest,
            {"num_warps": 4, "num_stages": 3},
            (100, 72, 320),
        )
    yield matmul_case(
        "specialised", "fp16", (64, 64, 64), 4, 3, (128, 72, 320), newest, function="matmul_specialised"
    )


def _rows() -> Iterator[Case]:
    yield Case(
        "softmax",
        "rows",
        "softmax",
        {"x": "*fp32", "out": "*fp32", "columns": "i32", "stride": "i32"},
        {"BLOCK": 512},
        ("x", "out", "stride"),
        size=(5, 300),
    )
    yield Case(
        "softmax_of_long_rows",
        "rows",
        "softmax_of_long_rows",
        {"x": "*fp16", "out": "*fp16", "columns": "i32", "stride": "i32"},
        {"BLOCK": 256},
        ("x", "out", "stride"),
        size=(3, 1000),
    )
    floats = {"x": "*fp32", "weight": "*fp32", "bias": "*fp32", "out": "*fp32", "means": "*fp32"}
    yield Case(
        "layer_norm",
        "rows",
        "layer_norm",
        {**floats, "rates": "*fp32", "columns": "i32", "eps": "fp32"},
        {"BLOCK": 512},
        ("x", "weight", "bias", "out"),
        size=(4, 300),
    )
    back = dict.fromkeys(("x", "weight", "means", "rates", "grad", "to_x", "to_weight", "to_bias"), "*fp32")
    yield Case(
        "layer_norm_back",
        "rows",
        "layer_norm_back",
        {**back, "columns": "i32"},
        {"BLOCK": 256},
        ("x", "weight", "grad", "to_x"),
        size=(4, 200),
    )


def _attention(
    name: str,
    type_: str,
    causal: bool,
    archs: tuple[int, ...],
    precision: str,
    step: int,
    size: tuple[int, int, int],
) -> Iterator[Case]:
    """Forward and both ways back; ``size`` is heads × length × width."""
    settings: dict[str, Setting] = {"D": size[2], "BQ": step, "BK": step}
    settings |= {"CAUSAL": causal, "PRECISION": precision}
    numbers = {"length": "i32", "scale": "fp32"}
    inputs = dict.fromkeys(("q", "k", "v"), f"*{type_}")
    given = {**inputs, "out": f"*{type_}", "grad": f"*{type_}", "levels": "*fp32"}
    options: dict[str, Setting] = {"num_warps": 4, "num_stages": 2}
    for function, signature in (
        ("attention", {**inputs, "out": f"*{type_}", "levels": "*fp32", **numbers}),
        ("attention_back_keys", {**given, "to_k": "*fp32", "to_v": "*fp32", **numbers}),
        ("attention_back_queries", {**given, "to_q": "*fp32", **numbers}),
    ):
        aligned = tuple(argument for argument, kind in signature.items() if kind[0] == "*")
        full = function.replace("attention", name)
        yield Case(full, "rows", function, signature, settings, aligned, archs, options, size)


CASES = (
    *_matmuls(),
    *_persistent_and_described(),
    *_rows(),
    *_attention("attention_f16", "fp16", True, (75, 80), "tf32", 32, (2, 72, 32)),
    *_attention("attention_f16_wide", "fp16", False, (80, 90), "tf32", 64, (1, 130, 64)),
    *_attention("attention_f32", "fp32", False, (80,), "ieee", 32, (2, 72, 32)),
)
