// A warp's way from sums to results where the epilogue adds up columns and rows: what goes through a RowStage two
// neighbours at a time (tilewise/warp_tile.cuh).
#pragma once

// For the WIDTH columns of a warp. ROUND makes results of two neighbours. `all` gets what the lane has of its two
// columns, which are the same in every row. All lanes of the warp call make().
template <unsigned WIDTH, auto ROUND, typename Epilogue> struct FinishAndAdd {
    static constexpr unsigned SHARERS = WIDTH / 2; // lanes that have a row together
    static_assert(32 % SHARERS == 0, "a lane keeps to its columns");
    using Sum = typename Epilogue::Sum;
    using Added = typename Epilogue::template Added<1>;
    using One = typename Epilogue::template Given<1>;
    struct Given {
        One x, y;
    };

    const Epilogue &epilogue;
    unsigned rows, columns; // of C
    Added (&all)[2];

    template <bool INSIDE> __device__ Given read(unsigned row, unsigned column) const
    {
        Given given = {};
        if (lies_inside<INSIDE>(row, column)) given.x = epilogue.template read<1>(row, column);
        if (lies_inside<INSIDE>(row, column + 1)) given.y = epilogue.template read<1>(row, column + 1);
        return given;
    }

    template <bool INSIDE, typename Pair>
    __device__ auto make(Pair sums, const Given &given, unsigned row, unsigned column) const
    {
        Added of_row;
        apply<INSIDE>(sums.x, given.x, row, column, all[0], of_row);
        apply<INSIDE>(sums.y, given.y, row, column + 1, all[1], of_row);
        epilogue.template put_row<SHARERS>(of_row, row < rows && column < columns, row, column / WIDTH);
        return ROUND(sums);
    }

    // Stores what the warp has of its columns, from `first_column` on: those of the rows from `first_row` on.
    __device__ void put_columns(unsigned first_row, unsigned first_column, unsigned warp_rows) const
    {
        if (first_row >= rows) return;
        const unsigned slot = first_row / warp_rows, column = first_column + threadIdx.x % SHARERS * 2;
#pragma unroll
        for (unsigned i = 0; i < 2; ++i)
            epilogue.template put_columns<SHARERS>(all[i], slot, column + i, column + i < columns);
    }

  private:
    template <bool INSIDE> __device__ bool lies_inside(unsigned row, unsigned column) const
    {
        return INSIDE || (row < rows && column < columns);
    }

    template <bool INSIDE>
    __device__ void apply(Sum &sum, const One &given, unsigned row, unsigned column, Added &of_column, Added &of_row) const
    {
        if (!lies_inside<INSIDE>(row, column)) return;
        Sum one[1] = {sum};
        Added added;
        epilogue.apply(one, given, row, column, added);
        of_column.add(added), of_row.add(added);
        sum = one[0];
    }
};
