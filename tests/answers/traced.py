"""Products of JAX's arrays, compiled, differentiated and mapped.

Where XLA calls for a product, NumPy multiplies in the kernels' stead, and notes what was asked of it: so that nothing is
compiled for it, and float64 says more of a derivative. Only a few lines go to the emulator.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from jax.interpreters import ad

import tilewise
from tests.answers.other_libraries import (
    DELETED,
    DEVICE,
    DONATED,
    SPLIT,
    THERE,
    F,
    Stranger,
    frozen,
    jax,
    jax_settings,
    jnp,
    n,
    told,
    tw,
)
from tests.answers.products import split
from tests.fake_xla import FakeXla
from tilewise import interop
from tilewise.devices import gpu
from tilewise.errors import ArgumentError, TilewiseError
from tilewise.interop import HOST
from tilewise.interop import jax as its_package
from tilewise.interop.jax import functions, jax_arrays, primitive
from tilewise.interop.jax.ffi_target import TARGET, handlers
from tilewise.interop.jax.product_attributes import ProductAttributes
from tilewise.interop.jax.xla_buffers import XlaBuffer, XlaLibrary
from tilewise.interop.own import OwnLibrary

LINES = """
derived(tw.matmul, «n(2, 3), n(3, 2)|n(3), n(3, 2)|n(2, 3), n(3)|n(3), n(3)|n(2, 2, 3), n(3, 2)|n(2, 3), n(2, 3, 2)|n(2, 1, 2, 3), n(3, 3, 2)|n(2, 2, 3), n(3)|n(0, 3), n(3, 2)|n(2, 0), n(0, 3)»)
derived(lambda a, b, x: tw.matmul(a, b, bias=x, activation=«'relu'|'gelu'|'gelu_tanh'|'silu'|'tanh'|'sigmoid'»), n(2, 3), n(3, 2), n(2))
derived(lambda a, b, x: tw.matmul(a, b, residual=x, activation=«None|'relu'»), n(2, 3), n(3, 2), n(2, 1))
derived(lambda a, b, c, bias, residual: tw.matmul(a, b, c=c, bias=bias, residual=residual, alpha=0.5, beta=-2, activation='silu'), n(2, 2, 3), n(3, 2), n(2, 1), n(2), n(2, 1, 2))
derived(lambda a, b, c, bias: tw.matmul(a, b, c=c, bias=bias, alpha=-1.5, beta=0.25), «n(3), n(3, 2), n(2), n()|n(2, 3), n(3), n(2), n(1)|n(2, 2, 3), n(3), n(2, 2), n(2, 1)»)
derived(lambda x, w, b: tw.linear(x, w, b, activation='sigmoid', residual=n(2)), n(«2, 3|2, 2, 3|3»), n(2, 3), n(2))
derived(lambda a, b, x: tw.matmul(a, b, bias=x), n(2, 3, dtype='«float32'), n(3, 2, dtype='float32|bfloat16'), n(3, 2, dtype='bfloat16|complex64'), n(3, 2, dtype='float32|float32'), n(3, 2, dtype='complex128»'), n(2, 1, dtype='float32'))
derived(lambda a, x: tw.matmul(a, n(3, 2, dtype='«int8|float8_e5m2»'), bias=x), n(2, 3, dtype='float16'), n(2, dtype='float16'))
asked(jax.grad(lambda a, b: tw.matmul(a, b).astype('float32').sum(), «0|1»), n(2, 3, dtype='«float16|float8_e4m3fn»'), n(3, 2, dtype='«bfloat16|float8_e5m2»'))
summed(«'float16'|'bfloat16'»)
both_ways(lambda a, b: tw.matmul(a, b, activation='gelu'), n(2, 3), n(3, 2))
moved(lambda a, b, x: tw.matmul(a, b, «bias|residual»=x, activation='«silu|relu»'), (n(2, 3), n(3, 2), n(2)), («0|1|2|0, 1|0, 2|1, 2»,))
moved(lambda a, b, c: tw.matmul(a, b, c=c, alpha=2, beta=«None|0|1|0.5»), (n(2, 3), n(3, 2), n(2, 2)), («0|2»,))
ran(jax.jit(tw.matmul), n(2, «2, 2, 2, |»3, dtype='«bfloat16|int8|float8_e4m3fn»'), n(3, 2, dtype='«int8|float8_e5m2»'))
ran(jax.jit(lambda x, w: tw.linear(x, w, arithmetic=«None|'tf32'|'exact32'», device=«None|'emulator'|'gpu:1'»)), n(2, 3, dtype='float32'), n(2, 3, dtype='float32'))
ran(jax.vmap(tw.matmul, «(0, None)|(None, 0)|(0, 0)|(1, 2)|(-1, 0)|(2, -1)»), n(2, 2, 2), n(2, 2, 2, by=3))
ran(jax.vmap(tw.matmul, (0, None), «1|2|-1»), n(3, 2, 2), n(2, 2))
batched_by(«None, None, 0, None|None, None, None, 0|0, None, 1, None|None, 1, None, 0|0, 2, 1, 0|None, None, 2, 1»)
ran(jax.vmap(jax.vmap(tw.matmul, (0, None)), (None, 0)), n(2, 2, 3), n(3, 3, 2)), ran(jax.vmap(jax.grad(lambda w, x: tw.matmul(x, w).sum()), (None, 0)), n(3, 2), n(4, 3))
ran(jax.grad(lambda a: jax.vmap(lambda one, x: tw.matmul(one, n(3), bias=x), (0, None))(a, n()).sum()), n(2, 2, 3))
ran(jax.jit(jax.hessian(lambda a: (tw.matmul(a, n(2, 2), activation='silu') ** 2).sum())), n(1, 2))
ran(lambda a, b: jax.linearize(lambda b: tw.matmul(a, b, activation='sigmoid'), b)[1](b * 2), n(2, 2), n(2, 2))
ran(lambda a, b: jax.vjp(tw.matmul, a, b)[1](n(2, 2, by=5)), n(2, 2), n(2, 2))
ran(lambda x, w: jax.lax.scan(lambda x, _: (tw.linear(x, w, activation='relu'),) * 2, x, None, length=3), n(2, 2), n(2, 2))
ran(jax.jit(jax.grad(lambda w: jax.checkpoint(lambda w: tw.matmul(w, w, activation='silu'))(w).sum())), n(2, 2))
ran(jax.jit(lambda a, activation: tw.matmul(a, a, activation=activation), static_argnames='activation'), n(2, 2), activation=«None|'relu'»)
ran(lambda a: jax.linear_transpose(lambda a: tw.matmul(a, n(3, 2), alpha=2), a)(n(2, 2)), n(2, 3)), ran(lambda a: jax.linear_transpose(lambda b: tw.linear(n(2, 3), b), a)(n(2, 4)), n(4, 3))
ran(lambda a: jax.linear_transpose(lambda a: functions.matmul(a, n(3, 2), «alpha=2|activation='relu'|bias=n(2)|residual=n(2)»), a)(n(2, 2)), n(2, 3))
ran(jax.jit(lambda a, c: tw.matmul(a, a, c=c, alpha=2, beta=«0|1|0.5»)), n(2, 2), n(2, 2, by=2))
nothing_moves(«0|1»), transposed_of_nothing(«True|False»)
shared(«tw.matmul|lambda a, b: tw.matmul(a, b, activation='tanh', bias=n(2))|lambda a, b: tw.matmul(a, b, residual=a[:, :2])»)
asked(tw.matmul, n(«3|2, 3|4, 2, 3|1, 2, 3|5, 4, 2, 3|0, 3», dtype='float32'), n(«3|3, 2|4, 3, 5|5, 1, 3, 2|0, 3, 2», dtype='float32'))
asked(tw.linear, n(«3|2, 3|4, 2, 3|0, 3|3, 2», dtype='float32'), n(«4, 3|3|3, 4|1, 4, 3|0, 3», dtype='float32'), «None|n(4, dtype='float32')»)
asked(jax.grad(lambda a, b: tw.matmul(a, b, activation=«None|'gelu'|'tanh'», alpha=«1|2», arithmetic='f64', device='emulator').sum(), «0|1|(0, 1)»), n(«|4, »2, 3), n(«|4, »3, 2))
asked(jax.grad(lambda x, w, b: tw.linear(x, w, b, activation=«None|'relu'|'silu'», residual=«None|b», arithmetic='f64', device='gpu:1').sum(), «0|1|(0, 1, 2)»), n(«2, 3|4, 2, 3|3»), n(5, 3), n(5))
asked(twice(«'relu'|'silu'|None», «0|1», «0|1»), n(2, 3), n(3, 4))
asked(jax.vmap(lambda a, b: tw.matmul(a, b), («0|1|-1|None», «0|1|2|None»)), n(2, 2, 2), n(2, 2, 2))
asked(jax.vmap(lambda a, b, x: tw.matmul(a, b, residual=x), («0|None», «0|None», «0|-1»)), n(«4, 3|4, 2, 3|4, 4, 2, 3»), n(«4, 3|4, 3, 4»), n(4, 4))
asked(lambda a, b, c, x: tw.matmul(a, b, c=c, bias=x, beta=«None|0|1|1.0|2|-1», alpha=«1|0|0.5»), n(2, 3), n(3, 4), n(2, 4), n(4))
asked(lambda a, b, x: tw.matmul(a, b, bias=x), n(«2, 3|3|4, 2, 3», dtype='float32'), n(«3, 5|3|4, 3, 5», dtype='float32'), n(«*()|5|1|2|2, 1|2, 5|4, 2|4, 1, 5|1, 4, 2, 5», dtype='float32'))
asked(lambda a, b, x: tw.matmul(a, b, «bias|c|residual»=x), n(«2, 3|3|4, 2, 3», dtype='complex64'), n(«3, 5|3», dtype='float32'), n(«*()|1|2, 1», dtype='float32'))
asked(tw.matmul, n(2, 3, dtype='«float16|bfloat16|float32|float64|complex64|complex128|float8_e4m3fn|float8_e5m2|int8|int32|int64|uint8|bool|int16|uint32|int4»'), n(3, 4, dtype='«bfloat16|float32|float8_e4m3fn|int8|int64|bool»'))
asked(tw.matmul, n(2, 3, dtype='«float16|float32|int8|int32|uint8|bool|float8_e5m2|complex64»'), n(3, 4, dtype='«float16|float32|int8|int16|int32|bool|float8_e5m2|complex64»'), x64=False)
asked(lambda a, b, x: tw.matmul(a, b, bias=x), n(2, 3, dtype='«float16|float32|float64|complex64|float8_e4m3fn|int8|int32|int64»'), n(3, 4, dtype='«float32|int8»'), n(4, dtype='«bfloat16|float32|float64|complex64|int8|int32|float8_e5m2»'))
asked(lambda a, b, x: tw.linear(a, b, x, activation='tanh'), n(2, 3, dtype='«float16|float32|float64|int8|float8_e4m3fn|complex64|int32»'), n(4, 3, dtype='«float16|int8|complex64»'), «n(4, dtype='float16')|None»)
asked(lambda a, b: tw.matmul(a, b, «alpha=2|activation='relu'|beta=2, c=np.ones(4, 'f4')|bias=1|bias=1.5|bias=[1.0, 2.0, 3.0, 4.0]|residual=True|alpha=2, activation='silu', bias=np.ones(4, 'f4')»), n(2, 3, dtype='«float32|int8|int32|int64|complex64|float8_e4m3fn|bfloat16»'), n(3, 4, dtype='«float32|int8»'))
asked(jax.grad(lambda a, b: tw.matmul(a, b, bias=n(4, dtype='float16')).astype('float32').real.sum(), 0), n(2, 3, dtype='«float16|bfloat16|float32»'), n(3, 4, dtype='«float16|bfloat16|float32|float64|int8|int16|float8_e4m3fn|complex64»'))
asked(jax.grad(lambda x: tw.matmul(n(2, 3, dtype='float16'), n(3, 4, dtype='«float32|int8»'), «bias|residual»=x, activation=«None|'gelu'»).astype('float64').sum()), n(«4|2, 1|*()», dtype='«float16|float32»'))
asked(lambda b: tw.matmul(«[[1.0, 2.0, 3.0]]|np.ones((2, 3), 'f4')|np.ones((2, 3), '>f8')|np.ones((3, 2)).T[::-1]|((1, 2, 3),)|[1.0, 2.0]|[[1, 2, 3], [4]]|5|2.5|np.float32(2)|None|'ab'|object()|np.array(['a'])|np.array([object()] * 3)|range(3)|DEVICE.zeros((2, 3))|Stranger(np.ones((2, 3), 'f4'))|jax.random.key(0)|jax.random.split(jax.random.key(0), 3)|np.ma.masked_array(np.ones(3))», b), n(3, 2, dtype='float32'))
asked(lambda a: tw.«matmul|linear»(a, «np.ones((3, 2), 'f4')|np.ones((2, 3), 'f4')|np.ones(3, 'f4')|np.ones(2, 'f4')|np.ones((1, 3, 2), 'f4')|1.0|np.ones((3, 3), 'O')|[[1.0, 2.0, 3.0]] * 3|jax.random.key(0)|DEVICE.zeros((3, 3))»), n(«2, 3|3|4, 2, 3|*()», dtype='float32'))
asked(lambda a: tw.matmul(a, n(3, 4), «out=np.zeros((2, 4))|epilogue=tw.epilogue('acc + 1')|plan=tw.plan(2, 4, 3)|copy=False|copy=True|scale_a=2.0|scale_b=np.ones(4, 'f4')|bias=object()|bias=n(3)|bias='a'|bias=jax.random.key(0)|residual=n(4, 2)|residual=n(1, 2, 4)|residual=n(2, 4, dtype='complex64')|c=n(3), beta=1|beta=2.0|beta=0|beta=0.0|beta=1|beta='2', c=n(4)|beta=True, c=n(4)|beta=np.float32(2), c=n(4)|beta=2j, c=n(4)|alpha=True|alpha='1'|alpha=1j|alpha=None|alpha=np.float32(2)|alpha=np.ones(1)|alpha=a[0, 0]|beta=a[0, 0], c=n(4)|activation='rely'|activation='Relu'|activation=''|activation=5|arithmetic='f16'|arithmetic='f64'|arithmetic='tf32'|arithmetic='x'|arithmetic=5|device='tpu'|device='gpu:x'|device=5|device=DEVICE|device='emulator'»), n(2, 3))
asked(lambda x: tw.linear(x, n(4, 3), «out=np.zeros((2, 4))|plan=tw.plan(2, 4, 3)|copy=False|bias=object()|bias=n(3)|bias=n(2, 1)|bias=n(2, 4)|residual=n(4, 2)|residual=1.5|activation='rely'|arithmetic='f16'|arithmetic='f64'|device='tpu'|device=DEVICE»), n(2, 3))
asked(lambda x: tw.linear(x, «tw.quantize(np.ones((4, 3), 'f4'), 'int8', axis=-1)|split(np.ones((4, 3), 'f4'), -1)|n(4, 3)»), n(2, 3)), asked(lambda x: tw.matmul(x, «tw.quantize(np.ones((3, 4), 'f4'), 'int8', axis=-2)|split(np.ones((3, 4), 'f4'), -2)»), n(2, 3, dtype='bfloat16'))
asked(lambda a: tw.«grouped_matmul(a, n(1, 3, 4), [2])|grouped_matmul(n(2, 3), n(1, 3, 4), a)|batched_matmul([a], [n(3, 4)])|batched_matmul([n(4, 2)], [a])|batched_matmul(a, n(3, 4))|quantize(a)|split_float32(a, axis=-1)|matmul(n(4, 2), n(2, 3), a)|matmul(n(4, 2), n(2, 3), bias=a[0])|linear(n(4, 2), n(3, 2), a[0])|matmul(n(4, 2), n(2, 3), c=a[0], beta=2)|matmul(n(1, 2), n(2, 3), residual=a)|matmul(n(4, 2), n(2, 3), epilogue=tw.epilogue('acc + x', x=a[0]))», n(2, 3, dtype='float32'))
asked(lambda a: functions.matmul(a, a.T, «alpha=True|alpha='1'|beta=True, c=n(2)|beta=2.0|beta=0|beta=1, c=n(2)|beta=0, c=n(2)|beta='1', c=n(2)|alpha=a|beta=a, c=n(2)»), n(2, 3))
asked(functions.«matmul|linear», «n(2, 3)|np.ones((2, 3))|[[1.0, 2.0, 3.0]]|np.ones((2, 3), 'f4')|object()», «n(3, 3)|np.ones((3, 3), 'i4')|DEVICE.zeros((3, 3))»)
weak(lambda a, b: «tw.matmul(a, b)|tw.matmul(a, b * 1.0)|tw.matmul(a, b, bias=1.0)|tw.linear(a, b, residual=2)|tw.matmul(a, b, alpha=2, activation='relu')»)
asked(tw.linear, n(2, 3, dtype='«float8_e5m2|uint8|bool|int4»'), n(4, 3, dtype='«float32|int64|uint64»'))
functions.refuse(«out=None|out=1|epilogue=0|plan=()|copy=False|split_float32=[]|scale_a=1|scale_b=2|out=None, copy=True|x=1»)
[getattr(its_package, «'matmul'|'linear'|'JaxLibrary'|'functions_for'|'functions'|'nothing'|'__x__'», None) is not None, its_package.«linear.__module__|matmul.__name__|nothing|__all__|refuse»]
[None if one is None else one.__name__ for one in (jax_arrays.functions_for(«|n(2)|n(2), np.ones(2)|None, 5»), interop.operators_for(«|n(2)|np.ones(2)|5»))], traced_functions(«0|1|2|3»)
primitive.product_shape((4, 2, 3), «(3, 5)|(4, 3, 5)|(1, 3, 5)|(7, 4, 3, 5)|(5, 3, 5)», ProductAttributes(transpose_a=«True|False», transpose_b=«True|False»))
primitive.ACTIVATIONS.keys(), primitive._STACK_AXES, TARGET, list(handlers)
registered()
handled([(2, 3), (3, 4)], [(2, 4)], transpose_a=False, alpha=«1.0|2.0», arithmetic=«None|'tf32'», device=«None|'emulator'»)
handled([(4, 3, 2), (4, 3), (3,), (4, 1, 3)], [(4, 2, 3)] * 2, arrays=('bias', 'residual'), transpose_a=True, transpose_b=False, activation='relu', keep=True), handled([(4, 3, 2), (5, 3), (5,)], [(4, 2, 5)], arrays=('c',), beta=0.5, transpose_a=True, transpose_b=True)
handled([(2, 3), (3, 4)«, (4,)|»], [(2, 4)«, (2, 4)|»], arrays=«()|('bias',)», keep=«False|True»)
handled([(0, 3), (3, 4)], [(0, 4)]), handled([(2, 0), (0, 4)], [(2, 4)])
handled([(2, 3), (3, 4)], [(2, 4)], fails=«ArgumentError('a', 'must be x', 5, 'do y')|TilewiseError('it is so')|ValueError('no')|KeyboardInterrupt('stop')», on_gpu=«False|True»)
handled([(2, 3), (3, 4)], [(2, 4)], on_gpu=True, device=«None|'emulator'», workspace=«()|(64,)|(64, 256)», stream=«0|7», arithmetic='tf32')
handled([(2, 3), (3, 4)], [(2, 4)], on_gpu=True, workspace=(64,), memory=None), handled([(0, 3), (3, 4)], [(0, 4)], on_gpu=True)
handled([(2, 3), (3, 4)], [(2, 4)], on_gpu=True, workspace=(64, 32), fails=ArgumentError('a', 'must be x'))
handled([(2, 3), (3, 4)], [(2, 4)], «stage=1|struct_size=8|stage=3»)
in_call((4, 5), «'float16'|'float32'|'int8'», (3, 4, «5|0»), «'float32'|'bfloat16'», on_gpu=«True|False»)
XlaLibrary().move('b', «HOST|(2, 1)»), [getattr(one, name) for one in (XlaLibrary(), OwnLibrary(), jax_arrays.JaxLibrary(), interop.library_of('a', np.ones(1))) for name in ('name', 'preference', 'read_only_fix', 'tracks_gradients')]
emulated(lambda: tw.matmul(F, «F|np.asarray(F)|DEVICE.array(np.asarray(F))|Stranger(np.asarray(F))|THERE|object()», device=DEVICE))
emulated(lambda: tw.matmul(«THERE|np.asarray(F)|DEVICE.array(np.asarray(F))|Stranger(np.asarray(F), old=True)|frozen(np.asarray(F))|np.asarray(F)[::-1, ::-1]|np.asarray(F).astype('>f4')|[[1.0, 2.0], [3.0, 4.0]]|THERE[0]|THERE[:0]», F * 1, device=DEVICE))
emulated(lambda: jax.jit(tw.matmul)(«F, F|jax.device_put(F, jax.devices()[1]), F|THERE, THERE|np.asarray(F), np.asarray(F)|F[0], F»))
emulated(lambda: jax.grad(lambda a: tw.matmul(a, F, device='emulator').sum())(«F|THERE»))
emulated(lambda: tw.matmul(F, F, out=«F|np.zeros((2, 2), 'f4')|DEVICE.zeros((2, 2))|frozen(np.zeros((2, 2), 'f4'))», device=DEVICE))
emulated(lambda: tw.matmul(«SPLIT()|DELETED()|DONATED()|jax.random.key(0)|n(2, 2, dtype='int4')|n(2, 2, dtype='bool')», «F|object()», device=DEVICE))
emulated(lambda: tw.matmul(F, np.ones((2, 2)), device=DEVICE)), emulated(lambda: tw.matmul(n(2, 2, dtype='int32'), np.ones((2, 2), 'f4'), device=DEVICE))
emulated(lambda: tw.grouped_matmul(«F, THERE[None], [2]|F, n(1, 2, 2, dtype='float32'), n(1, dtype='int32')|np.asarray(F), F[None], np.array([2])|SPLIT(), F[None], [2]», device=DEVICE)), emulated(lambda: tw.batched_matmul(«[F, F], [THERE, F]|[np.asarray(F)], [THERE]|SPLIT(2), F», device=DEVICE))
"""


# ── products as XLA calls for them, and NumPy in the kernels' stead ─────────────────────────────────────────


@contextlib.contextmanager
def _noted(**instead: Any) -> Iterator[list[str]]:
    """What the handler asks of tw.matmul, which is NumPy's here."""
    notes: list[str] = []

    def matmul(
        a: Any, b: Any, out: Any, *, epilogue: Any = None, arithmetic: Any = None, device: Any = None
    ) -> None:
        given = {} if epilogue is None else dict(epilogue.given)
        text = "acc" if epilogue is None else epilogue.expression.text
        seen = {name: one for name, one in given.items() if isinstance(one, XlaBuffer)}
        factors = {name: one for name, one in given.items() if name not in seen}
        lie = [f"{name}: {lies(one)}" for name, one in {"a": a, "b": b, "out": out, **seen}.items()]
        notes.append(f"{text} {factors} {arithmetic} {device} {'; '.join(lie)}")
        for size in instead.get("workspace", ()):
            a.allocate(size)
        if "fails" in instead:
            raise instead["fails"]
        if a.space == HOST:
            _compute(a, b, out, text, {**seen, **factors})

    with mock.patch(
        "tilewise.interop.jax.ffi_target.tw", SimpleNamespace(matmul=matmul, epilogue=tw.epilogue)
    ):
        yield notes


def lies(one: XlaBuffer) -> str:
    """A buffer; of its address nothing."""
    elsewhere = f" at {one.space} on {one.stream}" if one.space != HOST or one.stream is not None else ""
    return f"{one.dtype} {one.shape} by {one.strides}{elsewhere}"


def _compute(a: XlaBuffer, b: XlaBuffer, out: XlaBuffer, text: str, given: dict[str, Any]) -> None:
    """The product, with what happens to its sums, by what the expression says."""
    arrays = {
        name: interop.numpy_of(interop.view(name, one)) if isinstance(one, XlaBuffer) else one
        for name, one in {"a": a, "b": b, "out": out, **given}.items()
    }
    kind = np.complex128 if "complex" in a.dtype + b.dtype else np.float64

    def keep(array: Any, value: Any) -> Any:
        array[...] = value
        return value

    sums = arrays["a"].astype(kind) @ arrays["b"].astype(kind)
    names = {name: one if name == "pre" else np.asarray(one).astype(kind) for name, one in arrays.items()}
    arrays["out"][...] = eval(text, {**_ACTIVATIONS, **names, "acc": sums, "keep": keep})


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


_ACTIVATIONS: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / 2 * (1 + _erf(x / 2**0.5)),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def ran(function: Callable[..., Any], *operands: Any, **static: Any) -> Any:
    """What a function of products gives, and the products that it made."""
    with jax_settings(), _noted() as notes:
        result = told(jax.tree.leaves(function(*operands, **static)), where=True)
    return result, sorted(set(notes))


def derived(function: Callable[..., Any], *operands: Any) -> Any:
    """Result, tangent, gradients, and tangents of gradients, of everything at once."""
    where = tuple(range(len(operands)))
    directions = tuple(n(*one.shape, dtype=str(one.dtype), by=2) for one in operands)

    def every(*given: Any) -> Any:
        def weighed(*given: Any) -> Any:
            found = function(*given)
            return (found * n(*found.shape, dtype=str(found.dtype), by=3)).sum().real

        moved = jax.jvp(function, given, directions)
        return moved, jax.jvp(jax.grad(weighed, where), given, directions)

    return ran(jax.jit(every), *operands)


def both_ways(function: Callable[..., Any], *operands: Any) -> Any:
    """Second derivatives by each of the ways."""

    def loss(a: Any, b: Any) -> Any:
        return (function(a, b) ** 2).sum()

    def every(a: Any, b: Any) -> Any:
        ways = ((jax.jacrev, jax.jacrev), (jax.jacrev, jax.jacfwd))
        return [outer(lambda b, inner=inner: inner(loss)(a, b))(b)[:, :, :1] for outer, inner in ways]

    return ran(jax.jit(every), *operands)


def moved(function: Callable[..., Any], operands: tuple[Any, ...], which: tuple[int, ...]) -> Any:
    """The tangent where some of the operands move; nothing is compiled, but by the product's own rule traced."""

    def some(*given: Any) -> Any:
        whole = list(operands)
        for at, one in zip(which, given, strict=True):
            whole[at] = one
        return function(*whole)

    primals = tuple(operands[at] for at in which)
    return asked(lambda *given: jax.jvp(some, given, given), *primals)


def batched_by(*axes: int | None) -> Any:
    """A product of which some of the operands are mapped: a, b, c and residual."""
    shapes = ((2, 3), (3, 2), (2, 1), (2,))
    operands = []
    for i, (shape, axis) in enumerate(zip(shapes, axes, strict=True)):
        longer = list(shape)
        if axis is not None:
            longer.insert(axis, 3)
        operands.append(n(*longer, by=i + 1))

    def product(a: Any, b: Any, c: Any, x: Any) -> Any:
        return tw.matmul(a, b, c=c, residual=x, beta=2, activation="relu")

    return ran(jax.jit(jax.vmap(product, axes)), *operands)


def twice(activation: str | None, first: int, second: int) -> Callable[..., Any]:
    """The gradient by one operand of what the gradient by another, or the same, has for its sum of squares."""

    def inner(*given: Any) -> Any:
        return jax.grad(lambda *x: (tw.matmul(*x, activation=activation) ** 2).sum(), first)(*given)

    return lambda *given: jax.grad(lambda *x: (inner(*x) ** 2).sum(), second)(*given)


def summed(dtype: str) -> Any:
    """The gradient of a bias, of which one term hides the others where they are not summed in a wider type."""
    weights = np.array([[2048.0], *([[1.0]] * 15)]).astype(n(1, dtype=dtype).dtype)

    def weighed(x: Any) -> Any:
        return (tw.matmul(n(16, 1, dtype=dtype), n(1, 1, dtype=dtype), bias=x) * weights).sum()

    return ran(jax.grad(weighed), n(1, dtype=dtype))


def nothing_moves(at: int) -> Any:
    """A gradient by what a product does not depend on, or that is not asked of it."""
    return ran(
        jax.grad(lambda a, b: (functions.matmul(jax.lax.stop_gradient(a), b) * a[0, 0]).sum(), at),
        n(2, 2),
        n(2, 2),
    )


def transposed_of_nothing(first: bool) -> Any:
    """What the rule gives where no cotangent arrives."""
    a, b = n(2, 3), n(3, 2)
    unknown = ad.UndefinedPrimal(jax.core.ShapedArray((2, 3) if first else (3, 2), np.dtype("float64")))
    zero = ad.Zero(jax.core.ShapedArray((2, 2), np.dtype("float64")))
    found = primitive._pull_back(
        [zero], *((unknown, b) if first else (a, unknown)), product=ProductAttributes()
    )
    return [None if one is None else (type(one).__name__, one.aval.shape) for one in found]


def shared(function: Callable[..., Any]) -> Any:
    """A product of what each of two devices has rows of, and its gradients."""
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("rows",))
    rows, whole = jax.sharding.PartitionSpec("rows", None), jax.sharding.PartitionSpec()

    def loss(a: Any, b: Any) -> Any:
        made = jax.shard_map(function, mesh=mesh, in_specs=(rows, whole), out_specs=rows)(a, b)
        return (made * n(4, 2, by=2)).sum()

    return ran(jax.jit(jax.grad(loss, (0, 1))), n(4, 3), n(3, 2))


# ── products as they are traced ───────────────────────────────────────────────────────────────────────────


def asked(function: Callable[..., Any], *operands: Any, x64: bool = True) -> Any:
    """The products that a function is traced to, and what it gives; nothing is compiled."""
    arrays = [
        i for i, one in enumerate(operands) if isinstance(one, jax.Array) and isinstance(one.dtype, np.dtype)
    ]

    def of_arrays(*given: Any) -> Any:
        whole = list(operands)
        for i, one in zip(arrays, given, strict=True):
            whole[i] = one
        return function(*whole)

    with jax_settings(x64):
        made = jax.make_jaxpr(of_arrays)(*(operands[i] for i in arrays))
    return [*_products(made.jaxpr), "gives", *map(_described, made.out_avals)]


def _products(program: Any) -> Iterator[str]:
    for one in program.eqns:
        if one.primitive.name == "tilewise_product":
            takes, gives = ([_described(each.aval) for each in many] for many in (one.invars, one.outvars))
            usual = ProductAttributes()._asdict()
            changed = {
                name: value for name, value in one.params["product"]._asdict().items() if value != usual[name]
            }
            yield f"{', '.join(takes)} → {', '.join(gives)} {changed or ''}"
        for value in one.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from _products(getattr(inner, "jaxpr", inner))


def _described(aval: Any) -> str:
    return f"{aval.dtype}{list(aval.shape)}{' weak' * bool(getattr(aval, 'weak_type', False))}"


def weak(function: Callable[..., Any]) -> Any:
    """A product of numbers that have no type of their own, as far as JAX knows."""
    return asked(lambda x: function(jnp.full((2, 2), 2.0) * x, jnp.full((2, 2), 1)), n(2, 2, dtype="float32"))


def traced_functions(at: int) -> Any:
    """The module that serves an array that is none yet, wherever it is among the operands."""
    found: list[Any] = []

    def look(x: Any) -> Any:
        given: list[Any] = [None, np.ones(2), 5, 6]
        given[at] = x
        found.append([interop.operators_for(*given), jax_arrays.functions_for(*given)])
        return x

    jax.eval_shape(look, n(2))
    return [one.__name__ for one in found[0]]


def registered() -> Any:
    """What XLA is told of the handlers, and JAX of the primitive."""
    found: list[Any] = []

    def register(name: str, handler: Any, platform: str, api_version: int) -> None:
        found.append((name, platform, handler is handlers[platform], api_version))

    with mock.patch.multiple(jax.ffi, pycapsule=lambda one: one, register_ffi_target=register):
        primitive._register()
    return found, primitive._product.name, primitive._product.multiple_results


# ── the handler ──────────────────────────────────────────────────────────────────────────────────────────


def handled(
    shapes: list[tuple[int, ...]], results: list[tuple[int, ...]], on_gpu: bool = False, stream: int = 0,
    memory: int | None = 4096, workspace: tuple[int, ...] = (), fails: BaseException | None = None, **given: Any,
) -> Any:  # fmt: skip
    """A call of the handler, as XLA makes it: its error, results, what it asked for, and memory that it gave back."""
    frame = {name: given.pop(name) for name in ("stage", "struct_size") if name in given}
    operands = [np.array(n(*shape, by=i + 1, dtype="float32")) for i, shape in enumerate(shapes)]
    outs = [np.full(shape, 99, np.float32) for shape in results]
    xla = FakeXla(stream, None if memory is None else lambda size: memory + size)
    taken, given_back = (
        [(one.ctypes.data, one.shape, str(one.dtype)) for one in many] for many in (operands, outs)
    )
    asked_for: list[bool] = []

    def find_gpu(address: int) -> Any:
        asked_for.append(address == outs[0].ctypes.data)
        return SimpleNamespace(ordinal=3)

    instead: dict[str, Any] = {"workspace": workspace} | ({} if fails is None else {"fails": fails})
    with _noted(**instead) as notes, mock.patch.object(gpu, "find_gpu", find_gpu):
        error = xla.call(
            handlers["CUDA" if on_gpu else "cpu"], taken, given_back, ProductAttributes(**given), **frame
        )
    return error, told(outs), notes, xla.freed, asked_for


def in_call(shape: tuple[int, ...], dtype: str, wanted: tuple[int, ...], kind: str, on_gpu: bool) -> Any:
    """A buffer of a call as a view, and what is made like it; and the buffer turned."""
    sizes: list[int] = []

    def allocate(size: int) -> int:
        sizes.append(size)
        return 4096

    where: dict[str, Any] = (
        {"space": (2, 1), "stream": 7, "allocate": allocate} if on_gpu else {"space": HOST}
    )
    one = XlaBuffer.in_rows(64, shape, dtype, **where)
    view = interop.view("a", one)
    made = view.library.empty(wanted, kind, view)
    turned = one.transposed()
    assert (
        view.owner is one
        and turned.allocate is one.allocate
        and getattr(made, "allocate", None) is one.allocate
    )
    fields = [
        (each.ptr, lies(each)) if isinstance(each, XlaBuffer) else (each.dtype.name, each.shape)
        for each in (one, turned, made)
    ]
    return view.ptr, view, view.library.stream(view), fields, sizes


# ── on the emulator ───────────────────────────────────────────────────────────────────────────────────────


def emulated(call: Callable[[], Any], x64: bool = False) -> Any:
    """What a call gives on the emulator."""
    with jax_settings(x64), mock.patch.dict(os.environ, {"TILEWISE_DEVICE": "emulator"}):
        return told(call(), where=True)
