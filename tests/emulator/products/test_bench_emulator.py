"""The emulator's benchmark: it times nothing that is wrong, and says what it did not measure."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from tilewise.bench import emulator, rivals
from tilewise.bench.emulator import FULL, QUICK, Sizes, bench_emulator, markdown
from tilewise.bench.foreign import TritonProduct
from tilewise.bench.measurement import COLUMNS, Measurement, cells
from tilewise.bench.product import Product, WrongResult
from tilewise.bench.rivals import ONE_THREAD, Rival, blas_name
from tilewise.cli import commands
from tilewise.cli.main import main
from tilewise.devices import device
from tilewise.errors import ArgumentError, ToolError
from tilewise.kernels import RUNGS as SPECS

ROOT = Path(__file__).parents[3]
TINY = Sizes(128, 48, 16)
RUNGS = {name: SPECS[name] for name in ("02_one_block", "03_simple")}
EMULATOR = device("emulator", threads=1)
WORK = [
    "08_register_tiled", "09_warp_tiled", "04_tiled", "10_turing_tensor_core", "12_multistage",
    "13_warp_specialised", "triton", "threads", "simulator", "launch", "memory",
]  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """One measurement of very little."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulator, "_LAUNCHES", 5)
        patch.setattr(emulator, "_SHORT", 2)
        patch.setattr(emulator, "_LINES", 300)
        return bench_emulator(2, TINY, RUNGS).to_dict()


def row(found: dict[str, Any], name: str) -> Any:
    return next(item for item in found["figures"] if item["name"] == name)


def test_every_part_has_its_figure_with_all_samples(found: dict[str, Any]) -> None:
    compiled = [f"{kind} {name}" for name in RUNGS for kind in ("compile", "compiled")]
    assert [item["name"] for item in found["figures"]] == WORK + compiled
    for item in found["figures"]:
        if item["figure"] is None:
            assert (item["verdict"], bool(item["note"])) == ("not measured", True), item
            continue
        assert item["figure"]["samples"], item
        assert all(value > 0 for value in item["figure"]["samples"]), item
        assert item["figure"]["least"] <= item["figure"]["median"] <= item["figure"]["most"]
    assert found["load"] == list(found["load"])
    assert found["machine"]["cores"] > 0
    assert found["versions"]["llvmlite"]
    assert found["quick"]  # sizes that the budgets are not for


def test_each_row_has_its_unit_and_its_budget(found: dict[str, Any]) -> None:
    """As documents that are written from results of different days hold them against one another."""
    beside = {"08_register_tiled": (20, 40), "09_warp_tiled": (20, 40), "04_tiled": (4, None),
              "10_turing_tensor_core": (15, None), "12_multistage": (15, None), "13_warp_specialised": (20, None),
              "triton": (15, None)}  # fmt: skip
    usual: dict[str, Any] = {"least": None, "most": None, "aim": None}
    expected = {
        **{name: ("GFLOP/s", "%", {**usual, "least": least, "aim": aim}) for name, (least, aim) in beside.items()},
        "launch": ("µs", "", {**usual, "most": 150}), "memory": ("MiB", "", {**usual, "most": 64}),
        "compile 02_one_block": ("s", "s per 300 lines", {**usual, "most": 2}),
        "compiled 02_one_block": ("ms", "", {**usual, "most": 50}),
    }  # fmt: skip
    for name, (unit, ratio_unit, budget) in expected.items():
        one = row(found, name)
        if one["figure"] is not None:
            assert (one["unit"], one["ratio_unit"], one["budget"]) == (unit, ratio_unit, budget), name
            assert (one["verdict"] == "not judged") is (name in beside or name == "memory")


class Timed:
    """A product whose rates are given, the n-th made having the n-th."""

    flops = 6_000_000_000

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given: Any = (given, named)
        self.checked = 0
        Timed.made.append(self)

    made: ClassVar[list[Timed]] = []

    def check(self) -> None:
        self.checked += 1

    def rate(self) -> float:
        assert self.checked == 1
        return 3.0 if self is Timed.made[0] else 2.0


@pytest.mark.parametrize("budgeted", [True, False])
def test_rows_beside_another_have_both_rates_and_are_judged_at_full_size(
    monkeypatch: pytest.MonkeyPatch, budgeted: bool
) -> None:
    asked: list[Any] = []

    def rival(*given: Any) -> Any:
        asked.append(given)
        return contextlib.nullcontext(SimpleNamespace(seconds=lambda: 4.0, about={"numba": "0.1"}))

    monkeypatch.setattr(emulator, "Rival", rival)
    monkeypatch.setattr(emulator, "Product", Timed)
    monkeypatch.setattr(emulator, "blas_name", lambda: "a BLAS")
    monkeypatch.setattr(emulator, "device", lambda name, threads: (name, threads))
    monkeypatch.setattr("tilewise.bench.environment.machine", lambda: {"cores": 2})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: {"numba": True}[name])
    bench = emulator._Bench(5, Sizes(96, 48, 16, budgeted), 7)
    Timed.made.clear()
    (one,) = bench._rung_beside_blas("04_tiled", 48, "x")
    assert Timed.made[0].given == (((48, 48, 48), ("emulator", 1), 7, SPECS["04_tiled"]), {})
    assert one == Measurement(
        "04_tiled", "x", "GFLOP/s", (3.0,) * 5, "a BLAS, one thread", (1.5,) * 5, "%", least=4.0, judged=budgeted
    )  # fmt: skip
    Timed.made.clear()
    (one,) = bench._two_threads("x")
    assert one == Measurement(
        "threads", "x", "GFLOP/s", (3.0,) * 5, "one thread", (2.0,) * 5, "×", least=1.8, judged=budgeted
    )
    where = [(one.given[0][0], one.given[0][1], one.given[0][3]) for one in Timed.made]
    assert where == [((96, 96, 96), ("emulator", threads), SPECS["08_register_tiled"]) for threads in (2, 1)]
    Timed.made.clear()
    (one,) = bench._beside_simulator("x")
    against = "the CUDA simulator of numba 0.1"
    assert one == Measurement(
        "simulator", "x", "GFLOP/s", (3.0,) * 3, against, (1.5,) * 3, "×", least=20_000.0, judged=budgeted
    )
    simulated, named = Timed.made[0].given
    assert (simulated[0], simulated[3], named) == ((16, 16, 16), SPECS["04_tiled"], {"tile": 16})
    assert asked == [("blas", 48, ONE_THREAD), ("simulator", 16, {"NUMBA_ENABLE_CUDASIM": "1"})]
    monkeypatch.setattr("tilewise.bench.environment.machine", lambda: {"cores": 1})
    assert bench._two_threads("x") == [Measurement("threads", "x", note="this machine has one core")]


def test_each_part_multiplies_at_its_size() -> None:
    """Those of one tile a block at a smaller one: they take longest for the same product."""
    bench = emulator._Bench(1, Sizes(register_tiled=96, tiled=48, simulated=16), 1)
    tiled = [name for name in WORK if name[:2] in ("08", "09", "10", "12", "13")]
    assert {name: what for name, what, _ in bench.parts()} == {
        **{name: f"{name}, 96³, one thread" for name in tiled},
        "04_tiled": "04_tiled, 48³, one thread",
        "triton": "Triton's float16 matmul for sm_80, 96³, one thread",
        "threads": "08_register_tiled, 96³, two threads",
        "simulator": "04_tiled with tiles of 16, 16³, one thread",
        "launch": "launch of an empty kernel, one block",
        "memory": "memory of a launch beyond its arrays, 96³",
    }


def test_ratios_are_sample_by_sample(found: dict[str, Any]) -> None:
    speed = row(found, "08_register_tiled")
    assert blas_name() in speed["against"]
    assert len(speed["figure"]["samples"]) == len(speed["rival"]["samples"]) == 2
    for mine, theirs, ratio in zip(
        *(speed[key]["samples"] for key in ("figure", "rival", "ratio")), strict=True
    ):
        assert ratio == pytest.approx(mine / theirs * 100, rel=1e-3)
    assert speed["budget"] == {"least": 20, "most": None, "aim": 40}
    assert speed["verdict"] == "not judged"  # at this size


def test_what_does_not_depend_on_the_size_is_judged(found: dict[str, Any]) -> None:
    assert row(found, "launch")["verdict"] in ("ok", "over")
    assert row(found, "compiled 03_simple")["verdict"] in ("ok", "over")
    cold = row(found, "compile 02_one_block")
    assert cold["ratio_unit"] == "s per 300 lines"
    lines = int(cold["against"].split()[0].replace(",", ""))
    assert cold["ratio"]["median"] == pytest.approx(cold["figure"]["median"] * 300 / lines, rel=1e-3)
    assert cold["figure"]["median"] * 1e3 > row(found, "compiled 02_one_block")["figure"]["median"]


def test_tritons_matmul_stands_beside_a_library_too(found: dict[str, Any]) -> None:
    speed = row(found, "triton")
    assert blas_name() in speed["against"]
    assert speed["budget"] == {"least": 15, "most": None, "aim": None}


def test_tritons_matmul_is_of_as_many_operations_as_a_rungs() -> None:
    rung = Product((128, 128, 128), EMULATOR, 1, SPECS["04_tiled"])
    assert TritonProduct(128, EMULATOR, 1).flops == rung.flops == 4_194_304


def test_tritons_matmul_has_whole_tiles_alone() -> None:
    with pytest.raises(ArgumentError, match="size must be a multiple of 128, not 192"):
        TritonProduct(192, EMULATOR, 1)


def test_rows_of_one_thread_are_of_one() -> None:
    bench = emulator._Bench(1, TINY, 1)
    assert bench.one.title == "the emulator on 1 CPU thread"
    assert sum("one thread" in what for _, what, _ in bench.parts()) == 8


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
def test_memory_is_counted_in_bytes() -> None:
    before = rivals._status("VmRSS")
    held = np.ones(1 << 26, np.uint8)
    assert held.nbytes / 2 < rivals._status("VmRSS") - before < 2 * held.nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
@pytest.mark.parametrize(("repeats", "processes"), [(1, 1), (9, 3)])
def test_memory_is_in_mebibytes_of_three_processes_at_most(
    monkeypatch: pytest.MonkeyPatch, repeats: int, processes: int
) -> None:
    child = SimpleNamespace(about={"growth": 3 << 20})
    monkeypatch.setattr(emulator, "Rival", lambda *_: contextlib.nullcontext(child))
    [figure] = emulator._Bench(repeats, TINY, 1)._memory("x")
    assert (figure.unit, figure.samples) == ("MiB", (3,) * processes)


def test_without_numba_its_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    [figure] = emulator._Bench(1, TINY, 1)._beside_simulator("x")
    assert (figure.verdict, figure.missed) == ("not measured", False)
    assert "numba is not installed" in figure.note
    assert figure.note in cells(figure.to_dict())


# ── honesty ──


def test_a_wrong_result_is_never_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An emulator that writes nothing leaves the poison, and every product's figure is WRONG."""
    monkeypatch.setattr(Product, "launch", lambda self: None)
    monkeypatch.setattr(TritonProduct, "launch", lambda self: None)
    for kind in (Product, TritonProduct):
        monkeypatch.setattr(kind, "rate", lambda self: pytest.fail("timed"))
    monkeypatch.setattr(emulator._Bench, "_memory", lambda self, what: [])
    monkeypatch.setattr(commands, "QUICK", TINY)
    monkeypatch.setattr(commands, "bench_emulator", functools.partial(bench_emulator, rungs=RUNGS))
    assert main(["bench", "emulator", "--quick", "--repeats", "1"]) == 1
    out = capsys.readouterr().out
    assert (
        "WRONG: 08_register_tiled is wrong at 128×128×128: 16,384 of 16,384 elements outside the bound" in out
    )
    assert "WRONG: 03_simple is wrong" in out
    assert "WRONG: Triton's kernel is wrong at 128³: 16,384 of 16,384" in out


def test_a_check_writes_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier launch left right does not make a later one right."""
    made = Product((7, 8, 9), EMULATOR, 1, SPECS["03_simple"])
    made.check()
    monkeypatch.setattr(Product, "launch", lambda self: None)
    with pytest.raises(WrongResult, match="56 of 56 elements"):
        made.check()


@pytest.mark.parametrize("result", ["float16", "float32"])
def test_a_product_has_the_result_that_is_asked_for(result: str) -> None:
    made = Product((16, 16, 16), EMULATOR, 1, SPECS["10_turing_tensor_core"], result=result)
    assert (made.plan.problem.a, made.plan.problem.c, made.settings["result"]) == ("float16", result, result)


def test_a_rival_multiplies_and_ends() -> None:
    with Rival("blas", 32, ONE_THREAD) as rival:
        assert rival.about == {"blas": blas_name()}
        assert 0 < rival.seconds() < 10
    assert rival._process.returncode is not None
    with Rival("blas", 8, ONE_THREAD) as rival:
        rival._process.kill()
        with pytest.raises(ToolError, match="the blas process ended early: no message"):
            rival.seconds()
    with pytest.raises(ToolError, match=r"the no-such-thing process ended early: KeyError"):
        Rival("no-such-thing", 1)


def test_a_rival_that_is_wrong_says_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "matmul", lambda a, b, out: out)
    with pytest.raises(SystemExit, match="1,024 of 1,024 elements outside"):
        rivals._blas(32)


def test_what_cannot_be_measured_keeps_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ToolError("it is not here")

    for name in ("_rung_beside_blas", "_triton_beside_blas", "_two_threads", "_beside_simulator", "_launch"):
        monkeypatch.setattr(emulator._Bench, name, fail)
    monkeypatch.setattr(emulator._Bench, "_memory", fail)
    figures = bench_emulator(1, TINY, {}).figures
    assert [(one.name, one.verdict, one.note) for one in figures] == [
        (name, "not measured", "it is not here") for name in WORK
    ]


# ── verdicts ──


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Measurement("a", "a", "ms", (3.0, 1.0, 2.0), most=2), "ok"),
        (Measurement("a", "a", "ms", (3.0, 1.0, 2.0), most=1.9), "over"),
        (Measurement("a", "a", "ms", (9.0, 1.0, 1.0), most=2), "ok"),  # one slow sample of three
        (Measurement("a", "a", "ms", (1.0, 1.0), "b", (2.0, 4.0), "%", least=37.5), "ok"),
        (Measurement("a", "a", "ms", (1.0, 1.0), "b", (2.0, 4.0), "%", least=38), "under"),
        (Measurement("a", "a", "ms", (float("nan"),), most=1), "over"),
        (Measurement("a", "a", "ms", (float("nan"),), least=1), "under"),
        (Measurement("a", "a", "ms", (3.0,), most=2, judged=False), "not judged"),
        (Measurement("a", "a", "ms", (3.0,)), ""),
        (Measurement("a", "a", wrong=True, note="x"), "WRONG"),
        (Measurement("a", "a", note="x"), "not measured"),
    ],
)
def test_verdicts(figure: Measurement, verdict: str) -> None:
    assert figure.verdict == verdict
    assert figure.missed == (verdict in ("over", "under", "WRONG"))
    assert len(cells(figure.to_dict())) == len(COLUMNS)


def test_a_row_shows_the_spread_and_the_budget() -> None:
    figure = Measurement("a", "a", "GFLOP/s", (50.0, 60.0), "b", (200.0, 120.0), "%", least=20, aim=40)
    assert cells(figure.to_dict()) == [
        "a", "55 GFLOP/s (50–60)", "b: 160 GFLOP/s", "37.5% (25–50)", "≥ 20%, aim 40%", "ok",
    ]  # fmt: skip


# ── the command and the documentation ──


def test_the_command_writes_prints_and_never_fails_for_a_budget(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = Measurement("launch", "launch of an empty kernel", "µs", (900.0, 950.0), most=150)
    made = emulator.EmulatorFigures("2026-01-01", QUICK, 2, (1.5, 1.0, 0.5), (), (slow,))
    monkeypatch.setattr(commands, "bench_emulator", lambda repeats, sizes, progress: made)
    file = tmp_path / "figures.json"
    assert main(["bench", "emulator", "--quick", "--out", str(file)]) == 0
    out = capsys.readouterr().out
    assert "load average of 1.5" in out
    assert "925 µs (900–950)" in out
    assert "over" in out
    assert "1 not within budget" in out
    quick = "a quick run: the budgets are for larger sizes"
    assert quick in out
    made = replace(made, sizes=FULL)
    assert main(["bench", "emulator"]) == 0 and quick not in capsys.readouterr().out
    made = replace(made, sizes=QUICK)
    assert main(["bench", "emulator", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == json.loads(file.read_text(encoding="utf-8"))
    assert main(["bench", "emulator", "--markdown"]) == 0
    assert "| **over** |" in capsys.readouterr().out


def test_the_documented_figures_are_those_of_the_kept_result() -> None:
    kept = max(ROOT.glob("docs/results/emulator-*.json"), key=lambda path: path.name)
    result = json.loads(kept.read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "emulator-speed.md").read_text(encoding="utf-8")
    assert result["date"] in kept.name
    assert not result["quick"]
    assert {f"compile {name}" for name in SPECS} <= {item["name"] for item in result["figures"]}
    shown = text.partition("<!-- begin: tilewise bench emulator --markdown -->\n")[2].partition(
        "<!-- end -->"
    )[0]
    assert shown == markdown(result), "stale: make docs"
    assert f"results/{kept.name}" in text


class Simulator(threading.local):
    """As much of numba's simulator as the kernel asks for: a thread for each of a block's, one block after the other."""

    float32 = np.float32
    __version__ = "0"

    def __init__(self) -> None:
        self.cuda = self.shared = self

    def jit(self, kernel: Any) -> Any:
        return SimulatedKernel(self, kernel)

    def array(self, shape: tuple[int, int], dtype: Any) -> Any:
        """The same for each thread of a block that comes by this line."""
        line = sys._getframe(1).f_lineno
        return self.arrays.setdefault(line, np.full(shape, np.nan, dtype))

    def syncthreads(self) -> None:
        self.barrier.wait()


class SimulatedKernel:
    def __init__(self, simulator: Any, kernel: Any) -> None:
        self.simulator, self.kernel = simulator, kernel

    def __getitem__(self, launch: Any) -> Any:
        return functools.partial(self.run, *launch)

    def run(self, grid: tuple[int, int], block: tuple[int, int], *args: Any) -> None:
        for at in np.ndindex(grid):
            barrier, arrays = threading.Barrier(block[0] * block[1], timeout=20), dict[int, Any]()
            threads = [
                threading.Thread(target=self.run_thread, args=(at, own, barrier, arrays, args))
                for own in np.ndindex(block)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def run_thread(self, at: Any, own: Any, barrier: threading.Barrier, arrays: Any, args: Any) -> None:
        one = self.simulator
        one.blockIdx, one.threadIdx = (SimpleNamespace(x=place[0], y=place[1]) for place in (at, own))
        one.barrier, one.arrays = barrier, arrays
        self.kernel(*args)


def test_the_simulated_kernel_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", Simulator())
    monkeypatch.setattr(rivals, "_TILE", 2)
    versions, multiply = rivals._simulator(6)  # checks what it multiplies
    assert versions == {"numba": "0"} and multiply() > 0


def test_what_is_read_from_the_disk_lies_there_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled without a disk as often as is asked for, up to three times; and with one once more than that."""
    module, stores = importlib.import_module("tilewise.emulator"), list[Any]()
    build = module.build_kernel

    def record(*item: Any) -> Any:
        stores.append(item[4])
        return None if None in stores else build(*item)  # the check before is of a real one

    monkeypatch.setattr(module, "build_kernel", record)
    for repeats in (2, 5):
        stores.clear()
        emulator._Bench(repeats, TINY, 1)._compile(SPECS["02_one_block"])
        timed = stores[stores.index(None) :]
        assert [store is None for store in timed] == [True] * min(repeats, 3) + [False] * (repeats + 1)
        assert len({*map(id, timed)}) == 2


@pytest.mark.parametrize("right", [True, False])
def test_what_the_simulator_multiplies_is_checked(monkeypatch: pytest.MonkeyPatch, right: bool) -> None:
    class Kernel:
        def __getitem__(self, _shape: Any) -> Any:
            return lambda a, b, out: np.matmul(a, b, out=out) if right else None

    simulator = SimpleNamespace(jit=lambda _kernel: Kernel())
    pretended = SimpleNamespace(cuda=simulator, float32=np.float32, __version__="0")
    monkeypatch.setitem(sys.modules, "numba", pretended)
    if right:
        assert rivals._simulator(32)[1]() > 0
    else:
        with pytest.raises(SystemExit, match="wrong result"):
            rivals._simulator(32)
