"""Every legal way to multiply a problem, with the time that the cost model predicts; the best one first.

What was measured to be the fastest on such a GPU comes before all predictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewise.errors import ArgumentError
from tilewise.gpus import arch_capability
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.arrange import ways_to_read
from tilewise.kernels.gemm.real_form import is_complex, refuse_complex
from tilewise.kernels.spec import KernelSpec, Settings
from tilewise.operands import Operands
from tilewise.plan import Plan
from tilewise.planner.cost import Prediction, copy_seconds, predict
from tilewise.planner.measured import recall
from tilewise.planner.target import Target
from tilewise.problem import COMPLEX
from tilewise.toolchain.compile import describe_archs

__all__ = ["Candidate", "Refusal", "choose", "list_candidates"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel with settings that can multiply the operands; ``copies`` names operands that are copied first."""

    spec: KernelSpec
    settings: Settings
    operands: Operands  # as the kernel reads them: after the copies
    copies: tuple[str, ...]
    prediction: Prediction
    measured: float | None = None  # seconds, of the plan that was measured to be the fastest

    def plan(self, operands: Operands, target: Target) -> Plan:
        """The plan that this candidate is, for the operands as the caller has them."""
        made = self.spec.plan(self.operands, target.name, self.settings)
        predicted = self.prediction
        return replace(
            made,
            problem=operands.problem(),
            copies=self.copies,
            seconds=predicted.seconds,
            bound=predicted.bound,
            measured=self.measured,
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A kernel that cannot multiply the operands, and why."""

    kernel: str
    error: ArgumentError


def list_candidates(
    operands: Operands,
    target: Target,
    *,
    specs: Sequence[KernelSpec] | None = None,
    given: Mapping[str, object] | None = None,
    copy: bool | None = None,
) -> tuple[list[Candidate], list[Refusal]]:
    """Every kernel and setting that can multiply the operands, the fastest first; and the refusals of the other
    kernels.

    ``specs`` are the kernels to consider (None: all practical ones), ``given`` settings that are fixed, ``copy``
    False excludes plans that copy an operand first.
    """
    considered = specs if specs is not None else _practical_on(target.arch, operands)
    found: list[Candidate] = []
    refused: list[Refusal] = []
    for spec in considered:
        made, error = _of_spec(spec, operands, target, given or {}, copy)
        found += made
        if error is not None and not made:
            refused.append(Refusal(spec.name, error))
    found.sort(key=lambda candidate: candidate.prediction.seconds)
    return _measured_first(found, operands, target), refused


def _measured_first(found: list[Candidate], operands: Operands, target: Target) -> list[Candidate]:
    """The same with the plan in front that was measured to be the fastest, if it is among them."""
    fastest = recall(operands, target)
    if fastest is None:
        return found
    kept = (fastest.kernel, dict(fastest.settings), fastest.copies)
    for i, one in enumerate(found):
        if (one.spec.name, dict(one.settings), one.copies) == kept:
            return [replace(one, measured=fastest.seconds), *found[:i], *found[i + 1 :]]
    return found


def _practical_on(arch: str, operands: Operands) -> list[KernelSpec]:
    """The kernels to consider: those superseded on an arch only for what is given by pointers and lies as no other
    kernel for tensor cores reads it, since that cannot be copied first."""
    practical, part = [spec for spec in KERNELS.values() if spec.practical], _part(operands)
    current = [spec for spec in practical if not spec.superseded(part, arch)]
    if operands.by_pointers and not any(_reads(spec, arch, operands) for spec in current):
        return practical
    return current


def _part(operands: Operands) -> str:
    """The type that kernels multiply: of complex numbers that of their parts."""
    return COMPLEX.get(operands.element, operands.element)


def _reads(spec: KernelSpec, arch: str, operands: Operands) -> bool:
    """Whether a kernel for a few layouts alone reads these operands as they lie, and multiplies their type."""
    takes = spec.pointers and not spec.strided and spec.runs_on(arch)
    if not takes or _part(operands) not in spec.element_types:
        return False
    return all(map(spec.readable, operands[:2])) and spec.reads_both(operands)


_NO_COPY = "leave copy out"


def choose(
    operands: Operands,
    target: Target,
    *,
    specs: Sequence[KernelSpec] | None = None,
    given: Mapping[str, object] | None = None,
    copy: bool | None = None,
) -> Candidate:
    """The candidate with the shortest predicted time; an error with the reasons if there is none."""
    found, refused = list_candidates(operands, target, specs=specs, given=given, copy=copy)
    if found:
        return found[0]
    if copy is False and (wanting := [one.error for one in refused if one.error.fix.startswith(_NO_COPY)]):
        raise wanting[0]  # others refuse what no copy mends
    fix = ""
    if operands.arithmetic:  # of those that have it: that others have not says nothing
        having = [one for one in refused if _has_arithmetic(KERNELS[one.kernel], operands)] or refused
        refused = [one for one in having if KERNELS[one.kernel].runs_on(target.arch)] or having
        fix = "" if given else f"leave arithmetic={operands.arithmetic!r} out"
    if len({str(refusal.error) for refusal in refused}) == 1:
        error = refused[0].error
        if fix and type(error) is ArgumentError and not error.fix:
            raise ArgumentError(error.argument, error.rule, error.value, fix)
        raise error
    why = "; ".join(f"{refusal.kernel}: {refusal.error.argument} {refusal.error.rule}" for refusal in refused)
    raise ArgumentError("a and b", f"must suit one of the kernels ({why})", fix=fix)


def _has_arithmetic(spec: KernelSpec, operands: Operands) -> bool:
    """Whether a kernel has the arithmetic that was asked for, for operands of such a type."""
    return operands.arithmetic in spec.arithmetic.get(_part(operands), ())


def _of_spec(
    spec: KernelSpec, operands: Operands, target: Target, given: Mapping[str, object], copy: bool | None
) -> tuple[list[Candidate], ArgumentError | None]:
    if not spec.runs_on(target.arch):
        return [], _refuse_arch(spec, target)
    refusal: ArgumentError | None = None
    if is_complex(operands) and (refusal := refuse_complex(operands)):
        return [], refusal
    found = []
    for read, copies in ways_to_read(spec, operands):
        if copies and copy is False:
            refusal = refusal or _refuse_copy(operands, copies, spec)
            continue
        # What is given, or follows from the operands, decides the types: these are the same in all choices.
        fixed = {**spec.for_types(read), **given}
        settings = spec.complete(fixed)  # raises what is wrong with what was given
        unfit = spec.why_not_operands(read, settings)
        if unfit is not None:
            refusal = refusal or unfit
            continue
        copying = copy_seconds(read, operands, target)
        fitting, error = _fitting(spec, read, settings, fixed, target)
        if error and given and not fitting and not _refuse_choice(spec, read, settings, target):
            fitting = [settings]  # with what is given go the usual ones, if none that are proposed
        refusal = refusal or error
        for chosen in fitting:
            prediction = predict(spec, read, chosen, copying, target)
            found.append(Candidate(spec, chosen, read, copies, prediction))
    return found, refusal


def _fitting(
    spec: KernelSpec, operands: Operands, settings: Settings, fixed: Mapping[str, object], target: Target
) -> tuple[list[Settings], ArgumentError | None]:
    """The choices that go together, and why others do not."""
    found, refusal = [], None
    for chosen in _choices(spec, operands, settings, fixed, target):
        error = _refuse_choice(spec, operands, chosen, target)
        if error is None:
            found.append(chosen)
        else:
            refusal = refusal or error
    return found, refusal


def _refuse_choice(
    spec: KernelSpec, operands: Operands, settings: Settings, target: Target
) -> ArgumentError | None:
    return spec.refuse_arch(settings, target.arch) or spec.refuse(operands, settings)


def _refuse_arch(spec: KernelSpec, target: Target) -> ArgumentError:
    oldest = min(KERNELS.values(), key=lambda other: other.least)
    if arch_capability(target.arch) >= oldest.least:
        rule = f"must be {spec.needs}{'' if spec.arch else ' or newer'} for {spec.name}"
        return ArgumentError("gpu", rule, target.arch)
    return ArgumentError(
        "gpu",
        f"must be {oldest.needs} or newer to run kernels, as {describe_archs()}",
        f"{target.name} ({target.arch})",
        "of older ones there are figures alone: tw.occupancy, tw.gpus.find",
    )


def _refuse_copy(operands: Operands, copies: tuple[str, ...], spec: KernelSpec) -> ArgumentError:
    first = getattr(operands, copies[0])
    if is_complex(operands):
        rule = "must be laid out on the device first, as all complex numbers are"
        return ArgumentError(copies[0], rule, "copy=False", _NO_COPY)
    return ArgumentError(
        copies[0],
        f"must {spec.lies} for {spec.name} with copy=False",
        f"strides {first.row_stride, first.column_stride}",
        f"{_NO_COPY}, and it is copied on the device first",
    )


def _choices(
    spec: KernelSpec, operands: Operands, settings: Settings, fixed: Mapping[str, object], target: Target
) -> Iterator[Settings]:
    """Complete settings: what is fixed, and every value of the others that the spec proposes."""
    if spec.candidates is None:
        yield settings
        return
    decided = {name: settings[name] for name in (*fixed, "result") if name in settings}
    seen = set()
    for proposed in spec.candidates(operands, settings, target.sms):
        if not spec.proposes_on(proposed, target.arch):
            continue
        complete = {**settings, **proposed, **decided}
        complete = {**complete, **spec.promises(operands, complete), **decided}
        key = tuple(complete.values())
        if key not in seen:
            seen.add(key)
            yield complete
