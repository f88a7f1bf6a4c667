// A block's way to bring tiles of an operand from global to shared memory, step after step along K: asynchronously from
// Ampere on, and by way of registers on Turing, or where lines are aligned for single elements of 16 bits.
#pragma once

#include <tilewise/async_copy.cuh>
#include <tilewise/guarded_load.cuh>
#include <tilewise/warp_tile.cuh>

namespace warp_tile {

// Loads the first `bytes` of a chunk, as many at once as WIDTH says, and zeros for the others. In two parts: the loads
// of several chunks that are whole follow one another, and chunks that are not are rare.
template <unsigned WIDTH, typename Element> inline __device__ uint4 load_whole(const Element *from, unsigned bytes)
{
    uint4 chunk = {0, 0, 0, 0};
    if (bytes < sizeof(chunk)) return chunk;
    if constexpr (WIDTH == 16) {
        chunk = *reinterpret_cast<const uint4 *>(from);
    } else if constexpr (WIDTH == 8) {
        const uint2 *pairs = reinterpret_cast<const uint2 *>(from);
        chunk = {pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y};
    } else {
        const unsigned *words = reinterpret_cast<const unsigned *>(from);
        chunk = {words[0], words[1], words[2], words[3]};
    }
    return chunk;
}

template <unsigned WIDTH, typename Element>
inline __device__ void load_rest(uint4 &chunk, const Element *from, unsigned bytes)
{
    if (bytes > 0 && bytes < sizeof(chunk)) chunk = load_halves(from, bytes / sizeof(Element));
}

// Starts to copy the first `bytes` of a chunk, and zeros for the others; if WHOLE_CHUNKS, all or none.
template <unsigned WIDTH, bool WHOLE_CHUNKS, typename Element>
inline __device__ void start_copy(uint4 *to, const Element *from, unsigned bytes)
{
    if constexpr (WIDTH == 16 && WHOLE_CHUNKS) {
        async_copy::start_16_or_zero(to, from, bytes > 0);
    } else if constexpr (WIDTH == 16) {
        async_copy::start_mostly_16(to, from, bytes);
    } else {
#pragma unroll
        for (unsigned at = 0; at < sizeof(uint4); at += WIDTH) {
            const unsigned left = bytes > at ? min(bytes - at, WIDTH) : 0;
            async_copy::start_narrow<WIDTH>(reinterpret_cast<char *>(to) + at,
                                            reinterpret_cast<const char *>(from) + at, left);
        }
    }
}

// One thread's share in copying an operand's tiles, step after step: one chunk of every APART-th line. What lies
// outside of the matrix is not read; zeros stand for it, which add nothing. WHOLE_CHUNKS: no chunk ends outside of it that begins
// inside, which takes fewer instructions.
template <typename Element, typename Tile, unsigned STEP_K, unsigned BLOCK_THREADS, unsigned WIDTH, bool WHOLE_CHUNKS>
class Copier {
    static constexpr unsigned CHUNKS = Tile::CHUNKS, CHUNK = Tile::PER_CHUNK;
    static constexpr unsigned APART = BLOCK_THREADS / CHUNKS;
    static constexpr unsigned SHARE = Tile::ROWS / APART;
    static constexpr bool NO_REGISTERS = __CUDA_ARCH__ >= 800; // on the way
    static_assert(BLOCK_THREADS % CHUNKS == 0 && Tile::ROWS % APART == 0 && SHARE > 0, "equal shares");

    const Element *from; // the thread's first chunk of the next step
    long long stride;    // from a line to the next
    int size_left;       // rows of A, or columns of B, from that chunk's first on
    int k_left;          // the same along K
    uint4 fetched[SHARE];

    static __device__ unsigned line() { return threadIdx.x / CHUNKS; }
    static __device__ unsigned chunk() { return threadIdx.x % CHUNKS; }

    // How many bytes of the thread's chunk of that number the matrix has.
    __device__ unsigned bytes(unsigned i) const
    {
        const int lines = Tile::ALONG_K ? size_left : k_left, along = Tile::ALONG_K ? k_left : size_left;
        return int(i * APART) < lines ? max(min(along, int(CHUNK)), 0) * sizeof(Element) : 0;
    }
    __device__ const Element *at(unsigned i) const { return from + i * APART * stride; }
    static __device__ uint4 *in(typename Tile::Chunks &tile, unsigned i)
    {
        return &tile[Tile::slot(line() + i * APART, chunk())];
    }

  public:
    // `size` elements of the matrix are across K, of which the tile begins at `first`; the steps go from `first_k`
    // to `end_k`.
    __device__ Copier(const Element *matrix, long long stride, unsigned size, unsigned first, unsigned first_k,
                      unsigned end_k)
        : stride(stride)
    {
        const unsigned along = chunk() * CHUNK;
        first += Tile::ALONG_K ? line() : along;
        first_k += Tile::ALONG_K ? along : line();
        from = matrix + (Tile::ALONG_K ? first * stride + first_k : first_k * stride + first);
        size_left = int(size - first), k_left = int(end_k - first_k);
    }

    // Begins to copy the next step's tile, which is there once commit() and wait() say so, or after keep().
    __device__ void start(typename Tile::Chunks &tile)
    {
        if constexpr (NO_REGISTERS) {
#pragma unroll(WIDTH == 16 ? SHARE : 1)
            for (unsigned i = 0; i < SHARE; ++i)
                start_copy<WIDTH, WHOLE_CHUNKS>(in(tile, i), at(i), bytes(i));
        } else {
#pragma unroll
            for (unsigned i = 0; i < SHARE; ++i)
                fetched[i] = load_whole<WIDTH>(at(i), bytes(i));
#pragma unroll
            for (unsigned i = 0; i < SHARE; ++i)
                load_rest<WIDTH>(fetched[i], at(i), bytes(i));
        }
        from += Tile::ALONG_K ? STEP_K : STEP_K * stride;
        k_left -= STEP_K;
    }

    // Ends what start() of that tile began, if it went to registers.
    __device__ void keep(typename Tile::Chunks &tile) const
    {
        if constexpr (!NO_REGISTERS)
#pragma unroll
            for (unsigned i = 0; i < SHARE; ++i)
                *in(tile, i) = fetched[i];
    }
};

// The same element by element. Lanes take neighbours in a line, so that a warp reads few lines of the cache at once.
template <typename Element, typename Tile, unsigned STEP_K, unsigned BLOCK_THREADS, bool WHOLE_CHUNKS>
class Copier<Element, Tile, STEP_K, BLOCK_THREADS, 2, WHOLE_CHUNKS> {
    static constexpr unsigned CHUNK = Tile::PER_CHUNK, LENGTH = Tile::CHUNKS * CHUNK; // of a line
    static constexpr unsigned SHARE = Tile::ROWS * LENGTH / BLOCK_THREADS;
    static_assert(SHARE * LANES % LENGTH == 0, "a warp has whole lines");

    const Element *from; // the thread's first element of the next step
    long long stride;
    int size_left, k_left; // as above
    Element fetched[SHARE];

    static __device__ unsigned line()
    {
        return threadIdx.x / LANES * (SHARE * LANES / LENGTH) + threadIdx.x % LANES / LENGTH;
    }
    static __device__ unsigned along() { return threadIdx.x % LANES % LENGTH; }

    // How far the thread's elements lie from its first.
    static __device__ constexpr unsigned lines(unsigned i) { return i * LANES / LENGTH; }
    static __device__ constexpr unsigned further(unsigned i) { return i * LANES % LENGTH; }

  public:
    __device__ Copier(const Element *matrix, long long stride, unsigned size, unsigned first, unsigned first_k,
                      unsigned end_k)
        : stride(stride)
    {
        first += Tile::ALONG_K ? line() : along();
        first_k += Tile::ALONG_K ? along() : line();
        from = matrix + (Tile::ALONG_K ? first * stride + first_k : first_k * stride + first);
        size_left = int(size - first), k_left = int(end_k - first_k);
    }

    __device__ void start(typename Tile::Chunks &)
    {
        const int lines_left = Tile::ALONG_K ? size_left : k_left, left = Tile::ALONG_K ? k_left : size_left;
#pragma unroll
        for (unsigned i = 0; i < SHARE; ++i) {
            const bool exists = int(lines(i)) < lines_left && int(further(i)) < left;
            fetched[i] = exists ? from[lines(i) * stride + further(i)] : Element(0);
        }
        from += Tile::ALONG_K ? STEP_K : STEP_K * stride;
        k_left -= STEP_K;
    }

    __device__ void keep(typename Tile::Chunks &tile) const
    {
#pragma unroll
        for (unsigned i = 0; i < SHARE; ++i) {
            const unsigned row = line() + lines(i), column = along() + further(i);
            reinterpret_cast<Element *>(&tile[Tile::slot(row, column / CHUNK)])[column % CHUNK] = fetched[i];
        }
    }
};

} // namespace warp_tile
