"""Plain data: problems, tiles, plans and launches, the limits of launches, GPUs by name, and what is wrong with each."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewise as tw
from tilewise import gpus, launch, planner, problem
from tilewise.errors import ArgumentError, integer
from tilewise.launch import Launch, LaunchLimits, Parameter
from tilewise.whole_file import replace_when_whole

PROBLEM = problem.Problem(64, 48, 32)
PLAN = tw.Plan(
    PROBLEM, "h200", "simt", {"block": tw.Tile(64, 64, 8), "grid": tw.Tile(64, 48, 32)}, 2, "row", 1, {"x": 3}
)

LINES = """
tw.Tile(«-1|0|1|7|True|1.0|'2'|None|np.int32(3)», 2, 3)
tw.Tile(1, «0|1|np.uint8(255)», «0|5|[1]»)
str(tw.Tile(128, 64, 32))
tw.Tile(64, 32, 16).divides(tw.Tile(«64|128|100», «32|64|33», «16|48|17»))
tw.Tile(64, 32, 16).count(tw.Tile(«1|64|65|128», «32|33», «1|16|17»))
problem.EpilogueArray('x', «'float32'|'float16'|'flot32'|'int4'», True, «True|False»)
problem.EpilogueArray('x', 'float32', scales=«''|'a'|'b'|'c'|None», lines=«0|1|127|128|256»)
problem.EpilogueArray('x', 'float32', «True|False», «True|False», scales=«''|'a'|'b'», lines=128).transposed()
problem.Epilogue(«'acc'|'acc + x'|'acc + y'|'keep(x, acc)'|5|None|'acc +'|'column_sums(x, acc)'|'scaled(acc, x, 1)'», (problem.EpilogueArray('x', 'float32'),))
problem.Epilogue(«'acc * s'|'acc * s + t'|'acc'|'keep(s, acc)'|'row_sums(s, acc)'», (), «('s',)|('s', 's')|('s', 't')|()»)
problem.Epilogue('scaled(acc, x, 1)', (problem.EpilogueArray('x', 'float32', scales=«''|'a'|'b'», lines=«1|128»),)).lines_of(«'a'|'b'»)
problem.Epilogue('scaled(acc, x, 1)', (problem.EpilogueArray('x', 'float32', scales='a'),)).transposed()
problem.Epilogue('acc + x', (problem.EpilogueArray('x', 'float32', scales='a'),))
[problem.Epilogue(«'acc'|' acc'|'acc + 0'|'(acc)'»).is_plain, problem.Epilogue(«'acc'|'acc * 2'»).scales_terms]
problem.Epilogue('column_sums(x, acc) + row_sums(y, acc)', (problem.EpilogueArray('x', 'float32'), problem.EpilogueArray('y', 'float32'))).summed
problem.Epilogue.from_dict(«{}|{'expression': 'acc + x', 'arrays': [{'name': 'x', 'dtype': 'float32'}]}|{'expression': 'acc*s', 'numbers': ['s']}|{'words': 1}|{'arrays': [{'name': 'x'}]}»)
problem.multiplied_type(«'float16'|'bfloat16'|'int8'|'float8_e5m2'|'float32'», «'float16'|'int8'|'float8_e4m3fn'|'float32'»)
problem.can_multiply(«'float16'|'bfloat16'|'int8'|'float8_e5m2'|'float32'|'complex64'», «'float16'|'bfloat16'|'int8'|'float8_e4m3fn'|'float32'|'complex64'»)
problem.sum_type(«'float64'|'complex128'|'complex64'|'float16'|'int8'|'int32'|'int64'|'float8_e5m2'», «True|False»)
problem.finished_type(«'int32'|'int64'|'float32'|'float64'|'float16'»)
problem.result_of(«'int8'|'int32'|'int64'|'float8_e4m3fn'|'float8_e5m2'|'bfloat16'|'float64'|'complex64'», «True|False»)
problem.resolve_arithmetic(«None|'f16'|'tf32'|'exact32'|'f32'|'f64'|'fp8'|'bf16'|'tf33'|32», «'float16'|'float32'|'float64'|'complex64'|'complex128'|'bfloat16'|'int8'»)
tw.Problem(«-1|0|2**31|True|1.5|'8'», «0|7», 3)
tw.Problem(4, 5, 6, «-1|0|1|2|2.0», a=«'float32'|'float31'», b=«'float32'|'int9'»)
tw.Problem(4, 5, 6, c=«'float16'|'flat'», accumulate=«'float32'|'float'», a_layout=«'row'|'column'|'rows'|0»)
tw.Problem(4, 5, 6, b_layout=«'column'|'x'», c_layout=«'row'|'column'|''»)
tw.Problem(4, 5, 6, batch=«1|2|3», groups=«-1|0|1|4», pointers=«True|False|1|None»)
tw.Problem(4, 5, 6, arithmetic=«None|'tf32'|'f32'|'f16'|'exact32'|'x'», a=«'float32'|'float16'», b=«'float32'|'float16'»)
tw.Problem(4, 5, 6, epilogue=«None|'acc'|tw.Epilogue()|tw.Epilogue('acc * 2')»)
tw.Problem(4, 5, 6, groups=2, epilogue=tw.Epilogue('«column|row»_sums(x, acc)', (problem.EpilogueArray('x', 'float32'),)))
[getattr(tw.Problem(3, 5, 7, «1|0|4», a=«'float32'|'complex64'|'int8'|'float16'», b=«'float32'|'int8'», groups=«0|2»), each) for each in ('flops', 'bytes', 'intensity')]
[tw.Problem(«0|3», «0|5», «0|7»).flops, tw.Problem(«0|3», «0|5», «0|7»).bytes, tw.Problem(«0|3», «0|5», «0|7»).intensity]
str(tw.Problem(3, 5, 7, «1|4», a=«'float32'|'float16'», b=«'float32'|'int8'», c=«'float32'|'float16'»))
str(tw.Problem(3, 5, 7, 1, groups=«0|2», arithmetic=«None|'tf32'», epilogue=tw.Epilogue(«'acc'|'acc * 2'»)))
str(tw.Problem(3, 5, 7, 2, pointers=True))
tw.Problem(3, 5, 7, «1|2», epilogue=tw.Epilogue('acc * s', (), ('s',))).to_dict()
tw.Problem.from_dict(«{}|{'m': 1, 'n': 2, 'k': 3}|{'m': 1, 'n': 2, 'k': 3, 'epilog': {}}|{'m': -1, 'n': 2, 'k': 3}|{'m': 1, 'n': 2, 'k': 3, 'batch': 'two'}»)
tw.Problem.from_dict(tw.Problem(3, 5, 7, 2, pointers=True, epilogue=tw.Epilogue('acc * s', (), ('s',))).to_dict()) == tw.Problem(3, 5, 7, 2, pointers=True, epilogue=tw.Epilogue('acc * s', (), ('s',)))
plan_with(stages=«0|1|2.5|64», split=«0|1|2|True»)
plan_with(raster=«'row'|'column'|'grouped'|'hilbert'|'rows'|None»)
plan_with(tiles=«{}|{'block': tw.Tile(1, 2, 3)}|{'thread': tw.Tile(1, 1, 1), 'grid': tw.Tile(8, 8, 8), 'warp': tw.Tile(2, 2, 2)}|{'blocks': tw.Tile(1, 2, 3)}»)
str(plan_with(copies=«()|('a',)|('a', 'b')», seconds=«None|1e-3|2.5e-6», bound='memory', measured=«None|1.25e-6»))
str(plan_with(parameters=«{}|{'a': 1, 'b': 'two'}», problem=tw.Problem(4, 5, 6, a=«'float32'|'complex64'|'complex128'», b='float32'), copies=('a',)))
plan_with(copies=('a',), seconds=1.5, bound='math', measured=2.0).to_dict()
tw.Plan.from_dict(PLAN.to_dict()) == PLAN
tw.Plan.from_dict(PLAN.to_dict() | «{}|{'format': 2}|{'format': None}|{'stage': 2}|{'problem': {'m': 1}}|{'tiles': {'block': [1, 2]}}|{'tiles': {'block': 5}}|{'tiles': 3}|{'stages': 0}|{'raster': 'x'}|{'copies': ['b']}|{'seconds': 2.0, 'bound': 'launch'}|{'parameters': {'y': 1}}»)
tw.Plan.from_dict({name: value for name, value in PLAN.to_dict().items() if name != «'format'|'problem'|'gpu'|'kernel'|'tiles'|'stages'|'raster'|'split'|'parameters'|'copies'|'seconds'|'bound'|'measured'»})
saved(lambda path: (PLAN.save(path / «'a.json'|'none/a.json'|''»), (path / 'a.json').read_text()))
saved(lambda path: (PLAN.save(path / 'a.json'), tw.Plan.load(path / «'a.json'|'b.json'|''») == PLAN))
saved(lambda path: ((path / 'a.json').write_text(«'{}'|'[]'|'3'|'null'|'{"format": 1}'|'{"format": 1, "kernel": "x", "gpu": "y"}'»), tw.Plan.load(path / 'a.json')))
saved(lambda path: whole(path, «False|True»))
json.dumps(PLAN.to_dict(), indent=1)
planner.plan_rows([plan_with(kernel=«'simt'|'wgmma'|'mma'», stages=«1|3», split=«1|2», raster=«'row'|'grouped'», seconds=«None|1e-4|0.0», bound='x')])
planner.plan_rows([plan_with(kernel='wgmma', parameters={'element': 'float16', 'result': 'float32', 'cluster': «'1x1'|'2x1'», 'exchanged': «0|1», 'tiles': «1|2», 'widened': «'none'|'int8'», 'partition': '128x256'}, copies=«()|('a', 'b')»)])
launch.dim3('grid', «0|1|7|(1,)|(1, 2)|(1, 2, 3)|(1, 2, 3, 4)|()|'7'|b'7'|None|1.0|(0, 1)|(1, 0)|(1, 1, -1)|(1, 2.0)|np.int64(3)|np.array([2, 3])|range(1, 4)|{4: 1}|True|iter([1, 2])|[5]»)
launch.readable(«'k'|'_Z5tiledILi32EfEvPf'|'_Z1kPf'|'_ZN2ns1kEv'|'_ZN2ns1kILb1ELb0ELin3EEEvv'|'_ZN12_GLOBAL__N_11kEv'|'_Z1kIfdijblmxystchEvv'|'_Z1kIPfEvv'|'_Z1kI3FooEvv'|'_Z1kILi1EPfEvv'|'_Z'|'_Z3a'|''|'_ZN1a1b1cE'|'_Z1kILc65EEvv'|'_Z1kIE'|'_Z1kILj7E'»)
launch.check_launch(Launch((«1|2147483647|2147483648», 1, 1), (1, 1, 1)), LaunchLimits())
launch.check_launch(Launch((1, «65535|65536», «65535|65536»), (1, 1, 1)), LaunchLimits('a GPU'))
launch.check_launch(Launch((1, 1, 1), («1|1024|1025», «1|2|1025», «1|64|65»)), LaunchLimits('a GPU'))
launch.check_launch(Launch((1, 1, 1), («32|33», 16, «1|2»)), LaunchLimits('a GPU', threads_per_block=512))
launch.check_launch(Launch((1, 1, 1), (32, 1, 1), shared=«0|999|1000|1001»), LaunchLimits('a GPU', shared_bytes_per_block=1000), «0|1»)
launch.check_launch(Launch((«4|6|8», «1|2», «1|3»), (32, 1, 1), cluster=(«1|4|8», «1|2», 1)), LaunchLimits('a GPU', clusters=«True|False», blocks_per_cluster=8))
launch.check_launch(Launch((16, 1, 1), (32, 1, 1), cluster=(«8|16|17», 1, 1)), LaunchLimits())
launch.check_block((«64|65», «1|2», 1), «None|64|127|128», «None|(64, 1, 1)|(64, 2, 1)»)
launch.check_registers(Launch((1, 1, 1), («32|128|129|256|384|512», 1, 1)), «24|160|168|169», «152|160|161|232|240», «None|24|40|176»)
str(Launch((1, 2, 3), (4, 5, 6), shared=«0|1234567», cluster=«None|(2, 1, 1)», cooperative=«False|True», programmatic=«False|True»))
[Launch((2, 3, 4), (5, 6, 7)).blocks, Launch((2, 3, 4), (5, 6, 7)).threads_per_block]
[getattr(Parameter('p', «'u64'|'b8'|'f32'», «1|8|16», 8, «''|'int n'», None, «None|True|False»), each) for each in ('is_struct', 'is_number')]
Parameter('p', 'u64', 8, 8, «''|'float *x'»).label(«0|3»)
integer('x', «0|-1|5|6|True|1.0|'1'|None|np.int8(2)|np.array(3)|np.array([1, 2])», «0|1», «5|2»)
str(tw.errors.ArgumentError('x', 'must be', «None|0|''|[1, 2]|'y' * 79|'y' * 78|'y' * 100|unshown», «''|'do it'»))
str(tw.errors.UnknownNameError('thing', «'alphx'|'BETA'|'a'|'zzz'|''|5|'gam'», «['alpha', 'beta', 'gamma']|[]|[str(i) for i in range(12)]|[str(i) for i in range(13)]»))
[(error.argument, error.rule, error.value, error.fix, error.args) for error in [tw.errors.UnknownNameError('thing', 'alphx', ['alpha', 'Beta'])]]
str(tw.errors.PtxError(3, 'what', «0|7»))
gpus.find(«'h200'|'H200'|'NVIDIA H200'|'nvidia h200 sxm'|'rtx2060super'|'3080 Ti'|'GeForce RTX 3080-Ti'|'a100'|'tesla t4'|'v100'|'l4'|'L40S'|'b200'|'gb10'|'jetson agx orin'|'rtx pro 6000'|gpus.find('t4')»)
gpus.find(«'h2000'|'k80'|'tesla p100'|'gtx 1080 ti'|'gtx1660'|''|'  '|None|5|'m40'|'Quadro M4000'|'rx 7900'|'h100'|'a10'|'3090'|'titan v'|'titan x'|'titan'»)
gpus.from_driver_name(«'NVIDIA H200'|'Orin'|'NVIDIA GeForce RTX 3080'|'NVIDIA A100-SXM4-80GB'|'nothing'|'NVIDIA GeForce RTX 2060'|'NVIDIA GeForce RTX 4080'», «None|132|16|14|8|68|70|108|30|34|76|80|1»)
gpus.arch_capability(«'sm_90a'|'sm_90'|'compute_90'|'sm_100f'|'sm_120'|'sm_7'|'sm_9x'|'sm90'|'SM_90'|''|None|90|'sm_75b'|' sm_75'»)
gpus.limits(«(9, 0)|'sm_80'|'sm_90a'|(8, 9)|(7, 0)|'compute_86'»).arch
gpus.limits(«(9, 1)|(9,)|[9, 0]|9|('9', 0)|(9, -1)|(9.0, 0)|'sm_52'|'x'|(10, 0)|(12, 1)»).arch
gpus.launch_limits(«'sm_75'|'sm_80'|'sm_86'|'sm_90a'|'sm_100a'|'sm_120a'|'sm_52'|'sm_89'|'sm_999'|'x'»)
gpus.find(«'h200'|'t4'|'b200'|'rtx-4090'|'a100-sxm-80gb'|'gtx-1660-super'|'v100-sxm-16gb'»).peak(«'float32'|'float64'|'float16'|'bfloat16'|'tfloat32'|'float8_e4m3'|'float8_e5m2'|'int8'|'uint8'|'float4'|'int32'|'x'», «'float32'|'float16'|'float64'|'int32'|'y'»)
[gpus.memory_spaces(«'h200'|'t4'|'titan-v'|'rtx-4090'|'nothing'»)]
[len(gpus.names()), gpus.names()[0], gpus.names()[-1]]
gpus.find('h200').to_dict()
planner.target_of(«'h200'|'emu'|''|'t4'|'rtx-4090'|'b200'|'a100-sxm-80gb'|'nothing'|5|None»)
planner.target_of_device(device(«'NVIDIA H200'|'NVIDIA Unheard Of'|'NVIDIA A100-SXM4-80GB'», «'sm_90a'|'sm_80'», «132|108|64»))
"""


def plan_with(**changes: Any) -> tw.Plan:
    """The plan with other fields."""
    return dataclasses.replace(PLAN, **changes)


def saved(work: Callable[[Path], Any]) -> Any:
    """What is done in a folder of its own, whose name is left out of what is said."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return str(work(Path(folder))).replace(folder, "FOLDER")
        except tw.TilewiseError as error:
            return f"{type(error).__name__}: {str(error).replace(folder, 'FOLDER')}"


def whole(folder: Path, fails: bool) -> Any:
    """The files that are there after one is written over another, which may fail."""
    (folder / "a").write_text("before")
    try:
        with replace_when_whole(folder / "a") as file:
            file.write(b"after")
            if fails:
                raise ArgumentError("x", "fails")
    except ArgumentError:
        pass
    return sorted(one.name for one in folder.iterdir()), (folder / "a").read_text()


class _Device:
    """A GPU as a driver names it."""

    runs_on_gpu = True

    def __init__(self, title: str, arch: str, multiprocessors: int) -> None:
        self.title, self.arch, self.multiprocessors = title, arch, multiprocessors


class _Unshown:
    def __repr__(self) -> str:
        raise ValueError("it cannot be shown")


device, unshown = _Device, _Unshown()
