"""Whole kernels on the PTX interpreter of tests/yardstick."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.yardstick import Deadlock, Fault, LimitReached, Memory, Pointer, Unsupported, YardstickError, run
from tests.yardstick.programs import SCHEDULES, assembly, compile_cuda, launch

Array = np.ndarray[Any, Any]
every_schedule = pytest.mark.parametrize("options", SCHEDULES, ids=lambda o: str(o["schedule"]))
# -- control flow --------------------------------------------------------------------------------------------

CONTROL = r"""
extern "C" __global__ void collatz(int *out, int rounds) {
  int t = threadIdx.x + 1, c = 0;
  for (int j = 1; j <= rounds; j++) {
    int n = t * j;
    while (n != 1) {
      if (n & 1) { n = 3 * n + 1; if (n % 3 == 0) c += 2; } else n /= 2;
      if (++c > 500) break;
    }
    if (c > 100) { c -= 50; continue; }
  }
  out[threadIdx.x] = c;
}
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ float poly(float x, const float *c, int n) {
  float local[8];
  for (int i = 0; i < n; i++) local[i & 7] = c[n - 1 - i];
  float r = 0;
  for (int i = 0; i < n; i++) r = r * x + local[(n - 1 - i) & 7];
  return r;
}
extern "C" __global__ void calls(int *whole, float *part, const float *c) {
  int t = threadIdx.x + blockIdx.x * blockDim.x;
  whole[t] = fib(t % 11);
  part[t] = t % 3 ? poly(t, c, t % 5) : -1;
}
extern "C" __global__ void choose(int *out) {
  int t = threadIdx.x, r;
  switch (t % 9) {
    case 0: r = t * 3; break;    case 1: r = t + 7; break;   case 2: r = t ^ 0x55; break;
    case 3: r = -t; break;       case 4: r = t * t; break;   case 5: r = t << 3; break;
    case 6: r = t / 3; break;    case 7: r = 1000 - t; break; default: r = ~t;
  }
  out[t] = r;
}
"""


def collatz(t: int, rounds: int) -> int:
    c = 0
    for j in range(1, rounds + 1):
        n = t * j
        while n != 1:
            odd = n & 1
            n = 3 * n + 1 if odd else n // 2
            c += 3 if odd and n % 3 == 0 else 1
            if c > 500:
                break
        if c > 100:
            c -= 50
    return c


@pytest.mark.few(1)
@every_schedule
def test_divergent_loops_calls_recursion_and_switches(options: dict[str, Any]) -> None:
    ptx = compile_cuda(CONTROL)
    out = np.zeros(70, np.int32)
    run(ptx, "collatz", 1, 70, [out, 3], **options)
    assert out.tolist() == [collatz(t + 1, 3) for t in range(70)]
    whole, part = np.zeros(66, np.int32), np.zeros(66, np.float32)
    c = np.random.default_rng().integers(-3, 4, 8).astype(np.float32)
    run(ptx, "calls", 2, 33, [whole, part, c], **options)
    t = np.arange(66)
    assert (whole == np.array([0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55])[t % 11]).all()
    expected = [
        sum(int(c[i]) * x ** (x % 5 - 1 - i) for i in range(x % 5)) if x % 3 else -1 for x in range(66)
    ]
    assert part.tolist() == expected
    out = np.zeros(100, np.int32)
    run(ptx, "choose", 1, 100, [out], **options)
    t = np.arange(100)
    assert (out == np.choose(t % 9, [t * 3, t + 7, t ^ 0x55, -t, t * t, t << 3, t // 3, 1000 - t, ~t])).all()


@every_schedule
def test_indexed_branch_and_reused_names_in_nested_scopes(options: dict[str, Any]) -> None:
    body = """rem.u32 %r0, %t, 3; targets: .branchtargets L0, $L__1, L2; brx.idx %r0, targets;
    L0: mov.u32 %r1, 0100; bra.uni end;   $L__1: mov.u32 %r1, 0x20U; bra end;   L2: mov.s32 %r1, -5;
    end: { .reg .b32 %r1, x; mov.u32 x, 7; mov.u32 %r1, x; { .reg .u32 x; mov.u32 x, 3; here: add.u32 x, x, 1;
      setp.lt.u32 %p0, x, 9; @%p0 bra here; add.u32 %r1, %r1, x; } st.global.u32 [%o], %r1; }
    { .reg .b32 x; ld.global.u32 x, [%o]; here: add.u32 x, x, %r1; setp.lt.s32 %p0, x, 0; @%p0 bra here;
      st.global.u32 [%o], x; }"""
    assert (launch(body, 40, **options) == 16 + np.array([64, 32, -5])[np.arange(40) % 3]).all()


@every_schedule
def test_indirect_calls_take_each_thread_to_its_own_function(options: dict[str, Any]) -> None:
    module = """.func (.reg .u32 r) twice(.reg .u32 x) { add.u32 r, x, x; ret; }
    .func (.reg .u32 r) square(.reg .u32 x) { mul.lo.u32 r, x, x; ret; }"""
    body = """mov.u64 %d0, twice; mov.u64 %d1, square; and.b32 %r0, %t, 1; setp.eq.u32 %p0, %r0, 0;
    selp.b64 %d2, %d0, %d1, %p0; proto: .callprototype (.reg .u32 _) _ (.reg .u32 _);
    call (%r1), %d2, (%t), proto; st.global.u32 [%o], %r1;"""
    t = np.arange(50)
    assert (launch(body, 50, module=module, **options) == np.where(t % 2, t * t, 2 * t)).all()


@every_schedule
def test_threads_that_spin_for_others_do_not_starve_them(options: dict[str, Any]) -> None:
    module = ".shared .align 4 .u32 flag;"
    body = """.reg .pred %q; setp.eq.u32 %q, %t, 0; @%q st.shared.u32 [flag], 0; bar.sync 0; @%q bra set;
    wait: ld.volatile.shared.u32 %r0, [flag]; setp.ne.u32 %p0, %r0, 9; @%p0 bra wait; bra done;
    set: mov.u32 %r1, 9; st.volatile.shared.u32 [flag], %r1; done: st.global.u32 [%o], 1;"""
    assert launch(body, 64, module=module, **options).all()


LIBRARY: dict[str, Any] = {
    "sin(256 * x)": lambda x, y: np.sin(256 * x),
    "tan(x)": lambda x, y: np.tan(x),
    "exp(y)": lambda x, y: np.exp(y),
    "log(x)": lambda x, y: np.log(x),
    "pow(x, y)": lambda x, y: x**y,
    "atan2(x, y)": lambda x, y: np.arctan2(x, y),
    "cbrt(x)": lambda x, y: np.cbrt(x),
    "fmod(x, y)": lambda x, y: np.fmod(x, y),
    "x / y": lambda x, y: x / y,
    "sqrt(x)": lambda x, y: np.sqrt(x),
    "ldexp(x, 5) - trunc(y)": lambda x, y: 32 * x - np.trunc(y),
    "tanh(y)": lambda x, y: np.tanh(y),
    "(T)((long long)(x * 1e15) / (long long)(y * 1e6))": lambda x, y: np.trunc(
        np.trunc(x * 1e15) / np.trunc(y * 1e6)
    ),
}


@pytest.mark.parametrize("kind", ["float", "double"])
def test_the_compiler_s_own_mathematics_comes_out_right(kind: str) -> None:
    """Long chains of every kind of instruction: one wrong bit pattern in any of them shows."""
    body = "".join(f"o[{i} * 64 + t] = {code};" for i, code in enumerate(LIBRARY))
    head = f'typedef {kind} T; extern "C" __global__ void k(const T *a, const T *b, T *o)'
    ptx = compile_cuda(head + "{ int t = threadIdx.x; T x = a[t], y = b[t];" + body + "}")
    dtype, tolerance = (np.float32, 2e-6) if kind == "float" else (np.float64, 1e-13)
    x, y = (np.random.default_rng().uniform(0.5, 6, 64).astype(dtype) for _ in range(2))
    out = np.zeros((len(LIBRARY), 64), dtype)
    run(ptx, "k", 1, 64, [x, y, out])
    for values, (code, function) in zip(out, LIBRARY.items(), strict=True):
        expected = function(x.astype(np.float64), y.astype(np.float64))
        np.testing.assert_allclose(values, expected, rtol=tolerance, err_msg=code)


# -- what goes wrong ----------------------------------------------------------------------------------------

FAULTS = {
    "ld.global.u32 %r0, [%a + 4]": "is outside every global array",
    "ld.global.u16 %h0, [%a + 1]": "is not aligned to 2 bytes",
    "ld.shared.u32 %r0, [%a]": "shared memory",
    "st.shared.u32 [%r8 + 64], %t": "is outside the 128 bytes of shared memory",
    "ld.u32 %r0, [64]": "is in no address window",
    "@!%p0 ld.global.v2.u32 {%r0, %r1}, [%a]": "is not aligned to 8 bytes",
    "atom.global.add.u32 %r0, [%o + -4], 1": "is outside every global array",
    "@%p0 trap": "trapped",
    "bar.sync 1, 40": "a multiple of 32",
}


@pytest.mark.parametrize(("code", "why"), FAULTS.items(), ids=FAULTS)
def test_faults_name_the_line_and_the_thread(code: str, why: str) -> None:
    body = f".shared .b8 s[128];\nsetp.eq.u32 %p0, %t, 31; shl.b32 %r8, %t, 2;\n\n{code};"
    with pytest.raises(Fault, match=rf"PTX line 12: .*block \(0, 0, 0\) thread \(\d+, 0, 0\): .*{why}"):
        launch(body, 32)


def test_other_errors_say_what_and_where() -> None:
    with pytest.raises(Unsupported, match=r"PTX line 10: frobnicate\.u32 %r0, %t: unknown instruction"):
        launch("\nfrobnicate.u32 %r0, %t;", 32)
    with pytest.raises(Unsupported, match=r"modifier \.odd"):
        launch("add.odd.u32 %r0, %t, 1;", 32)
    with pytest.raises(LimitReached, match="1000 instructions"):
        launch("top: bra top;", 32, limit=1000)
    with pytest.raises(
        Deadlock, match=r"32 threads \(first: block .* thread \(0, 0, 0\)\) wait at PTX line 10"
    ):
        launch("setp.lt.u32 %p0, %t, 32;\n@%p0 bar.sync 1, 64;", 64)
    with pytest.raises(Deadlock):
        launch(
            "setp.eq.u32 %p0, %t, 3; @%p0 bra skip; vote.sync.any.pred %p1, %p0, -1; skip: bar.sync 0;", 32
        )
    with pytest.raises(YardstickError, match="its entries: k"):
        run(assembly(""), "other", 1, 1, [])
    constant = np.zeros(32, np.uint32)
    constant.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        launch("st.global.u32 [%a], 1;", 32, constant)


# -- memory --------------------------------------------------------------------------------------------------

STRUCTS = r"""
struct Item { short kind; double weight; float *where; unsigned char tag[3]; };
__constant__ float scale[4] = {1.5f, -2.f, 3.f, 0.25f};
__device__ int offsets[3] = {5, -6, 7};
__device__ int *second = &offsets[1];
extern __shared__ float dynamic[];
extern "C" __global__ void fill(Item item, float base, long long big, unsigned char small) {
  __shared__ float fixed[7];
  int t = threadIdx.x;
  dynamic[t] = scale[t & 3];
  if (t < 7) fixed[t] = offsets[t % 3] + *second;
  __syncthreads();
  float *from = t & 1 ? dynamic : fixed;
  item.where[t] = base + item.kind * from[t % 7] + item.weight + item.tag[t % 3] + big + small;
}
"""


@every_schedule
def test_structs_constants_module_variables_and_generic_pointers(options: dict[str, Any]) -> None:
    layout: dict[str, Any] = {
        "names": ["kind", "weight", "where", "tag"],
        "formats": ["i2", "f8", "u8", "3u1"],
    }
    layout |= {"offsets": [0, 8, 16, 24], "itemsize": 32}
    dtype: Any = np.dtype(layout)  # type: ignore[call-overload]
    memory = Memory()
    out = np.zeros(64, np.float32)
    item = np.zeros((), dtype)
    item["kind"], item["weight"], item["where"], item["tag"] = -3, 0.5, memory.alloc(out) + 64, (1, 2, 250)
    args = [item[()], 100.0, -(2**20), 255]
    run(compile_cuda(STRUCTS), "fill", 1, 32, args, shared=128, memory=memory, **options)
    t = np.arange(32)
    source = np.where(t & 1, np.array([1.5, -2, 3, 0.25])[t % 7 & 3], np.array([5, -6, 7])[t % 7 % 3] - 6)
    expected = 100 - 3 * source + 0.5 + np.array([1, 2, 250])[t % 3] - 2**20 + 255
    assert (out[16:48] == expected.astype(np.float32)).all()
    assert not out[:16].any()


def test_vectors_signs_and_local_memory() -> None:
    body = """.local .align 16 .b8 l[32]; mov.u64 %d0, l; cvta.local.u64 %d1, %d0; st.local.v4.u32 [l],
    {%t, 70000, -3, 9}; isspacep.local %p0, %d1; selp.u32 %r0, 1, 0, %p0; ld.v2.s16 {%r1, %r2}, [%d1 + 4];
    ld.local.s8 %r3, [%d0 + 8]; add.u32 %r0, %r0, %r1; sub.u32 %r0, %r0, %r3;
    mad.lo.u32 %r0, %r2, 1000000, %r0;
    ld.local.u32 %r4, [l]; add.u32 %r0, %r0, %r4; ld.local.u32 %r5, [l + 16]; xor.b32 %r5, %r5, 0xABABABAB;
    add.u32 %r0, %r0, %r5; st.global.u32 [%o], %r0;"""
    assert (launch(body, 40, poison=0xAB) == 1 + 4464 + 3 + 1000000 + np.arange(40)).all()


def test_pointers_share_one_array_and_overlaps_are_refused() -> None:
    data = np.arange(64, dtype=np.uint32)
    body = "ld.global.u32 %r0, [%a]; st.global.u32 [%o], %r0;"
    run(assembly(body), "k", 1, 16, [data, Pointer(data, 128)])
    assert (data == np.concatenate([np.arange(32), np.arange(16), np.arange(48, 64)])).all()
    with pytest.raises(ValueError, match="overlaps"):
        run(assembly(body), "k", 1, 16, [data, data[32:]])
    with pytest.raises(ValueError, match="contiguous"):
        Memory().alloc(np.zeros((4, 4))[:, ::2])
    turned = np.zeros((3, 4), np.float32, order="F")
    run(assembly("st.global.u32 [%o], %t;"), "k", 1, 12, [data, turned])
    assert (turned.T.reshape(-1).view(np.uint32) == np.arange(12)).all()


def test_every_atomic_takes_turns() -> None:
    x = np.random.default_rng().integers(0, 2**32, 96).astype(np.uint32)
    table: dict[str, Any] = {"add.u32": lambda a, b: (a + b) % 2**32, "min.u32": min, "max.u32": max}
    table |= {"and.b32": lambda a, b: a & b, "or.b32": lambda a, b: a | b, "xor.b32": lambda a, b: a ^ b}
    table |= {
        "inc.u32": lambda a, b: 0 if a >= b else a + 1,
        "dec.u32": lambda a, b: b if a == 0 or a > b else a - 1,
    }
    table |= {
        "min.s32": lambda a, b: min((a, b), key=lambda v: (v + 2**31) % 2**32),
        "exch.b32": lambda a, b: b,
    }
    start = int(x[50])
    for name, function in table.items():
        operand = "200" if name[:3] in ("inc", "dec") else "%r0"
        state = start % 200 if operand == "200" else start
        body = f"""ld.global.u32 %r0, [%a]; .shared .u32 s; st.shared.u32 [s], {state};
        bar.sync 0; atom.shared.{name} %r1, [s], {operand}; st.global.u32 [%o], %r1; bar.sync 0;
        red.shared.{name} [s], {operand}; bar.sync 0; setp.eq.u32 %p0, %t, 0; @!%p0 exit;
        ld.shared.u32 %r1, [s]; st.global.u32 [%a], %r1;"""
        inputs = x.copy()
        old = launch(body, 96, inputs)
        for step in range(192):
            if step < 96:
                assert old[step] == state, name
            state = function(state, 200 if operand == "200" else int(x[step % 96]))
        assert inputs[0] == state, name


@pytest.mark.few(1)
@every_schedule
def test_compare_and_swap_lock_and_float_atomics(options: dict[str, Any]) -> None:
    body = """.shared .u32 lock, total; .shared .align 8 .f64 wide; .shared .u32 halves;
    setp.ne.u32 %p1, %t, 0; @%p1 bra ready; st.shared.u32 [lock], 0; st.shared.u32 [total], 0;
    st.shared.u64 [wide], 0; st.shared.u32 [halves], 0; ready: bar.sync 0;
    again: atom.shared.cas.b32 %r0, [lock], 0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra again;
    ld.shared.u32 %r1, [total]; add.u32 %r1, %r1, %t; st.shared.u32 [total], %r1;
    atom.shared.exch.b32 %r0, [lock], 0; red.shared.add.f64 [wide], 0d3FE0000000000000;
    mov.b32 %r2, 0x40003C00; red.shared.add.noftz.f16x2 [halves], %r2; bar.sync 0;
    ld.shared.u32 %r1, [total]; ld.shared.f64 %d1, [wide]; cvt.rzi.u32.f64 %r3, %d1;
    ld.shared.u32 %r4, [halves]; mad.lo.u32 %r1, %r3, 65536, %r1; xor.b32 %r1, %r1, %r4;
    st.global.u32 [%o], %r1;"""
    expected = (16 * 15 // 2 + 8 * 65536) ^ 0x50004C00
    assert (launch(body, 16, **options) == expected).all()


# -- warps and barriers --------------------------------------------------------------------------------------


@every_schedule
def test_warp_instructions_gather_their_mask(options: dict[str, Any]) -> None:
    # The last warp is short; lanes split by parity, so that each half gathers in its own branch.
    body = """and.b32 %r0, %t, 1; setp.eq.u32 %p0, %r0, 1; ld.global.u32 %r1, [%a]; @%p0 bra odd;
    mov.u32 %r2, 0x55555555; shfl.sync.bfly.b32 %r3|%p1, %r1, 2, 0x1f, %r2;
    redux.sync.add.u32 %r4, %r1, 0x55555555;
    bra join; odd: mov.u32 %r2, 0xAAAAAAAA; shfl.sync.bfly.b32 %r3|%p1, %r1, 4, 0x1f, %r2;
    redux.sync.max.s32 %r4, %r1, %r2; join: vote.sync.ballot.b32 %r5, %p0, -1; xor.b32 %r3, %r3, %r5;
    add.u32 %r3, %r3, %r4; match.any.sync.b32 %r6, %r0, -1; xor.b32 %r3, %r3, %r6;
    elect.sync %r7|%p2, %r2; @%p2 add.u32 %r3, %r3, 77; st.global.u32 [%o], %r3;"""
    x = np.random.default_rng().integers(0, 2**31, 48).astype(np.uint32)
    got = launch(body, 48, x, **options)
    for t in range(48):
        warp = range(t // 32 * 32, min(t // 32 * 32 + 32, 48))
        mine = [u for u in warp if u % 2 == t % 2]
        value = int(x[t ^ (4 if t % 2 else 2)])
        value ^= sum(1 << u % 32 for u in warp if u % 2)
        value += max(int(x[u]) for u in mine) if t % 2 else sum(int(x[u]) for u in mine)
        value = value % 2**32 ^ sum(1 << u % 32 for u in mine)
        assert got[t] == (value + 77 * (t == mine[0])) % 2**32


def test_shuffle_modes_and_segments() -> None:
    for mode, b, c in product(
        ("up", "down", "bfly", "idx"), (0, 1, 7, 31), (0, 0x1F, 0x181F, 0x1800, 0x1C03)
    ):
        body = f"shfl.sync.{mode}.b32 %r0|%p0, %t, {b}, {c}, -1; @%p0 add.u32 %r0, %r0, 100;"
        got = launch(body + "st.global.u32 [%o], %r0;", 32)
        segment, clamp = c >> 8 & 31, c & 31
        for lane in range(32):
            last = lane & segment | clamp & ~segment
            source = {
                "up": lane - b,
                "down": lane + b,
                "bfly": lane ^ b,
                "idx": lane & segment | b & ~segment,
            }[mode]
            inside = source >= last if mode == "up" else source <= last
            assert got[lane] == (source + 100 if inside else lane)


@every_schedule
def test_barriers_count_reduce_and_ignore_the_gone(options: dict[str, Any]) -> None:
    body = """setp.ge.u32 %p0, %t, 90; @%p0 exit; rem.u32 %r0, %t, 3; setp.eq.u32 %p1, %r0, 0;
    bar.red.popc.u32 %r1, 2, %p1; barrier.cta.red.and.pred %p2, 3, %p1; barrier.red.or.pred %p3, 4, 96, %p1;
    selp.u32 %r2, 1000, 0, %p2; selp.u32 %r3, 500, 0, %p3; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
    bar.warp.sync 0x03FFFFFF; st.global.u32 [%o], %r1;"""
    body = body.replace("0x03FFFFFF", "-1")
    got = launch(body, 96, **options)
    assert (got[:90] == 30 + 500).all()
    assert not got[90:].any()


RING = r"""
extern "C" __global__ void ring(const float *x, float *out, int n) {
  __shared__ float buffer[2][32];
  int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int i = 0; i < n; i++) {
      if (i >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + (i & 1)) : "memory");
      buffer[i & 1][lane] = x[i * 32 + lane];
      asm volatile("bar.arrive %0, 64;" ::"r"(1 + (i & 1)) : "memory");
    }
  } else {
    float sum = 0;
    for (int i = 0; i < n; i++) {
      asm volatile("bar.sync %0, 64;" ::"r"(1 + (i & 1)) : "memory");
      sum += buffer[i & 1][lane];
      if (i + 2 < n) asm volatile("bar.arrive %0, 64;" ::"r"(3 + (i & 1)) : "memory");
    }
    out[lane] = sum;
  }
}
"""


@every_schedule
def test_producer_and_consumer_with_named_barriers(options: dict[str, Any]) -> None:
    x = np.random.default_rng().integers(0, 9, (7, 32)).astype(np.float32)
    out = np.zeros(32, np.float32)
    run(compile_cuda(RING), "ring", 1, 64, [x, out, len(x)], **options)
    assert (out == x.sum(0)).all()


REDUCE = r"""
extern "C" __global__ void sum(const float *x, float *out, int n) {
  __shared__ float part[32];
  int t = threadIdx.x;
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) s += x[i];
  for (int o = 16; o; o >>= 1) s += __shfl_down_sync(-1, s, o);
  if (t % 32 == 0) part[t / 32] = s;
  SYNC;
  if (t < 32) {
    s = t < blockDim.x / 32 ? part[t] : 0;
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(-1, s, o);
    if (t == 0) atomicAdd(out, s);
  }
}
"""


def total(source: str, **options: Any) -> tuple[float, float]:
    """The sum of random small integers, by the kernel and by NumPy."""
    x = np.random.default_rng().integers(-50, 50, 1000).astype(np.float32)
    out = np.zeros(1, np.float32)
    run(compile_cuda(source), "sum", 3, 128, [x, out, len(x)], **options)
    return float(out[0]), float(x.sum())


@pytest.mark.few(1)
@every_schedule
def test_reduction_and_what_a_missing_barrier_does(options: dict[str, Any]) -> None:
    got, expected = total(REDUCE.replace("SYNC", "__syncthreads()"), **options)
    assert got == expected
    wrong = 0
    for seed in range(10):
        got, expected = total(REDUCE.replace("SYNC", "__syncwarp()"), seed=seed, **options)
        wrong += got != expected
    assert (wrong == 0) == (options["schedule"] == "lowest")
