// Rung 03: one thread per element of C, in as many blocks as it takes.
//
// Adds: a grid, so that C may have any size and every SM has work. Threads outside C leave at once.
// Tiles: block 16×16, thread 1×1; K is walked one element at a time.
// Look at: global requests. Every multiply-add needs one element of A and one of B from global memory;
// 16 threads of a block ask for the same element, and only the caches save them the trip.
#include <tilewise/matrix.cuh>

extern "C" __global__ void simple(Matrix<const float> a, Matrix<const float> b, Matrix<float> c)
{
    const unsigned row = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= c.height || column >= c.width)
        return;

    float sum = 0;
    for (unsigned k = 0; k < a.width; ++k)
        sum += a.at(row, k) * b.at(k, column);
    c.at(row, column) = sum;
}
