"""Matrix multiplications in Triton's language, from the plain one to one whose warps have different jobs.

``EVEN`` says that the sizes are multiples of the tile, so that nothing is masked; ``AT`` and ``BT`` that A or B lies by
columns. All else lies by rows.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_of(number, rows, columns, BM: tl.constexpr, BN: tl.constexpr, BAND: tl.constexpr):
    """Row and column of a tile, by bands of rows: neighbours share what they read of B."""
    across = tl.cdiv(columns, BN)
    band = number // (BAND * across)
    first = band * BAND
    height = min(tl.cdiv(rows, BM) - first, BAND)
    within = number % (BAND * across)
    return first + within % height, within // height


@triton.jit
def product_of_tile(
    a,
    b,
    row,
    column,
    M,
    N,
    K,
    lda,
    ldb,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
    SUMS: tl.constexpr,
    AT: tl.constexpr,
    BT: tl.constexpr,
):
    """One tile of A·B."""
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    from_a = a + (i[:, None] + k[None, :] * lda if AT else i[:, None] * lda + k[None, :])
    from_b = b + (k[:, None] + j[None, :] * ldb if BT else k[:, None] * ldb + j[None, :])
    total = tl.zeros((BM, BN), SUMS)
    for start in range(0, K, BK):
        if EVEN:
            left = tl.load(from_a)
            right = tl.load(from_b)
        else:
            left = tl.load(from_a, mask=(i[:, None] < M) & (start + k[None, :] < K), other=0.0)
            right = tl.load(from_b, mask=(start + k[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=SUMS)
        from_a += BK * lda if AT else BK
        from_b += BK if BT else BK * ldb
    return total


@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
    SUMS: tl.constexpr,
    AT: tl.constexpr,
    BT: tl.constexpr,
):
    """A tile a program."""
    row, column = tile_of(tl.program_id(0), M, N, BM, BN, 4)
    total = product_of_tile(a, b, row, column, M, N, K, lda, ldb, BM, BN, BK, EVEN, PRECISION, SUMS, AT, BT)
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    to = c + i[:, None] * ldc + j[None, :]
    value = total.to(c.dtype.element_ty)
    if EVEN:
        tl.store(to, value)
    else:
        tl.store(to, value, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def matmul_persistent(
    a,
    b,
    c,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    FLAT: tl.constexpr,
):
    """As many programs as there are multiprocessors; each takes tile after tile."""
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT):
        row, column = tile_of(number, M, N, BM, BN, 4)
        i = row * BM + tl.arange(0, BM)
        j = column * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(K, BK)):
            k = step * BK + tl.arange(0, BK)
            left = tl.load(
                a + i[:, None] * lda + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0
            )
            right = tl.load(
                b + k[:, None] * ldb + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0
            )
            total = tl.dot(left, right, total)
        where = (i[:, None] < M) & (j[None, :] < N)
        tl.store(c + i[:, None] * ldc + j[None, :], total.to(c.dtype.element_ty), mask=where)


@triton.jit
def matmul_described(
    a,
    b,
    c,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Tiles by tensor descriptors, which each program makes in global scratch memory."""
    from_a = tl.make_tensor_descriptor(a, shape=[M, K], strides=[lda, 1], block_shape=[BM, BK])
    from_b = tl.make_tensor_descriptor(b, shape=[K, N], strides=[ldb, 1], block_shape=[BK, BN])
    to = tl.make_tensor_descriptor(c, shape=[M, N], strides=[ldc, 1], block_shape=[BM, BN])
    row, column = tile_of(tl.program_id(0), M, N, BM, BN, 4)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = from_a.load([row * BM, start])
        right = from_b.load([start, column * BN])
        total = tl.dot(left, right, total)
    to.store([row * BM, column * BN], total.to(c.dtype.element_ty))


@triton.jit
def matmul_by_host_descriptors(
    a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIALISED: tl.constexpr
):
    """Tiles by tensor descriptors that the host made; by warps of their own, if it is SPECIALISED."""
    row, column = tl.program_id(0), tl.program_id(1)
    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, tl.cdiv(K, BK), warp_specialize=SPECIALISED):
        left = a.load([row * BM, step * BK])
        right = b.load([step * BK, column * BN])
        total = tl.dot(left, right, total)
    c.store([row * BM, column * BN], total.to(c.dtype))


@triton.jit
def matmul_specialised(
    a,
    b,
    c,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Some warps copy tiles, others multiply them."""
    from_a = tl.make_tensor_descriptor(a, shape=[M, K], strides=[lda, 1], block_shape=[BM, BK])
    from_b = tl.make_tensor_descriptor(b, shape=[K, N], strides=[ldb, 1], block_shape=[BK, BN])
    row, column = tile_of(tl.program_id(0), M, N, BM, BN, 4)
    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, tl.cdiv(K, BK), warp_specialize=True):
        left = from_a.load([row * BM, step * BK])
        right = from_b.load([step * BK, column * BN])
        total = tl.dot(left, right, total)
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    where = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None] * ldc + j[None, :], total.to(c.dtype.element_ty), mask=where)


@triton.jit
def matmul_persistent_described(
    a,
    b,
    c,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Tile after tile by tensor descriptors; the result is added to what is there."""
    from_a = tl.make_tensor_descriptor(a, shape=[M, K], strides=[lda, 1], block_shape=[BM, BK])
    from_b = tl.make_tensor_descriptor(b, shape=[K, N], strides=[ldb, 1], block_shape=[BK, BN])
    to = tl.make_tensor_descriptor(c, shape=[M, N], strides=[ldc, 1], block_shape=[BM, BN])
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column = tile_of(number, M, N, BM, BN, 4)
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(K, BK)):
            left = from_a.load([row * BM, step * BK])
            right = from_b.load([step * BK, column * BN])
            total = tl.dot(left, right, total)
        to.atomic_add([row * BM, column * BN], total.to(c.dtype.element_ty))
