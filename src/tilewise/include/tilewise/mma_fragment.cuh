// What a warp multiplies at once by mma.sync, for each type of elements: how they lie in shared memory, what a lane reads
// of them, and the instructions.
//
// Elements of 16 bits come by ldmatrix, transposed on the way where they do not lie along K. Those of 32 bits, which are
// rounded to tf32, do so where they lie along K: four bytes of a row for each lane, be it one element or two. So do those
// of 8 bits, which always lie along K. For all others a lane reads element by element.
#pragma once

#include <tilewise/warp_tile.cuh>

namespace warp_tile {

// How an element type is multiplied: what its sums are, unless they are kept in float16, and how deep a slice of K is that a fragment has.
template <typename Element> struct MmaForm {
    using Sum = float32;
    static constexpr unsigned SLICE_K = 16;
};
template <> struct MmaForm<float32> {
    using Sum = float32;
    static constexpr unsigned SLICE_K = 8;
};
template <> struct MmaForm<float64> {
    using Sum = float64;
    static constexpr unsigned SLICE_K = 4;
};
template <typename Sum_> struct MmaFormOfBytes {
    using Sum = Sum_;
    static constexpr unsigned SLICE_K = 32;
};
template <> struct MmaForm<float8_e4m3fn> : MmaFormOfBytes<float32> {};
template <> struct MmaForm<float8_e5m2> : MmaFormOfBytes<float32> {};
template <> struct MmaForm<int8> : MmaFormOfBytes<int32> {};

// How a tile lies whose lines are so long, in lines along K or not.
template <typename Element, unsigned LINES, unsigned LENGTH, bool ALONG_K> struct LieOf {
    static_assert(ALONG_K || sizeof(Element) > 1, "ldmatrix does not transpose bytes");
    using Type = SwizzledTile<LINES, LENGTH, 16 / sizeof(Element)>;
};
template <unsigned LINES, unsigned LENGTH> struct LieOf<float32, LINES, LENGTH, false> {
    using Type = PaddedTile<LINES, LENGTH, 4>;
};
template <unsigned LINES> struct LieOf<float32, LINES, 16, false> {
    using Type = SwizzledTile<LINES, 16, 4, Reads::ELEMENTS>;
};
template <unsigned LINES, unsigned LENGTH, bool ALONG_K> struct LieOf<float64, LINES, LENGTH, ALONG_K> {
    using Type = SwizzledTile<LINES, LENGTH, 2, Reads::ELEMENTS>;
};

// SIZE rows of A, or columns of B, by DEPTH of K, in lines along K or along SIZE.
template <typename Element, unsigned SIZE, unsigned DEPTH, bool ALONG_K_>
struct MmaTile : LieOf<Element, ALONG_K_ ? SIZE : DEPTH, ALONG_K_ ? DEPTH : SIZE, ALONG_K_>::Type {
    static constexpr bool ALONG_K = ALONG_K_;

    // One element, given its row of A, or column of B, and its k.
    static __device__ Element at(const typename MmaTile::Chunks &tile, unsigned across, unsigned k)
    {
        return MmaTile::template element<Element>(tile, ALONG_K ? across : k, ALONG_K ? k : across);
    }
};

// M rows of A and N columns of B, SLICE_K deep: elements of 16 bits, or of 8.
template <typename Element, unsigned M, unsigned N> struct MmaFragment : Fragment<M, N> {
    template <typename TileA, typename TileB, typename Place>
    __device__ void read(const typename TileA::Chunks &tile_a, const typename TileB::Chunks &tile_b,
                         const Place &place, const LaneRow &lane_a, const LaneRow &lane_b, unsigned k)
    {
        this->template load<TileA, TileB, TileA::ALONG_K, TileB::ALONG_K>(tile_a, tile_b, place, lane_a, lane_b, k);
    }

    template <typename Sum> __device__ void multiply_add(Sums<Sum, M, N> &sums) const
    {
#pragma unroll
        for (unsigned i = 0; i < M / 16; ++i)
#pragma unroll
            for (unsigned j = 0; j < N / 8; ++j) {
                const unsigned *a = this->a[i], *b = &this->b[j / 2][j % 2 * 2]; // two halves of K
                if constexpr (sizeof(Element) == 1) {
                    tensor_core::multiply_add_16x8x32<Element>(sums.at[i][j], this->a[i], b[0], b[1]);
                } else if constexpr (__CUDA_ARCH__ >= 800) {
                    tensor_core::multiply_add_16x8x16<Element>(sums.at[i][j], this->a[i], b[0], b[1]);
                } else {
                    tensor_core::multiply_add_16x8x8(sums.at[i][j], a[0], a[1], b[0]);
                    tensor_core::multiply_add_16x8x8(sums.at[i][j], a[2], a[3], b[1]);
                }
            }
    }
};

// float32 in tf32. Registers are as those of 16 bits, with an element each instead of two.
template <unsigned M, unsigned N> struct MmaFragment<float32, M, N> {
    unsigned a[M / 16][4];
    unsigned b[N / 16][4];

    template <typename TileA, typename TileB, typename Place>
    __device__ void read(const typename TileA::Chunks &tile_a, const typename TileB::Chunks &tile_b,
                         const Place &place, const LaneRow &lane_a, const LaneRow &lane_b, unsigned k)
    {
#pragma unroll
        for (unsigned i = 0; i < M / 16; ++i)
            read_16x8<TileA, false>(a[i], tile_a, place.row + i * 16, k, lane_a);
#pragma unroll
        for (unsigned j = 0; j < N / 16; ++j)
            read_16x8<TileB, true>(b[j], tile_b, place.column + j * 16, k, lane_b);
    }

    // NOTE: the fragment is rounded where it is.
    __device__ void multiply_add(Sums<float[4], M, N> &sums)
    {
#pragma unroll
        for (unsigned j = 0; j < N / 16; ++j)
            round(b[j]);
#pragma unroll
        for (unsigned i = 0; i < M / 16; ++i) {
            round(a[i]);
#pragma unroll
            for (unsigned j = 0; j < N / 8; ++j) {
                const unsigned *pair = &b[j / 2][j % 2 * 2];
                tensor_core::multiply_add_16x8x8_tf32(sums.at[i][j], a[i], pair[0], pair[1]);
            }
        }
    }

  private:
    static __device__ void round(unsigned (&elements)[4])
    {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i)
            elements[i] = tensor_core::round_to_tf32(elements[i]);
    }

    // 16 rows of A, or columns of B, by 8 of K, in quarters: of A the upper and the lower rows of the first half of K
    // come first, of B both halves of K of the first columns.
    template <typename Tile, bool K_FIRST>
    static __device__ void read_16x8(unsigned (&quarters)[4], const typename Tile::Chunks &tile, unsigned first,
                                     unsigned k, const LaneRow &lane)
    {
        if constexpr (Tile::ALONG_K) {
            tensor_core::load_4_matrices(quarters, &tile[Tile::slot(first + lane.row, k / Tile::PER_CHUNK + lane.half)]);
        } else {
            const unsigned own = threadIdx.x % LANES;
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                const unsigned across = K_FIRST ? i / 2 : i % 2, deep = K_FIRST ? i % 2 : i / 2;
                quarters[i] = __float_as_uint(Tile::at(tile, first + own / 4 + across * 8, k + own % 4 + deep * 4));
            }
        }
    }
};

// float64.
template <unsigned M, unsigned N> struct MmaFragment<float64, M, N> {
    double a[M / 16][2]; // rows 0 to 7, and 8 to 15
    double b[N / 8];

    template <typename TileA, typename TileB, typename Place>
    __device__ void read(const typename TileA::Chunks &tile_a, const typename TileB::Chunks &tile_b,
                         const Place &place, const LaneRow &, const LaneRow &, unsigned k)
    {
        const unsigned own = threadIdx.x % LANES, across = own / 4;
        k += own % 4;
#pragma unroll
        for (unsigned i = 0; i < M / 8; ++i)
            a[i / 2][i % 2] = TileA::at(tile_a, place.row + i * 8 + across, k);
#pragma unroll
        for (unsigned j = 0; j < N / 8; ++j)
            b[j] = TileB::at(tile_b, place.column + j * 8 + across, k);
    }

    __device__ void multiply_add(Sums<double[4], M, N> &sums) const
    {
#pragma unroll
        for (unsigned i = 0; i < M / 16; ++i)
#pragma unroll
            for (unsigned j = 0; j < N / 8; ++j)
                tensor_core::multiply_add_16x8x4(sums.at[i][j], a[i][0], a[i][1], b[j]);
    }
};

} // namespace warp_tile
