"""Where matrices are drawn: A to the left, B above, C in the corner between them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.explain.svg import WIDTH

__all__ = ["Corner", "counted", "places_text", "runs_text", "split_runs", "times_text"]

_GAP, _LEFT, _TOP = 18.0, 34.0, 34.0
_TALLEST, _LEAST = 440.0, 56.0


@dataclass(frozen=True, slots=True)
class Corner:
    """The three matrices of a product, drawn so that C's rows go on from A's, and its columns from B's.

    Sizes are to scale where that leaves each matrix something to look at; ``to_scale`` says so.
    """

    m: int
    n: int
    k: int
    across: tuple[float, float]  # units of the picture for all of k, and for all of n
    down: tuple[float, float]  # for all of k, and for all of m
    to_scale: bool

    @classmethod
    def of(cls, m: int, n: int, k: int, width: float = WIDTH, tallest: float = _TALLEST) -> Corner:
        """As large as there is room."""
        wide, high = width - _LEFT - _GAP - 10, tallest - _TOP - _GAP
        scale = min(wide / (k + n), high / (k + m))
        sizes = [max(size * scale, _LEAST) for size in (k, n, k, m)]
        across, down = sizes[:2], sizes[2:]
        for part, room in ((across, wide), (down, high)):
            over = sum(part) - room
            if over > 0:
                largest = 0 if part[0] > part[1] else 1
                part[largest] -= over
        exact = all(abs(size - given * scale) < 1 for size, given in zip(sizes, (k, n, k, m), strict=True))
        return cls(m, n, k, (across[0], across[1]), (down[0], down[1]), exact)

    @property
    def height(self) -> float:
        return _TOP + self.down[0] + _GAP + self.down[1] + 12

    def place(self, name: str) -> tuple[float, float, float, float]:
        """The box of a matrix: x, y, width, height."""
        right, low = _LEFT + self.across[0] + _GAP, _TOP + self.down[0] + _GAP
        return {
            "a": (_LEFT, low, self.across[0], self.down[1]),
            "b": (right, _TOP, self.across[1], self.down[0]),
            "c": (right, low, self.across[1], self.down[1]),
        }[name]

    def box(
        self, name: str, rows: tuple[int, int], columns: tuple[int, int]
    ) -> tuple[float, float, float, float]:
        """The box of a part of a matrix: rows and columns from the first to behind the last."""
        x, y, width, height = self.place(name)
        high, wide = {"a": (self.m, self.k), "b": (self.k, self.n), "c": (self.m, self.n)}[name]
        return (
            x + columns[0] / wide * width,
            y + rows[0] / high * height,
            (columns[1] - columns[0]) / wide * width,
            (rows[1] - rows[0]) / high * height,
        )


def split_runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Numbers in order, as runs without a gap: the first and the last of each."""
    found: list[tuple[int, int]] = []
    for number in sorted({*numbers}):
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def counted(count: int, what: str) -> str:
    """A number of things: "1 element", "2 elements"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def times_text(count: int) -> str:
    """How often: "once", "2 times"."""
    return "once" if count == 1 else f"{count:,} times"


def places_text(rows: list[int], columns: list[int]) -> str:
    """Rows and columns in words: "row 3, columns 0–3 and 32–35"."""
    pairs = (("row", rows), ("column", columns))
    return ", ".join(f"{what}{'s' * (len({*numbers}) > 1)} {runs_text(numbers)}" for what, numbers in pairs)


def runs_text(numbers: list[int], most: int = 4) -> str:
    """Numbers as "0–3 and 32–35"; of many runs the first ones, and how many there are."""
    runs = [str(a) if a == b else f"{a}–{b}" for a, b in split_runs(numbers)]
    if len(runs) > most:
        return f"{', '.join(runs[:most])} … ({len(runs)} pieces)"
    return " and ".join([", ".join(runs[:-1]), runs[-1]]) if len(runs) > 1 else "".join(runs)
