// Copies matrices of 8 bits to lines of 16 that begin at multiples of 16 bytes, for kernels that multiply 16 bits alone.
// Exact. Lines go on as zeros from their last element to the pitch. A thread makes 16 bytes.
#include <tilewise/dependent_launch.cuh>
#include <tilewise/element.cuh>
#include <tilewise/strided_run.cuh>

#ifndef NARROW
#define NARROW int8 // or float8_e4m3fn, float8_e5m2
#endif
#ifndef WIDE
#define WIDE bfloat16 // or float16
#endif

constexpr unsigned BLOCK_THREADS = 256;
#ifdef THREADS
static_assert(BLOCK_THREADS == THREADS, "the launch has that many threads in a block");
#endif

using Narrow = NARROW;
using Wide = WIDE;
constexpr unsigned RUN = 16 / sizeof(Wide);

// `lines` are those of the whole stack, whose inner axis has `inner_count` matrices.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    widen(Strided<const Narrow> from, Strided<Wide> to, unsigned inner_count, unsigned lines)
{
    const unsigned runs = to.row_stride / RUN;
    const unsigned long long index = blockIdx.x * 1ull * BLOCK_THREADS + threadIdx.x;
    if (index >= runs * 1ull * lines) return;
    const unsigned line = index / runs, column = index % runs * RUN;
    const unsigned matrix = line / from.rows, row = line % from.rows;
    from.select(matrix, inner_count), to.select(matrix, inner_count);
    dependent_launch::wait_for_previous(row);
    dependent_launch::let_next_begin();

    const auto read = read_run<RUN>(from, row, column);
    Neighbours<Wide, RUN> made;
#pragma unroll
    for (unsigned i = 0; i < RUN; ++i)
        made.at[i] = narrow<Wide>(widen_to<float32>(read.at[i]));
    made.write(to.at(row, column));
}
