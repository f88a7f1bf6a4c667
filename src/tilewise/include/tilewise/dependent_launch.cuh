// Launches that begin while the one before them on their stream ends (compute capability 9.0). A launch that was not
// asked to do so does neither: both are free then. Before 9.0 there is nothing to do.
#pragma once

namespace dependent_launch {

// Waits until the launches before this one are over and what they wrote is there. What a launch does before that must
// not touch memory that they use. What follows from arguments alone is computed before: a few divisions take 0.1 µs.
inline __device__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same behind all that stands before it. `computed` is something of that, and never ~0.
// NOTE: the assembler moves a wait to the begin of the kernel, ahead of all that needs no memory, but over no branch.
inline __device__ void wait_for_previous(unsigned computed)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t"
                 ".reg .pred never;\n\t"
                 "setp.eq.u32 never, %0, 0xffffffff;\n\t"
                 "@never exit;\n\t"
                 "griddepcontrol.wait;\n\t"
                 "}" ::"r"(computed)
                 : "memory");
#endif
}

// Lets the next launch begin, once all blocks of this one have said so; it waits for this one in its turn.
inline __device__ void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

} // namespace dependent_launch
