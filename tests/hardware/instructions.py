"""Part F: which pipe and which class each kind of machine instruction counts for.

``python -m tests.hardware.instructions record FOLDER SECONDS`` runs the profiler over tiny kernels that have one kind of
instruction several times, and over the rungs of the ladder, and writes down what it counted: by launch, by
opcode and by instruction. ``keep FOLDER`` makes the kept file of that.
"""

from __future__ import annotations

import ctypes
import gzip
import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tests.hardware.job import Array, Job, Start, digest
from tests.hardware.machine import Gpu

__all__ = ["ARCH", "GROUPS", "Counted", "jobs", "metrics", "names", "source"]

ARCH = "sm_90a"
BLOCKS, THREADS = 2, 256
GROUPS = ("kinds", "ladder")
_SOURCE = Path(__file__).with_suffix(".cu")
_WANTED = re.compile(
    r"smsp__(sass_thread_inst_executed\w*|sass_inst_executed(?!_memdesc)\w*|sass_branch\w*|sass_data_bytes\w*"
    r"|sass_average_branch\w*|inst_executed(_op(?!_surface)(?!.*_pred_)\w*|_pipe_\w*)?|inst_issued"
    r"|thread_inst_executed\w*|average_inst_executed_per_warp|average_thread\w*|threads_launched|warps_launched)"
    r"|sm__inst_executed_pipe_(lsu|tex)_\w*cmd_read|idc__requests"
)
_BY_PLACE = ("inst_executed", "thread_inst_executed", "thread_inst_executed_true")
_BY_OPCODE = (
    "sass__inst_executed_per_opcode", "sass__inst_executed_per_opcode_category",
    "sass__inst_executed_per_opcode_with_modifier_all",
    *_BY_PLACE, "smsp__branch_targets_threads_divergent",
)  # fmt: skip


def source() -> str:
    return _SOURCE.read_text(encoding="utf-8")


def names() -> list[str]:
    """The kernels, in order."""
    told = r'^(?:OP|WARPGROUP)\((\w+), "|^extern "C" __global__ void (?:__\w+__\([^)]*\) )?(\w+)\('
    return [one or other for one, other in re.findall(told, source(), re.M)]


def metrics(known: set[str]) -> list[str]:
    """What to count, of the metrics that the profiler knows for this GPU."""
    found = []
    for name in sorted(known):
        if _WANTED.fullmatch(name):
            way = "pct" if name.endswith("threads_uniform") and "average" in name else "sum"
            found.append(f"{name}.{'ratio' if '_per_' in name else way}")
    return [*found, *_BY_OPCODE]


def jobs(group: str) -> Iterator[Job]:
    if group == "ladder":
        from tests.hardware import counters

        yield from counters.jobs("ladder")
        yield _copying()
        return
    from tilewise.toolchain.compile import compile_source

    kernels = names()
    binary = compile_source(source(), kernels, ARCH, filename=_SOURCE.name)
    about = {"machine code": digest(binary.cubin or b"")}
    for name in kernels:
        args: tuple[Any, ...] = ("data", "room")
        if name.startswith("uniform"):
            args = (*args, np.uint32(77), np.uint32(6), np.uint64(5))[: 4 if name == "uniform_vote" else 5]
        elif name == "tensor_copies":
            args = (Map("room", 2, (8, 16), (8, 16), 64),)
        grid, block = (1, 384) if name == "registers" else (BLOCKS, THREADS)
        start = Start(name, (grid, 1, 1), (block, 1, 1), args)
        yield Job(name, binary.ptx, [start], _buffers(), [], binary.cubin, dict(about))


def _buffers() -> dict[str, Array]:
    """Each thread's words: two floats or whole numbers, the number of its lane, and two small doubles' bits."""
    threads = 2 * 384
    data = np.zeros(threads, "u4, u4, u4, u4, u8, u8")
    thread = np.arange(threads)
    data["f0"] = np.frombuffer((thread + 1.5).astype(np.float32).tobytes(), np.uint32)
    data["f1"], data["f2"], data["f5"] = 3 * thread + 7, thread % 32, thread
    return {"data": data, "room": np.zeros(4 * threads, np.uint32)}


@dataclass(frozen=True)
class Map:
    """A tensor map of a buffer, as an argument: rows of elements, whose numbers and swizzle are the driver's."""

    buffer: str
    element: int
    shape: tuple[int, int]
    box: tuple[int, int]
    pitch: int  # bytes
    swizzle: int = 0

    def encoded(self, gpu: Gpu, address: int) -> Any:
        room = ctypes.create_string_buffer(128 + 64)
        at = -(-ctypes.addressof(room) // 64) * 64
        shape, box = (ctypes.c_uint64 * 2)(*self.shape[::-1]), (ctypes.c_uint32 * 2)(*self.box[::-1])
        apart, steps = (ctypes.c_uint64 * 1)(self.pitch), (ctypes.c_uint32 * 2)(1, 1)
        gpu._call("cuTensorMapEncodeTiled", ctypes.c_void_p(at), self.element, 2, ctypes.c_uint64(address), shape,
                  apart, box, steps, 0, self.swizzle, 0, 0)  # fmt: skip
        return np.frombuffer(ctypes.string_at(at, 128), "V128")[0]


class Counted(Gpu):
    """A GPU whose kernels take tensor maps too."""

    def launch(self, function: ctypes.c_void_p, start: Start, addresses: dict[str, int]) -> None:
        args = [
            arg.encoded(self, addresses[arg.buffer]) if isinstance(arg, Map) else arg for arg in start.args
        ]
        super().launch(function, Start(start.entry, start.grid, start.block, args, start.shared), addresses)


def _copying() -> Job:
    """Rung 13, in blocks that are clusters of their own."""
    from tests.hardware.ladder import argument, dense
    from tilewise.kernels import RUNGS
    from tilewise.slots import MapSlot
    from tilewise.toolchain.compile import compile_source

    spec, (m, n, k) = RUNGS["13_warp_specialised"], (512, 512, 256)
    told = {"partition": "128x128x64", "cluster": 1, "tiles": 1, "result": "float32"}
    complete = spec.complete(told)
    binary = compile_source(
        spec.source, spec.entries, ARCH, defines=spec.defines(complete), filename=spec.file.name
    )
    shapes = {"a": (m, k, "float16"), "b": (k, n, "float16"), "c": (m, n, "float32")}
    given = dense(spec, (m, n, k), complete)
    spec.check(given, complete)
    (step,) = spec.steps(given, complete)
    args: list[Any] = []
    for slot in step.launch.args:
        if isinstance(slot, MapSlot):
            rows, columns, kind = shapes[slot.operand]
            size, number = (4, 7) if kind == "float32" else (2, 6)
            inner, outer = slot.described.box
            args.append(Map(slot.operand, number, (rows, columns), (outer, inner), columns * size, 3))
        else:
            args.append(argument(slot))
    start = Start(binary.lowered[step.entry], step.launch.grid, step.launch.block, args, step.launch.shared)
    buffers: dict[str, Array] = {
        name: np.zeros((rows, columns), kind) for name, (rows, columns, kind) in shapes.items()
    }
    about = {
        "rung": spec.name,
        "size": (m, n, k),
        "settings": told,
        "machine code": digest(binary.cubin or b""),
    }
    return Job(f"{spec.name} {m}x{n}x{k}", binary.ptx, [start], buffers, ["c"], binary.cubin, about)


# -- on the machine with the GPU --------------------------------------------------------------------
def launch(group: str) -> None:
    from tests.hardware.carry import load

    gpu = Counted()
    for job in load(f"instructions {group}", lambda: jobs(group)):
        gpu.run(job)


def _library(ncu: str) -> Any:
    """The profiler's own reader of its reports."""
    beside = Path(ncu).resolve().parent / "extras" / "python" / "ncu_report.py"
    others = sorted(Path("/opt/nvidia/nsight-compute").glob("*/extras/python/ncu_report.py"))
    file = beside if beside.exists() else others[-1]
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location("ncu_report", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(library: Any, file: Path) -> list[dict[str, Any]]:
    """Every launch of a report: its metrics, and what they are made of."""
    rows = []
    report = library.load_report(str(file))
    for each in report:
        for action in each:
            row: dict[str, Any] = {"entry": action.name(), "metrics": {}, "parts": {}}
            places: set[int] = set()
            for name in action.metric_names():
                if not name.startswith(("smsp__", "sm__", "sass__", "inst_", "thread_inst", "idc__")):
                    continue
                metric = action.metric_by_name(name)
                row["metrics"][name] = metric.value()
                count = metric.num_instances()
                if count and metric.has_correlation_ids():
                    owners = metric.correlation_ids()
                    told = [owners.value(i) for i in range(count)]
                    row["parts"][name] = [[told[i], metric.value(i)] for i in range(count)]
                    if name == "inst_executed":
                        places.update(place for place in told if isinstance(place, int))
            row["code"] = [[place, action.sass_by_pc(place)] for place in sorted(places)]
            rows.append(row)
    return rows


def keep(folder: Path) -> None:
    """Make the kept file from what ``record`` wrote to a folder."""
    from tests.hardware.keep import KEPT

    rows = [
        row
        for group in GROUPS
        for row in json.loads(gzip.decompress((folder / f"{group}.json.gz").read_bytes()))
    ]
    rungs = [job.about for job in jobs("ladder") for _ in job.starts]
    for row, about in zip(rows[-len(rungs) :], rungs, strict=True):
        row["about"] = about
    text = json.dumps(kept(rows, json.loads((folder / "about.json").read_text())), separators=(",", ":"))
    data = gzip.compress(text.replace('{"entry"', '\n{"entry"').encode(), mtime=0)
    (KEPT / "instructions.json.gz").write_bytes(data)


def kept(rows: Sequence[dict[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping of a recording: of each launch, its instructions in order (which text, how often warps
    ran it, threads that came to it, threads that its guard let through), and counters that are not zero."""
    texts: dict[str, int] = {}
    found = []
    for row in rows:
        code = dict(map(tuple, row["code"]))
        figures = [dict(map(tuple, row["parts"].get(name, []))) for name in _BY_PLACE]
        listed = [[texts.setdefault(_bare(code[place]), len(texts)), *(part.get(place, 0) for part in figures)]
                  for place in sorted(code)]  # fmt: skip
        counts = {
            name: value
            for name, value in row["metrics"].items()
            if value and name.endswith((".sum", ".ratio", ".pct"))
        }
        parts = {
            name: dict(map(tuple, row["parts"][name]))
            for name in ("sass__inst_executed_per_opcode", "sass__inst_executed_per_opcode_category")
        }
        found.append({"entry": row["entry"], "about": row.get("about", {}), "code": listed, "counts": counts,
                      "parts": parts})  # fmt: skip
    return {"about": about, "texts": list(texts), "rows": found}


def _bare(text: str) -> str:
    """An instruction without its operands, but for those that matter to where it counts."""
    words = re.match(r"\s*(@!?U?P(?:T|\d+)\s+)?(\S+)\s*(.*)", text)
    assert words
    operands = words[3] if words[2] in ("S2R", "S2UR", "NANOSLEEP") else ""
    return " ".join(part.strip() for part in (words[1] or "", words[2], operands) if part.strip())


def _run(command: list[str], seconds: float) -> str:
    """What a command says; one that takes longer is asked to stop, and keeps what it has."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for limit, end in ((seconds, signal.SIGINT), (20.0, signal.SIGKILL)):
        try:
            return process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            process.send_signal(end)
    return process.communicate()[0]


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()


def record(folder: Path, seconds: float, groups: Sequence[str]) -> None:
    from tests.hardware.profile import find, known_metrics

    ncu = find()
    listed = metrics(known_metrics(ncu))
    asked = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem"
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": _said(["nvidia-smi", f"--query-gpu={asked}", "--format=csv"]),
        "profiler": _said([ncu, "--version"]).splitlines()[-1],
        "command": "ncu --clock-control none --metrics ... -o report python -m tests.hardware.instructions launch GROUP",
        "kernels": "tests/hardware/instructions.cu; then the rungs of the ladder: jobs() says how each is launched",
    }
    (folder / "about.json").write_text(json.dumps(about))
    library = _library(ncu)
    for group in groups:
        began, file = time.monotonic(), folder / f"{group}.ncu-rep"
        command = [ncu, "--clock-control", "none", "--metrics", ",".join(listed), "-f", "-o", str(file),
                   sys.executable, "-m", "tests.hardware.instructions", "launch", group]  # fmt: skip
        said = _run(command, seconds)
        print(group, f"{time.monotonic() - began:.0f} s", said[-1500:], flush=True)
        if file.exists():
            rows = _read(library, file)
            print(len(rows), "launches")
            (folder / f"{group}.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
            file.unlink()


def main() -> None:
    if sys.argv[1] == "launch":
        launch(sys.argv[2])
    elif sys.argv[1] == "keep":
        keep(Path(sys.argv[2]))
    else:
        record(Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:] or GROUPS)


if __name__ == "__main__":
    # What jobs are made of has to come from the same module as theirs does.
    from tests.hardware import instructions

    instructions.main()
