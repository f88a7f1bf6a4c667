// Splits rows of A, and columns of B, for exact32.cu: each float32 becomes two float16 (tilewise/split_lines.cuh).
//
// Both operands are matrices whose lines are rows here: of B it is the transpose, which is a matter of strides. A line of
// the copy has its high parts first, then its low ones, each with zeros up to `depth`. Whoever splits lines finds the
// largest element of each before. Where neighbours along K lie closest together, a block has a line, and keeps its
// first elements in registers meanwhile. Else a cluster has 32 lines side by side, each of its blocks a part of K, and
// shared memory turns them.
#include <tilewise/cluster.cuh>
#include <tilewise/dependent_launch.cuh>
#include <tilewise/element.cuh>
#include <tilewise/split_lines.cuh>
#include <tilewise/strided.cuh>

#ifndef CLUSTER // blocks
#define CLUSTER 8
#endif

constexpr unsigned LANES = 32, WARPS = 8, BLOCK_THREADS = WARPS * LANES;
constexpr unsigned RUN = 4, KEPT = 4;    // neighbours along K that a thread has at once; runs that it keeps
constexpr unsigned STEP = BLOCK_THREADS * RUN;
constexpr unsigned RESIDENT = 5;         // blocks of an SM
constexpr unsigned TILE_K = 64, PAD = 2; // of the lines that are turned; so that they lie in all banks
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// One of the operands, and the blocks that split it.
struct Source {
    Strided<const float> from;
    float16 *to;
    Spread *spreads;
    float *roots;
    unsigned inner;   // matrices along the inner axis of the stack
    unsigned lines;   // of the whole stack
    unsigned along_k; // whether neighbours along K lie closest together
    unsigned blocks;  // a multiple of those of a cluster

    __device__ const float *line(unsigned index) const
    {
        const unsigned matrix = index / from.rows;
        return from.in_stack(matrix / inner, matrix % inner) + index % from.rows * from.row_stride;
    }
};

// How the elements of a line are scaled, by its largest, of which the bits of |x| are given.
struct Scale {
    unsigned largest;

    __device__ bool is_finite() const { return largest < 0x7f800000; }
    __device__ int exponent() const
    {
        if (largest == 0 || !is_finite()) return 0;
        return min(14 - (int(largest >> 23) - 127), 126) & ~1; // NOTE: no more, so that the power is a normal number
    }
    __device__ float factor() const { return __uint_as_float((127 + exponent()) << 23); }
    __device__ float root_of_inverse() const { return __uint_as_float((127 - exponent() / 2) << 23); }
};

inline __device__ unsigned bits_of_size(float x) { return __float_as_uint(x) & 0x7fffffff; }

struct Halves {
    float16 high, low;

    __device__ Halves() = default;
    __device__ Halves(float scaled)
    {
        high = narrow<float16>(scaled);
        low = narrow<float16>((scaled - widen(high)) * 2048);
    }
};

inline __device__ void count(Spread &spread, float scaled)
{
    const float size = fabsf(scaled);
    spread.large += size >= 4;
    spread.tiny += size < 0x1p-14f && size > 0;
}

// What a line has after all: zeros are exact with anything, and what is not finite with nothing.
inline __device__ Spread finish(Spread counted, Scale scale, unsigned depth)
{
    if (!scale.is_finite()) return {0, ~0u};
    return scale.largest == 0 ? Spread{depth, 0} : counted;
}

struct Quad {
    float at[RUN];

    // As far as the line goes, then zeros.
    __device__ void read(const float *line, long long stride, unsigned k, unsigned depth, bool wide)
    {
        if (wide && k + RUN <= depth) {
            const float4 all = *reinterpret_cast<const float4 *>(line + k);
            at[0] = all.x, at[1] = all.y, at[2] = all.z, at[3] = all.w;
        } else {
#pragma unroll
            for (unsigned i = 0; i < RUN; ++i)
                at[i] = k + i < depth ? line[(k + i) * stride] : 0;
        }
    }

    __device__ unsigned bits_of_largest() const
    {
        unsigned largest = 0;
#pragma unroll
        for (unsigned i = 0; i < RUN; ++i)
            largest = max(largest, bits_of_size(at[i]));
        return largest;
    }
};

// Of the block's warps, what each has found, in all of them. Every call has words of its own.
struct Joined {
    unsigned at[WARPS];

    template <typename Join> __device__ unsigned operator()(unsigned own, Join join)
    {
        if (threadIdx.x % LANES == 0) at[threadIdx.x / LANES] = own;
        __syncthreads();
        unsigned all = at[0];
#pragma unroll
        for (unsigned i = 1; i < WARPS; ++i)
            all = join(all, at[i]);
        return all;
    }
};

inline __device__ void put(const Quad &quad, Scale scale, float16 *high, float16 *low, Spread &spread)
{
    Neighbours<float16, RUN> highs, lows;
#pragma unroll
    for (unsigned i = 0; i < RUN; ++i) {
        const float scaled = quad.at[i] * scale.factor();
        const Halves halves(scaled);
        highs.at[i] = halves.high, lows.at[i] = halves.low;
        count(spread, scaled);
    }
    highs.write(high), lows.write(low);
}

inline __device__ void split_along(const Source &source, unsigned index, unsigned depth)
{
    __shared__ Joined largest, large, tiny;
    if (index >= source.lines) return;
    const unsigned first = threadIdx.x * RUN, length = source.from.columns;
    const float *line = source.line(index);
    const long long stride = source.from.column_stride;
    const bool wide = stride == 1 && reinterpret_cast<unsigned long long>(line) % sizeof(float4) == 0;

    Scale scale = {0};
    Quad kept[KEPT];
#pragma unroll
    for (unsigned i = 0; i < KEPT; ++i)
        kept[i].read(line, stride, first + i * STEP, length, wide);
#pragma unroll
    for (unsigned i = 0; i < KEPT; ++i)
        scale.largest = max(scale.largest, kept[i].bits_of_largest());
#pragma unroll 4
    for (unsigned k = first + KEPT * STEP; k < length; k += STEP) {
        Quad quad;
        quad.read(line, stride, k, length, wide);
        scale.largest = max(scale.largest, quad.bits_of_largest());
    }
    scale.largest = largest(__reduce_max_sync(~0u, scale.largest), [](unsigned a, unsigned b) { return max(a, b); });

    Spread spread = {};
    float16 *high = source.to + index * 2ull * depth, *low = high + depth;
#pragma unroll
    for (unsigned i = 0; i < KEPT; ++i)
        if (const unsigned k = first + i * STEP; k < depth) put(kept[i], scale, high + k, low + k, spread);
#pragma unroll 4
    for (unsigned k = first + KEPT * STEP; k < depth; k += STEP) {
        Quad quad;
        quad.read(line, stride, k, length, wide);
        put(quad, scale, high + k, low + k, spread);
    }
    const auto sum = [](unsigned a, unsigned b) { return a + b; };
    spread.large = large(__reduce_add_sync(~0u, spread.large), sum);
    spread.tiny = tiny(__reduce_add_sync(~0u, spread.tiny), sum);
    if (threadIdx.x == 0) {
        source.spreads[index] = finish(spread, scale, length);
        source.roots[index] = scale.root_of_inverse();
    }
}

// What a block has of the cluster's lines: a part on its way, whose rows are lines, so that a warp writes along K, and
// what it has found.
struct Turned {
    float16 high[LANES][TILE_K + PAD], low[LANES][TILE_K + PAD];
    unsigned largest[LANES];
    Spread counted[LANES];
};

inline __device__ void split_across(const Source &source, unsigned block, unsigned depth)
{
    __shared__ Turned tile;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned first = block / CLUSTER * LANES, index = first + lane;
    const bool exists = index < source.lines;
    const float *line = exists ? source.line(index) : nullptr;
    const long long stride = source.from.column_stride;
    // The block's part of K.
    const unsigned tiles = depth / TILE_K, rank = cluster::rank();
    const unsigned begin = tiles * rank / CLUSTER * TILE_K, end = tiles * (rank + 1) / CLUSTER * TILE_K;
    const unsigned length = exists ? source.from.columns : 0;

    if (warp == 0) tile.largest[lane] = 0, tile.counted[lane] = {};
    __syncthreads();
    // The loads run one step ahead.
    constexpr unsigned COUNT = TILE_K / WARPS; // of a thread, in a step
    float elements[COUNT], next[COUNT];
    const auto fetch = [&](unsigned at) {
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i) {
            elements[i] = next[i];
            const unsigned k = at + i * WARPS + warp;
            next[i] = k < min(end, length) ? line[k * stride] : 0;
        }
    };
    Scale scale = {0};
    fetch(begin);
#pragma unroll 1
    for (unsigned at = begin; at < end; at += TILE_K) {
        fetch(at + TILE_K);
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            scale.largest = max(scale.largest, bits_of_size(elements[i]));
    }
    fetch(begin); // once more
    atomicMax(&tile.largest[lane], scale.largest);
    cluster::wait_for_all_stores();
#pragma unroll
    for (unsigned i = 0; i < CLUSTER; ++i)
        scale.largest = max(scale.largest, cluster::load(&tile.largest[lane], i));

    Spread spread = {};
    const float factor = scale.factor();
#pragma unroll 1
    for (unsigned at = begin; at < end; at += TILE_K) {
        fetch(at + TILE_K);
        __syncthreads(); // what was there has been written
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i) {
            const float scaled = elements[i] * factor;
            const Halves halves(scaled);
            tile.high[lane][i * WARPS + warp] = halves.high, tile.low[lane][i * WARPS + warp] = halves.low;
            count(spread, scaled);
        }
        __syncthreads();
#pragma unroll
        for (unsigned i = 0; i < LANES / WARPS; ++i) {
            const unsigned row = i * WARPS + warp;
            if (first + row >= source.lines) continue;
            float16 *high = source.to + (first + row) * 2ull * depth + at + lane * 2;
            Neighbours<float16, 2> highs, lows;
            highs.read(&tile.high[row][lane * 2]), lows.read(&tile.low[row][lane * 2]);
            highs.write(high), lows.write(high + depth);
        }
    }
    atomicAdd(&tile.counted[lane].large, spread.large), atomicAdd(&tile.counted[lane].tiny, spread.tiny);
    cluster::wait_for_all_stores();
    if (rank == 0 && warp == 0 && exists) {
        Spread all = {};
#pragma unroll
        for (unsigned i = 0; i < CLUSTER; ++i) {
            all.large += cluster::load(&tile.counted[lane].large, i);
            all.tiny += cluster::load(&tile.counted[lane].tiny, i);
        }
        source.spreads[index] = finish(all, scale, length);
        source.roots[index] = scale.root_of_inverse();
    }
    cluster::wait_for_all(); // nobody may end while another reads here
}

// Splits lines of `one`, then of `other`. Copies have `depth` elements of a line, a multiple of 64.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT)
    split_halves(const __grid_constant__ Source one, const __grid_constant__ Source other, unsigned depth)
{
    dependent_launch::wait_for_previous();
    dependent_launch::let_next_begin();

    const bool first = blockIdx.x < one.blocks;
    const Source &source = first ? one : other;
    const unsigned block = first ? blockIdx.x : blockIdx.x - one.blocks;
    if (source.along_k)
        split_along(source, block, depth);
    else
        split_across(source, block, depth);
}
