"""``tilewise plan``: which kernel multiplies a problem best on a GPU, and what the others would take."""

from __future__ import annotations

from argparse import Namespace

from tilewise.cli import draw
from tilewise.plan import Plan
from tilewise.planner import (
    PlanVerdict,
    Refusal,
    choose,
    judge_plan,
    list_plans,
    operands_of,
    plan_rows,
    target_of,
)

__all__ = ["plan"]


def plan(args: Namespace) -> int:
    """``tilewise plan``"""
    operands = operands_of(
        args.m,
        args.n,
        args.k,
        dtype=args.dtype,
        batch=args.batch,
        result=args.result,
        layout=args.layout,
        arithmetic=args.arithmetic,
        b_dtype=args.b_dtype,
    )
    target, copy = target_of(args.gpu), False if args.no_copy else None
    plans, refusals = list_plans(operands, target, copy=copy)
    if not plans:
        choose(operands, target, copy=copy)  # says why
    if args.save:
        plans[0].save(args.save)
    verdict = judge_plan(operands, target, copy=copy)
    if args.json:
        draw.write_json(
            "plan",
            {
                "verdict": verdict.to_dict(),
                "plans": [one.to_dict() for one in plans[: args.most]],
                "refused": [{"kernel": one.kernel, "why": str(one.error)} for one in refusals],
            },
        )
    else:
        _print(verdict, plans, refusals, args.most)
    return 0


def _print(verdict: PlanVerdict, plans: list[Plan], refusals: list[Refusal], most: int) -> None:
    first, *more = verdict.lines()
    draw.heading(first)
    for line in more:
        draw.line(line, hanging=4)
    draw.line()
    draw.line(str(plans[0]))
    draw.line()
    draw.heading(f"the plans considered, the fastest first ({min(most, len(plans))} of {len(plans)})")
    rows = [
        [
            row.kernel,
            row.block,
            row.settings,
            f"{row.microseconds:,.1f}",
            f"{row.tflops:,.1f}",
            row.bound,
            row.copies,
        ]
        for row in plan_rows(plans[:most])
    ]
    columns = ["kernel", "block tile", "settings", "predicted µs", "TFLOP/s", "bound by", "copies"]
    draw.table(columns, rows, right=["predicted µs", "TFLOP/s"])
    if refusals:
        draw.line()
        draw.heading("kernels that cannot")
        draw.facts({one.kernel: str(one.error) for one in refusals})
