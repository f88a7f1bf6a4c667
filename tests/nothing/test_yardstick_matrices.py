"""Matrix multiplications on the PTX interpreter of tests/yardstick, from naive to tensor cores."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.yardstick import run
from tests.yardstick.programs import SCHEDULES, compile_cuda, launch

Array = np.ndarray[Any, Any]

TILED = r"""
extern "C" __global__ void naive(const float *a, const float *b, float *c, int m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}
extern "C" __global__ void tiled(const float *a, const float *b, float *c, int m, int n, int k) {
  constexpr int T = 32;
  __shared__ float as[T][T], bs[T][T];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, column = blockIdx.x * T + x;
  float sum = 0;
  for (int at = 0; at < k; at += T) {
    as[y][x] = row < m && at + x < k ? a[row * k + at + x] : 0;
    bs[y][x] = column < n && at + y < k ? b[(at + y) * n + column] : 0;
    __syncthreads();
    for (int i = 0; i < T; i++) sum += as[y][i] * bs[i][x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}
"""


def operands(m: int, n: int, k: int) -> tuple[Array, Array]:
    """Operands of 12 bits, so that float64 holds every product plus a float32 sum exactly."""
    a, b = (np.random.default_rng().integers(-2048, 2048, s) / 1024 for s in ((m, k), (k, n)))
    return a.astype(np.float32), b.astype(np.float32)


def fused_chain(a: Array, b: Array) -> Array:
    """a @ b as a chain of float32 fused multiply-adds over k."""
    c = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        c = (a[:, k, None].astype(np.float64) * b[k] + c).astype(np.float32)
    return c


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
@pytest.mark.parametrize(("m", "n", "k"), [(65, 33, 40), (1, 1, 1), (32, 64, 32)])
def test_matmul_gives_the_bits_of_a_fused_chain(arch: str, m: int, n: int, k: int) -> None:
    a, b = operands(m, n, k)
    for entry in ("naive", "tiled"):
        c = np.full((m, n), np.nan, np.float32)
        run(compile_cuda(TILED, arch), entry, (-(-n // 32), -(-m // 32)), (32, 32), [a, b, c, m, n, k])
        assert (c == fused_chain(a, b)).all()


def test_tiled_matmul_does_not_depend_on_the_schedule() -> None:
    a, b = operands(9, 7, 3)
    for options in SCHEDULES:
        c = np.full((9, 7), np.nan, np.float32)
        run(compile_cuda(TILED), "tiled", (1, 1), (32, 32), [a, b, c, 9, 7, 3], **options)
        assert (c == fused_chain(a, b)).all()


HALF = r"""
typedef unsigned u;
__device__ u at(const void *p) { return (u)__cvta_generic_to_shared(p); }
typedef unsigned short h;
extern "C" __global__ void half(const h *a, const h *b, float *c, int m, int n, int k) {
  __shared__ __align__(16) unsigned short as[2][64][24], bs[2][16][40];
  int t = threadIdx.x, warp = t / 32, lane = t % 32, row0 = blockIdx.y * 64, column0 = blockIdx.x * 32;
  float sum[4][4] = {};
  auto copy = [&](int stage, int from) {
    int x = t % 2 * 8, y = t / 2, size = row0 + y < m && from + x < k ? 16 : 0;
    const void *source = size ? a + (row0 + y) * k + from + x : nullptr;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(at(&as[stage][y][x])), "l"(source), "r"(size));
    if (t < 64) {
      x = t % 4 * 8, y = t / 4, size = from + y < k && column0 + x < n ? 16 : 0;
      source = size ? b + (from + y) * n + column0 + x : nullptr;
      asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
                   :: "r"(at(&bs[stage][y][x])), "l"(source), "r"(size));
    }
    asm volatile("cp.async.commit_group;");
  };
  copy(0, 0);
  for (int from = 0, stage = 0; from < k; from += 16, stage ^= 1) {
    if (from + 16 < k) copy(stage ^ 1, from + 16); else asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group WAIT;" ::: "memory");
    __syncthreads();
    u x[4], y[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at(&as[stage][warp * 16 + lane % 16][lane / 16 * 8])));
    for (int j = 0; j < 4; j++) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                   : "=r"(y[0]), "=r"(y[1]) : "r"(at(&bs[stage][lane % 16][j * 8])));
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                   "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                   : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                   : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    }
    __syncthreads();
  }
  for (int j = 0; j < 4; j++) for (int e = 0; e < 4; e++) {
    int row = row0 + warp * 16 + lane / 4 + e / 2 * 8, column = column0 + j * 8 + lane % 4 * 2 + e % 2;
    if (row < m && column < n) c[row * n + column] = sum[j][e];
  }
}
"""


@pytest.mark.parametrize("options", [SCHEDULES[0], SCHEDULES[2]], ids=["lowest", "random"])
def test_pipelined_tensor_core_matmul(options: dict[str, Any]) -> None:
    m, n, k = 70, 40, 56
    rng = np.random.default_rng()
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    for wait, asynchronous, right in ((1, "late", True), (2, "late", False), (2, "eager", True)):
        c = np.full((m, n), np.nan, np.float32)
        ptx = compile_cuda(HALF.replace("WAIT", str(wait)))
        run(ptx, "half", (2, 2), 128, [a, b, c, m, n, k], asynchronous=asynchronous, **options)
        assert (c == expected).all() == right, "a copy that nobody waited for must show, and only then"


SHAPES = [
    ("m16n8k8", "f16", "f32"),
    ("m16n8k8", "f16", "f16"),
    ("m16n8k16", "f16", "f16"),
    ("m16n8k8", "bf16", "f32"),
    ("m16n8k16", "bf16", "f32"),
    ("m16n8k4", "tf32", "f32"),
    ("m16n8k8", "tf32", "f32"),
    ("m16n8k32", "s8", "s32"),
    ("m8n8k16", "u8", "s32"),
    ("m8n8k4", "f64", "f64"),
]


def element(kind: str, values: Array) -> Array:
    """Small integers in the memory form of a type."""
    dtypes: dict[str, Any] = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "tf32": np.float32,
        "f32": np.float32,
    }
    dtypes |= {"f64": np.float64, "s8": np.int8, "u8": np.uint8, "s32": np.int32}
    return values.astype(dtypes[kind])


@pytest.mark.parametrize(("shape", "kind", "sum_kind"), SHAPES)
def test_mma_fragments(shape: str, kind: str, sum_kind: str) -> None:
    """Each lane loads its fragment as the PTX manual tells, element by element."""
    m, n, k = (int(x) for x in shape.replace("n", "m").replace("k", "m").split("m")[1:])
    rng = np.random.default_rng()
    low = 0 if kind == "u8" else -4
    a, b, c = (rng.integers(low, 5, s) for s in ((m, k), (k, n), (m, n)))
    group, member = np.arange(32)[:, None] // 4, np.arange(32)[:, None] % 4
    bits, sum_bits = (64 if x == "f64" else 32 for x in (kind, sum_kind))
    w = bits // (8 * element(kind, a).itemsize)
    a_places, b_places = np.arange(m * k // 32), np.arange(k * n // 32)
    a_row = group + 8 * (a_places // w % (m // 8))
    a_column = member * w + a_places % w + 4 * w * (a_places // w // (m // 8))
    b_row = member * w + b_places % w + 4 * w * (b_places // w)
    c_places = np.arange(m * n // 32)
    c_row, c_column = group + 8 * (c_places // 2), 2 * member + c_places % 2
    packed = [element(kind, a)[a_row, a_column], element(kind, b)[b_row, group + 0 * b_places]]
    packed.append(element(sum_kind, c)[c_row, c_column])
    words = [
        np.ascontiguousarray(x).view(np.uint64 if s == 64 else np.uint32)
        for x, s in zip(packed, (bits, bits, sum_bits), strict=True)
    ]
    out = np.zeros_like(words[2])
    names, code = [], "mov.u32 %t, %laneid;"
    for letter, x, s in zip("abc", words, (bits, bits, sum_bits), strict=True):
        count = x.shape[1]
        code += f".reg .b{s} %{letter}<{count}>; ld.param.u64 %p, [{letter}];"
        code += f"mad.wide.u32 %p, %t, {count * s // 8}, %p;"
        code += "".join(f"ld.global.b{s} %{letter}{i}, [%p + {i * s // 8}];" for i in range(count))
        names.append("{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}")
    code += f"mma.sync.aligned.{shape}.row.col.{sum_kind}.{kind}.{kind}.{sum_kind} "
    code += f"{names[2]}, {', '.join(names)};"
    code += f"ld.param.u64 %p, [o]; mad.wide.u32 %p, %t, {out.shape[1] * sum_bits // 8}, %p;"
    code += "".join(f"st.global.b{sum_bits} [%p + {i * sum_bits // 8}], %c{i};" for i in range(out.shape[1]))
    head = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k("
    head += ", ".join(f".param .u64 {x}" for x in "abco") + ") { .reg .b32 %t; .reg .b64 %p;"
    run(head + code + " ret; }", "k", 1, 32, [*words, out])
    expected = element(sum_kind, (a @ b + c))[c_row, c_column]
    assert (out.view(expected.dtype) == expected).all()


def test_matrix_stores_and_transposes_undo_each_other() -> None:
    body = """.shared .align 16 .b8 s[1024]; .reg .b32 %m<5>; shl.b32 %r0, %t, 4; xor.b32 %m0, %t, 0x30000;
    mul.lo.u32 %m1, %t, 70003; mov.u32 %m2, s; add.u32 %r1, %m2, %r0;
    stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r1], {%m0, %m1};
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r2, %r3}, [%r1];
    movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r2; movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r3;
    xor.b32 %r4, %r4, %m0; xor.b32 %r5, %r5, %m1; or.b32 %r4, %r4, %r5; setp.ne.u32 %p0, %r2, %m0;
    selp.u32 %r6, 2, 0, %p0; add.u32 %r4, %r4, %r6; st.global.u32 [%o], %r4;"""
    assert (launch(body, 32) == 2).sum() > 28
