"""An explanation as one page: a single file that needs no network, no library and no fonts of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

import numpy as np

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.svg import STYLE

__all__ = ["make_page", "pack_data"]

_MEANINGS = {
    "exact": "counted, or follows from what was counted",
    "model": "of a model of the GPU",
    "order": "an order of events; nothing is known of time",
    "measured": "timed on a GPU",
}
_KEYS = (
    ("1 to 9", "go to a section"), ("space", "play and pause, in the section that has the focus"),
    ("← →", "a step back, a step on; over a grid also ↑ ↓"), ("[ ]", "slower, faster"), ("Esc", "choose nothing"),
    ("?", "this list"),
)  # fmt: skip


def make_page(
    title: str,
    verdict: Sequence[str],
    panels: Sequence[Panel],
    call: str,
    about: Sequence[str] = (),
    scripts: Mapping[str, str] | None = None,
) -> str:
    """The page. ``verdict`` leads it, line by line; ``call`` is the line of Python that makes it again.

    ``about`` stands at the end: what was left out. ``scripts`` are of panels that the package has none of, by key.
    """
    style = STYLE + _read("page.css")
    script = "\n".join(
        [_read("scripts/core.js"), *_panel_scripts(panels, scripts or {}), "tilewise.start();"]
    )
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = "\n".join(_section(panel, number) for number, panel in enumerate(panels, 1))
    links = "".join(f'<li><a href="#{panel.key}">{escape(panel.question)}</a></li>' for panel in panels)
    keys = "".join(f"<tr><th scope=row>{escape(key)}</th><td>{escape(what)}</td></tr>" for key, what in _KEYS)
    labels = "; ".join(f"<b>{label}</b>: {meaning}" for label, meaning in _MEANINGS.items())
    data = pack_data({panel.key: panel.data for panel in panels})
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tilewise">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<p class="kicker">tilewise explain <button type="button" id="theme" hidden>dark</button></p>
<h1>{escape(title)}</h1>
<div class="verdict">{"".join(_verdict_line(line) for line in verdict)}</div>
<p class="call"><code>explanation = {escape(call)}</code></p>
<nav aria-label="Sections"><ol>{links}</ol></nav>
</header>
<main>
{sections}
</main>
<footer>
<p>{labels}.</p>
{"".join(f"<p>{escape(line)}</p>" for line in about)}
</footer>
<dialog id="help" aria-label="Keys"><table>{keys}</table><form method="dialog"><button>close</button></form></dialog>
<script type="application/octet-stream" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def pack_data(data: Mapping[str, Any]) -> str:
    """Plain data and NumPy arrays, deflated, as base64: a length, JSON, then the arrays it speaks of."""
    arrays: list[bytes] = []
    size = 0

    def plain(value: Any) -> Any:
        nonlocal size
        if isinstance(value, np.ndarray):
            kind = {"int8": "Int8Array", "uint8": "Uint8Array", "int16": "Int16Array", "int32": "Int32Array"}[
                str(value.dtype)
            ]
            raw = np.ascontiguousarray(value).tobytes()
            found = {"$array": [kind, size, value.size, list(value.shape)]}
            arrays.append(raw + bytes(-len(raw) % 8))
            size += len(arrays[-1])
            return found
        if isinstance(value, Mapping):
            return {str(name): plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value.item() if isinstance(value, np.generic) else value

    head = json.dumps(plain(data), separators=(",", ":")).encode()
    head += b" " * (-(len(head) + 8) % 8)
    return base64.b64encode(zlib.compress(struct.pack("<Q", len(head)) + head + b"".join(arrays), 9)).decode()


def _read(name: str) -> str:
    return (resources.files("tilewise.explain") / name).read_text(encoding="utf-8")


def _panel_scripts(panels: Sequence[Panel], given: Mapping[str, str]) -> list[str]:
    found = []
    for panel in panels:
        file = resources.files("tilewise.explain") / "scripts" / f"{panel.key}.js"
        if panel.key in given:
            found.append(given[panel.key])
        elif file.is_file():
            found.append(file.read_text(encoding="utf-8"))
    return found


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _verdict_line(line: str) -> str:
    inner = ' class="more"' if line.startswith(" ") else ""
    return f"<p{inner}>{escape(line.strip())}</p>"


def _section(panel: Panel, number: int) -> str:
    guess = f'<p class="guess">A guess first: {escape(panel.guess)}</p>' if panel.guess else ""
    facts = "".join(_fact(fact) for fact in panel.facts)
    return f"""<section id="{panel.key}" tabindex="-1" aria-labelledby="{panel.key}-question">
<h2 id="{panel.key}-question"><span class="number">{number}</span> {escape(panel.question)}</h2>
{guess}
<p class="answer">{escape(panel.answer)}</p>
<figure><div class="picture">{panel.figure.to_svg(standalone=False, name=panel.key)}</div>
<div class="controls"></div><p class="say" aria-live="polite"></p></figure>
<dl class="facts">{facts}</dl>
{_table(panel.table) if panel.table else ""}
</section>"""


def _fact(fact: Fact) -> str:
    shown = f"{fact.value:,}" if isinstance(fact.value, int) else str(fact.value)
    code = fact.code or f'explanation.facts["{fact.name}"]'
    again = f"<details><summary>get this number</summary><code>{escape(code)}</code></details>"
    unit = f" {escape(fact.unit)}" if fact.unit else ""
    return (
        f"<div><dt>{escape(fact.what)}</dt><dd>"
        f'<data data-fact="{escape(fact.name)}" value="{escape(str(fact.value))}">{escape(shown)}</data>{unit} '
        f'<span class="label {fact.label}">{fact.label}</span>{again}</dd></div>'
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return (
        f'<details class="table"><summary>As a table</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="Table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    )
