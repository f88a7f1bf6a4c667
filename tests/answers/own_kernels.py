"""Kernels of one's own where none runs: modules of PTX and their variables, what a launch may be, and what is printed of
profiles."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import Field, fields
from types import MappingProxyType, SimpleNamespace
from typing import Any

import tilewise as tw
from tests.answers.commands import printed
from tilewise.cli import bench_commands, profile_command
from tilewise.emulator.lowering import lower as _all_are_entered  # by the modules that it imports
from tilewise.emulator.operations.operation import Operation
from tilewise.emulator.operations.registry import operations
from tilewise.gpus import find
from tilewise.instruments.advice import FINDING_TEXTS
from tilewise.instruments.occupancy import occupancy
from tilewise.instruments.roofline import Roofline, RooflineBound
from tilewise.module import Module, _mapping, _texts, check_text

LINES = f"""
facts_of('«{"|".join(sorted({name.partition(".")[0] for name in operations()}))}»')
"""
LINES += """
module(«PTX|PTX.replace('k1', 'k2')|PTX.replace('sm_75', 'sm_90a')|PTX.replace('.global', '.const')|PTX.replace('.const', '.shared')|''|'x'|5|None|' '|PTX + chr(0)|'.version 8.0'|PTX.replace('.f32 table', '.f64 table')|PTX.replace('.entry', '.func')»)
[getattr(MODULE.variable('«table|count|bits|none|_ZN1a5tableE»'), each) for each in ('name', 'space', 'bytes', 'dtype', 'shape', 'symbol', 'declared')]
['«table|none|k1»' in MODULE, len(MODULE), list(MODULE), MODULE.is_foreign, MODULE.given_arch, MODULE.build('sm_90').arch]
MODULE.kernel(«'k1'|'k3'|''|5|None»), repr(MODULE), repr(MODULE.on('emulator'))
MODULE.on('«emulator|gpu:99|x»').array('«table|none»').shape
kernel().«arch|name|resources|cubin|sass|warnings»
[(one.name, one.type, one.size, one.declared) for one in kernel().parameters]
kernel().occupancy(«32|(32, 2)|0|1025|'a'», «0|1024», «None|'t4'|'x'»)
kernel().bind(«1|0|-1|(1, 2, 3)|(1, 2, 3, 4)|(2**31, 1, 1)|(1, 65535)|(1, 65536)|(1, 1, 65536)|()|1.5|True|'1'|None», 32, [0, 1], device='emulator') is None
kernel().bind(1, «0|1|64|65|1024|1025|(32, 2)|(32, 3)|(1, 1, 64)|(1, 1, 65)|(8, 8)|-1|2.5|None», [0, 1], device='emulator') is None
kernel(reqntid=True).bind(1, «64|32|(32, 2)|(8, 8)|(64, 1, 1)|63», [0, 1], device='emulator') is None
kernel().bind(1, 32, [0, 1], shared=«0|1|49152|49153|65536|65537|232448|232449|-1|1.5|None», device='emulator') is None
kernel().bind(«4|6|1», 32, [0, 1], cluster=«None|1|2|4|8|16|(2, 2)|0|(1, 2, 3, 4)», device='emulator') is None
kernel(arch='sm_90a').bind(«4|6|16|32», 32, [0, 1], cluster=«None|1|2|4|8|9|16|(2, 2)|0|3», device='emulator') is None
kernel().bind(1, 32, «[]|[0]|[0, 1, 2]|[0, 2**32]|[0, -1]|[0, 1.5]|[1.5, 0]|[None, 1]|[0, None]|5|['a', 0]|[2**64, 0]|[2**64 - 1, 2**32 - 1]», device='emulator') is None
kernel()(1, 32, [0, 1], device='emulator', timeout=«0|-1|'a'|float('nan')|1j», cooperative=«False|5»)
kernel().bind(«1|10**6», 32, [0, 1], device='emulator', cooperative=«True|1|None», programmatic=«False|'x'|0») is None
kernel().«profile|record|check»(1, 32, [0], timeout=«0|5.0»)
kernel().profile(1, 32, [0, 1], sample=«0|-1|1.5|'a'|5», cooperative=True)
kernel().check(1, 32, [0, 1], order=«'x'|1.5|None», level=«'info'|'none'»)
check_text('x', «'a'|''|' '|5|None|'a\\0b'|b'a'»), _texts('x', «[]|['a', 5]|['a', 'a']|'a'|b'a'|None|('b',)|{1}»), _mapping('x', «None|{}|{'a': 1}|MappingProxyType({'a': 1})|[]|'a'»)
[FINDING_TEXTS[name] for name in sorted(FINDING_TEXTS)]
profile_command._patterns(«[]|['a']|['a,b', ' c ']|['regex:a,b']|['a,']|['']|[',']»)
profile_command._targets(Namespace(**{'json': False, 'csv': False, 'lines': None, 'occupancy': False, 'compare': None, 'target': 'a'} | «{}|{'target': None}|{'compare': ['a', 'b']}|{'compare': ['a', 'b'], 'target': None}|{'json': True, 'csv': True}|{'json': True, 'occupancy': True}|{'csv': True, 'occupancy': True}|{'lines': 'ptx', 'occupancy': True}|{'compare': ['a', 'b'], 'target': None, 'lines': 'ptx'}|{'compare': ['a', 'b'], 'target': None, 'occupancy': True}|{'compare': ['a', 'b'], 'target': None, 'json': True}»))
profile_command._occupancy(occupancy('«h200|t4|rtx-4090»', «32|256|1024», «16|40|128», «0|1000|40000», grid=«None|500»))
profile_command._roofline(Roofline('h200', 1e9, (RooflineBound('fp32', «1e9|1e12», 'operations', 1e13, «1.0|1.5»), RooflineBound('memory', «0.0|4e9», 'B', 4e12)), «None|5.5»), «None|1e-3»)
printed(lambda: profile_command._print_remarks([launch('a', «None|5», «[]|['what']»), launch('«a|b»', «None|5|6», ['more'])][:«1|2»]), None)
profile_command._plain(Namespace(occupancy=«True|False», compare=«None|['a', 'b']», seconds=«None|1.5»), [launch('a', 5, [])] * «1|2», «None|['x']»)
printed(lambda: bench_commands._print_times(times(«over=()|over=('share_us', 'with_out')|gpu=None|python_frames=None|call_us=None»)), «None|60»)
bench_commands._ROWS, bench_commands._RATIOS, bench_commands._ROUNDS_LEAST, bench_commands.BUDGETS
"""

PTX = """
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .f32 table[5] = {1.0, 2.0};
.const .align 4 .u32 count = 7;
.global .align 8 .b8 bits[24];
.visible .entry k1(.param .u64 p0, .param .u32 p1)
.maxntid 64, 1, 1
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p0];
    ret;
}
"""


def facts_of(opcode: str) -> dict[str, dict[str, Any]]:
    """What is known of an opcode's operations, as far as it is not as of arithmetic, nor a function."""
    rows = {name: row for name, row in operations().items() if name.partition(".")[0] == opcode}
    return {
        name: {one.name: getattr(row, one.name) for one in fields(row) if _is_said(row, one)}
        for name, row in rows.items()
    }


def _is_said(row: Operation, field: Field[Any]) -> bool:
    value = getattr(row, field.name)
    return field.init and field.name != "name" and value != field.default and not callable(value)


MODULE = Module.from_ptx(PTX)


def module(text: Any) -> Any:
    """What a module of PTX has."""
    made = Module.from_ptx(text, filename="a.ptx")
    return made.arch, made.entries, repr(made), {name: str(one) for name, one in made.globals.items()}


def kernel(arch: str = "sm_75", reqntid: bool = False) -> tw.Kernel:
    text = PTX.replace("sm_75", arch)
    return tw.Kernel.from_ptx(text.replace(".maxntid", ".reqntid") if reqntid else text, "k1")


def launch(name: str, seed: int | None, unwritten: Any) -> Any:
    """A profile of nothing but names."""
    profile: Any = SimpleNamespace(
        kernel=f"kernel of {name}", occupancy=occupancy(find("h200"), 128, 40), spills=None,
        to_dict=lambda patterns: {"patterns": patterns}, roofline=SimpleNamespace(reached=lambda seconds: seconds / 2),
    )  # fmt: skip
    return profile_command._ProfiledLaunch(name, profile, seed, list(unwritten))


def times(over: Any = (), **changes: Any) -> Any:
    """Times of warm calls, each another."""
    values: dict[str, Any] = {name: 1.25 * i for i, name in enumerate(bench_commands._ROWS, 1)}
    return SimpleNamespace(
        **values
        | {
            "rounds": 15, "tensors": "torch's", "over_budget": over, "ratios": dict.fromkeys(bench_commands._RATIOS, 1.5),
            "python_frames": 0, "allocations": 64, "gpu": "a GPU",
        }
        | changes
    )  # fmt: skip
