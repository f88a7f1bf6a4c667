"""Kernels that do not wait for what they set off: see ``cases.py`` for how they are written."""

from __future__ import annotations

from tests.harness.cases import Case

__all__ = ["FLIGHTS"]


def _copy(name: str, tool: str, kind: str, body: str) -> Case:
    return Case(name, tool, kind, "__shared__ int s[2][64];\n" + body)


def _bulk(name: str, kind: str, body: str, orders: tuple[str | int, ...] = ("eager", "late", 3)) -> Case:
    """With an mbarrier for copies of 256 bytes to ``s``."""
    head = """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
"""
    return Case(name, "asyncheck", kind, head + body.strip("\n"), arch="sm_90a", orders=orders)


def _store(name: str, kind: str, body: str) -> Case:
    """With values in ``s`` that a bulk copy may read."""
    head = """
    __shared__ __align__(128) int s[64];
    s[T] = x[T];
    proxy();
    __syncthreads();
"""
    return Case(name, "asyncheck", kind, head + body.strip("\n"), arch="sm_90a")


def _product(name: str, kind: str, body: str, fill: str = "", fenced: str = "proxy();") -> Case:
    """With the two factors of a wgmma, ``a`` and ``b``."""
    head = f"""
    __shared__ __align__(128) half a[64 * 16 + 8 * 16]; half *b = a + 1024;
    for (int i = T; i < 1152; i += 128) a[i] = __int2half_rn(i % 7); {fill}
    {fenced}
    __syncthreads();
    float d[4] = {{}}, e[4] = {{}};
"""
    tail = "\ny[T] = d[0] + d[3] + e[0];"
    return Case(name, "asyncheck", kind, head + body.strip("\n") + tail, block=128, arch="sm_90a")


_COPIES = [
    _copy(
        *("not_waited", "asyncheck", "read-in-flight"),
        """
    cp4(s[0] + T, x + T); //!
    commit();
    landed<0>(); //+
    __syncthreads();
    y[T] = s[0][63 - T]; //!
""",
    ),
    _copy(
        *("one_group_too_many", "asyncheck", "read-in-flight"),
        """
    cp4(s[0] + T, x + T); //!
    commit();
    cp4(s[1] + T, x + 64 + T);
    commit();
    landed<2>(); //-
    landed<1>(); //+
    __syncthreads();
    int first = s[0][63 - T]; //!
    landed<0>();
    __syncthreads();
    y[T] = first + s[1][63 - T];
""",
    ),
    _copy(
        *("no_group_at_the_end", "asyncheck", "read-in-flight"),
        """
    int sum = 0;
    cp4(s[0] + T, x + T);
    commit();
    for (int i = 0; i < 4; i++) {
        if (i < 3) {
            cp4(s[(i + 1) % 2] + T, x + 64 * (i + 1) + T); //!
            commit(); //-
        }
        commit(); //+
        landed<1>();
        __syncthreads();
        sum += s[i % 2][63 - T]; //!
        __syncthreads();
    }
    y[T] = sum;
""",
    ),
    _copy(
        *("waited_but_not_met", "racecheck", "read-write"),
        """
    cp4(s[0] + T, x + T); //!
    commit();
    landed<0>();
    __syncthreads(); //+
    y[T] = s[0][63 - T]; //!
""",
    ),
    _copy(
        *("two_copies_to_one_place", "asyncheck", "write-in-flight"),
        """
    cp4(s[0] + T, x + T); //!
    commit();
    landed<0>(); //+
    cp4(s[0] + T, x + 64 + T); //!
    commit();
    landed<0>();
    __syncthreads();
    y[T] = s[0][63 - T];
""",
    ),
    _copy(
        *("stored_into_a_copy", "asyncheck", "write-in-flight"),
        """
    cp4(s[0] + T, x + T); //!
    commit();
    landed<0>(); //+
    if (T == 0) s[0][T] = 5; //!
    landed<0>();
    __syncthreads();
    y[T] = s[0][63 - T];
""",
    ),
    _copy(
        *("stage_reused", "racecheck", "read-write"),
        """
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        cp4(s[0] + T, x + 64 * i + T); //!
        commit();
        landed<0>();
        __syncthreads();
        sum += s[0][63 - T]; //!
        __syncthreads(); //+
    }
    y[T] = sum;
""",
    ),
]

_BULKS = [
    _bulk(
        *("bulk_not_waited", "read-in-flight"),
        """
    if (T == 0) { expect(&m, 256);
        bulk(s, x, 256, &m); //!
    }
    await(&m, 0); //+
    __syncthreads();
    y[T] = s[63 - T]; //!
""",
    ),
    _bulk(
        *("wrong_parity", "read-in-flight"),
        """
    if (T == 0) { expect(&m, 256);
        bulk(s, x, 256, &m); //!
    }
    await(&m, 1); //-
    await(&m, 0); //+
    y[T] = s[63 - T]; //!
""",
        ("late",),
    ),
    _bulk(
        *("refilled_too_early", "copy-too-early"),
        """
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        if (T == 0) { expect(&m, 256);
            bulk(s, x + 64 * i, 256, &m); //!
        }
        await(&m, i % 2);
        sum += s[63 - T]; //!
        __syncthreads(); //+
    }
    y[T] = sum;
""",
        ("late",),
    ),
    Case(
        *("barrier_not_made_visible", "asyncheck", "unfenced"),
        """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) {
        init(&m, 1); //!
        proxy(); //+
        expect(&m, 256);
        bulk(s, x, 256, &m); //!
    }
    __syncthreads();
    await(&m, 0);
    y[T] = s[63 - T];
""",
        arch="sm_90a",
    ),
    Case(
        *("mbarrier_of_another_warp", "racecheck", "uninitialised-mbarrier"),
        """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) {
        init(&m, 1); //!
        proxy();
    }
    __syncthreads(); //+
    if (T == 0) expect(&m, 128);
    if (T == 32) {
        bulk(s, x, 128, &m); //!
    }
    __syncthreads();
    await(&m, 0);
    y[T] = s[T % 32];
""",
        arch="sm_90a",
        orders=("eager", 3),
    ),
    _bulk(
        *("one_lane_frees_for_its_warp", "copy-too-early"),
        """
    __shared__ u64 empty;
    if (T == 0) init(&empty, 1);
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        if (T == 32) {
            if (i) await(&empty, (i - 1) % 2);
            expect(&m, 256);
            bulk(s, x + 64 * i, 256, &m); //!
        }
        if (T < 32) {
            await(&m, i % 2);
            sum += s[63 - T]; //!
            __syncwarp(); //+
            if (T == 0) arrive(&empty);
        }
    }
    y[T] = sum;
""",
    ),
    _bulk(
        *("sent_without_fence", "unfenced"),
        """
    s[T] = x[T]; //!
    proxy(); //+
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_read();
    }
""",
    ),
    Case(
        *("sent_to_a_neighbour_without_fence", "asyncheck", "unfenced"),
        """
    __shared__ __align__(128) int s[64], r[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    s[T] = x[T]; //!
    proxy(); //+
    cluster();
    if (T == 0) {
        expect(&m, 256);
        bulk_send(remote(at(r), B ^ 1), s, 256, remote(at(&m), B ^ 1)); //!
        await(&m, 0);
    }
    cluster();
    y[64 * B + T] = r[T];
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
    _bulk(
        *("fenced_for_mbarriers_alone", "unfenced"),
        """
    s[T] = x[T]; //!
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); //-
    proxy(); //+
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_read();
    }
""",
    ),
    _bulk(
        *("global_source_without_fence", "unfenced"),
        """
    x[T] = T; //!
    proxy(); //+
    __syncthreads();
    if (T == 0) { expect(&m, 256);
        bulk(s, x, 256, &m); //!
    }
    await(&m, 0);
    y[T] = s[63 - T];
""",
    ),
    _bulk(
        *("source_overwritten", "source-in-flight"),
        """
    s[T] = x[T];
    proxy();
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_read(); //+
        s[0] = 5; //!
        bulk_read();
    }
""",
    ),
    _bulk(
        *("source_of_two_stores_overwritten", "source-in-flight"),
        """
    s[T] = x[T];
    proxy();
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256);
        bulk_out(y + 64, s, 256); //!
        bulk_read(); //+
        s[0] = 5; //!
        bulk_read();
    }
""",
    ),
    Case(
        *("source_waited_for_and_not_met", "racecheck", "read-write"),
        """
    __shared__ __align__(128) int s[64];
    s[T] = x[T];
    proxy();
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_read(); //+
    }
    __syncthreads();
    if (T == 0) bulk_read();
    if (T == 32) s[0] = 5; //!
""",
        arch="sm_90a",
        orders=("eager",),  # in others the source is still in flight
    ),
    Case(
        *("used_before_initialised", "racecheck", "uninitialised-mbarrier"),
        """
    __shared__ u64 m;
    if (T == 0) init(&m, 64); //!
    __syncthreads(); //+
    arrive(&m); //!
    y[T] = T;
""",
        orders=("eager",),
    ),
]

_STORES = [
    _store(
        *("store_not_waited", "read-in-flight"),
        """
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_done(); //+
        y[64] = y[63]; //!
    }
""",
    ),
    _store(
        *("store_waited_for_its_source_alone", "read-in-flight"),
        """
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_read(); //-
        bulk_done(); //+
        y[64] = y[63]; //!
    }
""",
    ),
    _store(
        *("store_of_the_last_group", "read-in-flight"),
        """
    if (T == 0) {
        bulk_out(y + 64, s, 256);
        bulk_out(y, s, 256); //!
        bulk_done<1>();
        y[128] = y[64];
        bulk_done(); //+
        y[129] = y[63]; //!
    }
""",
    ),
    _store(
        *("store_waited_for_by_another_thread", "read-in-flight"),
        """
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_done(); //+
    }
    __syncthreads();
    bulk_done();
    y[64 + T] = y[T]; //!
""",
    ),
    _store(
        *("store_waited_for_and_not_met", "read-in-flight"),
        """
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_done();
    }
    __syncwarp(); //+
    if (T == 1) y[64] = y[63]; //!
""",
    ),
    Case(
        *("store_waited_for_behind_an_atomic", "racecheck", "write-write"),
        """
    __shared__ __align__(128) int s[64];
    s[T] = x[T];
    proxy();
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_done();
        atomicAdd(y, 1);
    }
    __syncwarp(); //+
    if (T == 1) atomicAdd(y, 1); //!
""",
        arch="sm_90a",
    ),
    _store(
        *("written_under_a_store", "write-in-flight"),
        """
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_done(); //+
        y[1] = 3; //!
    }
""",
    ),
    _store(
        *("two_stores_to_one_place", "write-in-flight"),
        """
    if (T == 0) {
        bulk_out(y, s, 256); //!
        bulk_read();
        bulk_done(); //+
        bulk_out(y, s, 128); //!
        bulk_read();
    }
""",
    ),
    _store(
        *("reduction_not_waited", "read-in-flight"),
        """
    if (T == 0) {
        bulk_add(y, s, 256);
        bulk_add(y, s, 256); //!
        bulk_done<1>();
        bulk_done(); //+
        atomicAdd(y, 1);
    }
    __syncthreads();
    y[64 + T] = y[T]; //!
""",
    ),
    _store(
        *("store_over_a_reduction", "write-in-flight"),
        """
    if (T == 0) {
        bulk_add(y, s, 256); //!
        bulk_done(); //+
        bulk_out(y, s, 256); //!
        bulk_done();
    }
""",
    ),
    _store(
        *("loaded_under_a_store", "read-in-flight"),
        """
    __shared__ __align__(128) int t[64]; __shared__ u64 m;
    if (T == 0) {
        init(&m, 1);
        proxy();
        bulk_out(y, s, 256); //!
        bulk_done(); //+
        expect(&m, 256);
        bulk(t, y, 256, &m); //!
        await(&m, 0);
        bulk_done();
    }
""",
    ),
]

_PRODUCTS = [
    _product(
        *("product_without_fence", "unfenced"),
        """
    multiply(d, plain(a), plain(b)); //!
    multiplied();
""",
        *("//!", "proxy(); //+"),
    ),
    _product(
        *("operand_overwritten", "source-in-flight"),
        """
    multiply(d, plain(a), plain(b)); //!
    multiplied(); //+
    __syncthreads();
    b[T] = __int2half_rn(1); //!
    multiplied();
""",
    ),
    _product(
        *("rows_of_the_last_warp_overwritten", "source-in-flight"),
        """
    multiply(d, plain(a), plain(b)); //!
    multiplied(); //+
    __syncthreads();
    a[896 + T] = __int2half_rn(1); //!
    multiplied();
""",
    ),
    _product(
        *("sums_of_the_last_group", "sum-in-flight"),
        """
    multiply(d, plain(a), plain(b));
    multiply(e, plain(a), plain(b)); //!
    multiplied<1>(); //-
    multiplied(); //+
    e[0] = d[1] + e[1] * 2; //!
    multiplied();
""",
    ),
    _product(
        *("no_fence_at_all", "unfenced-register"),
        """
    order(); //+
    add_product(d, plain(a), plain(b)); //!
    multiplied();
""",
    ),
    _product(
        *("sums_scaled_without_fence", "unfenced-register"),
        """
    multiply(d, plain(a), plain(b));
    multiplied();
    for (int i = 0; i < 4; i++) d[i] *= 3; //!
    order(); //+
    add_product(d, plain(a), plain(b)); //!
    add_product(d, plain(a), plain(b));
    multiplied();
""",
    ),
    _product(
        *("sum_written_in_flight", "register-in-flight"),
        """
    multiply(d, plain(a), plain(b)); //!
    multiplied(); //+
    asm volatile("mov.f32 %0, 0f3f800000;" : "+f"(d[1]) :: "memory"); //!
    multiplied();
""",
    ),
]

FLIGHTS = [*_COPIES, *_BULKS, *_STORES, *_PRODUCTS]
