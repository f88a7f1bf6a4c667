"""What asks the host, or the memory's keeper: assertions, traps, hints and the heap."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tests.emulator.instructions.test_spaces import numbers, run
from tests.harness.many import refused
from tilewise.errors import KernelFault


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


def test_an_assertion_says_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    source = """extern "C" __global__ void k(int n) {
  printf("before %d\\n", threadIdx.x);
  assert(threadIdx.x < n && "too many");
}"""
    message = r"assertion `threadIdx.x < n && \"too many\"` failed in .*k\(int\) at .*:3\n"
    for threads in (4, 40):  # the last of them fails, in the first warp or in the second
        with pytest.raises(KernelFault, match=message):
            tw.Kernel(source, "k", arch="sm_80")(1, threads, [threads - 1], device="emulator")
        assert capsys.readouterr().out == "".join(f"before {i}\n" for i in range(threads))


def test_an_assertion_is_that_of_the_first_thread_that_fails() -> None:
    source = """extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);
extern "C" __global__ void k() { if (threadIdx.x % 8 > 4) __assertfail("it holds", "a.cu", 100 + threadIdx.x, "f", 1); }"""
    with pytest.raises(KernelFault, match=r"assertion `it holds` failed in f at a.cu:105\n"):
        tw.Kernel(source, "k", arch="sm_80")(1, 32, [], device="emulator")


def test_a_trap_ends_the_launch(rng: np.random.Generator) -> None:
    with pytest.raises(KernelFault, match=r"the kernel trapped(.|\n)*thread \(9, 0, 0\)"):
        run("brkpt; nanosleep.u32 20; setp.eq.u32 %p, %t, 9; @%p trap;", numbers(rng))


def test_a_breakpoint_has_no_operands() -> None:
    assert "brkpt" in refused("brkpt 1;") and refused("brkpt;") == ""


def test_hints_change_nothing(rng: np.random.Generator) -> None:
    a = numbers(rng)
    body = """
prefetch.global.L1 [%in]; prefetchu.L1 [%in]; prefetch.global.L2::evict_last [%in];
applypriority.global.L2::evict_normal [%in], 128; discard.global.L2 [%out], 128; pmevent 3; membar.proxy.alias;
ldu.global.u32 %d, [%in]; ldu.u32 %e, [%in];
"""
    np.testing.assert_array_equal(run(body, a, count=2), np.stack([a, a], axis=1))


def test_the_heap() -> None:
    """Blocks do not overlap, come back, and are refused when there is no room."""
    source = """
extern "C" __global__ void k(int* out, int rounds) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, good = 1;
  for (int r = 0; r < rounds; r++) {
    int n = 1 + (t * 7 + r * 13) % 300;
    int* mine = new int[n];
    for (int i = 0; i < n; i++) mine[i] = t * 1000 + i;
    __syncthreads();
    for (int i = 0; i < n; i++) good &= mine[i] == t * 1000 + i;
    delete[] mine;
  }
  out[t] = good + 2 * (malloc(16 << 20) == nullptr) + 4 * (malloc(0) == nullptr);
}
extern "C" __global__ void twice() { void* p = malloc(8); free(p); free(p); }
"""
    out = np.zeros(256, np.int32)
    tw.Kernel(source, "k", arch="sm_80")(2, 128, [out, 100], device="emulator")
    assert (out == 7).all()
    with pytest.raises(KernelFault, match="trapped"):
        tw.Kernel(source, "twice", arch="sm_80")(1, 1, [], device="emulator")


def test_the_heap_gives_what_it_has_and_takes_back_its_own_blocks_alone() -> None:
    """Each block is a power of two with 16 bytes of its own; what did not fit leaves room for what does."""
    source = """
extern "C" __global__ void k(int* out) {
  out[0] = malloc((8 << 20) - 100) != nullptr;
  void* p = malloc(8);
  out[1] = p != nullptr;
  free(nullptr);
  free(p);
  out[2] = malloc((4 << 20) - 16) != nullptr;
  out[3] = malloc((4 << 20) - 16) != nullptr;
}
extern "C" __global__ void within(int* out) { free((char*)malloc(64) + 8); }
extern "C" __global__ void elsewhere(int* out) { free(out); }
"""
    out = np.full(4, -1, np.int32)
    tw.Kernel(source, "k", arch="sm_80")(1, 1, [out], device="emulator")
    assert out.tolist() == [0, 1, 1, 0]
    for name in ("within", "elsewhere"):
        with pytest.raises(KernelFault, match="trapped"):
            tw.Kernel(source, name, arch="sm_80")(1, 1, [out], device="emulator")
