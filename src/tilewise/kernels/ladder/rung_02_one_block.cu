// Rung 02: one block, one thread per element of C.
//
// Adds: threads. Each computes one dot product, and all of them run at once, so C has at most as many
// elements as a block has threads: 1,024.
// Tiles: block m×n, thread 1×1.
// Coalescing: threadIdx.x is the column. A warp is 32 threads in a row of the linear index y·n + x, so
// its lanes want neighbouring elements of one row of B and of C (few 32-byte sectors), and one and the
// same element of A (one sector). With x as the row, every lane would touch a row of its own.
// Look at: one SM busy and all others idle; sectors per request.
#include <tilewise/matrix.cuh>

extern "C" __global__ void one_block(Matrix<const float> a, Matrix<const float> b, Matrix<float> c)
{
    const unsigned row = threadIdx.y;
    const unsigned column = threadIdx.x;

    float sum = 0;
    for (unsigned k = 0; k < a.width; ++k)
        sum += a.at(row, k) * b.at(k, column);
    c.at(row, column) = sum;
}
