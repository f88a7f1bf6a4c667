// Rung 01: one thread computes everything.
//
// Adds: nothing yet. Three loops as on a CPU, on one lane of one warp of one SM.
// Tiles: block 1×1, thread m×n; K is walked one element at a time.
// Look at: achieved occupancy (one lane of one warp), the latency of every load that nothing hides.
#include <tilewise/matrix.cuh>

extern "C" __global__ void single_thread(Matrix<const float> a, Matrix<const float> b, Matrix<float> c)
{
    for (unsigned row = 0; row < c.height; ++row)
        for (unsigned column = 0; column < c.width; ++column) {
            float sum = 0;
            for (unsigned k = 0; k < a.width; ++k)
                sum += a.at(row, k) * b.at(k, column);
            c.at(row, column) = sum;
        }
}
