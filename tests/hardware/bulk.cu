// Kernels that copy in bulk, one way each, TURNS times over; see bulk.py. ``what`` says how: bytes, offset in
// shared memory, turns, step from turn to turn (bytes; of a tensor, rows), coordinates, blocks that get the copy.

typedef unsigned u32;
typedef unsigned short u16;
typedef unsigned long long u64;
struct alignas(64) Map { u64 bits[16]; };
extern __shared__ __align__(1024) unsigned char tile[];

#define PARAMETERS const __grid_constant__ Map map, const int *what, unsigned char *data
#define WHAT                                                                                             \
    const int bytes = what[0], turns = what[2], step = what[3], c0 = what[4], c1 = what[5], c2 = what[6]; \
    const u32 at = here(tile) + what[1];
#define TURNS _Pragma("unroll 1") for (int i = 0; i < turns; i++)

__device__ u32 here(const void *p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
__device__ void setup(u32 bar) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ void expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ void await(u32 bar, u32 parity) {
    u32 over = 0;
    while (!over)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(bar), "r"(parity) : "memory");
}
__device__ void finish() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ void meet() { asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory"); }
__device__ u32 rank() {
    u32 found;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(found));
    return found;
}
__device__ u32 second(u32 address) {  // the same place in the second block of the cluster
    u32 found;
    asm("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(found) : "r"(address));
    return found;
}

// -- into shared memory ---------------------------------------------------------------------------
#define LOAD(NAME, BODY)                                                                                 \
    extern "C" __global__ void NAME(PARAMETERS) {                                                        \
        __shared__ alignas(8) u64 barrier;                                                               \
        const u32 bar = here(&barrier);                                                                  \
        WHAT                                                                                             \
        if (threadIdx.x == 0) {                                                                          \
            setup(bar);                                                                                  \
            TURNS {                                                                                      \
                unsigned char *from = data + static_cast<long>(i) * step;                                \
                expect(bar, bytes);                                                                      \
                BODY                                                                                     \
                await(bar, i & 1);                                                                       \
            }                                                                                            \
        }                                                                                                \
    }
LOAD(bulk_load, asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                             :: "r"(at), "l"(from), "r"(bytes), "r"(bar) : "memory");)
LOAD(tensor_load, asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                               :: "r"(at), "l"(&map), "r"(c0), "r"(c1 + i * step), "r"(bar) : "memory");)
LOAD(tensor_load3, asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                                :: "r"(at), "l"(&map), "r"(c0), "r"(c1 + i * step), "r"(c2), "r"(bar) : "memory");)
LOAD(tensor_pixels, asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5], {%6};"
                                 :: "r"(at), "l"(&map), "r"(c0), "r"(c1), "r"(c2 + i * step), "r"(bar), "h"(static_cast<u16>(0)) : "memory");)

// -- out of it ------------------------------------------------------------------------------------
#define STORE(NAME, BODY)                                                                                \
    extern "C" __global__ void NAME(PARAMETERS) {                                                        \
        WHAT                                                                                             \
        if (threadIdx.x == 0) {                                                                          \
            TURNS {                                                                                      \
                unsigned char *to = data + static_cast<long>(i) * step;                                  \
                BODY                                                                                     \
                finish();                                                                                \
            }                                                                                            \
        }                                                                                                \
    }
STORE(bulk_store, asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                               :: "l"(to), "r"(at), "r"(bytes) : "memory");)
STORE(bulk_reduce, asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"
                                :: "l"(to), "r"(at), "r"(bytes) : "memory");)
STORE(bulk_reduce_f16, asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;"
                                    :: "l"(to), "r"(at), "r"(bytes) : "memory");)
STORE(bulk_prefetch, asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(to), "r"(bytes) : "memory");)
STORE(tensor_store, asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                                 :: "l"(&map), "r"(c0), "r"(c1 + i * step), "r"(at) : "memory");)
STORE(tensor_reduce, asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];"
                                  :: "l"(&map), "r"(c0), "r"(c1 + i * step), "r"(at) : "memory");)
STORE(tensor_prefetch, asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];"
                                    :: "l"(&map), "r"(c0), "r"(c1 + i * step) : "memory");)

// -- in clusters: the first block acts, those that get something wait for it ----------------------
#define CLUSTER(NAME, SIZE, EXPECT, BODY)                                                                \
    extern "C" __global__ void __cluster_dims__(SIZE, 1, 1) NAME(PARAMETERS) {                           \
        __shared__ alignas(8) u64 barrier;                                                               \
        const u32 bar = here(&barrier), mine = rank();                                                   \
        WHAT                                                                                             \
        const int mask = what[7];                                                                        \
        const u32 place = at + step * threadIdx.x;                                                       \
        if (threadIdx.x == 0) setup(bar);                                                                \
        meet();                                                                                          \
        TURNS {                                                                                          \
            unsigned char *from = data + static_cast<long>(i) * step;                                    \
            if (threadIdx.x == 0 && (mask >> mine & 1)) expect(bar, bytes);                              \
            meet();                                                                                      \
            if (mine == 0 && (EXPECT)) { BODY }                                                          \
            if (mask >> mine & 1) await(bar, i & 1);                                                     \
        }                                                                                                \
        meet();                                                                                          \
    }
#define MULTI asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" \
                           :: "r"(at), "l"(from), "r"(bytes), "r"(bar), "h"(static_cast<u16>(mask)) : "memory");
#define TENSOR_MULTI asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" \
                                  :: "r"(at), "l"(&map), "r"(c0), "r"(c1 + i * step), "r"(bar), "h"(static_cast<u16>(mask)) : "memory");
CLUSTER(bulk_multi2, 2, threadIdx.x == 0, MULTI)
CLUSTER(bulk_multi4, 4, threadIdx.x == 0, MULTI)
CLUSTER(tensor_multi2, 2, threadIdx.x == 0, TENSOR_MULTI)
CLUSTER(tensor_multi4, 4, threadIdx.x == 0, TENSOR_MULTI)
CLUSTER(bulk_send, 2, threadIdx.x == 0,
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(second(at)), "r"(at), "r"(bytes), "r"(second(bar)) : "memory");)
CLUSTER(bulk_send_add, 2, threadIdx.x == 0,
        asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%0], [%1], %2, [%3];"
                     :: "r"(second(at)), "r"(at), "r"(bytes), "r"(second(bar)) : "memory");)
CLUSTER(st_async, 2, true,
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                     :: "r"(second(place)), "r"(i), "r"(second(bar)) : "memory");)
CLUSTER(red_async, 2, true,
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
                     :: "r"(second(place)), "r"(i), "r"(second(bar)) : "memory");)

// -- who shares what on the way to the L2 ---------------------------------------------------------
// Multiprocessors that ``which`` does not leave out (-1) begin together and read one stream.
extern "C" __global__ void readers(const int *which, u32 *arrived, const uint4 *stream, u32 *sink, int count, int many) {
    u32 sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (which[sm] < 0) return;
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < many) {}
    }
    __syncthreads();
    u32 sum = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += stream[i].x;
    if (sum == 12345) *sink = sum;
}

// Where blocks go.
#define WHERE(NAME, ATTRIBUTE)                                                                           \
    extern "C" __global__ void ATTRIBUTE NAME(u32 *out) {                                                \
        if (threadIdx.x) return;                                                                         \
        asm volatile("mov.u32 %0, %%smid;" : "=r"(out[blockIdx.x]));                                     \
        const long long start = clock64();                                                               \
        while (clock64() - start < 100000) {}                                                            \
    }
WHERE(where, )
WHERE(where_pairs, __cluster_dims__(2, 1, 1))
