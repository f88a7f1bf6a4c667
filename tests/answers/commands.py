"""The command line: each command with its options right, wrong, missing, doubled and at odds, where nothing is compiled or
run; and the pieces that print."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from tests.terminal import Terminal
from tilewise.bench import environment
from tilewise.bench.gemm_cases import check_dtype, parse_shape, select_cases
from tilewise.cli import draw, launch_options
from tilewise.cli.explain_command import _pair
from tilewise.cli.launch_options import is_file, settings
from tilewise.cli.main import main
from tilewise.cli.parser import COMMANDS, parse
from tilewise.cli.run_command import _first_and_last, _number, _print_row

LINES = """
command('«|--help|--version|-h|nothing|plam|--json|--nothing|PLAN|plan --help|bench --help|run -h»')
command('ladder«| 04_tiled| 4_tiled| --json| 04_tiled --json| --source| 03_simple --source| --markdown| 04_tiled 03_simple| 07_tiled_exact| 13_warp_specialised| 10_turing_tensor_core| --nothing| x --json»')
command('plan«| -m 64| -m 64 -n 48 -k -1| -m 64 -n 48 -k x| -m 64 -n 48 -k 1.5| -m 64 -n 48 -k 32 --most 0| -m 64 -n 48 -k 32 --batch -1| -m 64 -n 48 -k 32 --no-copy=1| -m 64 -n 48 -k 32 extra| -m 64 -n 48 -k 32 --mos 3»')
command('plan -m 640 -n 480 -k 320 --most 3«| --dtype float32| --dtype int8 --layout nt| --dtype x| --gpu t4| --gpu h2000| --gpu k80| --batch 3| --batch 0| --layout nx| --layout tt --no-copy| --result float32| --result x| --arithmetic tf32| --b-dtype int8| --b-dtype x| --json| --dtype float16 --arithmetic f16 --json| --gpu v100-sxm-16gb --json| --gpu a10g --dtype float64| -m 64| --most 5»')
command('plan -m 640 -n 480 -k 320 --save «none/x.json|x.json»')
command('run«| 04_tile| 04_tiled --grid 2| 04_tiled --block 1 --kernel k| 04_tiled --arg 1| 04_tiled --shared 5| 04_tiled --shared 0| 04_tiled --set tile| 04_tiled --set =5| 04_tiled --set tile=| 04_tiled --set tile=15| 04_tiled --set x=1| 04_tiled -m 0| 04_tiled --seed -1| 04_tiled --timeout 0| 04_tiled --timeout inf| 04_tiled --timeout nan| 04_tiled --device cpu| 04_tiled --output x| 04_tiled --expect x| 04_tiled --rtol 0.1| 04_tiled --print| 04_tiled --print 0| 04_tiled --cooperative| 04_tiled --define A=1| 04_tiled -I x| 04_tiled --timeout 5»')
command('run none.cu«| -m 5| --set tile=16| --device emulator| --device emulator --grid 1 --block 1| --rtol 0.1| --rtol -1| --atol 1| --atol x --expect y| --device emulator --json --grid 1»')
command('profile«| 04_tile| 04_tiled --compare| --compare 04_tiled| --compare 04_tiled x| 04_tiled --second -m 5| 04_tiled --lines all| 04_tiled --on cpu| 04_tiled --sample 0| 04_tiled --seconds 0| 04_tiled --metrics nothing__at_all| 04_tiled --gpu h2000| 04_tiled --grid 4| none.cu -k 5| 04_tiled --most 0| 04_tiled --json --csv| 04_tiled --lines --csv| 04_tiled --occupancy --lines| --compare 04_tiled 03_simple --lines| --compare 04_tiled 03_simple --csv| --compare 04_tiled 03_simple --occupancy| 04_tiled x| --compare 04_tiled 03_simple --second --grid 5»')
command('explain«| 04_tile| 04_tiled -o x.svg| ladder -m 5| ladder --set a=1| ladder --element 1,2| ladder --dtype x| ladder --line 3| ladder --seed 1| ladder --trace x| ladder --grid 5| 04_tiled --element 1| 04_tiled --element a,b| 04_tiled --thread 1,2,3| 04_tiled --grid 5| none.json| none.json --grid 4| 64x64 --block 5| 64x| 64x64x64:xx| 64x64x64 --dtype y| 64x64x64 --gpu z| none.cu -m 5| none.cu --line 0| ladder --gpu zz| ladder -n 4| ladder -k 4| ladder --thread 1,1»')
command('check«| 04_tile| 04_tiled --order x| 04_tiled --grid 4| none.cu -m 5| none.cu --order late| 04_tiled --seed x| 04_tiled --arch sm_80| 04_tiled -m 0| 04_tiled --json --order y»')
command('tune«| 64x64x64 --list| --list --forget| 64x64| 64x64x64:xy| 64x64x64 --seconds 0| 64x64x64 --most 0| --merge none.json| --list --device emulator --json| --forget --device emulator| 64x64x64 --device cpu| 64x64x64 --device emulator --dtype x| 64x64x64 --device emulator --dtype float32 --arithmetic f16»')
command('train«| cifar| mnist --hidden 31| mnist --hidden x| mnist --epochs 0| mnist --batch 5| mnist --limit 1| mnist --rate -1| mnist --momentum 1| mnist --decay nan| mnist --data none| mnist --resume none --device emulator| mnist --compare 0| mnist --compare 3 --resume x| mnist --hidden 33 --json| mnist --download --data /dev/null/x| mnist --lr x| mnist --weight-decay -0.1| mnist --seed -1| mnist --out none/»')
command('bench«| x| gemm --quick| toolchain --suite large| emulator --arch sm_80| dispatch --shape 1x1x1| plans --dtype x| train --sustained| gemm --hidden 5| toolchain --momentum 1| gemm --markdown| gemm --out none/x| gemm --suite nope| gemm --shape 1x2| gemm --dtype int4| gemm --dtype float16 --arithmetic tf32| gemm --repeats 0| train --hidden x| train --momentum y»')
command('demo«| --seed -1| --device cpu| x| --seed a»')
command('doctor«| x| --nothing»')
sorted(vars(parse('«plan -m 1 -n 2 -k 3|check a|ladder|doctor|train mnist|bench gemm|tune 1x1x1|run a --print --print 3 -o x -o 2=y|profile a --lines --metrics b --metrics c|profile --compare a b -m 5 --second -m 6 --set c=1|explain a -o b --figure c»'.split())).items(), key=str)
vars(parse('profile --compare a b --arg 1 --second «|--arg 2|-m 6|--kernel k --grid 8,8|--shared 4|--define A|--seed 3»'.split()).second)
is_file(«'04_tiled'|'a.cu'|'a/b'|''|'.'|'04_tiled.ptx'»), settings(«[]|['a=1', 'b=-2', 'c=x', 'd=1.5', 'e=--1']|['a=b=c']|['a']|['=1']|['a=']|['a=1', 'a=2']»)
_pair('--element', «None|'1,2'|' 3 , 4 '|'1'|'1,2,3'|'-1,2'|'a,b'|'1234567890,1'|''|'1.5,2'»)
parse_shape(«'64x48x32'|'64×48×32'|'3x64x48x32'|'64x48x32:nt'|'64x48x32:xx'|'64x48'|'x'|''|'0x48x32'|'1x2x3x4x5'|'64x48x32:'|'-1x2x3'|'64X48X32'|' 64x48x32 '», 'product')
[str(case) for case in select_cases(«[]|['large']|['small', 'large']|['x']|['large', 'large']», «[]|['64x48x32']|['1x']»)][:4]
check_dtype(«'bfloat16'|'float8_e4m3fn'|'int4'|'uint8'|''|'complex64'|'float8_e5m2'»)
printed(lambda: draw.table(«['a', 'b']|['name', 'a longer one', 'n']», «[]|[['1', '22']]|[['x', 'two words here', '3'], ['yy', '', '44']]»), «None|80|24|12|6»)
printed(lambda: draw.table(['name', 'what it is', 'n'], [['first', 'some words that are long', '1,234'], ['second', 'x-y-z', 'NO'], ['', 'yes', '7']], right=«[]|['n']|['what it is', 'n']»), «None|60|30|20|16|9»)
printed(lambda: draw.facts(«{}|{'a': '1'}|{'long name': 'a value of several words', 'b': ''}»), «None|80|20»)
printed(lambda: draw.line(«''|'a line of words that is long'|'  indented words that go on'|'unbreakable_word_that_is_long x'|'a\\nb'», hanging=«0|4»), «None|80|14»)
printed(lambda: draw.heading('a heading'), «None|40»)
printed(lambda: print(draw.fits(«''|'a' * 20|'a' * 21|'a\\n' + 'b' * 21»), draw.width()), «None|20»)
draw.duration(«0|1e-10|4.9e-10|1e-9|9.994e-7|1e-6|0.99949e-3|0.9996e-3|1e-3|0.5|0.9994|1|12.345|999.4|999.6|12345»)
draw.amount(«0|1|1023|1024|1536|1048524|1048525|1048576|2**30|2**40|2**50»)
printed(lambda: draw.write_json«|_line»('x', «{}|{'a': 1, 'b': [1.5, None, True]}|{'a': float('inf'), 'b': {'c': float('nan')}, 'd': (1, -float('inf'))}|{'ä': 'ö'}|{1: 2}»), None)
printed(lambda: print(draw.write_result(Namespace(out=«None|'FILE'», json=«False|True», markdown=«False|True», what='gemm'), {'a': 1.5}, «None|lambda result: 'table'»)), None)
_first_and_last(«0|1|6|7|8|20|100», «6|7|8|9»)
_number(«np.float32(1.5)|np.float32(123456789)|np.int8(-3)|np.float64(1e-10)|np.float32('nan')|np.uint64(2**64 - 1)|np.float16(65504)»)
printed(lambda: _print_row([«|3|2, 5»], np.arange(«1|5|20|100»), np.arange(100) % 3 == 0, «True|False», 8), «None|40»)
environment.package_version('nothing-of-this-name')
"""

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_CHOICES = re.compile(r"\(choose from .*?\)")  # which Pythons list differently
_FLOAT = re.compile(r"\d+\.\d+(?:e-?\d+)?")
_ARCHS = re.compile(r"NVRTC [0-9.]+ compiles for \w+ to \w+")


def command(line: str) -> Any:
    """A command line in an empty folder: its exit code, and what it prints; argparse's own help is left out."""
    here, out, err = Path.cwd(), io.StringIO(), io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        os.chdir(folder)
        try:
            with mock.patch.dict(
                os.environ,
                {
                    "TILEWISE_CACHE_DIR": folder,
                    "TILEWISE_DEVICE": "emulator",
                    "TILEWISE_THREADS": "2",
                    "COLUMNS": "80",
                },
            ):
                code: Any = _run(line.split())
        finally:
            os.chdir(here)
    told = [_ARCHS.sub("the compiler", text.getvalue().replace(folder, "FOLDER")) for text in (out, err)]
    told = [_CHOICES.sub("(choose)", text) for text in told]
    if "--json" in line:
        told = [_FLOAT.sub(lambda found: f"{float(found[0]):.4g}", text) for text in told]
    if told[0].startswith("usage: tilewise ") and "COMMAND [OPTION" not in told[0]:
        told[0] = "usage"
    return code, *told


def _run(argv: list[str]) -> Any:
    """The exit code; nothing is compiled, run, measured or fetched."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise SystemExit("compiles or runs")

    names = (
        "tilewise.toolchain.nvrtc.compile_program", "tilewise.bench.demo.run_demo", "tilewise.cli.commands.run_demo",
        "tilewise.cli.commands.examine", "tilewise.cli.commands.try_rung", "tilewise.cli.commands.bench_toolchain",
        "tilewise.cli.commands.bench_emulator", "tilewise.cli.train_command.train", "tilewise.cli.train_command.load_digits",
        "tilewise.cli.gemm_command.bench_gemm", "tilewise.cli.commands.fresh_seed", "tilewise.toolchain.compile.compile_source",
        "tilewise.kernels.bind._kernel",  # which other tests may have made
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch(name, refuse))
        try:
            return main(argv)
        except SystemExit as end:
            return end.code


def printed(work: Callable[[], Any], width: int | None) -> str:
    """What is printed, into a file or on a terminal of a width."""
    out: Any = io.StringIO() if width is None else Terminal()
    size = os.terminal_size((width or 80, 24))
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"COLUMNS": str(width or 80), "TERM": "xterm"}),
    ):
        here = Path.cwd()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out), mock.patch("os.get_terminal_size", lambda *_: size):
                work()
            files = [(one.name, one.read_text()) for one in Path().iterdir()]
        finally:
            os.chdir(here)
    return f"{_STYLE.sub('', out.getvalue())}{files or ''}"
