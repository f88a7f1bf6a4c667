// Tiny kernels, each of which has one kind of machine instruction several times over, so that counters of
// pipes and of classes say where that kind belongs. What the assembler makes of a line is read from the
// machine code; lines are chained, so that none is left out.

struct Words {
    unsigned x, y, z, w;
    unsigned long long p, q;
};

#define FOUR(text) text text text text
#define TIMES(text) FOUR(text) FOUR(text)

// %0 and %1 are 32 bits, %2 and %3 64 bits, %4 16 bits, all to be read and written; %5, %6 and %7 are 32, 64
// and 16 bits to read; %8 is an address in global memory and %9 one in shared memory.
#define OP(name, line)                                                                              \
    extern "C" __global__ void name(Words *data, unsigned *room)                                    \
    {                                                                                               \
        __shared__ __align__(128) unsigned tile[2048];                                              \
        Words *own = data + blockIdx.x * blockDim.x + threadIdx.x;                                  \
        unsigned x = own->x, y = own->y, z = own->z;                                                \
        unsigned long long p = own->p, q = own->q;                                                  \
        unsigned short h = x, i = y;                                                                \
        unsigned *global = room + 4 * (blockIdx.x * blockDim.x + threadIdx.x);                      \
        const unsigned shared = __cvta_generic_to_shared(tile) + 16 * threadIdx.x;                  \
        TIMES(asm volatile(line                                                                     \
                           : "+r"(x), "+r"(y), "+l"(p), "+l"(q), "+h"(h)                            \
                           : "r"(z), "l"(p), "h"(i), "l"(global), "r"(shared)                       \
                           : "memory");)                                                            \
        own->x = x + h, own->y = y, own->p = p, own->q = q;                                         \
    }

OP(nothing, "")

// -- floating point
OP(f32_add, "add.f32 %0, %0, %5;")
OP(f32_multiply, "mul.f32 %0, %0, %5;")
OP(f32_fma, "fma.rn.f32 %0, %0, %5, %1;")
OP(f32_fma_sat, "fma.rn.sat.f32 %0, %0, %5, %1;")
OP(f32_min, "min.f32 %0, %0, %5;")
OP(f32_set, "set.lt.u32.f32 %0, %0, %5;")
OP(f32_set_f32, "set.lt.f32.f32 %0, %0, %5;")
OP(f32_select, "{.reg .pred p; setp.lt.f32 p, %0, %5; selp.f32 %0, %1, %5, p;}")
OP(f32_slct, "slct.f32.f32 %0, %0, %5, %1;")
OP(f32_div, "div.rn.f32 %0, %0, %5;")
OP(f32_sqrt, "sqrt.rn.f32 %0, %0;")
OP(f32_exp, "ex2.approx.ftz.f32 %0, %0;")
OP(f32_sin, "sin.approx.ftz.f32 %0, %0;")
OP(f32_tanh, "tanh.approx.f32 %0, %0;")
OP(f32_class, "{.reg .pred p; testp.infinite.f32 p, %0; selp.b32 %0, %1, %5, p;}")
OP(f64_add, "add.f64 %2, %2, %6;")
OP(f64_multiply, "mul.f64 %2, %2, %6;")
OP(f64_fma, "fma.rn.f64 %2, %2, %6, %3;")
OP(f64_min, "min.f64 %2, %2, %3;")
OP(f64_set, "{.reg .pred p; setp.lt.f64 p, %2, %3; selp.b64 %2, %3, %2, p;}")
OP(f64_rcp, "rcp.approx.ftz.f64 %2, %2;")
OP(f64_div, "div.rn.f64 %2, %2, %3;")
OP(f16_add, "add.f16x2 %0, %0, %5;")
OP(f16_multiply, "mul.f16x2 %0, %0, %5;")
OP(f16_fma, "fma.rn.f16x2 %0, %0, %5, %1;")
OP(f16_fma_relu, "fma.rn.relu.f16x2 %0, %0, %5, %1;")
OP(f16_one, "fma.rn.f16 %4, %4, %7, %7;")
OP(f16_min, "min.f16x2 %0, %0, %5;")
OP(f16_set, "set.lt.f16x2.f16x2 %0, %0, %5;")
OP(f16_setp, "{.reg .pred p, q; setp.lt.f16x2 p|q, %0, %5; selp.b32 %0, %1, %5, p; selp.b32 %1, %0, %5, q;}")
OP(f16_exp, "ex2.approx.f16x2 %0, %0;")
OP(f16_tanh, "tanh.approx.f16x2 %0, %0;")
OP(bf16_add, "add.rn.bf16x2 %0, %0, %5;")
OP(bf16_multiply, "mul.rn.bf16x2 %0, %0, %5;")
OP(bf16_fma, "fma.rn.bf16x2 %0, %0, %5, %1;")
OP(bf16_min, "min.bf16x2 %0, %0, %5;")

// -- integers and bits
OP(add, "add.u32 %0, %0, %5;")
OP(add_three, "{.reg .u32 t; add.u32 t, %0, %1; add.u32 %1, t, %5; xor.b32 %0, %1, %5;}")
OP(add_64, "add.u64 %2, %2, %3;")
OP(carry, "{.reg .u32 t; add.cc.u32 %0, %0, %5; addc.u32 %1, %1, %0;}")
OP(multiply, "mul.lo.u32 %0, %0, %5;")
OP(multiply_add, "mad.lo.u32 %0, %0, %5, %1;")
OP(multiply_high, "mul.hi.u32 %0, %0, %5;")
OP(multiply_wide, "mul.wide.u32 %2, %0, %5; cvt.u32.u64 %0, %2;")
OP(multiply_add_wide, "mad.wide.u32 %2, %0, %5, %2; cvt.u32.u64 %0, %2;")
OP(multiply_24, "mul24.lo.u32 %0, %0, %5;")
OP(scale_add, "shl.b32 %1, %0, 3; add.u32 %0, %1, %5;")
OP(scale_add_64, "shl.b64 %3, %2, 3; add.u64 %2, %3, %6; xor.b64 %3, %2, %3;")
OP(logic, "lop3.b32 %0, %0, %5, %1, 0x2d;")
OP(logic_64, "xor.b64 %2, %2, %3; and.b64 %3, %2, %6;")
OP(shift, "shl.b32 %0, %0, %5; shr.s32 %0, %0, %1;")
OP(shift_64, "shl.b64 %2, %2, %5;")
OP(funnel, "shf.l.wrap.b32 %0, %0, %5, %1;")
OP(least, "min.s32 %0, %0, %5; max.u32 %0, %0, %1;")
OP(least_three, "{.reg .s32 t; min.s32 t, %0, %5; min.s32 %0, t, %1;}")
OP(min_relu, "min.s16x2.relu %0, %0, %5;")
OP(add_min, "{.reg .s32 t; add.s32 t, %0, %5; min.s32 %0, t, %1;}")
OP(absolute, "abs.s32 %0, %0; sub.s32 %0, %0, %5;")
OP(set, "set.lt.u32.s32 %0, %0, %5;")
OP(select, "{.reg .pred p; setp.lt.s32 p, %0, %5; selp.b32 %0, %1, %5, p;}")
OP(dot, "dp4a.u32.u32 %0, %0, %5, %1;")
OP(sad, "sad.u32 %0, %0, %5, %1;")
OP(sad_four, "vabsdiff4.u32.u32.u32.add %0, %0, %5, %1;")
OP(add_two, "add.u16x2 %0, %0, %5;")
OP(divide, "div.u32 %0, %0, %5;")
OP(count_ones, "popc.b32 %0, %0;")
OP(count_zeros, "clz.b32 %0, %0;")
OP(find_one, "bfind.u32 %0, %0;")
OP(reverse, "brev.b32 %0, %0;")
OP(extract, "bfe.s32 %0, %0, %1, %5;")
OP(extract_constant, "bfe.s32 %0, %0, 0, 9; add.u32 %0, %0, %5;")
OP(insert, "bfi.b32 %0, %0, %1, %5, 5;")
OP(mask, "bmsk.clamp.b32 %0, %0, %5;")
OP(extend_sign, "szext.clamp.s32 %0, %0, %5;")
OP(permute, "prmt.b32 %0, %0, %5, %1;")
OP(fns, "fns.b32 %0, %0, %1, %5;")

// -- conversions
OP(i32_to_f32, "cvt.rn.f32.s32 %0, %0;")
OP(i16_to_f32, "cvt.rn.f32.s16 %0, %4; cvt.u16.u32 %4, %0;")
OP(i8_to_f32, "cvt.rn.f32.u8 %0, %0;")
OP(i64_to_f32, "cvt.rn.f32.s64 %0, %2; mov.b64 %2, {%0, %1};")
OP(i32_to_f64, "cvt.rn.f64.s32 %2, %0; mov.b64 {%0, %1}, %2;")
OP(i32_to_f16, "cvt.rn.f16.s32 %4, %0; cvt.u32.u16 %0, %4;")
OP(f32_to_i32, "cvt.rzi.s32.f32 %0, %0;")
OP(f32_to_i64, "cvt.rzi.s64.f32 %2, %0; mov.b64 {%0, %1}, %2;")
OP(f64_to_i32, "cvt.rzi.s32.f64 %0, %2; mov.b64 %2, {%0, %1};")
OP(f64_to_i64, "cvt.rzi.s64.f64 %2, %2;")
OP(f16_to_i32, "cvt.rzi.s32.f16 %0, %4; cvt.u16.u32 %4, %0;")
OP(f32_to_f64, "cvt.f64.f32 %2, %0; mov.b64 {%0, %1}, %2;")
OP(f64_to_f32, "cvt.rn.f32.f64 %0, %2; mov.b64 %2, {%0, %1};")
OP(f16_to_f32, "cvt.f32.f16 %0, %4; cvt.u16.u32 %4, %0;")
OP(f32_to_f16, "cvt.rn.f16.f32 %4, %0; cvt.u32.u16 %0, %4;")
OP(f32_to_f16x2, "cvt.rn.f16x2.f32 %0, %0, %5;")
OP(f32_to_bf16x2, "cvt.rn.bf16x2.f32 %0, %0, %5;")
OP(f32_to_tf32, "cvt.rna.tf32.f32 %0, %0;")
OP(f32_to_e4m3, "cvt.rn.satfinite.e4m3x2.f32 %4, %0, %5; cvt.u32.u16 %0, %4;")
OP(e4m3_to_f16, "cvt.rn.f16x2.e4m3x2 %0, %4; cvt.u16.u32 %4, %0;")
OP(pack_s8, "cvt.pack.sat.s8.s32.b32 %0, %0, %5, %1;")
OP(rounded, "cvt.rni.f32.f32 %0, %0;")
OP(round_64, "cvt.rni.f64.f64 %2, %2;")
OP(round_16, "cvt.rni.f16.f16 %4, %4;")
OP(saturate, "cvt.sat.s8.s32 %0, %0; add.u32 %0, %0, %5;")
OP(f64_to_f16, "cvt.rn.f16.f64 %4, %2; cvt.u32.u16 %0, %4; mov.b64 %2, {%0, %1};")

// -- between lanes
OP(shuffle, "shfl.sync.bfly.b32 %0, %0, 1, 0x1f, 0xffffffff;")
OP(shuffle_index, "shfl.sync.idx.b32 %0, %0, %1, 0x1f, 0xffffffff;")
OP(vote, "{.reg .pred p; setp.lt.u32 p, %0, %5; vote.sync.ballot.b32 %0, p, 0xffffffff;}")
OP(vote_all, "{.reg .pred p, q; setp.lt.u32 p, %0, %5; vote.sync.all.pred q, p, 0xffffffff; selp.b32 %0, %1, %5, q;}")
OP(match, "match.any.sync.b32 %0, %0, 0xffffffff;")
OP(match_all, "match.all.sync.b32 %0, %0, 0xffffffff;")
OP(reduce, "redux.sync.add.s32 %0, %0, 0xffffffff;")
OP(elect, "{.reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, %1, %0, p;}")
OP(active, "{.reg .b32 t; activemask.b32 t; xor.b32 %0, %0, t;}")
OP(move_matrix, "movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;")

// -- memory
OP(global_load_8, "{.reg .u32 t; ld.volatile.global.u8 t, [%8]; xor.b32 %0, %0, t;}")
OP(global_load_16, "{.reg .u16 t; ld.volatile.global.u16 t, [%8]; xor.b16 %4, %4, t;}")
OP(global_load, "{.reg .u32 t; ld.volatile.global.u32 t, [%8]; xor.b32 %0, %0, t;}")
OP(global_load_64, "ld.volatile.global.u64 %3, [%8]; xor.b64 %2, %2, %3;")
OP(global_load_128, "{.reg .u64 t, u; ld.volatile.global.v2.u64 {t, u}, [%8]; xor.b64 %2, t, u;}")
OP(global_store_8, "st.volatile.global.u8 [%8], %0;")
OP(global_store, "st.volatile.global.u32 [%8], %0;")
OP(global_store_128, "st.volatile.global.v2.u64 [%8], {%2, %3};")
OP(generic_load, "{.reg .u32 t; .reg .u64 a; xor.b64 a, %8, %6; ld.volatile.u32 t, [a]; xor.b32 %0, %0, t;}")
OP(generic_store, "{.reg .u64 a; xor.b64 a, %8, %6; st.volatile.u32 [a], %0;}")
OP(generic_add, "{.reg .u64 a; xor.b64 a, %8, %6; atom.add.u32 %0, [a], %5;}")
OP(global_add, "atom.global.add.u32 %0, [%8], %5;")
OP(global_cas, "atom.global.cas.b32 %0, [%8], %5, %0;")
OP(global_exchange, "atom.global.exch.b32 %0, [%8], %5;")
OP(global_reduce, "red.global.add.u32 [%8], %5;")
OP(global_add_f32, "atom.global.add.f32 %0, [%8], %5;")
OP(shared_load, "{.reg .u32 t; ld.volatile.shared.u32 t, [%9]; xor.b32 %0, %0, t;}")
OP(shared_load_128, "{.reg .u64 t, u; ld.volatile.shared.v2.u64 {t, u}, [%9]; xor.b64 %2, t, u;}")
OP(shared_store, "st.volatile.shared.u32 [%9], %0;")
OP(shared_store_64, "st.volatile.shared.u64 [%9], %2;")
OP(shared_add, "atom.shared.add.u32 %0, [%9], %5;")
OP(shared_cas, "atom.shared.cas.b32 %0, [%9], %5, %0;")
OP(shared_reduce, "red.shared.add.u32 [%9], %5;")
OP(matrices, "{.reg .b32 a, b, c, d; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a, b, c, d}, [%9]; xor.b32 %0, %0, a; xor.b32 %0, %0, b; xor.b32 %0, %0, c; xor.b32 %0, %0, d;}")
OP(store_matrices, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%9], {%0, %1, %5, %0};")
OP(matrices_1, "{.reg .b32 a; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {a}, [%9]; st.volatile.shared.u32 [%9], a;}")
OP(matrices_2, "{.reg .b32 a, b; ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {a, b}, [%9]; st.volatile.shared.v2.u32 [%9], {a, b};}")
OP(store_matrices_1, "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%9], {%0};")
OP(store_matrices_2, "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%9], {%0, %1};")
OP(one_word_load, "{.reg .u32 t, u; shfl.sync.idx.b32 t, %9, 0, 0x1f, 0xffffffff; ld.volatile.shared.u32 u, [t]; xor.b32 %0, %0, u;}")
OP(one_word_store, "{.reg .u32 t; shfl.sync.idx.b32 t, %9, 0, 0x1f, 0xffffffff; st.volatile.shared.u32 [t], %0;}")
OP(one_word_add, "{.reg .u32 t; shfl.sync.idx.b32 t, %9, 0, 0x1f, 0xffffffff; atom.shared.inc.u32 %0, [t], %5;}")
OP(copy, "cp.async.ca.shared.global [%9], [%8], 4; cp.async.commit_group; cp.async.wait_group 0;")
OP(copy_past, "cp.async.cg.shared.global [%9], [%8], 16; cp.async.commit_group; cp.async.wait_all;")
OP(prefetch, "prefetch.global.L2 [%8];")
OP(discard, "prefetch.global.L1 [%8];")
OP(fence_block, "membar.cta;")
OP(fence_gpu, "membar.gl;")
OP(fence_system, "membar.sys;")
OP(fence_release, "fence.acq_rel.gpu;")
OP(fence_proxy, "fence.proxy.async;")
OP(fence_cluster, "fence.acq_rel.cluster;")
OP(fence_barriers, "fence.mbarrier_init.release.cluster;")
OP(fence_maps, "fence.proxy.tensormap::generic.release.gpu;")
OP(acquire, "{.reg .u32 t; ld.acquire.gpu.global.u32 t, [%8]; xor.b32 %0, %0, t;}")
OP(release, "st.release.gpu.global.u32 [%8], %0;")
OP(isspace, "{.reg .pred p; isspacep.shared p, %2; selp.b32 %0, %1, %5, p; add.u64 %2, %2, 1;}")

// -- special registers, waiting
OP(lane, "{.reg .u32 t; mov.u32 t, %%laneid; xor.b32 %0, %0, t;}")
OP(warp, "{.reg .u32 t; mov.u32 t, %%warpid; xor.b32 %0, %0, t;}")
OP(smid, "{.reg .u32 t; mov.u32 t, %%smid; xor.b32 %0, %0, t;}")
OP(clock, "{.reg .u32 t; mov.u32 t, %%clock; xor.b32 %0, %0, t;}")
OP(clock_64, "{.reg .u64 t; mov.u64 t, %%clock64; xor.b64 %2, %2, t;}")
OP(timer, "{.reg .u64 t; mov.u64 t, %%globaltimer; xor.b64 %2, %2, t;}")
OP(lanemask, "{.reg .u32 t; mov.u32 t, %%lanemask_lt; xor.b32 %0, %0, t;}")
OP(lanemask_equal, "{.reg .u32 t; mov.u32 t, %%lanemask_eq; xor.b32 %0, %0, t;}")
OP(lanemask_greater, "{.reg .u32 t; mov.u32 t, %%lanemask_ge; xor.b32 %0, %0, t;}")
OP(thread_z, "{.reg .u32 t; mov.u32 t, %%tid.z; xor.b32 %0, %0, t;}")
OP(block_z, "{.reg .u32 t; mov.u32 t, %%ctaid.z; xor.b32 %0, %0, t;}")
OP(how_many_sms, "{.reg .u32 t; mov.u32 t, %%nsmid; xor.b32 %0, %0, t;}")
OP(shared_size, "{.reg .u32 t; mov.u32 t, %%total_smem_size; xor.b32 %0, %0, t;}")
OP(cluster_id, "{.reg .u32 t; mov.u32 t, %%clusterid.x; xor.b32 %0, %0, t;}")
OP(grid_id, "{.reg .u64 t; mov.u64 t, %%gridid; xor.b64 %2, %2, t;}")
OP(clock_high, "{.reg .u32 t; mov.u32 t, %%clock_hi; xor.b32 %0, %0, t;}")
OP(barrier, "bar.sync 0;")
OP(barrier_count, "bar.red.popc.u32 %0, 0, 1;")
OP(barrier_or, "{.reg .pred p; setp.ne.u32 p, %0, %5; bar.red.or.pred p, 0, p; selp.b32 %0, %1, %5, p;}")
OP(warp_barrier, "bar.warp.sync 0xffffffff;")
OP(warp_barrier_some, "{.reg .b32 t; activemask.b32 t; bar.warp.sync t;}")
OP(sleep, "nanosleep.u32 1;")
OP(sleep_long, "nanosleep.u32 %5;")
OP(pmevent, "pmevent 1;")
OP(cluster_barrier, "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;")
OP(cluster_rank, "{.reg .u32 t; mov.u32 t, %%cluster_ctarank; xor.b32 %0, %0, t;}")
OP(dependents, "griddepcontrol.launch_dependents;")
OP(dependency, "griddepcontrol.wait;")
OP(map_shared, "{.reg .u32 t; mapa.shared::cluster.u32 t, %9, 0; ld.shared::cluster.u32 t, [t]; xor.b32 %0, %0, t;}")

// -- products of matrices
OP(mma_f16, "{.reg .b32 a, b; mov.b32 a, %5; mov.b32 b, %5; mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%5, a, b, %5}, {%5, a}, {%0, %1};}")
OP(mma_f32, "{.reg .f32 c, d; mov.b32 c, %0; mov.b32 d, %1; mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c, d, c, d}, {%5, %5, %5, %5}, {%5, %5}, {c, d, d, c}; mov.b32 %0, c; mov.b32 %1, d;}")
OP(mma_half, "{.reg .f32 c, d; mov.b32 c, %0; mov.b32 d, %1; mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {c, d, c, d}, {%5, %5}, {%5}, {c, d, d, c}; mov.b32 %0, c; mov.b32 %1, d;}")
OP(mma_half_f16, "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%5, %5}, {%5}, {%0, %1};")
OP(mma_bf16, "{.reg .f32 c, d; mov.b32 c, %0; mov.b32 d, %1; mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c, d, c, d}, {%5, %5, %5, %5}, {%5, %5}, {c, d, d, c}; mov.b32 %0, c; mov.b32 %1, d;}")
OP(mma_s8_small, "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%5}, {%5}, {%0, %1};")
OP(mma_f64_large, "{.reg .f64 c, d, a; mov.b64 c, %2; mov.b64 d, %3; mov.b64 a, %6; mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {c, d, c, d}, {a, a}, {a}, {c, d, d, c}; mov.b64 %2, c; mov.b64 %3, d;}")
OP(mma_tf32, "{.reg .f32 c, d; mov.b32 c, %0; mov.b32 d, %1; mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {c, d, c, d}, {%5, %5, %5, %5}, {%5, %5}, {c, d, d, c}; mov.b32 %0, c; mov.b32 %1, d;}")
OP(mma_s8, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %0, %1}, {%5, %5, %5, %5}, {%5, %5}, {%0, %1, %1, %0};")
OP(mma_f64, "{.reg .f64 c, d, a; mov.b64 c, %2; mov.b64 d, %3; mov.b64 a, %6; mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {c, d}, {a}, {a}, {c, d}; mov.b64 %2, c; mov.b64 %3, d;}")
OP(mma_b1, "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %0, %1}, {%5, %5, %5, %5}, {%5, %5}, {%0, %1, %1, %0};")
OP(mma_sparse, "{.reg .f32 c, d; mov.b32 c, %0; mov.b32 d, %1; mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c, d, c, d}, {%5, %5}, {%5, %5}, {c, d, d, c}, %5, 0x0; mov.b32 %0, c; mov.b32 %1, d;}")

#define WARPGROUP(name, shape)                                                                      \
    OP(name, "{.reg .b64 m; .reg .b32 t; .reg .pred y; setp.eq.u32 y, 0, 0; shr.u32 t, %9, 4; and.b32 t, t, 0x3fc0; "                   \
             "cvt.u64.u32 m, t; or.b64 m, m, 0x0000000800080000; wgmma.fence.sync.aligned; " shape  \
             "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;}")
WARPGROUP(wgmma_f16, "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0, %1}, m, m, y, 1, 1, 0, 0;")
WARPGROUP(wgmma_f16_from_registers, "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0, %1}, {%5, %5, %5, %5}, m, y, 1, 1, 0;")
WARPGROUP(wgmma_e4m3, "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e4m3 {%0, %1}, m, m, y, 1, 1;")
WARPGROUP(wgmma_s8, "{.reg .b32 a, b; wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%0, %1, a, b}, m, m, y; mov.b32 %0, a;}")
WARPGROUP(wgmma_b1, "{.reg .b32 a, b; wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%0, %1, a, b}, m, m, y; mov.b32 %0, a;}")
WARPGROUP(wgmma_tf32, "{.reg .f32 a, b, c, d; wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {a, b, c, d}, m, m, y, 1, 1; mov.b32 %0, a;}")

// -- barriers that count arrivals, bulk copies
OP(arrive, "mbarrier.init.shared.b64 [%9], 1; mbarrier.arrive.shared.b64 %3, [%9]; mbarrier.inval.shared.b64 [%9];")
OP(arrive_expect, "mbarrier.init.shared.b64 [%9], 1; mbarrier.arrive.expect_tx.shared.b64 %3, [%9], 0; mbarrier.inval.shared.b64 [%9];")
OP(arrive_wait, "{.reg .pred p; mbarrier.init.shared.b64 [%9], 1; mbarrier.arrive.shared.b64 %3, [%9]; mbarrier.try_wait.parity.shared.b64 p, [%9], 0; selp.b32 %0, %1, %5, p; mbarrier.inval.shared.b64 [%9];}")
OP(arrive_test, "{.reg .pred p; mbarrier.init.shared.b64 [%9], 1; mbarrier.arrive.shared.b64 %3, [%9]; mbarrier.test_wait.shared.b64 p, [%9], %3; selp.b32 %0, %1, %5, p; mbarrier.inval.shared.b64 [%9];}")
OP(pending, "mbarrier.init.shared.b64 [%9], 1; mbarrier.arrive.shared.b64 %3, [%9]; mbarrier.pending_count.b64 %0, %3; mbarrier.inval.shared.b64 [%9];")
OP(bulk_store, "cp.async.bulk.global.shared::cta.bulk_group [%8], [%9], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;")
OP(bulk_reduce, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%8], [%9], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;")
OP(bulk_prefetch, "cp.async.bulk.prefetch.L2.global [%8], 16;")

// -- guards, branches and calls; %0 differs from lane to lane
OP(guarded, "{.reg .pred p; setp.lt.u32 p, %5, 20; @p fma.rn.f32 %0, %0, %0, %1;}")
OP(guarded_load, "{.reg .u32 t; .reg .pred p; mov.u32 t, 0; setp.lt.u32 p, %5, 20; @p ld.volatile.global.u32 t, [%8]; xor.b32 %0, %0, t;}")

extern "C" __global__ void divergent(Words *data, unsigned *room)
{
    Words *own = data + blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = own->x;
    const unsigned turns = own->z;
#pragma unroll 1
    for (unsigned turn = 0; turn < turns; turn++) {
        if ((x + turn) % 3 == 0) x = atomicAdd(room + threadIdx.x, x);
        else x = x * 5 + 1;
    }
    own->x = x;
}

extern "C" __global__ void leaving(Words *data, unsigned *room)
{
    Words *own = data + blockIdx.x * blockDim.x + threadIdx.x;
    if (own->z > 20) return;
    room[threadIdx.x] = own->x * own->y;
    if (own->z > 10) return;
    room[threadIdx.x] += 3;
}

extern "C" __device__ __noinline__ unsigned factorial(unsigned n) { return n < 2 ? 1 : n * factorial(n - 1) + n; }

extern "C" __global__ void calling(Words *data, unsigned *room)
{
    Words *own = data + blockIdx.x * blockDim.x + threadIdx.x;
    own->x = factorial(own->z % 8);
}

extern "C" __global__ void local(Words *data, unsigned *room)
{
    Words *own = data + blockIdx.x * blockDim.x + threadIdx.x;
    volatile unsigned kept[16];
    unsigned x = own->x;
    for (unsigned i = 0; i < 16; i++) kept[(x + i) % 16] = i + x;
    for (unsigned i = 0; i < 16; i++) x += kept[(x ^ i) % 16];
    own->x = x;
}

__constant__ unsigned table[64];

extern "C" __global__ void constants(Words *data, unsigned *room)
{
    Words *own = data + blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = own->x;
    for (unsigned i = 0; i < 8; i++) x = table[(x + i) % 64];
    for (unsigned i = 0; i < 8; i++) x += table[(room[i] + i) % 64];
    own->x = x;
}

// What is alike for all threads the assembler does once for a warp.
extern "C" __global__ void uniform(Words *data, unsigned *room, unsigned a, unsigned b, unsigned long long c)
{
    unsigned x = a;
    for (unsigned i = 0; i < b; i++) {
        x = x * 5 + (x >> (i & 7)) ^ (x << 3);
        x = __brev(x) + (x > a ? b : i);
        x = min(x, b + i) + __popc(x) + __clz(x);
        c = (c << 3) + x;
        x = __byte_perm(x, b, i) & a;
    }
    const unsigned own = blockIdx.x * blockDim.x + threadIdx.x;
    data[own].x = x + blockIdx.x * b + (c >> 7);
    data[own].w = (b >> 2) * blockIdx.x + (a & 12);
}

extern "C" __global__ void uniform_vote(Words *data, unsigned *room, unsigned a, unsigned b)
{
    const unsigned own = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = data[own].x;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned chosen = __ballot_sync(~0u, x > i);
        if (threadIdx.x % 32 == __ffs(chosen) - 1) x = atomicAdd(room, __popc(chosen));
    }
    atomicAdd(room + 5, 1);
    data[own].x = x;
}

extern "C" __global__ void predicates(Words *data, unsigned *room)
{
    Words *own = data + blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = own->x, y = own->y, z = own->z;
    for (unsigned i = 0; i < 4; i++) {
        const bool a = x < y, b = y < z, c = z < x, d = x == z;
        const bool e = (a && !b) || (c && d), f = (a != b) && (c != d);
        x = room[e ? x % 64 : z % 64], y += (e ^ f) ? 3 : 7, z ^= f ? x : y;
        if ((a != f) && (e || b != d)) atomicAdd(room + 64, x);
    }
    own->x = x + y + z;
}

extern "C" __global__ void bulk_load(Words *data, unsigned *room)
{
    __shared__ __align__(128) unsigned long long barrier;
    __shared__ __align__(128) unsigned tile[64];
    const unsigned at = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(at) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to),
                     "l"(room), "r"(at)
                     : "memory");
    }
    asm volatile("{.reg .pred p;\nagain: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;\n@!p bra again;}" ::"r"(at) : "memory");
    data[blockIdx.x * blockDim.x + threadIdx.x].x = tile[threadIdx.x % 64];
}

// Copies by a tensor map: 8 rows of 16 words, to shared memory and back, and added.
struct alignas(64) Map {
    char bytes[128];
};

extern "C" __global__ void tensor_copies(const __grid_constant__ Map map)
{
    __shared__ __align__(128) unsigned long long barrier;
    __shared__ __align__(128) unsigned tile[128];
    const unsigned at = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile);
    const unsigned long long from = reinterpret_cast<unsigned long long>(&map);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(from) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" ::"r"(at) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                     ::"r"(to), "l"(from), "r"(at), "r"(0), "r"(0) : "memory");
    }
    __syncthreads();
    asm volatile("{.reg .pred p;\nagain: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;\n@!p bra again;}" ::"r"(at) : "memory");
    tile[threadIdx.x % 128] += 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                     ::"l"(from), "r"(to), "r"(0), "r"(0) : "memory");
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%2, %3}], [%1];"
                     ::"l"(from), "r"(to), "r"(0), "r"(0) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

extern "C" __global__ void __launch_bounds__(384, 1) registers(Words *data, unsigned *room)
{
    unsigned x = data[threadIdx.x].x;
    if (threadIdx.x / 128 == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
        x += 5;
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" ::: "memory");
        x *= 7;
    }
    data[threadIdx.x].x = x;
}

extern "C" __global__ void __cluster_dims__(2) cluster_stores(Words *data, unsigned *room)
{
    __shared__ __align__(16) unsigned long long barrier;
    __shared__ __align__(16) unsigned tile[256];
    const unsigned at = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile + threadIdx.x);
    unsigned rank, there, word;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
    tile[threadIdx.x] = rank;
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x == 0) asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 2048;" ::"r"(at) : "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(rank ^ 1));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(word) : "r"(at), "r"(rank ^ 1));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(there), "r"(rank), "r"(word) : "memory");
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(there), "r"(rank), "r"(word) : "memory");
    asm volatile("{.reg .pred p;\nagain: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;\n@!p bra again;}" ::"r"(at) : "memory");
    unsigned x;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(there) : "memory");
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(x + 1) : "memory");
    asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(x) : "r"(there), "r"(x) : "memory");
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    data[blockIdx.x * blockDim.x + threadIdx.x].x = x;
}
