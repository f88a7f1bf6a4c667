"""The planner: which kernel multiplies a problem best on a GPU, under which settings, and why."""

from tilewise.plan import Plan
from tilewise.planner.choose import Candidate, Refusal, choose, list_candidates
from tilewise.planner.cost import Prediction
from tilewise.planner.listing import PlanRow, list_plans, operands_of, plan, plan_rows
from tilewise.planner.target import Target, target_of, target_of_device
from tilewise.planner.verdict import PlanGain, PlanVerdict, judge_plan

__all__ = [
    "Candidate",
    "Plan",
    "PlanGain",
    "PlanRow",
    "PlanVerdict",
    "Prediction",
    "Refusal",
    "Target",
    "choose",
    "judge_plan",
    "list_candidates",
    "list_plans",
    "operands_of",
    "plan",
    "plan_rows",
    "target_of",
    "target_of_device",
]
