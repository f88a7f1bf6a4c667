// Copies matrices to lines that begin at multiples of 16 bytes, for kernels that know no others: rows, or columns as rows
// of the transpose. Lines go on as zeros from their last element to the pitch.
//
// Where lines of the source are lines of the copy, `align` moves them 16 bytes at a time, wherever they begin. Where not,
// `arrange` copies tiles by way of shared memory: it reads along whichever axis of the source lies closest together, and
// writes along the rows. Of dense columns of bytes, or of 4 bytes, `transpose` does so 16 bytes at a time. Tiles: block
// 32×32; in `transpose` 128×128 of bytes, 64×64 of 4 bytes.
//
// NOTE: the next launch may begin when blocks have read, not before: the large blocks of a product take SMs from copies
// that still have all to do, which costs a third of 4096³ in int8.
#include <tilewise/dependent_launch.cuh>
#include <tilewise/element.cuh>
#include <tilewise/strided.cuh>

#ifndef ELEMENT_BYTES
#define ELEMENT_BYTES 4 // or 1, 2, 8
#endif

template <unsigned BYTES> struct Bits;
template <> struct Bits<1> { using Type = unsigned char; };
template <> struct Bits<2> { using Type = unsigned short; };
template <> struct Bits<4> { using Type = unsigned; };
template <> struct Bits<8> { using Type = unsigned long long; };
using Element = Bits<ELEMENT_BYTES>::Type;

constexpr unsigned TILE = 32;
constexpr unsigned LINES = 8; // of a tile that the block copies at once
constexpr unsigned BLOCK_THREADS = TILE * LINES;
constexpr unsigned PAD = ELEMENT_BYTES >= 4 ? 1 : 4 / ELEMENT_BYTES; // lines a word apart: no bank conflicts
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

// The rows have `pitch` elements, the zeros with them. The blocks of the first matrix come first.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    arrange(Strided<const Element> from, Strided<Element> to, unsigned pitch, unsigned inner_count)
{
    __shared__ Element tile[TILE][TILE + PAD]; // its rows are those of the matrix
    const unsigned tile_rows = from.rows / TILE + (from.rows % TILE != 0);
    const unsigned tile_columns = pitch / TILE + (pitch % TILE != 0);
    const unsigned batch = blockIdx.x / (tile_rows * tile_columns);
    const unsigned first_row = blockIdx.x / tile_columns % tile_rows * TILE;
    const unsigned first_column = blockIdx.x % tile_columns * TILE;
    const unsigned lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
    from.select(batch, inner_count), to.select(batch, inner_count);
    dependent_launch::wait_for_previous(first_row);

    const bool along_rows = llabs(from.column_stride) <= llabs(from.row_stride);
#pragma unroll
    for (unsigned i = line; i < TILE; i += LINES) {
        const unsigned row = along_rows ? i : lane, column = along_rows ? lane : i;
        const bool exists = first_row + row < from.rows && first_column + column < from.columns;
        tile[row][column] = exists ? *from.at(first_row + row, first_column + column) : Element(0);
    }
    __syncthreads();
    dependent_launch::let_next_begin();

    const unsigned column = first_column + lane;
#pragma unroll
    for (unsigned i = line; i < TILE; i += LINES)
        if (first_row + i < from.rows && column < pitch)
            *to.at(first_row + i, column) = tile[i][lane];
}

constexpr unsigned RUN = 16 / ELEMENT_BYTES; // elements that a thread moves
using Moved = Neighbours<Element, RUN>;

// Reads `left` elements, or a run of them, and zeros for others. Where elements are smaller than words it reads the words
// that they lie in, and shifts; of words at the line's ends, which are not its own alone, the elements.
// NOTE: all reads are started before one is waited for. A branch for the ends would have those threads wait twice.
inline __device__ Moved read_run(const Element *from, unsigned left, bool first)
{
    constexpr unsigned WORD = sizeof(unsigned), WORDS = 16 / WORD;
    const unsigned shift = ELEMENT_BYTES < WORD ? reinterpret_cast<unsigned long long>(from) % WORD : 0;
    const unsigned *words = reinterpret_cast<const unsigned *>(reinterpret_cast<const char *>(from) - shift);
    const unsigned end = min(left, RUN + WORD) * ELEMENT_BYTES + shift; // bytes from the first word on
    const auto whole = [&](unsigned i) {
        return (i > 0 || shift == 0 || !first) && (i < WORDS || shift > 0) && i * WORD + WORD <= end;
    };
    unsigned found[WORDS + 1] = {};
#pragma unroll
    for (unsigned i = 0; i <= WORDS; ++i)
        if (whole(i)) found[i] = words[i];
    Element others[RUN] = {};
    if (ELEMENT_BYTES < WORD && ((first && shift > 0) || end < 16 + (shift > 0 ? WORD : 0))) {
#pragma unroll
        for (unsigned i = 0; i < RUN; ++i)
            if (i < left && !whole((i * ELEMENT_BYTES + shift) / WORD)) others[i] = from[i];
    }
    Moved run;
#pragma unroll
    for (unsigned i = 0; i < WORDS; ++i)
        run.words[0].at[i] = __funnelshift_r(found[i], found[i + 1], shift * 8);
    if (ELEMENT_BYTES < WORD) {
#pragma unroll
        for (unsigned i = 0; i < RUN; ++i)
            run.at[i] |= others[i];
    }
    return run;
}

#if ELEMENT_BYTES == 1 || ELEMENT_BYTES == 4
constexpr unsigned WIDE_TILE = ELEMENT_BYTES == 1 ? 128 : 64;

struct alignas(4 * ELEMENT_BYTES) Quad { // neighbours in a row
    Element at[4];
};

// Four lines of four bytes each become four columns.
inline __device__ void transpose_4(unsigned (&lines)[4])
{
    const unsigned low_01 = __byte_perm(lines[0], lines[1], 0x5140), high_01 = __byte_perm(lines[0], lines[1], 0x7362);
    const unsigned low_23 = __byte_perm(lines[2], lines[3], 0x5140), high_23 = __byte_perm(lines[2], lines[3], 0x7362);
    lines[0] = __byte_perm(low_01, low_23, 0x5410), lines[1] = __byte_perm(low_01, low_23, 0x7632);
    lines[2] = __byte_perm(high_01, high_23, 0x5410), lines[3] = __byte_perm(high_01, high_23, 0x7632);
}

// Runs of four columns become rows of four.
inline __device__ void transpose_runs(const Moved (&runs)[4], Quad (&rows)[RUN])
{
    if constexpr (ELEMENT_BYTES == 1) {
#pragma unroll
        for (unsigned part = 0; part < RUN / 4; ++part) {
            unsigned lines[4];
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
                lines[i] = runs[i].words[0].at[part];
            transpose_4(lines);
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
                *reinterpret_cast<unsigned *>(&rows[part * 4 + i]) = lines[i];
        }
    } else {
#pragma unroll
        for (unsigned i = 0; i < RUN; ++i)
            rows[i] = {runs[0].at[i], runs[1].at[i], runs[2].at[i], runs[3].at[i]};
    }
}

// The same as arrange, of a matrix whose columns are dense. A thread reads 16 bytes of four columns.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    transpose(Strided<const Element> from, Strided<Element> to, unsigned pitch, unsigned inner_count)
{
    constexpr unsigned QUADS = WIDE_TILE / 4, CHUNKS = WIDE_TILE / RUN, IN_CHUNK = RUN / 4;
    static_assert(QUADS * CHUNKS == BLOCK_THREADS, "each thread has four columns");
    __shared__ alignas(16) Quad tile[WIDE_TILE][QUADS]; // its rows are those of the matrix, 16 bytes elsewhere in each
    const unsigned tile_rows = from.rows / WIDE_TILE + (from.rows % WIDE_TILE != 0);
    const unsigned tile_columns = pitch / WIDE_TILE + (pitch % WIDE_TILE != 0);
    const unsigned batch = blockIdx.x / (tile_rows * tile_columns);
    const unsigned first_row = blockIdx.x / tile_columns % tile_rows * WIDE_TILE;
    const unsigned first_column = blockIdx.x % tile_columns * WIDE_TILE;
    from.select(batch, inner_count), to.select(batch, inner_count);
    dependent_launch::wait_for_previous(first_row);

    const unsigned chunk = threadIdx.x % CHUNKS, quad = threadIdx.x / CHUNKS;
    const unsigned row = first_row + chunk * RUN, left = row < from.rows ? from.rows - row : 0;
    Moved runs[4];
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned column = first_column + quad * 4 + i;
        const Element *begin = from.at(row, column);
        if (column < from.columns && left >= RUN && Moved::are_aligned(begin))
            runs[i].read(begin);
        else
            runs[i] = read_run(begin, column < from.columns ? left : 0, row == 0);
    }
    Quad rows[RUN];
    transpose_runs(runs, rows);
#pragma unroll
    for (unsigned i = 0; i < RUN; ++i)
        tile[chunk * RUN + i][quad ^ chunk * IN_CHUNK] = rows[i];
    __syncthreads();
    dependent_launch::let_next_begin();

    const unsigned column = first_column + chunk * RUN;
#pragma unroll
    for (unsigned i = quad; i < WIDE_TILE; i += BLOCK_THREADS / CHUNKS)
        if (first_row + i < from.rows && column < pitch) {
            Moved run;
            run.read(reinterpret_cast<const Element *>(&tile[i][(chunk ^ i / RUN) * IN_CHUNK]));
            run.write(to.at(first_row + i, column));
        }
}
#endif

// One of the operands whose lines are copied, and the blocks that do so.
struct Copy {
    Strided<const Element> from;
    Strided<Element> to;
    unsigned inner; // matrices along the inner axis of the stack
    unsigned lines; // of the whole stack
    unsigned blocks;
};

// Copies rows of `one`, then of `other`: a thread 16 bytes.
// NOTE: of more blocks than an H100 holds at once the last ones end at different times. A product that begins meanwhile has
// its blocks on SMs in that order, neighbours in C apart, so that L2 is asked for more: 5000×5001×4999 took a quarter longer.
constexpr unsigned AT_ONCE = 1056;
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    align(const __grid_constant__ Copy one, const __grid_constant__ Copy other)
{
    const bool first = blockIdx.x < one.blocks;
    const Copy &copy = first ? one : other;
    const unsigned runs = copy.to.row_stride / RUN, block = first ? blockIdx.x : blockIdx.x - one.blocks;
    const unsigned long long index = block * 1ull * BLOCK_THREADS + threadIdx.x;
    const unsigned line = index / runs, column = index % runs * RUN;
    const unsigned matrix = line / copy.from.rows, row = line % copy.from.rows;
    const unsigned outer = matrix / copy.inner, inner = matrix % copy.inner;
    if (block >= copy.blocks || index >= runs * 1ull * copy.lines) return;

    const Element *from = copy.from.in_stack(outer, inner) + (row * copy.from.row_stride + column);
    const unsigned left = column < copy.from.columns ? copy.from.columns - column : 0;
    dependent_launch::wait_for_previous(left);
    const Moved run = read_run(from, left, column == 0);
    if (gridDim.x <= AT_ONCE) dependent_launch::let_next_begin();
    run.write(copy.to.in_stack(outer, inner) + (row * copy.to.row_stride + column));
}
