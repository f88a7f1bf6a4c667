// Rung 09: tiles at every level, an asynchronous ring, and warps that wait only for one another.
//
// Adds: tiles of whole warps; copies from global to shared memory that run three steps ahead (cp.async);
// barriers among the warps that share a slice instead of the whole block; blocks along a Hilbert curve.
// Tiles: block 256×128×8, warp 64×64×8 (4 along M, 2 along N), thread 8×16×1.
// Look at: shared bank conflicts (0, loads and stores), 24 shared words read for 128 multiply-adds, one
// block of 8 warps on an SM, and 3,072·K elements of A and B read by 64 blocks in flight (8×8 tiles).
//
// The matrices here are column-major, as in BLAS: A is M×K, B is K×N and C is M×N, and the columns of each
// lie a stride apart. A row-major product needs no copy: read column-major, its memory holds the transposed
// matrices, and Cᵀ = Bᵀ·Aᵀ. So the caller's B comes in as A, the caller's A as B, M is the caller's n, and
// N the caller's m. `struct Matrix` has the same bytes: a row-major width is a number of rows here.
#include <tilewise/async_copy.cuh>
#include <tilewise/raster.cuh>

#ifndef RASTER
#define RASTER hilbert // or row_by_row, column_by_column: a function of tilewise/raster.cuh
#endif

constexpr unsigned BLOCK_M = 256, BLOCK_N = 128, STEP = 8;
constexpr unsigned WARP_M = 64, WARP_N = 64;
constexpr unsigned THREAD_M = 8, THREAD_N = 16;
constexpr unsigned STAGES = 4;

constexpr unsigned WARP = 32;
constexpr unsigned WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr unsigned SLICE_A_THREADS = WARPS_N * WARP; // they share 64 rows of A: a quarter of the block
constexpr unsigned SLICE_B_THREADS = WARPS_M * WARP; // they share 64 columns of B: half of the block
constexpr unsigned BLOCK_THREADS = WARPS_M * WARPS_N * WARP;

constexpr unsigned PIECE = 4;                   // rows of A that a thread reads with one 128-bit load
constexpr unsigned LANES_M = WARP_M / THREAD_M; // lanes of a warp along M; the others lie along N

#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif
static_assert(LANES_M * (WARP_N / THREAD_N) == WARP, "the threads' tiles cover the warp's");
static_assert(THREAD_M == 2 * PIECE, "a thread owns two pieces of rows, one in each half of the warp's");
static_assert(SLICE_A_THREADS == WARP_M, "a 32-bit copy of A has one thread for each row of the slice");

// Rows of B are padded by four words. Then the 8×4 elements that a warp copies at once fall into 32 banks,
// and every row still begins at a multiple of 16 bytes.
constexpr unsigned B_ROW = BLOCK_N + 4;
static_assert(B_ROW % WARP == 4 && B_ROW % PIECE == 0, "no bank conflicts, and aligned 128-bit loads");

struct Tiles {
    float a[STAGES][STEP][BLOCK_M];
    float b[STAGES][STEP][B_ROW]; // transposed on its way in: [k][n]
};
#ifdef SHARED_BYTES
static_assert(sizeof(Tiles) == SHARED_BYTES, "the launch asks for that much shared memory");
#endif

template <typename T> struct ColumnMajor {
    unsigned rows;
    unsigned columns;
    unsigned stride;
    T *elements;

    __device__ T *at(unsigned row, unsigned column) const { return elements + (column * stride + row); }

    __device__ bool aligned_16() const
    {
        return (reinterpret_cast<unsigned long long>(elements) | stride * sizeof(float)) % 16 == 0;
    }
};

// Where a thread is, at each level.
struct Place {
    TileIndex tile;              // of the block, in the grid of output tiles
    unsigned warp_m, warp_n;     // of the warp, in the block
    unsigned lane_m, lane_n;     // of the thread, in the warp
    unsigned a_copier, b_copier; // of the thread, among those that copy its warp's slices of A and B

    __device__ unsigned first_row() const { return tile.row * BLOCK_M + warp_m * WARP_M; }
    __device__ unsigned first_column() const { return tile.column * BLOCK_N + warp_n * WARP_N; }
};

inline __device__ Place find_place(unsigned rows, unsigned columns)
{
    const unsigned tile_rows = rows / BLOCK_M + (rows % BLOCK_M != 0);
    const unsigned tile_columns = columns / BLOCK_N + (columns % BLOCK_N != 0);
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    Place place;
    place.tile = RASTER(blockIdx.x, tile_rows, tile_columns);
    place.warp_m = warp % WARPS_M;
    place.warp_n = warp / WARPS_M;
    place.lane_m = lane % LANES_M;
    place.lane_n = lane / LANES_M;
    place.a_copier = place.warp_n * WARP + lane;
    place.b_copier = place.warp_m * WARP + lane;
    return place;
}

// One thread's share in copying its warp's slice of A, 64 rows and 8 columns: a run of rows of every
// fourth column with 128-bit copies, one row of every column with 32-bit copies.
struct CopierA {
    ColumnMajor<const float> a;
    bool aligned;
    unsigned row_in_tile, k_in_tile; // where the share begins
    unsigned bytes;                  // of the run that A has
    unsigned k;                      // column of A, in the step to copy next
    const float *from;               // and its address

    __device__ CopierA(ColumnMajor<const float> matrix, const Place &place) : a(matrix)
    {
        constexpr unsigned RUNS = WARP_M / PIECE; // in a column of the slice
        aligned = a.aligned_16();
        const unsigned row_in_slice = aligned ? place.a_copier % RUNS * PIECE : place.a_copier;
        row_in_tile = place.warp_m * WARP_M + row_in_slice;
        k_in_tile = aligned ? place.a_copier / RUNS : 0;
        const unsigned row = place.first_row() + row_in_slice;
        const unsigned rows_left = row < a.rows ? a.rows - row : 0;
        bytes = min(rows_left, aligned ? PIECE : 1) * sizeof(float);
        k = k_in_tile;
        from = a.at(row, k);
    }

    __device__ void start(float (&tile)[STEP][BLOCK_M])
    {
        const auto stride = static_cast<unsigned long long>(a.stride);
        float *to = &tile[k_in_tile][row_in_tile];
        if (aligned) {
            constexpr unsigned APART = SLICE_A_THREADS * PIECE / WARP_M;
#pragma unroll
            for (unsigned i = 0; i < STEP; i += APART)
                async_copy::start_16(to + i * BLOCK_M, from + i * stride, k + i < a.columns ? bytes : 0);
        } else {
#pragma unroll 1
            for (unsigned i = 0; i < STEP; ++i)
                async_copy::start_narrow<4>(to + i * BLOCK_M, from + i * stride, k + i < a.columns ? bytes : 0);
        }
        k += STEP;
        from += STEP * stride;
    }
};

// One thread's share in copying its warp's slice of B, 8 rows and 64 columns, transposed: neighbouring
// threads read neighbours in a column and write them a row apart. Words that part need 32-bit copies.
struct CopierB {
    ColumnMajor<const float> b;
    unsigned k_in_tile, column_in_tile;
    unsigned column; // of the first of the columns
    unsigned k;      // row of B, in the step to copy next
    const float *from;

    __device__ CopierB(ColumnMajor<const float> matrix, const Place &place) : b(matrix)
    {
        k_in_tile = place.b_copier % STEP;
        column_in_tile = place.warp_n * WARP_N + place.b_copier / STEP;
        column = place.first_column() + place.b_copier / STEP;
        k = k_in_tile;
        from = b.at(k, column);
    }

    __device__ void start(float (&tile)[STEP][B_ROW])
    {
        constexpr unsigned APART = SLICE_B_THREADS / STEP;
        const auto stride = static_cast<unsigned long long>(b.stride);
        float *to = &tile[k_in_tile][column_in_tile];
#pragma unroll
        for (unsigned i = 0; i < WARP_N; i += APART) {
            const bool inside = k < b.rows && column + i < b.columns;
            async_copy::start_narrow<4>(to + i, from + i * stride, inside ? sizeof(float) : 0);
        }
        k += STEP;
        from += STEP;
    }
};

// Waits for the warps that share this warp's slice of A, then for those that share its slice of B.
// Barrier 0 is that of __syncthreads.
inline __device__ void wait_for_sharers(const Place &place)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + place.warp_m), "n"(SLICE_A_THREADS) : "memory");
    asm volatile("bar.sync %0, %1;" ::"r"(1 + WARPS_M + place.warp_n), "n"(SLICE_B_THREADS) : "memory");
}

// What a thread needs of one k: two pieces of A's column, one run of B's row.
struct Fragment {
    float a[THREAD_M];
    float b[THREAD_N];
};

inline __device__ void load_4(float *four, const float *shared)
{
    const float4 loaded = *reinterpret_cast<const float4 *>(shared);
    four[0] = loaded.x, four[1] = loaded.y, four[2] = loaded.z, four[3] = loaded.w;
}

// Eight lanes at a time read 32 neighbouring words of A, or all the same four of B.
inline __device__ void load(Fragment &fragment, const float (&a)[BLOCK_M], const float (&b)[B_ROW],
                            const Place &place)
{
    const unsigned row = place.warp_m * WARP_M + place.lane_m * PIECE;
    const unsigned column = place.warp_n * WARP_N + place.lane_n * THREAD_N;
    load_4(&fragment.a[0], &a[row]);
    load_4(&fragment.a[PIECE], &a[row + WARP_M / 2]);
#pragma unroll
    for (unsigned n = 0; n < THREAD_N; n += 4)
        load_4(&fragment.b[n], &b[column + n]);
}

inline __device__ void multiply_add(float (&sum)[THREAD_N][THREAD_M], const Fragment &fragment)
{
#pragma unroll
    for (unsigned n = 0; n < THREAD_N; ++n)
#pragma unroll
        for (unsigned m = 0; m < THREAD_M; ++m)
            sum[n][m] += fragment.a[m] * fragment.b[n];
}

// Writes one piece of a column of C: 128 bits at once where all its rows exist and lie aligned.
inline __device__ void store_piece(float *to, const float *piece, unsigned rows_left, bool aligned)
{
    if (aligned && rows_left >= PIECE) {
        *reinterpret_cast<float4 *>(to) = {piece[0], piece[1], piece[2], piece[3]};
    } else {
#pragma unroll
        for (unsigned m = 0; m < PIECE; ++m)
            if (m < rows_left)
                to[m] = piece[m];
    }
}

// Writes the thread's tile, a few columns a turn. A variable cannot choose a register, so the sums of the
// columns to come move up instead: the code, and the time to compile it, stays a quarter as long.
inline __device__ void store(ColumnMajor<float> c, float (&sum)[THREAD_N][THREAD_M], const Place &place)
{
    constexpr unsigned COLUMNS = 4;
    const bool aligned = c.aligned_16();
    const unsigned row = place.first_row() + place.lane_m * PIECE;
    const unsigned column = place.first_column() + place.lane_n * THREAD_N;
    const unsigned rows_left = row < c.rows ? c.rows - row : 0;
    const unsigned rows_left_below = rows_left > WARP_M / 2 ? rows_left - WARP_M / 2 : 0;
#pragma unroll 1
    for (unsigned first = 0; first < THREAD_N; first += COLUMNS) {
#pragma unroll
        for (unsigned n = 0; n < COLUMNS; ++n) {
            if (column + first + n >= c.columns) return;
            float *to = c.at(row, column + first + n);
            store_piece(to, &sum[n][0], rows_left, aligned);
            store_piece(to + WARP_M / 2, &sum[n][PIECE], rows_left_below, aligned);
        }
#pragma unroll
        for (unsigned n = COLUMNS; n < THREAD_N; ++n)
#pragma unroll
            for (unsigned m = 0; m < THREAD_M; ++m)
                sum[n - COLUMNS][m] = sum[n][m];
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
    warp_tiled(ColumnMajor<const float> a, ColumnMajor<const float> b, ColumnMajor<float> c)
{
    extern __shared__ __align__(16) char shared[];
    Tiles &tiles = *reinterpret_cast<Tiles *>(shared);

    const Place place = find_place(c.rows, c.columns);
    CopierA copier_a(a, place);
    CopierB copier_b(b, place);
    const unsigned steps = a.columns / STEP + (a.columns % STEP != 0);
    float sum[THREAD_N][THREAD_M] = {};

    // The copies run three steps ahead of the sums; the first three turns only copy.
    constexpr unsigned AHEAD = STAGES - 1;
    for (unsigned turn = 0; turn < steps + AHEAD; ++turn) {
        if (turn >= AHEAD) {
            async_copy::wait<AHEAD - 1>(); // this thread's copies for the step have landed,
            wait_for_sharers(place);       // and those of all threads that copy into this warp's slices
        }

        // The slot of this turn's copies held the step before this turn's sums, and it is free: a slice is
        // read by the very warps that copy it, and each came to the barriers above after those sums.
        if (turn < steps) {
            copier_a.start(tiles.a[turn % STAGES]);
            copier_b.start(tiles.b[turn % STAGES]);
        }
        async_copy::commit(); // an empty group at the end, so that a turn is always one group
        if (turn < AHEAD) continue;

        const auto &tile_a = tiles.a[(turn - AHEAD) % STAGES];
        const auto &tile_b = tiles.b[(turn - AHEAD) % STAGES];
        Fragment even, odd; // one is read while the other is used
        load(even, tile_a[0], tile_b[0], place);
#pragma unroll 1
        for (unsigned k = 0; k < STEP; k += 2) {
            load(odd, tile_a[k + 1], tile_b[k + 1], place);
            multiply_add(sum, even);
            if (k + 2 < STEP) load(even, tile_a[k + 2], tile_b[k + 2], place);
            multiply_add(sum, odd);
        }
    }
    store(c, sum, place);
}
