// The tiles that cover rows in groups, each of which has a matrix of its own: those of the first group come first.
//
// Where groups end is read on the device. A warp walks from tile to tile; its lanes have the ends of 32 groups, one
// each. NOTE: whatever the ends hold, groups lie one behind another and within the matrix: one that would end before it
// begins is empty, and one that would end beyond the last row ends there.
#pragma once

// Tiles of HEIGHT rows. All lanes of a warp come to seek().
template <unsigned HEIGHT> class GroupWalk {
    static constexpr unsigned LANES = 32, ALL = ~0u;

    const int *ends;  // one past the last row of each group
    unsigned groups;  // how many there are
    unsigned height;  // rows of the matrix
    unsigned columns; // of tiles

    // The 32 groups that the lanes have.
    unsigned first = 0 - LANES;
    unsigned passed = 0;                           // tiles of the groups before them
    unsigned my_begin = 0, my_end = 0, up_to = 0; // the lane's group: its rows; tiles of the 32 up to its last

    // The group that the walk is at.
    unsigned at = 0, at_begin = 0, at_end = 0;
    unsigned before = 0; // tiles of all groups before it

    __device__ unsigned tiles(unsigned rows) const { return (rows / HEIGHT + (rows % HEIGHT != 0)) * columns; }

    // Each lane takes a group of the 32 from `first` on, the first of which begins at this row.
    __device__ void take_groups(unsigned begin)
    {
        const unsigned lane = threadIdx.x % LANES;
        const int end = first + lane < groups ? ends[first + lane] : 0;
        my_end = max(begin, unsigned(min(max(end, 0), int(height))));
#pragma unroll
        for (unsigned apart = 1; apart < LANES; apart *= 2)
            my_end = max(my_end, __shfl_up_sync(ALL, my_end, apart)); // a lane that has none before gets its own
        const unsigned end_before = __shfl_up_sync(ALL, my_end, 1);
        my_begin = lane == 0 ? begin : end_before;
        up_to = tiles(my_end - my_begin);
#pragma unroll
        for (unsigned apart = 1; apart < LANES; apart *= 2) {
            const unsigned others = __shfl_up_sync(ALL, up_to, apart);
            if (lane >= apart) up_to += others;
        }
    }

  public:
    __device__ GroupWalk(const int *ends, unsigned groups, unsigned height, unsigned columns)
        : ends(ends), groups(groups), height(height), columns(columns)
    {
    }

    // Goes on to the group that has the tile of this number; false if all groups end before it. Numbers must grow, and
    // the walk is over once it is false.
    __device__ bool seek(unsigned index)
    {
        unsigned found;
        while (!(found = __ballot_sync(ALL, index - passed < up_to))) {
            first += LANES;
            if (first >= groups) return false;
            passed += __shfl_sync(ALL, up_to, LANES - 1);
            take_groups(__shfl_sync(ALL, my_end, LANES - 1));
        }
        const unsigned lane = __ffs(found) - 1;
        at = first + lane;
        at_begin = __shfl_sync(ALL, my_begin, lane), at_end = __shfl_sync(ALL, my_end, lane);
        before = passed + __shfl_sync(ALL, up_to, lane) - tiles(at_end - at_begin);
        return true;
    }

    // The group that it is at: its number, its first row, and the one after its last.
    __device__ unsigned group() const { return at; }
    __device__ unsigned begin() const { return at_begin; }
    __device__ unsigned end() const { return at_end; }

    // Of its tiles: how many rows there are, and which one has this number.
    __device__ unsigned tile_rows() const { return tiles(at_end - at_begin) / columns; }
    __device__ unsigned tile(unsigned index) const { return index - before; }
};
