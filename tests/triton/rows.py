"""Softmax, layer norm and attention in Triton's language: what stands around matrix products in a network."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    """A row a program, held in registers."""
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + j, mask=j < columns, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * stride + j, power / tl.sum(power, 0), mask=j < columns)


@triton.jit
def softmax_of_long_rows(x, out, columns, stride, BLOCK: tl.constexpr):
    """A row a program, in two passes over it: the first keeps a running maximum and a running sum."""
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        value = tl.load(x + row * stride + start + j, mask=start + j < columns, other=-1e30).to(tl.float32)
        higher = tl.maximum(highest, value)
        total = total * tl.exp(highest - higher) + tl.exp(value - higher)
        highest = higher
    most = tl.max(highest, 0)
    whole = tl.sum(total * tl.exp(highest - most), 0)
    for start in range(0, columns, BLOCK):
        here = start + j < columns
        value = tl.load(x + row * stride + start + j, mask=here).to(tl.float32)
        tl.store(out + row * stride + start + j, tl.exp(value - most) / whole, mask=here)


@triton.jit
def layer_norm(x, weight, bias, out, means, rates, columns, eps, BLOCK: tl.constexpr):
    """A row a program; keeps mean and 1/deviation for the way back."""
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    here = j < columns
    value = tl.load(x + row * columns + j, mask=here, other=0).to(tl.float32)
    mean = tl.sum(value, 0) / columns
    apart = tl.where(here, value - mean, 0.0)
    rate = 1 / tl.sqrt(tl.sum(apart * apart, 0) / columns + eps)
    result = apart * rate * tl.load(weight + j, mask=here) + tl.load(bias + j, mask=here)
    tl.store(out + row * columns + j, result, mask=here)
    tl.store(means + row, mean)
    tl.store(rates + row, rate)


@triton.jit
def layer_norm_back(
    x,
    weight,
    means,
    rates,
    grad,
    to_x,
    to_weight,
    to_bias,
    columns,
    BLOCK: tl.constexpr,
):
    """The gradients; those of weight and bias are sums over rows, by atomic additions."""
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    here = j < columns
    mean, rate = tl.load(means + row), tl.load(rates + row)
    value = tl.load(x + row * columns + j, mask=here, other=0).to(tl.float32)
    given = tl.load(grad + row * columns + j, mask=here, other=0).to(tl.float32)
    normal = tl.where(here, (value - mean) * rate, 0.0)
    scaled = given * tl.load(weight + j, mask=here, other=0).to(tl.float32)
    along = tl.sum(normal * scaled, 0) / columns
    level = tl.sum(scaled, 0) / columns
    tl.store(to_x + row * columns + j, (scaled - normal * along - level) * rate, mask=here)
    tl.atomic_add(to_weight + j, given * normal, mask=here)
    tl.atomic_add(to_bias + j, given, mask=here)


@triton.jit
def block_of(x, head, rows, length, D: tl.constexpr):
    """Rows of one head, zeros where there are none."""
    d = tl.arange(0, D)
    place = x + (head * length + rows[:, None]) * D + d[None, :]
    return tl.load(place, mask=rows[:, None] < length, other=0)


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    levels,
    length,
    scale,
    D: tl.constexpr,
    BQ: tl.constexpr,
    BK: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Some queries of one head a program, key block after key block; ``levels`` are logarithms of sums."""
    head, d = tl.program_id(1), tl.arange(0, D)
    i = tl.program_id(0) * BQ + tl.arange(0, BQ)
    queries = block_of(q, head, i, length, D)
    most = tl.full((BQ,), -float("inf"), tl.float32)
    total = tl.zeros((BQ,), tl.float32)
    result = tl.zeros((BQ, D), tl.float32)
    end = min(length, (tl.program_id(0) + 1) * BQ) if CAUSAL else length
    for start in range(0, end, BK):
        j = start + tl.arange(0, BK)
        keys = block_of(k, head, j, length, D)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * scale
        seen = j[None, :] < length
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        scores = tl.where(seen, scores, -1e30)
        higher = tl.maximum(most, tl.max(scores, 1))
        shrink = tl.exp(most - higher)
        power = tl.exp(scores - higher[:, None])
        total = total * shrink + tl.sum(power, 1)
        values = block_of(v, head, j, length, D)
        result = tl.dot(power.to(values.dtype), values, result * shrink[:, None], input_precision=PRECISION)
        most = higher
    place = out + (head * length + i[:, None]) * D + d[None, :]
    tl.store(place, (result / total[:, None]).to(out.dtype.element_ty), mask=i[:, None] < length)
    tl.store(levels + head * length + i, most + tl.log(total), mask=i < length)


@triton.jit
def attention_back_keys(
    q,
    k,
    v,
    out,
    grad,
    levels,
    to_k,
    to_v,
    length,
    scale,
    D: tl.constexpr,
    BQ: tl.constexpr,
    BK: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients of some keys and values of one head: query block after query block."""
    head, d = tl.program_id(1), tl.arange(0, D)
    j = tl.program_id(0) * BK + tl.arange(0, BK)
    keys, values = block_of(k, head, j, length, D), block_of(v, head, j, length, D)
    of_keys, of_values = tl.zeros((BK, D), tl.float32), tl.zeros((BK, D), tl.float32)
    begin = (tl.program_id(0) * BK // BQ) * BQ if CAUSAL else 0
    for start in range(begin, length, BQ):
        i = start + tl.arange(0, BQ)
        queries, given = block_of(q, head, i, length, D), block_of(grad, head, i, length, D)
        level = tl.load(levels + head * length + i, mask=i < length, other=0)
        weighed = tl.sum(given.to(tl.float32) * block_of(out, head, i, length, D).to(tl.float32), 1)
        seen = (i[None, :] < length) & (j[:, None] < length)
        if CAUSAL:
            seen = seen & (j[:, None] <= i[None, :])
        scores = tl.dot(keys, tl.trans(queries), input_precision=PRECISION) * scale
        power = tl.where(seen, tl.exp(scores - level[None, :]), 0.0)
        of_values = tl.dot(power.to(given.dtype), given, of_values, input_precision=PRECISION)
        slope = tl.dot(values, tl.trans(given), input_precision=PRECISION) - weighed[None, :]
        of_keys = tl.dot(
            (power * slope * scale).to(queries.dtype), queries, of_keys, input_precision=PRECISION
        )
    place = (head * length + j[:, None]) * D + d[None, :]
    tl.store(to_k + place, of_keys, mask=j[:, None] < length)
    tl.store(to_v + place, of_values, mask=j[:, None] < length)


@triton.jit
def attention_back_queries(
    q,
    k,
    v,
    out,
    grad,
    levels,
    to_q,
    length,
    scale,
    D: tl.constexpr,
    BQ: tl.constexpr,
    BK: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients of some queries of one head: key block after key block."""
    head, d = tl.program_id(1), tl.arange(0, D)
    i = tl.program_id(0) * BQ + tl.arange(0, BQ)
    queries, given = block_of(q, head, i, length, D), block_of(grad, head, i, length, D)
    level = tl.load(levels + head * length + i, mask=i < length, other=0)
    weighed = tl.sum(given.to(tl.float32) * block_of(out, head, i, length, D).to(tl.float32), 1)
    of_queries = tl.zeros((BQ, D), tl.float32)
    end = min(length, (tl.program_id(0) + 1) * BQ) if CAUSAL else length
    for start in range(0, end, BK):
        j = start + tl.arange(0, BK)
        keys, values = block_of(k, head, j, length, D), block_of(v, head, j, length, D)
        seen = j[None, :] < length
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * scale
        power = tl.where(seen, tl.exp(scores - level[:, None]), 0.0)
        slope = tl.dot(given, tl.trans(values), input_precision=PRECISION) - weighed[:, None]
        of_queries = tl.dot(
            (power * slope * scale).to(keys.dtype), keys, of_queries, input_precision=PRECISION
        )
    tl.store(to_q + (head * length + i[:, None]) * D + d[None, :], of_queries, mask=i[:, None] < length)
