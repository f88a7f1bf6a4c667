"""Kernels that race: see ``cases.py`` for how they are written."""

from __future__ import annotations

from tests.harness.cases import Case

__all__ = ["RACES"]

RACES = [
    Case(
        "missing_barrier",
        "racecheck",
        "read-write",
        """
    __shared__ int s[64];
    s[T] = x[T];                                                        //!
    __syncthreads();                                                        //+
    y[T] = s[63 - T];                                                   //!
""",
    ),
    Case(
        "last_warp_left_out",
        "racecheck",
        "read-write",
        """
    __shared__ int s[96];
    s[T] = x[T];                                                        //!
    if (T < 64) meet(1, 64);                                                //-
    __syncthreads();                                                        //+
    if (T < 32) y[T] = s[T + 64];                                       //!
""",
        block=96,
    ),
    Case(
        "first_warp_left_out",
        "racecheck",
        "read-write",
        """
    __shared__ int s[96];
    s[T] = x[T];                                                        //!
    if (T >= 32) meet(1, 64);                                               //-
    __syncthreads();                                                        //+
    if (T >= 64) y[T] = s[T - 64];                                      //!
""",
        block=96,
    ),
    Case(
        "written_by_the_second_who_read",
        "racecheck",
        "read-write",
        """
    __shared__ int s[32];
    s[T % 32] = 0;
    __syncthreads();
    y[T] = s[x[T % 32] % 32];                                           //!
    __syncthreads();                                                        //+
    if (T == 32) s[x[0] % 32] = 1000;                                   //!
""",
    ),
    Case(
        "next_turn",
        "racecheck",
        "read-write",
        """
    __shared__ int s[64];
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        s[T] = x[64 * i + T];                                               //!
        __syncthreads();
        sum += s[63 - T];                                               //!
        __syncthreads();                                                       //+
    }
    y[T] = sum;
""",
    ),
    Case(
        "two_writers",
        "racecheck",
        "write-write",
        """
    __shared__ int s[64];
    s[T % 32] = T;                                                            //! //-
    s[T] = T;                                                                 //+
    __syncthreads();
    y[T] = s[T % 32];
""",
    ),
    Case(
        "one_instruction",
        "racecheck",
        "write-write",
        """
    __shared__ int s;
    s = T;                                                                  //! //-
    if (T == 5) s = T;                                                          //+
    __syncthreads();
    y[T] = s;
""",
        block=32,
    ),
    Case(
        "warp_without_sync",
        "racecheck",
        "read-write",
        """
    __shared__ int s[32];
    s[T] = x[T];                                                    //!
    __syncwarp();                                                           //+
    y[T] = s[31 - T];                                                //!
""",
        block=32,
    ),
    Case(
        "tree",
        "racecheck",
        "read-write",
        """
    __shared__ int s[128];
    s[T] = x[T];
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (T < d) s[T] += s[T + d];                                               //!
        __syncthreads();                                                              //+
    }
    __syncthreads();                                                              //-
    if (T == 0) y[0] = s[0];
""",
        block=128,
    ),
    Case(
        "counter_read_early",
        "racecheck",
        "read-write",
        """
    __shared__ int s;
    if (T == 0) s = 0;
    __syncthreads();
    atomicAdd(&s, x[T]);                                                          //!
    __syncthreads();                                                                //+
    y[T] = s;                                                             //!
""",
    ),
    Case(
        "atomic_and_plain",
        "racecheck",
        "write-write",
        """
    __shared__ int s;
    if (T == 0) s = 7;                                                          //!
    __syncthreads();                                                                //+
    if (T == 40) atomicExch(&s, 9);                                               //!
    __syncthreads();
    y[T] = s;
""",
    ),
    Case(
        "one_byte_for_two",
        "racecheck",
        "write-write",
        """
    __shared__ unsigned char s[64];
    s[T] = 0;
    __syncthreads();
    s[T % 32] = T;                                                               //! //-
    s[T] = T;                                                                     //+
    __syncthreads();
    y[T] = s[T];
""",
    ),
    Case(
        "a_neighbours_half",
        "racecheck",
        "read-write",
        """
    __shared__ short s[64];
    s[T] = x[T];                                                          //!
    __syncthreads();                                                          //+
    y[T] = s[T ^ 32];                                                    //!
""",
    ),
    Case(
        "four_at_once",
        "racecheck",
        "read-write",
        """
    __shared__ __align__(16) int s[256];
    *(int4 *)(s + 4 * T) = make_int4(T, T, T, x[T]);                                //!
    __syncthreads();                                                           //+
    y[T] = s[255 - T];                                                           //!
""",
    ),
    Case(
        "another_barrier",
        "racecheck",
        "read-write",
        """
    __shared__ int s[128];
    s[T] = x[T];                                                                  //!
    meet(1 + WARP % 2, 64);                                                            //-
    meet(1 + WARP / 2, 64);                                                            //+
    y[T] = s[T ^ 32];                                                         //!
""",
        block=128,
    ),
    Case(
        "arrived_before_writing",
        "racecheck",
        "read-write",
        """
    __shared__ int s[32];
    if (WARP == 0) {
        come(1, 64);                                                                //-
        s[T] = x[T];                                                                  //!
        __syncwarp();
        come(1, 64);                                                                 //+
    } else {
        meet(1, 64);
        y[T] = s[T - 32];                                                         //!
    }
""",
    ),
    Case(
        "branches",
        "racecheck",
        "read-write",
        """
    __shared__ int s[64];
    if (WARP == 0) s[T] = x[T];                                                        //!
    __syncthreads();                                                                       //+
    if (WARP == 1) y[T] = s[T - 32];                                                    //!
""",
    ),
    Case(
        "one_lane_for_all",
        "racecheck",
        "read-write",
        """
    __shared__ int s;
    if (T == 3) s = x[0];                                                                //!
    __syncwarp();                                                                          //+
    y[T] = s;                                                                           //!
""",
        block=32,
    ),
    Case(
        "matrix_too_early",
        "racecheck",
        "read-write",
        """
    __shared__ __align__(16) half s[64];
    s[T] = __int2half_rn(T);                                                                //!
    __syncthreads();                                                                          //+
    if (WARP == 0) { u32 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(at(s + T % 8 * 8)) : "memory"); //!
    y[T] = r; }
""",
    ),
    Case(
        *("second_of_two_readers_reads_again", "racecheck", "read-write"),
        """
    __shared__ int s[32]; __shared__ u64 m; int lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (T < 32) s[T] = x[T];
    if (T == 0) init(&m, 64);
    __syncthreads();
    if (WARP == 2) {
        await(&m, 0);
        s[lane] = 5; //!
    } else {
        int v = s[lane];
        arrive(&m); //-
        if (WARP == 1) v += s[lane]; //!
        arrive(&m); //+
        y[T] = v;
    }
""",
        block=96,
        arch="sm_90a",
    ),
    Case(
        "neighbour_block",
        "racecheck",
        "read-write",
        """
    __shared__ int s[64];
    s[T] = B * 100 + T;                                                                   //!
    cluster();                                                                                 //+
    u32 v; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), B ^ 1)) : "memory"); //!
    cluster();
    y[B * n + T] = v;
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
    Case(
        "read_between_arriving_and_waiting",
        "racecheck",
        "read-write",
        """
    __shared__ int s[64];
    u32 v = 0;
    if (B == 0) s[T] = T;                                                                     //!
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");                                        //+
    if (B == 1) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), 0)) : "memory"); //!
    asm volatile("barrier.cluster.wait;" ::: "memory");                                        //-
    cluster();
    y[B * n + T] = v;
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
    Case(
        "to_a_neighbour",
        "racecheck",
        "read-write",
        """
    __shared__ int s[64];
    cluster();
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(remote(at(s + T), B ^ 1)), "r"(T) : "memory"); //!
    asm volatile("barrier.cluster.arrive.relaxed;\\n\\tbarrier.cluster.wait;" ::: "memory");  //-
    cluster();                                                                                 //+
    y[B * n + T] = s[T];                                                                       //!
    cluster();
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
    Case(
        "gone_too_early",
        "racecheck",
        "early-exit",
        """
    __shared__ int s[64];
    s[T] = T;
    cluster();
    u32 v = 0;
    if (B == 0) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), 1)) : "memory"); //!
    cluster();                                                                                          //+
    y[B * n + T] = v;
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
        orders=("eager",),
    ),
    Case(
        "initialised_without_fence",
        "racecheck",
        "uninitialised-mbarrier",
        """
    __shared__ u64 m;
    if (T == 0) init(&m, 1);                                                                              //!
    if (T == 0) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");                             //+
    asm volatile("barrier.cluster.arrive.relaxed;\\n\\tbarrier.cluster.wait;" ::: "memory");
    if (T == 0) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(remote(at(&m), B ^ 1)) : "memory"); //!
    if (T == 0) await(&m, 0);
    cluster();
    y[B * n + T] = T;
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
    Case(
        "blocks_write_alike",
        "racecheck",
        "write-write",
        """
    y[T] = B * 1000 + T;                                                                        //! //-
    y[B * n + T] = B * 1000 + T;                                                                  //+
""",
        grid=2,
    ),
    Case(
        "blocks_read_early",
        "racecheck",
        "read-write",
        """
    int value = x[(B ^ 1) * n + T];                                                              //!
    x[B * n + T] = value;                                                                        //! //-
    y[B * n + T] = value;                                                                        //+
""",
        grid=2,
    ),
    Case(
        "within_global",
        "racecheck",
        "read-write",
        """
    y[T] = x[T];                                                                                  //!
    __syncthreads();                                                                                //+
    x[64 + T] = y[63 - T];                                                                      //!
""",
    ),
    Case(
        "last_block_without_fence",
        "racecheck",
        "read-write",
        """
    __shared__ bool last;
    if (T == 0) {
        y[B] = x[B];                                                                             //!
        __threadfence();                                                                           //+
        last = atomicAdd(y + 100, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && T < gridDim.x) x[1000 + T] = y[T];                                               //!
""",
        grid=4,
    ),
    Case(
        "flag_without_release",
        "racecheck",
        "read-write",
        """
    if (B == 0) {
        y[T] = x[T];                                                                          //!
        __syncthreads();
        __threadfence();                                                                      //+
        if (T == 0) atomicExch(y + 200, 1);
    } else {
        if (T == 0) while (atomicAdd(y + 200, 0) == 0) {}
        __syncthreads();
        x[1000 + T] = y[T];                                                                      //!
    }
""",
        grid=2,
    ),
    Case(
        "flag_without_acquire",
        "racecheck",
        "read-write",
        """
    if (B == 0) {
        if (T == 0) { y[0] = x[0];                                                                  //!
            __threadfence(); *(volatile int *)(y + 200) = 1; }
    } else if (T == 0) {
        while (*(volatile int *)(y + 200) == 0) {}
        __threadfence();                                                                            //+
        x[1000] = y[0];                                                                           //!
    }
""",
        grid=2,
    ),
    Case(
        "flag_behind_a_fence_of_the_block",
        "racecheck",
        "read-write",
        """
    if (B == 0) {
        if (T == 0) { y[0] = x[0];                                                                  //!
            __threadfence_block();                                                                  //-
            __threadfence();                                                                        //+
            *(volatile int *)(y + 200) = 1; }
    } else if (T == 0) {
        while (*(volatile int *)(y + 200) == 0) {}
        __threadfence();
        x[1000] = y[0];                                                                           //!
    }
""",
        grid=2,
    ),
    Case(
        "lock_without_fences",
        "racecheck",
        "write-write",
        """
    if (T == 0) {
        while (atomicCAS(y + 200, 0, 1)) {}
        __threadfence();                                                                          //+
        y[0] = B + 5;                                                                           //!
        __threadfence();                                                                          //+
        atomicExch(y + 200, 0);
    }
""",
        grid=3,
    ),
    Case(
        "scope_too_small",
        "racecheck",
        "write-write",
        """
    if (T == 0) atomicAdd_block(y, x[B]);                                                     //! //-
    if (T == 0) atomicAdd(y, x[B]);                                                            //+
""",
        grid=3,
    ),
    Case(
        "one_scope_too_small",
        "racecheck",
        "write-write",
        """
    if (T == 0 && B == 0) atomicAdd_block(y, x[B]);                                            //! //-
    if (T == 0 && B == 0) atomicAdd(y, x[B]);                                                  //+
    if (T == 0 && B == 1) atomicAdd(y, x[B]);                                                  //!
""",
        grid=2,
    ),
    Case(
        "read_behind_two_others_that_read_before",
        "racecheck",
        "read-write",
        """
    int v = 0;
    if (WARP == 1 || WARP == 2) v = x[T % 32 * 37 % 64];
    __syncthreads();
    if (WARP == 0) v = x[T % 32 * 37 % 64];                                 //!
    __syncthreads();                                                            //+
    if (T == 96) x[0] = 1;                                                  //!
    y[T] = v;
""",
        block=128,
    ),
]
