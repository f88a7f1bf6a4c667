// Copies of boxes between a matrix in global memory and shared memory, by an engine of its own (TMA,
// compute capability 9.0). One thread starts a copy; nobody computes an address.
//
// What a matrix is (address, sizes, pitch, type, box, swizzle) stands in a tensor map, which the host makes.
// A load fills what lies outside of the matrix with zeros, and a store leaves it out.
// NOTE: with 128-byte swizzle a row of the box has 128 bytes, and the 16-byte chunk c of row r lies where
// chunk c ^ r % 8 would. That holds of the address itself: a box begins at a multiple of 1,024.
#pragma once

#include <tilewise/mbarrier.cuh>
#include <tilewise/stack.cuh>

// The bytes of CUDA's CUtensorMap, handed over as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

namespace tensor_copy {

// Brings the map closer before its first use.
inline __device__ void prefetch(const TensorMap &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts to load the box whose first element is (row, column). Its bytes count at `barrier`.
inline __device__ void load(void *shared, const TensorMap &map, unsigned row, unsigned column,
                            Mbarrier &barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(shared)),
                 "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier))
                 : "memory");
}

// The same into the same place of every block of the cluster whose bit is set in `blocks`. All its bytes
// count at each block's own barrier.
inline __device__ void load_to_all(void *shared, const TensorMap &map, unsigned row, unsigned column,
                                   Mbarrier &barrier, unsigned short blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(shared)),
                 "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier)), "h"(blocks)
                 : "memory");
}

// The same of a stack of matrices, whose map has two more axes: which one is named by its number on each.
using ::InStack;

inline __device__ void load(void *shared, const TensorMap &map, unsigned row, unsigned column, InStack which,
                            Mbarrier &barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(shared)),
                 "l"(&map), "r"(column), "r"(row), "r"(which.inner), "r"(which.outer),
                 "r"(shared_address(&barrier))
                 : "memory");
}

// The same of a matrix whose rows are cut into runs, which are an axis of its map: the box begins at this run.
inline __device__ void load_runs(void *shared, const TensorMap &map, unsigned run, unsigned row, Mbarrier &barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(shared)),
                 "l"(&map), "r"(0), "r"(row), "r"(run), "r"(shared_address(&barrier))
                 : "memory");
}

inline __device__ void load_runs(void *shared, const TensorMap &map, unsigned run, unsigned row, InStack which,
                                 Mbarrier &barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared_address(shared)),
                 "l"(&map), "r"(0), "r"(row), "r"(run), "r"(which.inner), "r"(which.outer),
                 "r"(shared_address(&barrier))
                 : "memory");
}

inline __device__ void load_to_all(void *shared, const TensorMap &map, unsigned row, unsigned column,
                                   InStack which, Mbarrier &barrier, unsigned short blocks)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(shared)),
                 "l"(&map), "r"(column), "r"(row), "r"(which.inner), "r"(which.outer),
                 "r"(shared_address(&barrier)), "h"(blocks)
                 : "memory");
}

// Makes this thread's ordinary stores to shared memory visible to the copy engine.
inline __device__ void fence_stores()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Starts to store a box. Stores are closed into groups, as asynchronous copies are.
// NOTE: what lies outside is left out by whole 16 bytes. Where a row of the matrix ends in the middle of 16,
// the others of them are written too.
inline __device__ void store(const TensorMap &map, unsigned row, unsigned column, const void *shared)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                 "r"(column), "r"(row), "r"(shared_address(shared))
                 : "memory");
}

inline __device__ void store(const TensorMap &map, unsigned row, unsigned column, InStack which,
                             const void *shared)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
                     &map),
                 "r"(column), "r"(row), "r"(which.inner), "r"(which.outer), "r"(shared_address(shared))
                 : "memory");
}

inline __device__ void commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until this thread's stores have been read from shared memory, but for its newest groups of them.
template <int NEWEST> inline __device__ void wait_until_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(NEWEST) : "memory");
}

} // namespace tensor_copy
