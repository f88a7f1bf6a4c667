"""``tilewise bench toolchain``: what is compiled, how often, beside an empty cache, and the table of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tilewise.bench import toolchain
from tilewise.bench.plan_compiling import PRODUCTS, PlannedProduct, time_plan
from tilewise.bench.toolchain import ARCHS, bench_toolchain, markdown
from tilewise.errors import ArgumentError
from tilewise.toolchain import cache, nvrtc


class Clock:
    """Milliseconds that pass by what is compiled: 50 anew, or 3 from the cache of a directory that was used before."""

    def __init__(self) -> None:
        self.now, self.known = 0.0, set[Any]()
        self.compiled: list[tuple[str, str, bool]] = []

    def rung(self, name: str, archs: tuple[str, ...]) -> Any:
        def kernel(arch: str) -> Any:
            place = cache.default().directory, name, arch
            assert place[0] is not None
            is_known = place in self.known
            self.known.add(place)
            self.compiled.append((name, arch, is_known))
            self.now += 3 if is_known else 50
            binary = SimpleNamespace(ptx="one\ntwo\nthree", cubin=b"1234")
            return SimpleNamespace(build=lambda: binary)

        return SimpleNamespace(name=name, kernel=kernel, runs_on=lambda arch: arch in archs)


@pytest.mark.parametrize("repeats", [1, 3])
def test_each_rung_is_compiled_anew_and_from_the_cache_for_each_arch_that_it_runs_on(
    repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, own = Clock(), cache.default().directory
    imports = iter(range(100, 200))
    monkeypatch.setattr(toolchain, "_import_ms", lambda: float(next(imports)))
    monkeypatch.setattr(
        toolchain,
        "time",
        SimpleNamespace(perf_counter=lambda: clock.now / 1e3, perf_counter_ns=lambda: clock.now * 1e6),
    )
    rungs = {"a": clock.rung("a", ("sm_75", "sm_80")), "b": clock.rung("b", ("sm_80",))}
    seen: list[tuple[int, int, str]] = []
    found = bench_toolchain(
        ("sm_75", "sm_80"), repeats, cast(Any, rungs), lambda *done: seen.append(done), ()
    )
    work = [("a", "sm_75"), ("a", "sm_80"), ("b", "sm_80")]
    assert seen == [(0, 4, "import tilewise")] + [
        (i + 1, 4, f"{rung} for {arch}") for i, (rung, arch) in enumerate(work)
    ]
    assert found.import_ms == 100 + repeats // 2 and found.repeats == repeats
    assert [(row.rung, row.arch) for row in found.rungs] == work
    for row in found.rungs:
        assert (row.cold_ms, row.cached_ms) == pytest.approx((50, 3))
        assert (row.ptx_lines, row.cubin_bytes) == (3, 4)
    assert clock.compiled[0] == ("a", "sm_75", False), "what comes with the first one is not timed"
    for one in work:
        times = [is_known for *which, is_known in clock.compiled[1:] if tuple(which) == one]
        assert times == [False] * (repeats + 1) + [True] * repeats
    assert cache.default().directory == own


def test_every_product_is_planned_and_has_a_name_of_its_own() -> None:
    assert len({(product.name, product.gpu) for product in PRODUCTS}) == len(PRODUCTS)
    assert {product.arch for product in PRODUCTS} <= {*ARCHS}, "or it is never timed"
    fused = next(product for product in PRODUCTS if product.fused)
    assert fused.name == "bfloat16 nn 4096³, fused" and fused.epilogue() is not None


def test_a_plan_is_compiled_anew_each_time_with_what_comes_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of its parts are added up by a kernel of their own, which is compiled meanwhile."""
    compiled: list[str] = []
    compile_program = nvrtc.compile_program

    def noted(source: str, filename: str, *rest: Any) -> nvrtc.Output:
        compiled.append(filename)
        return compile_program(source, filename, *rest)

    monkeypatch.setattr(nvrtc, "compile_program", noted)
    found = time_plan(PlannedProduct("a100", "float16", (64, 64, 4096)), 2, toolchain._empty_cache)
    assert found.kernel == "mma" and found.cold_ms > 10
    assert sorted(compiled) == ["add_parts.cu"] * 2 + ["mma.cu"] * 2


def test_what_cannot_be_timed_is_refused() -> None:
    for repeats in (0, -1):
        with pytest.raises(ArgumentError, match=r"^repeats must be at least 1"):
            bench_toolchain(repeats=repeats)


def test_a_table_marks_what_is_beyond_its_budget() -> None:
    """Of the large rungs another one."""
    budgets = {
        "cold_ms": 100.0, "cold_large_ms": 300.0, "cold_plan_ms": 400.0, "cached_ms": 5.0, "import_ms": 20.0,
    }  # fmt: skip
    rows = [
        ("04_tiled", 100.0, 5.0),
        ("04_tiled", 100.1, 5.1),
        ("12_multistage", 299.0, 1.0),
        ("12_multistage", 301.0, 9.0),
    ]
    result = {
        "date": "2000-01-01", "repeats": 7, "machine": {"cpu": "a CPU", "cores": 4}, "versions": {"NVRTC": "13.9"},
        "budgets": budgets, "import_ms": 20.04,
        "rungs": [{"rung": rung, "arch": "sm_80", "cold_ms": cold, "cached_ms": kept} for rung, cold, kept in rows],
        "plans": [{"product": f"{cold:g}", "gpu": "t4", "kernel": "mma", "cold_ms": cold} for cold in (400.0, 400.1)],
    }  # fmt: skip
    *result_lines, _, last = markdown(result).splitlines()
    assert result_lines[-5:] == [
        "",
        "| a plan of | GPU | kernel | cold (≤ 400) |",
        "| --- | --- | --- | ---: |",
        "| 400 | t4 | mma | 400.0 |",
        "| 400.1 | t4 | mma | **400.1** |",
    ]
    del result["plans"]  # as older files have none
    head, _, names, rule, *lines, _, last = markdown(result).splitlines()
    assert head == (
        "Measured on 2000-01-01 on a CPU, 4 cores, with NVRTC 13.9: medians of 7, in milliseconds; **bold** is over budget."
    )
    assert names == "| rung | arch | cold (≤ 100; rungs 12 and 13 ≤ 300) | from the cache (≤ 5) |"
    assert rule == "| --- | --- | ---: | ---: |" and last == "`import tilewise` takes **20.0** ms."
    assert lines == [
        "| 04_tiled | sm_80 | 100.0 | 5.0 |", "| 04_tiled | sm_80 | **100.1** | **5.1** |",
        "| 12_multistage | sm_80 | 299.0 | 1.0 |", "| 12_multistage | sm_80 | **301.0** | **9.0** |",
    ]  # fmt: skip
