// Tiny kernels with known addresses: each lane does one access, TURNS times, at the offset it is given.
// A lane with a negative offset does none. Volatile assembly keeps every access as it is written.

#ifndef TURNS
#define TURNS 16
#endif

extern __shared__ __align__(1024) unsigned char window[];

__device__ unsigned shared_address(int offset) {
    return static_cast<unsigned>(__cvta_generic_to_shared(window)) + offset;
}

#define SHARED(NAME, BODY)                                                                     \
    extern "C" __global__ void NAME(const int *offsets, unsigned *out) {                       \
        const int offset = offsets[threadIdx.x];                                               \
        unsigned x = threadIdx.x, y = 1, z = 2, w = 3;                                         \
        if (offset >= 0) {                                                                     \
            const unsigned at = shared_address(offset);                                        \
            _Pragma("unroll") for (int turn = 0; turn < TURNS; turn++) { BODY }                \
        }                                                                                      \
        if ((x ^ y ^ z ^ w) == 0x12345678u) out[threadIdx.x] = x;                              \
    }

#define LOAD(TEXT) asm volatile(TEXT : "=r"(x) : "r"(at) : "memory");
#define STORE(TEXT) asm volatile(TEXT :: "r"(at), "r"(x) : "memory");

SHARED(lds_8, LOAD("ld.volatile.shared.u8 %0, [%1];"))
SHARED(lds_16, LOAD("ld.volatile.shared.u16 %0, [%1];"))
SHARED(lds_32, LOAD("ld.volatile.shared.u32 %0, [%1];"))
SHARED(lds_64, asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(at) : "memory");)
SHARED(lds_128, asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(at) : "memory");)
SHARED(sts_8, STORE("st.volatile.shared.u8 [%0], %1;"))
SHARED(sts_16, STORE("st.volatile.shared.u16 [%0], %1;"))
SHARED(sts_32, STORE("st.volatile.shared.u32 [%0], %1;"))
SHARED(sts_64, asm volatile("st.volatile.shared.v2.u32 [%0], {%1, %2};" :: "r"(at), "r"(x), "r"(y) : "memory");)
SHARED(sts_128, asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                             :: "r"(at), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");)
SHARED(atom_add, asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(x) : "r"(at), "r"(y) : "memory");)
SHARED(red_add, asm volatile("red.shared.add.u32 [%0], %1;" :: "r"(at), "r"(threadIdx.x) : "memory");)
SHARED(atom_exch, asm volatile("atom.shared.exch.b32 %0, [%1], %2;" : "=r"(x) : "r"(at), "r"(z) : "memory");)
SHARED(atom_cas, asm volatile("atom.shared.cas.b32 %0, [%1], %2, %3;" : "=r"(x) : "r"(at), "r"(y), "r"(z) : "memory");)

// Every lane gives an address, whether its row is read or not.
#define MATRIX(NAME, BODY)                                                                     \
    extern "C" __global__ void NAME(const int *offsets, unsigned *out) {                       \
        const unsigned at = shared_address(max(offsets[threadIdx.x], 0));                      \
        unsigned x = 0, y = 1, z = 2, w = 3;                                                   \
        _Pragma("unroll") for (int turn = 0; turn < TURNS; turn++) { BODY }                    \
        if ((x ^ y ^ z ^ w) == 0x12345678u) out[threadIdx.x] = x;                              \
    }

MATRIX(ldmatrix_1, LOAD("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"))
MATRIX(ldmatrix_2, asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                                : "=r"(x), "=r"(y) : "r"(at) : "memory");)
MATRIX(ldmatrix_4, asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                                : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(at) : "memory");)
MATRIX(ldmatrix_4t, asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(at) : "memory");)
MATRIX(stmatrix_4, asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                                :: "r"(at), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");)

// Copies from global to shared memory: the shared side has the offsets, the global side is in step.
#define COPY(NAME, WORD, BYTES)                                                                \
    extern "C" __global__ void NAME(const int *offsets, unsigned *out) {                       \
        const int offset = offsets[threadIdx.x];                                               \
        const char *from = reinterpret_cast<const char *>(out) + BYTES * threadIdx.x;          \
        if (offset >= 0)                                                                       \
            _Pragma("unroll") for (int turn = 0; turn < TURNS; turn++)                         \
                asm volatile("cp.async." WORD ".shared.global [%0], [%1], " #BYTES ";"         \
                             :: "r"(shared_address(offset)), "l"(from) : "memory");            \
        asm volatile("cp.async.wait_all;" ::: "memory");                                       \
    }

COPY(copy_4, "ca", 4)
COPY(copy_8, "ca", 8)
COPY(copy_16, "ca", 16)
COPY(copy_16g, "cg", 16)

// Global memory: the offsets are into a buffer of their own.
#define GLOBAL(NAME, BODY)                                                                     \
    extern "C" __global__ void NAME(const int *offsets, unsigned *out, unsigned char *data) {  \
        const int offset = offsets[threadIdx.x];                                               \
        unsigned x = threadIdx.x, y = 1, z = 2, w = 3;                                         \
        if (offset >= 0) {                                                                     \
            unsigned char *at = data + offset;                                                 \
            _Pragma("unroll") for (int turn = 0; turn < TURNS; turn++) { BODY }                \
        }                                                                                      \
        if ((x ^ y ^ z ^ w) == 0x12345678u) out[threadIdx.x] = x;                              \
    }

GLOBAL(ldg_8, asm volatile("ld.volatile.global.u8 %0, [%1];" : "=r"(x) : "l"(at) : "memory");)
GLOBAL(ldg_32, asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");)
GLOBAL(ldg_64, asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(at) : "memory");)
GLOBAL(ldg_128, asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(at) : "memory");)
GLOBAL(stg_32, asm volatile("st.volatile.global.u32 [%0], %1;" :: "l"(at), "r"(x) : "memory");)
GLOBAL(stg_64, asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" :: "l"(at), "r"(x), "r"(y) : "memory");)
GLOBAL(stg_128, asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
                             :: "l"(at), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");)
GLOBAL(red_global, asm volatile("red.global.add.u32 [%0], %1;" :: "l"(at), "r"(y) : "memory");)
GLOBAL(atom_global, asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(x) : "l"(at), "r"(y) : "memory");)

// A transpose of 1024 × 1024 floats through a tile of 32 rows of PITCH.
template <int PITCH>
__device__ void transpose(const float *from, float *to) {
    __shared__ float tile[32 * PITCH];
    const int left = 32 * blockIdx.x, top = 32 * blockIdx.y;
    tile[threadIdx.y * PITCH + threadIdx.x] = from[(top + threadIdx.y) * 1024 + left + threadIdx.x];
    __syncthreads();
    to[(left + threadIdx.y) * 1024 + top + threadIdx.x] = tile[threadIdx.x * PITCH + threadIdx.y];
}
extern "C" __global__ void transpose_32(const float *from, float *to) { transpose<32>(from, to); }
extern "C" __global__ void transpose_33(const float *from, float *to) { transpose<33>(from, to); }

// One warp, 10,000 turns: a load and a store at a stride in words.
extern "C" __global__ void strides(const int *offsets, unsigned *out) {
    const unsigned at = shared_address(offsets[threadIdx.x]);
    unsigned x;
    #pragma unroll 1
    for (int turn = 0; turn < 10000; turn++) {
        asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
        asm volatile("st.volatile.shared.u32 [%0], %1;" :: "r"(at), "r"(x + 1) : "memory");
    }
    if (x == 0x12345678u) out[threadIdx.x] = x;
}
