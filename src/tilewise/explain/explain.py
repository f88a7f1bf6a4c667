"""tw.explain: what binds a launch, and pictures of what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from tilewise.errors import ArgumentError
from tilewise.explain.climb import Climb, explain_ladder
from tilewise.explain.explanation import Explanation, explain_plan
from tilewise.explain.subject import Subject
from tilewise.instruments.recording import Recording
from tilewise.kernel import Kernel
from tilewise.ladder import Ladder
from tilewise.plan import Plan

__all__ = ["explain"]


@overload
def explain(what: Ladder, *, gpu: str | None = None) -> Climb: ...


@overload
def explain(what: Plan, *, element: tuple[int, int] | None = None) -> Explanation: ...


@overload
def explain(
    what: Kernel,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any] = (),
    shared: int = 0,
    cluster: int | Sequence[int] | None = None,
    *,
    gpu: str | None = None,
    element: tuple[int, int] | None = None,
    timeout: float | None = None,
    cooperative: bool = False,
) -> Explanation: ...


def explain(
    what: Plan | Kernel | Ladder,
    grid: int | Sequence[int] | None = None,
    block: int | Sequence[int] | None = None,
    args: Sequence[Any] = (),
    shared: int = 0,
    cluster: int | Sequence[int] | None = None,
    *,
    gpu: str | None = None,
    element: tuple[int, int] | None = None,
    timeout: float | None = None,
    cooperative: bool = False,
) -> Explanation | Climb:
    """Explain a plan, a launch of a kernel of your own, or the whole ladder, by running it on the emulator.

    ``element``, a row and a column of C, has the block recorded that computes it, in place of the first. Of a kernel,
    the arguments are those of a call; arrays of two axes are the matrices that pictures speak of.

    >>> import tilewise as tw
    >>> found = tw.explain(tw.ladder["05_tiled_conflicted"].plan(64, 64, 64, gpu="h200"))
    >>> found.verdict[1]
    'shared bank conflicts: 0.9164 µs without, 6.61 times less'
    """
    if isinstance(what, Ladder | Plan):
        if grid is not None or block is not None or args or shared or cluster is not None:
            raise ArgumentError(
                "grid, block, args, shared and cluster", "must be left out: they are of kernels"
            )
        if timeout is not None or cooperative or (gpu is not None and isinstance(what, Plan)):
            rule = "must be left out: a plan has its GPU, and the others are of kernels"
            raise ArgumentError("gpu, timeout and cooperative", rule)
        if isinstance(what, Plan):
            return explain_plan(what, element)
        if element is not None:
            raise ArgumentError("element", "must be left out for the ladder", element)
        return explain_ladder(gpu or "h200")
    if not isinstance(what, Kernel):
        raise ArgumentError(
            "what",
            "must be a Plan, a Kernel or tw.ladder",
            type(what).__name__,
            "tw.plan(m, n, k) makes a plan",
        )
    if grid is None or block is None:
        raise ArgumentError("grid and block", "must be given for a kernel")
    return _explain_launch(what, (grid, block, args, shared, cluster, gpu, timeout), cooperative, element)


def _explain_launch(
    kernel: Kernel, launch: tuple[Any, ...], cooperative: bool, element: tuple[int, int] | None
) -> Explanation:
    # NOTE: the recording comes first, as a profile changes the arrays, and a recording does not.
    recording = kernel.record(*launch, cooperative=cooperative)

    def record_again(blocks: Sequence[int], wanted: tuple[int, int] | None) -> Recording:
        role = recording.roles.get("c")
        if wanted is None:
            return kernel.record(*launch, cooperative=cooperative, blocks=blocks)
        if role is None:
            rule = "must be of a matrix that the kernel writes; none is known"
            raise ArgumentError("element", rule, wanted)
        return kernel.record(*launch, cooperative=cooperative, element=(role, *wanted))

    shown = recording if element is None else record_again((), element)
    counted = kernel.profile(*launch, cooperative=cooperative)
    grid, block = recording.launch.grid, recording.launch.block
    title = f"{kernel.name}, grid {grid}, block {block}, on {counted.gpu.title}"
    call = f"tw.explain(kernel, {launch[0]}, {launch[1]}, args)"
    return Explanation(Subject(title, call, counted, shown, record_again, None, element))
