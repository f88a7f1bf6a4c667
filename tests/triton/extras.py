"""Small kernels in Triton's language for what stands outside of matrix products: scans, sorts, atomics, casts, …"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def scans(x, sums, products, maxima, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + i)
    tl.store(sums + i, tl.cumsum(value, 1, reverse=True))
    tl.store(products + i, tl.cumprod(value, 0))
    tl.store(maxima + i, tl.associative_scan(value, 1, larger))


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def reductions(x, by_row, by_column, most, where_least, parity, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(by_row + rows, tl.sum(value, 1))
    tl.store(by_column + columns, tl.sum(value, 0))
    tl.store(most, tl.max(value))
    tl.store(where_least + rows, tl.argmin(value, 1))
    tl.store(parity + columns, tl.xor_sum(value, 0))


@triton.jit
def sorted_rows(x, up, down, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + i)
    tl.store(up + i, tl.sort(value, 1))
    tl.store(down + i, tl.sort(value, 1, descending=True))


@triton.jit
def counts(x, inside, atomically, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.store(inside + tl.arange(0, BINS), tl.histogram(value, BINS, mask=i < n))
    tl.atomic_add(atomically + value, 1, mask=i < n)


@triton.jit
def atomics(x, whole, real, old, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    zero = i * 0
    tl.atomic_max(whole + zero, value)
    tl.atomic_min(whole + 1 + zero, value)
    tl.atomic_or(whole + 2 + zero, value)
    tl.atomic_and(whole + 3 + zero, value)
    tl.atomic_xor(whole + 4 + zero, value)
    tl.atomic_add(real + zero, value.to(tl.float32))
    tl.atomic_max(real + 1 + zero, value.to(tl.float32))
    tl.atomic_min(real + 2 + zero, value.to(tl.float32))
    tl.store(old + i, tl.atomic_xchg(old + i, value))


@triton.jit
def half_atomics(x, sums, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(sums + i, tl.load(x + tl.program_id(0) * BLOCK + i))


@triton.jit
def locked(lock, count, BLOCK: tl.constexpr):
    """Programs that wait for one another, and each adds one."""
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(count, tl.load(count, volatile=True) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def gathers(x, index, out, inside, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    at = tl.load(index + i)
    tl.store(out + i, tl.load(x + at))
    tl.store(inside + i, tl.gather(tl.load(x + i), at % COLUMNS, 1))


@triton.jit
def transposed(x, out, rows, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + r[:, None] * columns + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < columns))
    tl.store(
        out + c[:, None] * rows + r[None, :],
        tl.trans(value),
        mask=(c[:, None] < columns) & (r[None, :] < rows),
    )


@triton.jit
def reshaped(x, out, pairs, flipped, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    even, odd = tl.split(tl.reshape(value, (BLOCK // 2, 2)))
    half = tl.arange(0, BLOCK // 2)
    tl.store(pairs + half, even - odd)
    tl.store(out + i, tl.reshape(tl.join(odd, even), (BLOCK,)))
    tl.store(flipped + i, tl.flip(value))


@triton.jit
def integers(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + BLOCK + i, a % b)
    tl.store(out + 2 * BLOCK + i, tl.umulhi(a.to(tl.uint32), b.to(tl.uint32)).to(tl.int32))
    tl.store(out + 3 * BLOCK + i, (a >> (b & 7)) ^ (a << 3))
    tl.store(out + 4 * BLOCK + i, tl.minimum(a, b) + tl.maximum(a, b) - tl.abs(a))
    tl.store(out + 5 * BLOCK + i, tl.clamp(a.to(tl.float32), -5.0, 9.0).to(tl.int32))


@triton.jit
def long_integers(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + BLOCK + i, a % b)
    tl.store(out + 2 * BLOCK + i, a * b)
    tl.store(out + 3 * BLOCK + i, tl.umulhi(a.to(tl.uint64), b.to(tl.uint64)).to(tl.int64))
    tl.store(out + 4 * BLOCK + i, tl.cumsum(a ^ b, 0))


@triton.jit
def functions(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, tl.exp(v))
    tl.store(out + BLOCK + i, tl.log(tl.abs(v)))
    tl.store(out + 2 * BLOCK + i, tl.sin(v))
    tl.store(out + 3 * BLOCK + i, tl.cos(v))
    tl.store(out + 4 * BLOCK + i, tl.sqrt_rn(tl.abs(v)))
    tl.store(out + 5 * BLOCK + i, tl.rsqrt(tl.abs(v)))
    tl.store(out + 6 * BLOCK + i, tl.sigmoid(v))
    tl.store(out + 7 * BLOCK + i, tl.erf(v))
    tl.store(out + 8 * BLOCK + i, tl.floor(v) + tl.ceil(v))
    tl.store(out + 9 * BLOCK + i, tl.exp2(v))
    tl.store(out + 10 * BLOCK + i, tl.div_rn(v, 1.7))
    tl.store(out + 11 * BLOCK + i, tl.fma(v, v, v))
    tl.store(out + 12 * BLOCK + i, tl.log2(tl.abs(v)))


@triton.jit
def library(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v, w = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, libdevice.tanh(v))
    tl.store(out + BLOCK + i, libdevice.pow(tl.abs(v), w))
    tl.store(out + 2 * BLOCK + i, libdevice.atan2(v, w))
    tl.store(out + 3 * BLOCK + i, libdevice.fmod(v, w))
    tl.store(out + 4 * BLOCK + i, libdevice.expm1(v))
    tl.store(out + 5 * BLOCK + i, libdevice.lgamma(tl.abs(v) + 0.5))
    tl.store(out + 6 * BLOCK + i, libdevice.sin(v * 1e5))
    tl.store(out + 7 * BLOCK + i, libdevice.rint(v))
    tl.store(out + 8 * BLOCK + i, libdevice.cbrt(v))


@triton.jit
def casts(x, halves, brains, bytes_, doubles, words, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(halves + i, v.to(tl.float16))
    tl.store(brains + i, v.to(tl.bfloat16))
    tl.store(bytes_ + i, v.to(tl.int8))
    tl.store(doubles + i, v.to(tl.float64) * 3)
    tl.store(words + i, v.to(tl.int32, bitcast=True) ^ v.to(tl.uint16).to(tl.int32))


@triton.jit
def small_floats(x, out, back, BLOCK: tl.constexpr, KIND: tl.constexpr):
    i = tl.arange(0, BLOCK)
    small = tl.load(x + i).to(KIND)
    tl.store(out + i, small)
    tl.store(back + i, small.to(tl.float32))


@triton.jit
def randoms(out, seed, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.rand(seed, i))
    tl.store(out + BLOCK + i, tl.randn(seed, i))


@triton.jit(noinline=True)
def called(a, b):
    return a * b + 1


@triton.jit
def calls(x, y, out, BLOCK: tl.constexpr):
    """A function that is not put in its caller's place; assembler text; a condition of the whole program."""
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    value = a * b + called(tl.load(x), tl.program_id(0))
    if tl.program_id(0) % 2 == 1:
        value = tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, $2, $1, 0x3c;", "=r,r,r", [value, b], tl.int32, True, 1
        )
    tl.store(out + tl.program_id(0) * BLOCK + i, value)


@triton.jit
def told(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.device_print("value", tl.load(x + i))


@triton.jit
def asserted(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.device_assert(tl.load(x + i) > 0, "not above zero")


@triton.jit
def small_dots(a, b, c, BATCH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Products of three-dimensional tiles."""
    batch = tl.arange(0, BATCH)[:, None, None]
    m, n = tl.arange(0, M), tl.arange(0, N)
    k = tl.arange(0, K)
    left = tl.load(a + batch * M * K + m[None, :, None] * K + k[None, None, :])
    right = tl.load(b + batch * K * N + k[None, :, None] * N + n[None, None, :])
    tl.store(
        c + batch * M * N + m[None, :, None] * N + n[None, None, :],
        tl.dot(left, right, input_precision="ieee"),
    )


@triton.jit
def double_dot(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(left, right, out_dtype=tl.float64))


@triton.jit
def welford(x, mean, spread, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A reduction of three values at once."""
    rows = tl.arange(0, ROWS)
    value = tl.load(x + rows[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    m, s, n = tl.reduce((value, value * 0, value * 0 + 1), 1, merged)
    tl.store(mean + rows, m)
    tl.store(spread + rows, s / n)


@triton.jit
def merged(mean_a, spread_a, count_a, mean_b, spread_b, count_b):
    count = count_a + count_b
    apart = mean_b - mean_a
    mean = mean_a + apart * (count_b / count)
    return mean, spread_a + spread_b + apart * apart * count_a * (count_b / count), count


@triton.jit
def modifiers(x, out, total, flags, BLOCK: tl.constexpr):
    """Loads, stores and atomics with every hint that Triton has."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, cache_modifier=".ca") + tl.load(x + i, cache_modifier=".cg")
    value += tl.load(x + i, eviction_policy="evict_first") + tl.load(x + i, eviction_policy="evict_last")
    value += tl.load(x + i, volatile=True)
    tl.store(out + i, value, eviction_policy="evict_last")
    tl.store(out + i, tl.load(out + i) + 1, cache_modifier=".cs")
    tl.store(out + i, tl.load(out + i) + 1, cache_modifier=".wt")
    zero = i * 0
    tl.atomic_add(total + zero, value, sem="relaxed", scope="gpu")
    tl.atomic_add(total + 1 + zero, value, sem="acquire", scope="sys")
    tl.atomic_add(total + 2 + zero, value, sem="release", scope="cta")
    tl.atomic_add(total + 3 + zero, value, sem="acq_rel")
    tl.atomic_cas(flags + i, zero, zero + tl.program_id(0) + 7, sem="acquire", scope="gpu")


@triton.jit
def long_atomics(x, most, total, swapped, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    zero = i * 0
    tl.atomic_max(most + zero, value)
    tl.atomic_min(most + 1 + zero, value)
    tl.atomic_add(total + zero, value.to(tl.float64))
    tl.atomic_cas(swapped + i, i.to(tl.int64), value)


@triton.jit
def double_functions(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, tl.exp(v))
    tl.store(out + BLOCK + i, tl.log(tl.abs(v)))
    tl.store(out + 2 * BLOCK + i, libdevice.sin(v))
    tl.store(out + 3 * BLOCK + i, libdevice.cos(v * 1000))
    tl.store(out + 4 * BLOCK + i, tl.sqrt(tl.abs(v)))
    tl.store(out + 5 * BLOCK + i, 1 / v)
    tl.store(out + 6 * BLOCK + i, libdevice.erf(v))
    tl.store(out + 7 * BLOCK + i, libdevice.tanh(v))


@triton.jit
def brains(x, y, out, BLOCK: tl.constexpr):
    """Arithmetic in bfloat16 and float16, as far as Triton does it in these."""
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a * b)
    tl.store(out + BLOCK + i, a + b)
    tl.store(out + 2 * BLOCK + i, tl.maximum(a, b))
    tl.store(out + 3 * BLOCK + i, -tl.abs(a))
    tl.store(out + 4 * BLOCK + i, tl.where(a < b, a, b))


@triton.jit
def scaled_dots(a, a_scale, b, b_scale, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product of 8-bit floats whose every 32 neighbours along K share a power of two."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    group = tl.arange(0, K // 32)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    left_scale = tl.load(a_scale + m[:, None] * (K // 32) + group[None, :])
    right_scale = tl.load(b_scale + n[:, None] * (K // 32) + group[None, :])
    total = tl.dot_scaled(left, left_scale, "e5m2", right, right_scale, "e5m2")
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def largest(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, COUNT: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None]
    value = tl.load(x + i * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    tl.store(out + i * COUNT + tl.arange(0, COUNT)[None, :], tl.topk(value, COUNT, 1))
