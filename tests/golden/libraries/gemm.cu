// CuTe, of CUTLASS: float16 through cp.async, swizzled shared memory, ldmatrix and mma; b is given as n × k.
#include <cuda/std/tuple>
#include <cuda/std/utility>
namespace std { using namespace cuda::std; }  // what CUTLASS takes from a host's headers
#include <cute/tensor.hpp>
#include <cutlass/numeric_types.h>
using namespace cute;
using Half = cutlass::half_t;

extern "C" __global__ void gemm(const Half *a, const Half *b, float *c, int m, int n, int k) {
    using Atom = decltype(composition(Swizzle<2, 3, 3>{}, Layout<Shape<_8, _32>, Stride<_32, _1>>{}));
    using Stages = decltype(tile_to_shape(Atom{}, Shape<_64, _32, _3>{}));
    __shared__ alignas(128) Half memory[2 * cosize_v<Stages>];
    auto tile = Shape<_64, _64, _32>{};
    auto here = make_coord(blockIdx.x, blockIdx.y, _);
    auto mine_a = local_tile(make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{})), tile, here, Step<_1, X, _1>{});
    auto mine_b = local_tile(make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{})), tile, here, Step<X, _1, _1>{});
    auto mine_c = local_tile(make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(n, _1{})), tile, here, Step<_1, _1, X>{});
    auto shared_a = make_tensor(make_smem_ptr(memory), Stages{});
    auto shared_b = make_tensor(make_smem_ptr(memory + cosize_v<Stages>), Stages{});

    using Copy = Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, Half>;
    auto bring = make_tiled_copy(Copy{}, Layout<Shape<_32, _4>, Stride<_4, _1>>{}, Layout<Shape<_1, _8>>{});
    auto part = bring.get_slice(threadIdx.x);
    auto from_a = part.partition_S(mine_a);
    auto to_a = part.partition_D(shared_a);
    auto from_b = part.partition_S(mine_b);
    auto to_b = part.partition_D(shared_b);

    auto mma = make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<_2, _2>>{}, Tile<_32, _32, _16>{});
    auto thread = mma.get_slice(threadIdx.x);
    auto sums = thread.partition_fragment_C(mine_c);
    auto frag_a = thread.partition_fragment_A(shared_a(_, _, 0));
    auto frag_b = thread.partition_fragment_B(shared_b(_, _, 0));
    auto load_a = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, Half>{}, mma);
    auto load_b = make_tiled_copy_B(Copy_Atom<SM75_U32x4_LDSM_N, Half>{}, mma);
    auto rows_a = load_a.get_slice(threadIdx.x).partition_S(shared_a);
    auto rows_b = load_b.get_slice(threadIdx.x).partition_S(shared_b);
    auto into_a = load_a.get_slice(threadIdx.x).retile_D(frag_a);
    auto into_b = load_b.get_slice(threadIdx.x).retile_D(frag_b);
    clear(sums);

    int count = size<3>(from_a);
    auto fetch = [&](int t) {
        if (t < count) {
            copy(bring, from_a(_, _, _, t), to_a(_, _, _, t % 3));
            copy(bring, from_b(_, _, _, t), to_b(_, _, _, t % 3));
        }
        cp_async_fence();
    };
    fetch(0), fetch(1);
    for (int t = 0; t < count; t++) {
        cp_async_wait<1>();
        __syncthreads();
        fetch(t + 2);
        copy(load_a, rows_a(_, _, _, t % 3), into_a);
        copy(load_b, rows_b(_, _, _, t % 3), into_b);
        cute::gemm(mma, frag_a, frag_b, sums);
    }
    auto out = thread.partition_C(mine_c);
    copy(sums, out);
}
