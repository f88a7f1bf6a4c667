"""Kernels that read what nobody wrote, go out of bounds, or misuse barriers."""

from __future__ import annotations

from tests.harness.cases import Case

__all__ = ["BARRIERS", "MEMORY", "UNSET"]

UNSET = [
    Case(
        "unset_shared",
        "initcheck",
        "unset",
        """
    __shared__ int s[64];
    if (T < 60) s[T] = x[T];                                                                //-
    s[T] = x[T];                                                                                //+
    __syncthreads();
    y[T] = s[63 - T];                                                                             //!
""",
    ),
    Case(
        "unset_byte",
        "initcheck",
        "unset",
        """
    __shared__ __align__(4) unsigned char s[256];
    for (int i = T; i < 256; i += 64) if (i != 77) s[i] = i;                                      //-
    for (int i = T; i < 256; i += 64) s[i] = i;                                                   //+
    __syncthreads();
    y[T] = ((int *)s)[T];                                                                             //!
""",
    ),
    Case(
        "unset_counter",
        "initcheck",
        "unset",
        """
    __shared__ int s;
    if (T == 0) s = 0;                                                                                 //+
    __syncthreads();
    atomicAdd(&s, 1);                                                                               //!
    __syncthreads();
    y[T] = 0;
""",
    ),
    Case(
        "unset_padding",
        "initcheck",
        "unset",
        """
    __shared__ int s[8][9];
    s[T / 8][T % 8] = x[T];
    if (T < 8) s[T][8] = 0;                                                                            //+
    __syncthreads();
    int sum = 0;
    if (T < 8) for (int i = 0; i < 9; i++) sum += s[T][i];                                             //!
    y[T] = sum;
""",
    ),
    Case(
        "unset_rest_of_a_word",
        "initcheck",
        "unset",
        """
    __shared__ __align__(4) unsigned char s[256];
    s[4 * T] = x[T];
    for (int i = 1; i < 4; i++) s[4 * T + i] = 0;                                                      //+
    __syncthreads();
    y[T] = ((volatile int *)s)[T];                                                                   //!
""",
    ),
    Case(
        "unset_structure",
        "initcheck",
        "unset",
        """
    struct __align__(16) Three { int a, b, c; };
    __shared__ Three s[64];
    if (n > 64) s[T] = {x[T], 1, 2};                                                                   //-
    s[T] = {x[T], 1, 2};                                                                               //+
    __syncthreads();
    ((Three *)y)[T] = s[63 - T];                                                                     //!
""",
    ),
]
MEMORY = [
    Case(
        "one_too_far",
        "memcheck",
        "out-of-bounds",
        """
    y[4033 + T] = x[T];                                                                            //! //-
    if (4033 + T < 4096) y[4033 + T] = x[T];                                                           //+
""",
    ),
    Case(
        "before_the_start",
        "memcheck",
        "out-of-bounds",
        """
    y[T] = x[T - 1];                                                                                  //! //-
    y[T] = x[T ? T - 1 : 0];                                                                           //+
""",
    ),
    Case(
        "shared_too_far",
        "memcheck",
        "out-of-bounds",
        """
    extern __shared__ int s[];
    s[T + 1] = x[T];                                                                                  //! //-
    s[T] = x[T];                                                                                      //+
    __syncthreads();
    y[T] = s[T];
""",
        shared=256,
    ),
    Case(
        "misaligned_pair",
        "memcheck",
        "misaligned",
        """
    *(int2 *)(y + 2 * T + 1) = make_int2(T, T);                                                         //! //-
    *(int2 *)(y + 2 * T) = make_int2(T, T);                                                             //+
""",
    ),
    Case(
        "misaligned_every_other_lane",
        "memcheck",
        "misaligned",
        """
    int2 v = *(int2 *)(x + T); //! //-
    int2 v = *(int2 *)(x + 2 * T); //+
    y[T] = v.x + v.y;
""",
    ),
    Case(
        "misaligned_shared",
        "memcheck",
        "misaligned",
        """
    __shared__ __align__(16) int s[264];
    for (int i = T; i < 264; i += 64) s[i] = i;
    __syncthreads();
    int4 v = *(int4 *)(s + 4 * T + n / 64);                                                            //! //-
    int4 v = *(int4 *)(s + 4 * T);                                                                      //+
    y[T] = v.x + v.w;
""",
    ),
    Case(
        "no_such_block",
        "memcheck",
        "no-such-block",
        """
    __shared__ int s[64];
    s[T] = T;
    cluster();
    u32 v, to = B + 1;                                                                                     //-
    u32 v, to = (B + 1) % 2;                                                                                //+
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), to)) : "memory");   //!
    y[B * n + T] = v;
    cluster();
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
]
BARRIERS = [
    Case(
        "divergent_barrier",
        "synccheck",
        "divergent-barrier",
        """
    if (T % 2) {
        y[T] = 1;
        __syncthreads();                                                                               //! //-
    } else {
        y[T] = 2;
        asm volatile("bar.sync 1;");                                                                       //-
    }
    __syncthreads();                                                                                     //+
    y[T] += 1;
""",
    ),
    Case(
        "never_met",
        "synccheck",
        "deadlock",
        """
    if (WARP == 0) meet(1, 64);                                                                            //-
    meet(1, 64);                                                                                         //+
    y[T] = T;
""",
    ),
    Case(
        "odd_count",
        "synccheck",
        "bad-barrier",
        """
    meet(1, 33);                                                                                       //! //-
    meet(1, 64);                                                                                           //+
    y[T] = T;
""",
    ),
    Case(
        "two_counts",
        "synccheck",
        "bad-barrier",
        """
    meet(1, WARP ? 64 : 96);                                                                         //! //-
    meet(1, 96);                                                                                      //+
    y[T] = T;
""",
        block=96,
        orders=("eager",),
    ),
    Case(
        "too_many_arrivals",
        "synccheck",
        "bad-mbarrier",
        """
    __shared__ u64 m;
    if (T == 0) init(&m, 8);
    __syncthreads();
    int many = n / 7;                                                                                    //-
    int many = n / 8;                                                                                      //+
    if (T == 0) asm volatile("{ .reg .b64 s; mbarrier.arrive.noComplete.shared.b64 s, [%0], %1; }" :: "r"(at(&m)), "r"(many - 1)); //!
    y[T] = T;
""",
    ),
    Case(
        "never_complete",
        "synccheck",
        "deadlock",
        """
    __shared__ u64 m;
    if (T == 0) init(&m, 65);                                                                           //-
    if (T == 0) init(&m, 64);                                                                               //+
    __syncthreads();
    arrive(&m);
    await(&m, 0);
    y[T] = T;
""",
        arch="sm_90a",
        orders=("late",),
    ),
    Case(
        "bytes_that_never_come",
        "synccheck",
        "deadlock",
        """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
    if (T == 0) {
        expect(&m, 272);                                                                              //-
        expect(&m, 256);                                                                              //+
        bulk(s, x, 256, &m);
    }
    await(&m, 0);
    y[T] = s[63 - T];
""",
        arch="sm_90a",
        orders=("late",),
    ),
    Case(
        "arrived_twice",
        "synccheck",
        "bad-barrier",
        """
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.arrive;" ::: "memory");                                               //! //-
    asm volatile("barrier.cluster.wait;" ::: "memory");
    y[B * n + T] = T;
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
]
