"""Epilogues: expressions as they are read, what they become in CUDA C++ and by numbers, what is given to them, the steps of
optimisers; scales, and how results are compared with what they are to be."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tilewise as tw
from tilewise import expression, interop, scales, slots
from tilewise.epilogue import (
    Fused,
    bits_of,
    describe_dense,
    express,
    fit,
    join_epilogue,
    refuse_scales,
    sums_of,
    view_arrays,
)
from tilewise.error_bounds import Bounded, BoundedArithmetic
from tilewise.kernels.epilogue import epilogue_header

LINES = """
read('acc'), read('acc'), read('-acc + +x'), read('acc * s / t - 2 ** 3')
read('«Acc|ACC|acc_|_acc|acc2|Relu|Keep|SCALED|x1|_|__x__|whole|c|alpha» + acc * «s|S|ACC»')
read('acc ** «0|1|8|9|-1|2.0|x»')
read('«abs|exp|log|sqrt|rsqrt|erf|relu|gelu|gelu_tanh|silu|tanh|sigmoid|relu_grad|tanh_grad|nothing|keep|scaled»(acc)')
read('«min|max|clamp|where|abs»(acc«|, 1|, 1, 2|, 1, 2, 3»)')
read('where(acc «<|<=|>|>=|==|!=|is|in» x, 1, 2)')
read('1 if «acc > 0|acc|not acc > 0|acc > 0 and x < 1|acc > 0 or x < 1 and y > 2|0 < acc < 1|True|not acc» else 2')
read('«acc > 1|not acc|True|acc and x|None|"a"|[1]|acc[0]|acc.x|lambda: 1|acc @ x|acc // 2|acc % 2|acc & 1|~acc|f(acc)|(acc).f(1)|1j|1e999|10 ** 2|acc if acc else 1»')
read('keep(«x, acc|x|acc, x|1, acc|x, acc, 1|x, x|f(x), acc|keep(y, x), acc»)')
read('column_sums(«x, acc|x|acc, x|x, x + acc»)')
read('row_sums(«x, acc|acc, x|x, x|x, x * acc»)')
read('«keep|column_sums|row_sums»(x, acc) + «keep|column_sums|row_sums»(x, acc)')
read('«keep(x, acc)|column_sums(x, acc)|acc + keep(x, acc)|where(acc > 1, keep(x, acc), 2)|keep(x, keep(y, acc))»')
read('scaled(«acc, x, y|acc, x, 1|acc, 1, y|acc, 1, 1|acc, x, x|x, acc, y|acc, x|acc, x, 2|acc, acc, x|acc, relu, x|acc, x, 1.0»)')
read('scaled(acc, x, y) «+ acc|+ x|* scaled(acc, x, y)|* scaled(acc, y, x)|+ z»')
read('«relu(x=acc)|relu(*acc)|relu|keep|scaled + acc|where + 1»')
read('«|  |acc +|(acc|acc)|1 +* 2|acc acc|a;b|ä + acc|acc + ä|keep(ä, acc)|  acc + x  »')
read('acc' + ' + x' * «498|499|500»)
read('-' * «98|99|100|101» + 'acc')
read('«0|1|1.5|1e300|1e-300|True|10000000000000000000000|3.» * acc')
cuda('acc * 2 + x'), cuda('where(acc > 0 and not x < 1 or y == 2, -acc, +acc)'), cuda('relu(acc) if acc >= 1 else acc ** 3 - x / 4')
cuda('keep(m, acc * 2) + row_sums(r, keep(n, acc)) + column_sums(c, m)'), cuda('scaled(acc, a, b) * min(1, max(2, acc_))')
expression.parse('«acc|acc + x|acc * s|acc * x|s * x + acc|x + s|acc / s|acc / x|acc ** 2|s ** 2 * acc|relu(acc)|-acc|1 - acc|s - s + 1|acc if 1 > 0 else x|(acc + x) * (s + s)|acc * s * s|2|x|s / x»').is_linear(['s'])
expression.parse('«keep(x, acc)|acc + keep(x, acc)|column_sums(x, acc)|acc»').value_array
bounded('«acc + 1|acc - s|acc * s|acc / s|-acc|+acc|acc ** 3|acc ** 0|abs(acc)|exp(acc)|log(acc * acc)|sqrt(acc * acc)|rsqrt(acc * acc)|erf(acc)|relu(acc)|gelu(acc)|gelu_tanh(acc)|silu(acc)|tanh(acc)|sigmoid(acc)|relu_grad(acc)|gelu_grad(acc)|gelu_tanh_grad(acc)|silu_grad(acc)|tanh_grad(acc)|sigmoid_grad(acc)|min(acc, s)|max(acc, s)|clamp(acc, -1, 1)»')
bounded('where(acc «<|<=|>|>=|==|!=» s, acc, 0)'), bounded('where(acc > 0 «and|or» not acc < s, 1, keep(x, acc))')
tw.epilogue(«'acc'|'acc + x'|5|None|'acc + s * t'|'keep(x, acc)'|'row_sums(x, acc)'|'scaled(acc, x, 1)'», **«{}|{'x': 1.0}|{'x': z(3)}|{'s': 1, 't': 2}|{'t': 2.0, 's': z(2)}|{'x': True}»)
express(«None|z(3)», «None|'relu'|'gelu'|'swish'|5», «None|z(2)», «1.0|2|0.0|True|None|1j|'1'|z(1)», «None|0|1|2.5|True|'b'», «None|z(4)»)
join_epilogue(None, «None|'relu'», None, «1.0|2.0», None, None, «None|tw.epilogue('acc * 2')|5»)
view_arrays(«None|5|'acc'|tw.epilogue('acc + x', x=z(3))|tw.epilogue('acc * s', s=2)|tw.epilogue('acc + x', x=[1, 2])|tw.epilogue('acc + x', x=object())»)
view_arrays(tw.epilogue('«keep|column_sums|row_sums»(x, acc)', x=«z(3)|z(2, 3)|z()|read_only(z(3))|[1.0]|np.broadcast_to(z(1), (3,))»))
view_arrays(tw.epilogue('keep(k, acc) * s + x + column_sums(c, acc) + row_sums(r, acc)', s=2, k=z(2, 3), x=z(3), c=z(3), r=z(2)))
[getattr(Fused(«'acc'|'acc * 2'|'keep(x, acc)'|'acc + keep(x, acc)'», kept=«()|('x',)», column_sums=('c',), row_sums=('r',)), each) for each in ('is_plain', 'written', 'summed', 'value_array', 'form')]
fitted('acc + x', «(2, 3)|(4, 2, 3)|(3,)|()», 'float32', x=z(«3|1|2, 3|2, 1|4, 1, 3|4|2|1, 1, 1, 3|»))
fitted('acc + x', (2, 3), «'float32'|'float64'|'float16'|'int8'|'int32'|'int64'|'complex64'|'complex128'|'float8_e5m2'», x=typed(2, 3, dtype=«'float16'|'bfloat16'|'float32'|'float64'|'int8'|'int32'|'complex64'|'complex128'|'bool'»))
fitted('keep(x, acc)', «(2, 3)|(1, 2, 3)», «'float32'|'float64'», x=typed(2, 3, dtype=«'float16'|'float32'|'float64'|'int8'|'float8_e4m3fn'|'int32'»))
fitted('acc + keep(x, x + acc)', (2, 3), 'float32', x=typed(«2, 3|3|1, 3», dtype=«'float32'|'int8'»))
fitted('column_sums(x, acc)', «(2, 3)|(4, 2, 3)|(3,)|(5, 4, 2, 3)», 'float32', x=z(«3|2|4, 3|1, 3|5, 4, 3|»))
fitted('row_sums(x, acc)', «(2, 3)|(4, 2, 3)|(2,)», 'float32', x=z(«2|3|4, 2|2, 1»))
fitted('acc * s', (2, 3), «'float32'|'int8'|'int32'|'complex64'», s=2)
fitted('relu(acc)', (2, 3), «'complex64'|'float32'»)
fitted('acc * s + x', (2, 3), 'complex64', s=2, x=typed(«2, 3|2, 1|3», dtype='complex64'))
fitted('scaled(acc, x, 1)', (2, 3), «'float8_e4m3fn'|'int8'|'bfloat16'|'float64'», x=typed(2, 1, dtype=«'float32'|'float16'»))
fitted('scaled(acc, 1, x)', (2, 3), 'bfloat16', ('bfloat16', «'int8'|'bfloat16'|'float8_e5m2'»), x=z(1, 3))
refuse_scales(view_arrays(tw.epilogue(«'acc + x'|'scaled(acc, x, 1)'», x=z(2, 1))), 'lists')
dense('scaled(acc, «x, 1|1, x»)', («2|128|129|300», «3|128|129|300»), «100|128|129|256», x=z(«1, 1|2, 1|1, 2|3, 1|1, 3|2, 2|300, 3|3, 300|2, 3|3, 2»))
dense('scaled(acc, 1, x)', (300, 256), 256, grouped=«True|False», x=z(«4, 1, 2|4, 2, 2|4, 1, 256|1, 1|2, 256|4, 2, 256»))
dense('acc + x + s', «(2, 3)|(4, 2, 3)», 8, x=z(«2, 3|1, 3|2, 1|3|1|»), s=2)
dense(«'acc'|'acc * s'», (2, 3), 8, **«{}|{'s': 1.5}»)
sums_of(«'float16'|'float64'|'int8'|'int32'|'int64'|'complex64'|'complex128'|'float8_e4m3fn'», 'bias')
bits_of([('s', «0.5|-1|1e39|float('nan')|2**70»), ('t', 1.0)], «'float32'|'float64'»)
header('acc * s + x', «'float32'|'float64'»), header('keep(x, acc) + s', 'float32')
tw.sgd(master=z(2, 3), rate=«0.1|z(3)», momentum=«None|z(2, 3)», decay=«0|0.0|0.5|z(1)», scale=«1|1.0|2|True|z(1)»)
tw.sgd(z(2, 3), rate=0.1, momentum=z(2, 3), mu=«0.9|0.5|0»)
tw.adam(z(2, 3), first=z(2, 3), second=z(2, 3), step=«0|1|10|1.5|-1|True», rate=0.1, betas=«(0.9, 0.999)|(0, 0)|(1, 0.5)|(0.5, 1)|(-0.1, 0.5)»)
tw.adam(z(2, 3), first=z(2, 3), second=z(2, 3), step=2, rate=0.1, epsilon=«1e-8|1e-3», decay=«0.0|0.01», scale=«1|2.0»)
scales.numbers_sharing(«(2, 300)|(256, 1)|(0, 3)», «(2, 1)|(1, 1)|(2, 3)|(1, 300)|(2, 300)»)
scales.check_scale('s', «(2, 1)|(1, 1)|(2, 3)|(2, 2)|(1, 300)|(2, 300)|(300,)|(1, 2, 1)|()», «(2, 300)|(2, 256)|(1, 2, 300)|(300,)»)
scales.check_scale('s', «(4, 2, 1)|(1, 2, 1)|(2, 2, 1)|(1, 1, 3)», «(4, 2, 300)|(300, 2, 300)»)
scales.spread(np.arange(6.0).reshape(2, 3), («2|200|256», «3|300|384»), («0|1|128», «0|1|128»))
scales.spread_scale('s', np.ones((«1|2», «1|3»), 'float32'), (2, 300))
tw.quantize(numbers(«1, 3|3, 5|2, 3, 4|0, 4|3, 0»), «'float8_e4m3fn'|'float8_e5m2'|'int8'|'uint8'|'float16'», axis=«None|-1|-2|0|1|2|-3|True|1.0»)
tw.quantize(numbers(«2, 300|130, 256|1, 128|2, 129, 257|0, 200»), axis=«None|-1|-2|1|0», block=«None|128|64|(128, 128)|(128, 64)|128.0»)
tw.quantize(«z(3)|z()|z(1, 1, 1, 2)|z(1, 1, 1, 1, 2)|5|[[1.0, 2.0]]|typed(2, 2, dtype='float64')|typed(2, 2, dtype='float16')|typed(2, 2, dtype='int8')|typed(2, 2, dtype='bfloat16')|object()», 'int8')
tw.quantize(np.array([«[0.0, 0.0]|[1e-45, 0.0]|[1e-38, 3e-39]|[float('nan'), 1.0]|[float('inf'), 1.0]|[-4.0, 3.0]|[127.5, -128.0]|[0.5, 1.5]|[-1.0, 0.25]»], 'float32'), «'int8'|'float8_e4m3fn'|'float8_e5m2'», axis=-1)
tw.quantize(numbers(3, 5), 'int8', axis=-1).mT, tw.quantize(numbers(2, 3, 5), 'int8', axis=-1).mT
tw.quantize(numbers(3, 300), 'int8', axis=-1, block=«None|128»).dequantize(«'float32'|'float16'|'bfloat16'|'float64'|5»)
tw.quantize(numbers(130, 300), 'float8_e4m3fn', block=(128, 128)).dequantize()
quantized(«z(2, 3)|typed(2, 3, dtype='int8')|typed(3, dtype='int8')|[[1, 2]]|typed(2, 3, dtype='float8_e5m2')», «z(2, 1)|z(1, 1)|z(3, 1)|z(2)|typed(2, 1, dtype='float16')|z(2, 3)|5.0»).dequantize()
[slots.Slot(bytes(16), (slots.Gap(0, 'a'), slots.Gap(8, 'b', 4, 4))).fill({'a': «0|7|2**40», 'b': 1}), slots.constant(«'I'|'f'|'q'», 3), slots.table_of([1, 2, 2**40]), slots.places_of('a')]
slots.joined(slots.Slot(bytes(8), (slots.Gap(0, 'a'),)), slots.constant('I', 1), slots.Slot(bytes(8), (slots.Gap(0, 'b', 3, 8),)))
compare(typed(2, 2, dtype='float32', value=«2|24|0.5»), quantized(typed(2, 3, dtype='int8', value=2), np.full(«(2, 1)|(2,)|(1, 3)», «0.5|2.0», 'float32')), «typed(3, 2, dtype='float32')|quantized(typed(3, 2, dtype='int8'), np.full((1, 2), 2.0, 'float32'))»)
str(compare([[«1.0|1.0000001|1.001|2.0|float('nan')|float('inf')|-1.0»]], [[1.0]], [[1.0]]))
compare(typed(2, 2, dtype=«'float16'|'bfloat16'|'float32'|'float64'|'int32'|'int8'|'float8_e4m3fn'»), typed(2, 3, dtype=«'float16'|'float32'|'float64'|'int8'|'float8_e4m3fn'»), typed(3, 2, dtype=«'float16'|'float32'|'int8'»))
shares(typed(2, 2, dtype='float32', value=«24|24.000001|24.0001|24.01|24.5»), typed(2, 3, dtype=«'float16'|'float32'|'float8_e4m3fn'|'bfloat16'», value=«2|4»), typed(3, 2, dtype=«'float16'|'float32'|'float8_e4m3fn'», value=«2|4»), accumulate=«None|'float16'|'bfloat16'|'float64'|'float32'|'int32'», terms=«0|3|100»)
shares(typed(2, 2, dtype=«'float32'|'float16'», value=«12.0|12.02»), typed(2, 3, dtype='float32', value=2), typed(3, 2, dtype='float32', value=2), arithmetic=«None|'tf32'|'exact32'|'f16'|'f32'»)
shares(typed(2, 2, dtype='float16', value=12.01), typed(2, 3, dtype='float16', value=2), typed(3, 2, dtype='float16', value=2), arithmetic=«None|'f16'»)
shares(typed(2, 2, dtype=«'float32'|'float16'», value=700.5), typed(2, 700, dtype=«'float16'|'bfloat16'»), typed(700, 2, dtype='float16'), accumulate=«'float16'|'bfloat16'|'float32'»)
shares(typed(2, 2, dtype=«'float8_e4m3fn'|'float8_e5m2'|'int8'», value=«-3000|3000|12|13|14»), typed(2, 3, dtype='float32', value=«2|1000»), typed(3, 2, dtype='float32', value=«2|-2|1000»))
shares(typed(2, 2, dtype='float16', value=«float('inf')|-float('inf')|65504»), typed(2, 3, dtype='float16', value=300), typed(3, 2, dtype='float16', value=300), arithmetic=«None|'f16'»)
shares(typed(«2, 2|2|1, 2», dtype='float32', value=13), typed(2, 3, dtype='float32', value=2), typed(3, 2, dtype='float32', value=2), epilogue=«None|tw.epilogue('acc + 1')|tw.epilogue('relu(acc) * s', s=1.08)|tw.epilogue('keep(x, acc + 1)', x=z(2, 2))|tw.epilogue('column_sums(x, acc)', x=z(2))», kept=«None|'x'|'y'»)
shares(typed(2, 2, dtype=«'complex64'|'complex128'|'float32'», value=12), typed(2, 3, dtype='complex64', value=2), typed(«3, 2|3», dtype=«'complex64'|'complex128'|'float32'», value=«2|2.001»), arithmetic=«None|'tf32'»)
compare(typed(2, 2, dtype=«'int32'|'int8'|'int64'», value=«12|13|-244|268»), typed(2, 3, dtype='int8', value=«2|100»), typed(3, 2, dtype='int8', value=2))
tw.reference.poisoned((2,), «'float32'|'int8'|'uint8'|'complex64'|'float64'»), tw.reference.multiply(typed(2, 3, dtype=«'int8'|'complex64'|'float16'»), z(3, 2))
"""


def z(*shape: int) -> npt.NDArray[Any]:
    """Zeros of float32."""
    return np.zeros(shape, np.float32)


def typed(*shape: int, dtype: str, value: complex = 1) -> npt.NDArray[Any]:
    """Elements of a type that are all the same."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    with np.errstate(all="ignore"):
        return np.full(shape, value).astype(kind)


def numbers(*shape: int) -> npt.NDArray[Any]:
    """Numbers of both signs, each another."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 37 % 101 - 50) / 8).astype(np.float32).reshape(shape)


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def read(text: str) -> Any:
    """An expression's names, by what they are; a refusal as it is, with its mark."""
    found = expression.parse(text)
    return (
        found.text,
        found.names,
        found.kept,
        found.column_sums,
        found.row_sums,
        found.scales,
        found.given,
        found.written,
    )


def cuda(text: str) -> Any:
    found = expression.parse(text)
    return found.stored_in_cuda(), found.in_cuda()


def bounded(text: str) -> Any:
    """An expression's values at a few numbers, and how far off they may be where the sums are off by a little."""
    arithmetic = BoundedArithmetic(2.0**-24, 2.0**-149)
    sums = np.array([-20.0, -1.5, -0.25, 0.0, 0.5, 1.0, 3.0, 30.0])
    values = {
        "acc": Bounded(sums, np.full(8, 1e-3)),
        "s": arithmetic.number(1.5),
        "x": arithmetic.array(sums),
    }
    with np.errstate(all="ignore"):
        found = expression.parse(text).evaluate(arithmetic, values)
    value, error = np.broadcast_to(found.value, 8), np.broadcast_to(found.error, 8)
    return [f"{one:.4g}±{off:.4g}" for one, off in zip(value, error, strict=True)]


def fitted(
    text: str, shape: tuple[int, ...], dtype: str, types: tuple[str, str] | None = None, **given: Any
) -> Any:
    """The arrays of an epilogue as a product of a type takes them."""
    made = fit(view_arrays(tw.epilogue(text, **given)), shape, dtype, types or (dtype, dtype))
    return {name: (view, interop.numpy_of(view)) for name, view in made.arrays.items()}


def dense(text: str, shape: tuple[int, ...], k: int, grouped: bool = False, **given: Any) -> Any:
    call = None if text == "acc" and not given else tw.epilogue(text, **given)
    kind = "float8_e4m3fn" if "scaled" in text else "float32"
    return describe_dense(call, shape, k, (kind, kind), grouped)


def header(text: str, sums: str) -> str:
    """The header that an epilogue is compiled with."""
    arrays: dict[str, Any] = {name: z(2, 3) for name in expression.parse(text).given if name != "s"}
    numbers_: dict[str, Any] = {"s": 1.5} if "s" in expression.parse(text).given else {}
    return epilogue_header(dense(text, (2, 3), 8, **arrays, **numbers_), sums)


def quantized(values: Any, scale: Any) -> Any:
    return tw.Quantized(values, scale)


def shares(*arrays: Any, **how: Any) -> Any:
    """Whether a result is right, and at how much of what it may be off."""
    found = tw.reference.compare(*arrays, **how)
    return found.ok, f"{found.worst:.3g}", found.where, found.failures, found.elements


compare = tw.reference.compare
