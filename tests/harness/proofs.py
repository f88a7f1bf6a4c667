"""The file of tests that proves each operation: the one to look into, and to add to."""

from __future__ import annotations

__all__ = ["PROOFS"]

_VIDEO = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset")
_BARRIERS = ("bar", "bar.cta", "barrier", "barrier.cta")
_BY_FILE = {
    "instructions/test_approximate.py": "sin cos lg2 ex2 tanh rsqrt",
    "instructions/test_atomics.py": "atom red createpolicy membar",
    "instructions/test_barriers.py": " ".join(
        ["bar.warp.sync", *(f"{name}.{verb}" for name in _BARRIERS for verb in ("sync", "red", "arrive"))]
    ),
    "instructions/test_bits.py": "and or xor not cnot lop3 shl shr shf popc clz bfind fns brev bfe bfi bmsk szext prmt cvt.pack clmad "
    + " ".join(
        [
            "vadd vsub vabsdiff vmin vmax vset vshl vshr vmad",
            *(f"{name}{n}" for name in _VIDEO for n in (2, 4)),
        ]
    ),
    "instructions/test_bulk.py": "cp.async.bulk cp.reduce.async.bulk cp.async.bulk.prefetch cp.async.bulk.prefetch.tensor "
    "cp.async.bulk.commit_group cp.async.bulk.wait_group st.async red.async tensormap.replace tensormap.cp_fenceproxy",
    "running/test_calls.py": "call ret",
    "instructions/test_clusters.py": "barrier.cluster.arrive barrier.cluster.wait mapa getctarank fence fence.proxy setmaxnreg",
    "instructions/test_conversions.py": "cvt",
    "instructions/test_copies.py": "cp.async.ca cp.async.cg cp.async.commit_group cp.async.wait_group",
    "running/test_divergence.py": "bra brx.idx exit",
    "instructions/test_floats.py": "fma rcp sqrt copysign testp",
    "instructions/test_hardware.py": "add addc sub subc mul mad madc mul24 mad24 sad div rem min max neg abs dp4a dp2a",
    "instructions/test_matrix.py": "ldmatrix stmatrix movmatrix mma mma.sp mma.sp::ordered_metadata",
    "instructions/test_mbarriers.py": "cp.async.mbarrier.arrive mbarrier.init mbarrier.inval mbarrier.arrive mbarrier.arrive_drop "
    "mbarrier.expect_tx mbarrier.complete_tx mbarrier.test_wait mbarrier.try_wait mbarrier.pending_count "
    "mbarrier.check_layout",
    "kernels/test_mma_kernel.py": "cp.async.wait_all",
    "instructions/test_moves.py": "mov selp slct setp set",
    "running/test_overlap.py": "griddepcontrol.launch_dependents griddepcontrol.wait clusterlaunchcontrol.try_cancel "
    "clusterlaunchcontrol.query_cancel",
    "instructions/test_spaces.py": "ld st st.bulk cvta isspacep",
    "instructions/test_system.py": "ldu prefetch prefetchu discard applypriority pmevent membar.proxy nanosleep trap brkpt",
    "instructions/test_tensor_copies.py": "cp.async.bulk.tensor cp.reduce.async.bulk.tensor",
    "instructions/test_warp.py": "shfl shfl.sync vote vote.sync match.any.sync match.all.sync redux.sync elect.sync activemask",
    "instructions/test_wgmma.py": "wgmma.mma_async wgmma.mma_async.sp wgmma.fence wgmma.commit_group wgmma.wait_group",
    "instructions/test_wmma.py": "wmma.load.a wmma.load.b wmma.load.c wmma.mma wmma.store.d",
}
PROOFS = {operation: file for file, operations in _BY_FILE.items() for operation in operations.split()}
