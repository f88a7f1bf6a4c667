"""What a notebook shows of an explanation."""

from __future__ import annotations

from html.parser import HTMLParser

from tilewise.explain.climb import Climb
from tilewise.explain.explanation import Explanation


def notebook_frame(shown: Explanation | Climb) -> tuple[str | None, str | None]:
    """The title and the page of the frame that a notebook shows."""
    frames: list[dict[str, str | None]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag == "iframe"
            frames.append(dict(attrs))

    Reader().feed(shown._repr_html_())
    (frame,) = frames
    return frame["title"], frame["srcdoc"]
