"""Do banks collide? Which lane wants which bank of shared memory, wavefront by wavefront."""

from __future__ import annotations

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.layout import times_text
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.instruments.block_views import Pattern

__all__ = ["deal_wavefronts", "make_banks"]

_BANKS, _WORD = 32, 4
_LEFT, _TOP = 64.0, 78.0
_CELL = (WIDTH - _LEFT - 16) / _BANKS
_ROW = 10.0
_MOST_PATTERNS = 48
_TOTAL = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_COPIES = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum"


def worst_first(patterns: list[Pattern]) -> list[Pattern]:
    """Patterns of shared memory that the machine code has, those with the most conflicts first."""
    listed = [one for one in patterns if one.shared and one.width]
    return sorted(listed, key=lambda one: (-(one.wavefronts - one.phases) * one.runs, one.event))


def deal_wavefronts(pattern: Pattern) -> list[tuple[int, int, int]]:
    """Each word that a lane wants: lane, bank, and in which of its bank's turns it is served, from 0 on.

    Lanes that want the same word share its turn. The hardware serves lanes of wide accesses phase by phase, so that
    there may be more wavefronts than turns of the worst bank.
    """
    turns: dict[int, dict[int, int]] = {}
    found = []
    for lane, offset in enumerate(pattern.lanes):
        if offset is None:
            continue
        for word in range(offset // _WORD, -(-(offset + max(pattern.size, pattern.width)) // _WORD)):
            order = turns.setdefault(word % _BANKS, {})
            found.append((lane, word % _BANKS, order.setdefault(word, len(order))))
    return found


def make_banks(subject: Subject) -> Panel | None:
    """The panel; None for a launch whose lanes touch no shared memory."""
    patterns = worst_first(subject.patterns)
    if not patterns:
        return None
    chosen = patterns[0]
    drawing = Drawing(
        "Lanes and banks of shared memory",
        f"{chosen.name}: {chosen.wavefronts} wavefronts, {chosen.phases} without conflicts.",
        _TOP + 32 * _ROW + 96,
    )
    with drawing.group("pattern"):
        _draw_pattern(drawing, chosen)
    _draw_counts(drawing, chosen, _TOP + 32 * _ROW + 14)
    rows = [
        (
            subject.where(one.line),
            one.name,
            str(one.runs),
            str(one.wavefronts),
            str(one.phases),
            f"{(one.wavefronts - one.phases) * one.runs:,}",
        )
        for one in patterns[:_MOST_PATTERNS]
    ]
    table = Table(
        ("line", "access", "runs", "wavefronts", "without conflicts", "conflicts in the recorded blocks"),
        rows,
    )
    data = {
        "patterns": [
            {"name": one.name, "where": subject.where(one.line), "runs": one.runs, "wavefronts": one.wavefronts,
             "phases": one.phases, "words": deal_wavefronts(one)}
            for one in patterns[:_MOST_PATTERNS]
        ],
        "place": [_LEFT, _TOP, _CELL, _ROW],
    }  # fmt: skip
    return Panel(
        "banks", "Do banks collide?", _answer(subject, chosen), drawing, _list_facts(subject, chosen), table, data,
        guess="Every lane reads a word 128 bytes behind that of the lane before. How many wavefronts?",
    )  # fmt: skip


def _answer(subject: Subject, chosen: Pattern) -> str:
    if chosen.wavefronts > chosen.phases:
        return (
            f"Yes: {chosen.name} takes {chosen.wavefronts} wavefronts where {chosen.phases} would do, "
            f"{times_text(chosen.runs)} in the recorded blocks ({subject.where(chosen.line)})."
        )
    answer = (
        f"No: no load or store takes more wavefronts than it needs; {chosen.name} takes {chosen.wavefronts}."
    )
    copies = subject.profile.metrics.get(_COPIES)
    if copies is not None and copies.value:
        answer += (
            f" The {copies.value:,.0f} that are counted are of asynchronous copies, which wait at both ends."
        )
    return answer


def _list_facts(subject: Subject, chosen: Pattern) -> list[Fact]:
    facts = [
        Fact("banks.wavefronts", "wavefronts of this access", chosen.wavefronts),
        Fact("banks.without", "without conflicts", chosen.phases),
    ]
    total = subject.profile.metrics.get(_TOTAL)
    if total is not None:
        label = "exact" if total.label == "exact" else "model"
        code = f'explanation.subject.profile["{_TOTAL}"]'
        facts.append(
            Fact("banks.total", "bank conflicts of the launch", int(total.value), label=label, code=code)
        )
    return facts


def _draw_pattern(drawing: Drawing, one: Pattern) -> None:
    drawing.text(16, 22, f"{one.name}, {one.width} bytes a lane", "mono")
    drawing.text(_LEFT, 46, "banks 0 to 31 →", "small muted")
    drawing.text(16, _TOP + 8, "lane 0", "small muted")
    drawing.text(16, _TOP + 31 * _ROW + 8, "lane 31", "small muted")
    for bank in range(0, _BANKS, 4):
        drawing.text(_LEFT + (bank + 0.5) * _CELL, _TOP - 8, str(bank), "small muted", "middle")
    drawing.rect(_LEFT, _TOP, _CELL * _BANKS, _ROW * 32, "f-panel s-rule")
    for lane, bank, turn in deal_wavefronts(one):
        classes = "f-good" if turn == 0 else "f-bad half"
        drawing.rect(_LEFT + bank * _CELL + 1, _TOP + lane * _ROW + 1, _CELL - 2, _ROW - 2, classes)


def _draw_counts(drawing: Drawing, one: Pattern, top: float) -> None:
    """How many different words each bank is asked for."""
    wanted = [0] * _BANKS
    for _, bank, turn in deal_wavefronts(one):
        wanted[bank] = max(wanted[bank], turn + 1)
    most = max(wanted)
    for bank, count in enumerate(wanted):
        if count:
            high = 44 * count / max(most, 4)
            drawing.rect(
                _LEFT + bank * _CELL + 2,
                top + 44 - high,
                _CELL - 4,
                high,
                "f-bad half" if count > 1 else "f-good",
            )
    drawing.line(_LEFT, top + 44, _LEFT + _BANKS * _CELL, top + 44, "s-muted")
    drawing.text(
        _LEFT,
        top + 64,
        f"different words that each bank is asked for: {most} at most; green is served first",
        "small muted",
    )
