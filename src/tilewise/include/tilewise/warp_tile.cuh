// A warp's tile on the tensor cores by mma.sync: what rungs 10 and 12 share with the production kernel.
//
// Tiles of A and B lie in shared memory in chunks of 16 bytes, each row shuffled its own way; a fragment is
// what a warp takes from them for sixteen k; its sums stay in registers until whole rows of them are written.
#pragma once

#include <tilewise/matrix.cuh>
#include <tilewise/row_stage.cuh>
#include <tilewise/tensor_core.cuh>

namespace warp_tile {

constexpr unsigned LANES = 32;
constexpr unsigned CHUNK = 8; // elements of 16 bits: what a thread copies at once, and a row of ldmatrix

// How the lanes of a warp read a tile: eight rows of 16 bytes at once (ldmatrix), or an element each, neighbours in 32
// bytes of four rows.
enum class Reads { ROWS, ELEMENTS };

// How ROWS rows of COLUMNS elements lie. One chunk of eight rows (ldmatrix) and eight neighbouring chunks (a
// store or a copy) both touch all 32 banks; or two neighbouring chunks of four rows do, if elements are read. Padded
// rows would do that too where a row has eight chunks, though not where it has fewer, and take more shared memory.
template <unsigned ROWS_, unsigned COLUMNS, unsigned PER_CHUNK_ = CHUNK, Reads READS = Reads::ROWS>
struct SwizzledTile {
    static constexpr unsigned ROWS = ROWS_;
    static constexpr unsigned PER_CHUNK = PER_CHUNK_;       // elements
    static constexpr unsigned CHUNKS = COLUMNS / PER_CHUNK; // in a row
    static_assert(CHUNKS == 2 || CHUNKS == 4 || CHUNKS % 8 == 0, "four rows, two or one fill the 32 banks");

    // NOTE: a plain array that is indexed where it stands. Behind a member function NVRTC 13.0 makes other
    // addresses of it, which cost rung 10 two percent.
    using Chunks = uint4[ROWS * CHUNKS];

    static __device__ unsigned slot(unsigned row, unsigned chunk)
    {
        if constexpr (READS == Reads::ELEMENTS)
            return row * CHUNKS + (chunk ^ 2 * (CHUNKS == 2 ? 0 : CHUNKS == 4 ? row / 2 % 2 : row % 4));
        else
            return row * CHUNKS + (chunk ^ (CHUNKS == 2 ? row / 4 % 2 : CHUNKS == 4 ? row / 2 % 4 : row % 8));
    }

    // An element, given as what chunks are made of.
    template <typename Element>
    static __device__ Element element(const Chunks &tile, unsigned row, unsigned column)
    {
        return reinterpret_cast<const Element *>(&tile[slot(row, column / PER_CHUNK)])[column % PER_CHUNK];
    }
};

// The same in rows with padding, for elements: where one lies is a sum of what row and column are for, of which most is
// known when a loop is unrolled. It takes fewer registers. Rows have eight chunks or more.
template <unsigned ROWS_, unsigned COLUMNS, unsigned PER_CHUNK_> struct PaddedTile {
    static constexpr unsigned ROWS = ROWS_;
    static constexpr unsigned PER_CHUNK = PER_CHUNK_;
    static constexpr unsigned CHUNKS = COLUMNS / PER_CHUNK, PITCH = CHUNKS + 2;
    static_assert(CHUNKS % 8 == 0, "four rows begin at different quarters of the banks");

    using Chunks = uint4[ROWS * PITCH];

    static __device__ unsigned slot(unsigned row, unsigned chunk) { return row * PITCH + chunk; }

    template <typename Element>
    static __device__ Element element(const Chunks &tile, unsigned row, unsigned column)
    {
        return reinterpret_cast<const Element *>(tile)[row * (PITCH * PER_CHUNK) + column];
    }
};

// SIZE rows of A, or columns of B, by DEPTH of K. It lies in shared memory as its matrix does in global memory: in
// lines along K, or along SIZE.
template <unsigned SIZE, unsigned DEPTH, bool ALONG_K_>
struct OperandTile : SwizzledTile<ALONG_K_ ? SIZE : DEPTH, ALONG_K_ ? DEPTH : SIZE> {
    static constexpr bool ALONG_K = ALONG_K_;
};

// Where a warp's M×N tile begins in the block's, in which WARPS_M warps lie one below the other.
template <unsigned WARPS_M, unsigned M, unsigned N> struct Place {
    unsigned row, column;

    __device__ Place(unsigned warp)
    {
        row = warp % WARPS_M * M;
        column = warp / WARPS_M * N;
    }
};

// What the calling lane points ldmatrix at: a row of 32 bytes, and which half of it. The second of the four
// matrices lies below the first, or beside it.
struct LaneRow {
    unsigned row, half;

    __device__ LaneRow()
    {
        const unsigned lane = threadIdx.x % LANES;
        row = lane % 16;
        half = lane / 16;
    }

    explicit __device__ LaneRow(bool beside) : LaneRow()
    {
        if (!beside) return;
        const unsigned lane = threadIdx.x % LANES;
        row = lane / 16 * 8 + lane % 8;
        half = lane / 8 % 2;
    }
};

// Loads what 16 of SIZE and 16 of K are for the tensor cores, which want them along K.
template <typename Tile, bool ALONG_K>
inline __device__ void load_16x16(unsigned (&matrices)[4], const typename Tile::Chunks &tile, unsigned first,
                                  unsigned k, const LaneRow &lane)
{
    if constexpr (ALONG_K)
        tensor_core::load_4_matrices(matrices, &tile[Tile::slot(first + lane.row, k / Tile::PER_CHUNK + lane.half)]);
    else
        tensor_core::load_4_transposed(matrices, &tile[Tile::slot(k + lane.row, first / CHUNK + lane.half)]);
}

// M rows of A and N columns of B, sixteen k deep. An ldmatrix brings 16×16 elements: operands of A for two
// instructions along K if they are eight deep, operands of B for as many and for two along N.
template <unsigned M, unsigned N> struct Fragment {
    unsigned a[M / 16][4];
    unsigned b[N / 16][4];

    // The block's tiles are rows of k for A and rows of columns for B.
    template <typename TileA, typename TileB, typename Place>
    __device__ void load(const typename TileA::Chunks &tile_a, const typename TileB::Chunks &tile_b,
                         const Place &place, const LaneRow &lane, unsigned k)
    {
        load<TileA, TileB, true, false>(tile_a, tile_b, place, lane, lane, k);
    }

    // They lie in any way: the lanes of A are those of LaneRow(!A_ALONG_K), those of B of LaneRow(B_ALONG_K).
    template <typename TileA, typename TileB, bool A_ALONG_K, bool B_ALONG_K, typename Place>
    __device__ void load(const typename TileA::Chunks &tile_a, const typename TileB::Chunks &tile_b,
                         const Place &place, const LaneRow &lane_a, const LaneRow &lane_b, unsigned k)
    {
#pragma unroll
        for (unsigned i = 0; i < M / 16; ++i)
            load_16x16<TileA, A_ALONG_K>(a[i], tile_a, place.row + i * 16, k, lane_a);
#pragma unroll
        for (unsigned j = 0; j < N / 16; ++j)
            load_16x16<TileB, B_ALONG_K>(b[j], tile_b, place.column + j * 16, k, lane_b);
    }
};

// Two neighbouring sums as they are.
template <typename SumPair> inline __device__ SumPair keep_pair(SumPair sums) { return sums; }

// Of eight rows or columns the one that lies where this one would, if 2 and 3 have changed places with 4 and 5.
inline __device__ unsigned change_places(unsigned line) { return (line & 1) | (line & 2) << 1 | (line & 4) >> 1; }

// The sums of M rows and N columns: one of each instruction, which makes 16×8 of them. Of every eight rows, or columns, some
// may have CHANGED places, as operands were read.
template <typename Sum, unsigned M, unsigned N, bool ROWS_CHANGED = false, bool COLUMNS_CHANGED = false> struct Sums {
    static constexpr unsigned DOWN = M / 16, ACROSS = N / 8;

    Sum at[DOWN][ACROSS];

    using SumPair = decltype(tensor_core::row_pair(at[0][0], 0)); // float2, or double2
    using Wide = decltype(SumPair().x);

    // Writes them to C, 16 rows at a time by way of shared memory. NARROW rounds two neighbours.
    template <auto NARROW, Access ACCESS = Access::WIDE, typename Result, typename Place>
    __device__ void write(Matrix<Result> c, unsigned block_row, unsigned block_column, const Place &place,
                          RowStage<Result, N> &stage)
    {
        const unsigned access = ACCESS == Access::AS_ALIGNED ? widest_store(c) : aligned_16(c);
#pragma unroll 1
        for (unsigned i = 0; i < DOWN; ++i) {
            const unsigned row = block_row + place.row + i * 16, column = block_column + place.column;
            put_first_row<NARROW>(stage);
            __syncwarp();
            if constexpr (ACCESS == Access::ALL_WIDE)
                stage.write_whole(c, row, column);
            else if constexpr (ACCESS == Access::AS_ALIGNED)
                stage.write_as_aligned(c, row, column, access);
            else
                stage.write(c, row, column, access);
            __syncwarp();
            move_up();
        }
    }

    // The same where more is to be done than to round: `finish` makes results of two neighbours, told where in C they
    // lie, and whether all of these rows lie inside of it. It is called with them in shared memory, so that a warp goes
    // along a row of C; and it reads what it needs for several pairs first, so that none waits for another.
    // ALL_INSIDE: there is no row or column beyond C's.
    template <Access ACCESS, bool ALL_INSIDE, typename Result, typename Place, typename Finish>
    __device__ void finish_and_write(Matrix<Result> c, unsigned block_row, unsigned block_column, const Place &place,
                                     RowStage<Wide, N> &sums, const Finish &finish)
    {
        const unsigned access = widest_store(c);
#pragma unroll 1
        for (unsigned i = 0; i < DOWN; ++i) {
            const unsigned row = block_row + place.row + i * 16, column = block_column + place.column;
            put_first_row<keep_pair<SumPair>>(sums);
            __syncwarp();
            if (ALL_INSIDE || (row + 16 <= c.height && column + N <= c.width))
                finish_rows<Result, 4, true>(sums, row, column, finish);
            else
                finish_rows<Result, 1, false>(sums, row, column, finish);
            __syncwarp();
            auto &results = reinterpret_cast<RowStage<Result, N> &>(sums);
            if constexpr (ACCESS == Access::ALL_WIDE)
                results.write_whole(c, row, column);
            else
                results.write_as_aligned(c, row, column, access);
            __syncwarp();
            move_up();
        }
    }

  private:
    // Puts the first row of instructions' sums into 16 rows.
    template <auto NARROW, typename Stage> __device__ void put_first_row(Stage &stage) const
    {
        const unsigned lane = threadIdx.x % LANES, down = lane / 4, across = lane % 4 * 2;
        const unsigned row = ROWS_CHANGED ? change_places(down) : down;
        const unsigned column = COLUMNS_CHANGED ? change_places(across) : across;
#pragma unroll
        for (unsigned j = 0; j < ACROSS; ++j)
#pragma unroll
            for (unsigned half = 0; half < 2; ++half)
                stage.put(half * 8 + row, j * 8 + column, NARROW(tensor_core::row_pair(at[0][j], half)));
    }

    // Makes 16 rows of sums into results, AT_ONCE pairs of each lane in turn, for which all is read first. Results lie
    // where the sums were: never behind those that all lanes have read, as they are no larger.
    template <typename Result, unsigned AT_ONCE, bool INSIDE, typename Finish>
    static __device__ void finish_rows(RowStage<Wide, N> &sums, unsigned row, unsigned column, const Finish &finish)
    {
        using Results = RowStage<Result, N>;
        static_assert(sizeof(Results) <= sizeof(sums), "results lie where the sums were");
        static_assert(16 * N / 2 % (AT_ONCE * LANES) == 0, "whole turns of the warp");
        Results &results = reinterpret_cast<Results &>(sums);
#pragma unroll 1
        for (unsigned first = threadIdx.x % LANES; first < 16 * N / 2; first += AT_ONCE * LANES) {
            typename Finish::Given given[AT_ONCE];
#pragma unroll
            for (unsigned j = 0; j < AT_ONCE; ++j) {
                const unsigned pair = first + j * LANES;
                given[j] = finish.template read<INSIDE>(row + pair / (N / 2), column + pair % (N / 2) * 2);
            }
            decltype(finish.template make<INSIDE>(SumPair(), given[0], 0, 0)) made[AT_ONCE];
#pragma unroll
            for (unsigned j = 0; j < AT_ONCE; ++j) {
                const unsigned pair = first + j * LANES, down = pair / (N / 2), across = pair % (N / 2) * 2;
                const SumPair both = *reinterpret_cast<const SumPair *>(sums.at(down, across));
                made[j] = finish.template make<INSIDE>(both, given[j], row + down, column + across);
            }
            __syncwarp();
#pragma unroll
            for (unsigned j = 0; j < AT_ONCE; ++j) {
                const unsigned pair = first + j * LANES;
                results.put(pair / (N / 2), pair % (N / 2) * 2, made[j]);
            }
        }
    }

    // Makes the second row of instructions the first. A variable cannot choose a register, so a loop over
    // the rows uses the first and moves the others up: its code, and the time to compile it, stays short.
    __device__ void move_up()
    {
#pragma unroll
        for (unsigned i = 1; i < DOWN; ++i)
#pragma unroll
            for (unsigned j = 0; j < ACROSS; ++j)
#pragma unroll
                for (unsigned part = 0; part < sizeof(Sum) / sizeof(at[0][0][0]); ++part)
                    at[i - 1][j][part] = at[i][j][part];
    }
};

} // namespace warp_tile
