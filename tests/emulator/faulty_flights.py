"""Kernels that do not wait for what they set off: see ``cases.py`` for how they are written."""

from __future__ import annotations

from tests.emulator.cases import Case

__all__ = ["FLIGHTS"]

FLIGHTS = [
    Case(
        "not_waited",
        "asyncheck",
        "read-in-flight",
        """
    __shared__ int s[64];
    cp4(s + T, x + T);                                                                       //!
    commit();
    landed<0>();                                                                                       //+
    __syncthreads();
    y[T] = s[63 - T];                                                                                    //!
""",
    ),
    Case(
        "one_group_too_many",
        "asyncheck",
        "read-in-flight",
        """
    __shared__ int s[2][64];
    cp4(s[0] + T, x + T);                                                                              //!
    commit();
    cp4(s[1] + T, x + 64 + T);
    commit();
    landed<2>();                                                                                             //-
    landed<1>();                                                                                          //+
    __syncthreads();
    int first = s[0][63 - T];                                                                         //!
    landed<0>();
    __syncthreads();
    y[T] = first + s[1][63 - T];
""",
    ),
    Case(
        "waited_but_not_met",
        "racecheck",
        "read-write",
        """
    __shared__ int s[64];
    cp4(s + T, x + T);                                                                           //!
    commit();
    landed<0>();
    __syncthreads();                                                                                 //+
    y[T] = s[63 - T];                                                                                  //!
""",
    ),
    Case(
        "two_copies_to_one_place",
        "asyncheck",
        "write-in-flight",
        """
    __shared__ int s[64];
    cp4(s + T, x + T);                                                                                     //!
    commit();
    landed<0>();                                                                                             //+
    cp4(s + T, x + 64 + T);                                                                               //!
    commit();
    landed<0>();
    __syncthreads();
    y[T] = s[63 - T];
""",
    ),
    Case(
        "stored_into_a_copy",
        "asyncheck",
        "write-in-flight",
        """
    __shared__ int s[64];
    cp4(s + T, x + T);                                                                                   //!
    commit();
    landed<0>();                                                                                           //+
    if (T == 0) s[T] = 5;                                                                                 //!
    landed<0>();
    __syncthreads();
    y[T] = s[63 - T];
""",
    ),
    Case(
        "stage_reused",
        "racecheck",
        "read-write",
        """
    __shared__ int s[64];
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        cp4(s + T, x + 64 * i + T);                                                                        //!
        commit();
        landed<0>();
        __syncthreads();
        sum += s[63 - T];                                                                                  //!
        __syncthreads();                                                                                     //+
    }
    y[T] = sum;
""",
    ),
    Case(
        "bulk_not_waited",
        "asyncheck",
        "read-in-flight",
        """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
    if (T == 0) { expect(&m, 256);
        bulk(s, x, 256, &m);                                                                          //!
    }
    await(&m, 0);                                                                                           //+
    __syncthreads();
    y[T] = s[63 - T];                                                                                       //!
""",
        arch="sm_90a",
    ),
    Case(
        "wrong_parity",
        "asyncheck",
        "read-in-flight",
        """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
    if (T == 0) { expect(&m, 256);
        bulk(s, x, 256, &m);                                                                              //!
    }
    await(&m, 1);                                                                                               //-
    await(&m, 0);                                                                                          //+
    y[T] = s[63 - T];                                                                                        //!
""",
        arch="sm_90a",
        orders=("late",),
    ),
    Case(
        "refilled_too_early",
        "asyncheck",
        "copy-too-early",
        """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        if (T == 0) { expect(&m, 256);
            bulk(s, x + 64 * i, 256, &m);                                                                  //!
        }
        await(&m, i % 2);
        sum += s[63 - T];                                                                              //!
        __syncthreads();                                                                                     //+
    }
    y[T] = sum;
""",
        arch="sm_90a",
        orders=("late",),
    ),
    Case(
        "sent_without_fence",
        "asyncheck",
        "unfenced",
        """
    __shared__ __align__(128) int s[64];
    s[T] = x[T];                                                                                         //!
    proxy();                                                                                                   //+
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256);                                                                                 //!
        bulk_read();
    }
""",
        arch="sm_90a",
    ),
    Case(
        "source_overwritten",
        "asyncheck",
        "source-in-flight",
        """
    __shared__ __align__(128) int s[64];
    s[T] = x[T];
    proxy();
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256);                                                                                  //!
        bulk_read();                                                                                            //+
        s[0] = 5;                                                                                             //!
        bulk_read();
    }
""",
        arch="sm_90a",
    ),
    Case(
        "used_before_initialised",
        "racecheck",
        "uninitialised-mbarrier",
        """
    __shared__ u64 m;
    if (T == 0) init(&m, 32);                                                                                //!
    __syncthreads();                                                                                           //+
    if (T >= 32) arrive(&m);                                                                               //!
    y[T] = T;
""",
        orders=("eager",),
    ),
    Case(
        "product_without_fence",
        "asyncheck",
        "unfenced",
        """
    __shared__ __align__(128) half s[64 * 16 + 8 * 16];
    for (int i = T; i < 1152; i += 128) s[i] = __int2half_rn(i % 7);                                           //!
    proxy();                                                                                                      //+
    __syncthreads();
    float d[4] = {};
    multiply(d, plain(s), plain(s + 1024));                                                                         //!
    multiplied();
    y[T] = d[0] + d[3];
""",
        block=128,
        arch="sm_90a",
    ),
    Case(
        "operand_overwritten",
        "asyncheck",
        "source-in-flight",
        """
    __shared__ __align__(128) half a[64 * 16], b[8 * 16];
    for (int i = T; i < 1024; i += 128) a[i] = __int2half_rn(i % 7);
    b[T] = __int2half_rn(T % 5);
    proxy();
    __syncthreads();
    float d[4] = {};
    multiply(d, plain(a), plain(b));                                                                        //!
    multiplied();                                                                                            //+
    __syncthreads();
    b[T] = __int2half_rn(1);                                                                                     //!
    multiplied();
    y[T] = d[0] + d[3];
""",
        block=128,
        arch="sm_90a",
    ),
]
