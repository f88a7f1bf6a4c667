"""The page of an explanation in a real browser: offline, silent, right in every number, by pointer and by keys."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.explain.climb import explain_ladder
from tilewise.explain.explanation import Explanation
from tilewise.explain.page import make_page
from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.banks import deal_wavefronts
from tilewise.explain.svg import Drawing
from tilewise.kernels.raster import ORDERS

pytestmark = pytest.mark.browser

READY = "document.documentElement.dataset.ready === 'yes'"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    """Four warps, shared memory with conflicts, several tiles."""
    return tw.explain(tw.ladder["05_tiled_conflicted"].plan(96, 160, 64, gpu="rtx-2060-super", tile=16))


@pytest.fixture(scope="module")
def page(explanation: Explanation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(explanation.html(), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def climb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a ladder of three rungs, one of them without shared memory."""
    file: Path = tmp_path_factory.mktemp("climb") / "climb.html"
    names = ["03_simple", "04_tiled", "05_tiled_conflicted"]
    file.write_text(explain_ladder("t4", rungs=names).html(), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def pages(page: Path, climb: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Pages of all kinds: a rung's, that of a plan with copies by an engine, and a ladder's."""
    file: Path = tmp_path_factory.mktemp("plan") / "plan.html"
    plan = tw.plan(512, 384, 256, dtype="bfloat16", gpu="h200")
    file.write_text(tw.explain(plan).html(), encoding="utf-8")
    return [page, file, climb]


@pytest.fixture
def open_page(browser: Any, page: Path) -> Iterator[Open]:
    """Opens a page without a network; at the end nothing may have gone wrong in it."""
    contexts, faults = [], []

    def open_(hash_: str = "", file: Path = page, ready: bool = True, **options: Any) -> Any:
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        found = context.new_page()
        found.on(
            "console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None
        )
        found.on("pageerror", lambda error: faults.append(str(error)))
        found.on(
            "request", lambda asked: faults.append(asked.url) if not asked.url.startswith("file:") else None
        )
        found.goto(file.as_uri() + hash_)
        if ready:
            found.wait_for_function(READY)
        return found

    yield open_
    for context in contexts:
        context.close()
    assert not faults


def test_every_number_is_the_product_s(open_page: Open, explanation: Explanation) -> None:
    page = open_page()
    shown = dict(
        page.eval_on_selector_all("data[data-fact]", "all => all.map(one => [one.dataset.fact, one.value])")
    )
    wanted = {fact.name: str(fact.value) for panel in explanation.panels for fact in panel.facts}
    assert shown == wanted and len(wanted) > 30
    assert shown["owner.row"] == "3" and shown["owner.column"] == "2" and shown["load.example"] == "4"
    assert shown["order.column"] == "16512" and shown["order.square"] == "3072"
    assert [page.inner_text(".verdict p >> nth=0")] == explanation.verdict[:1]


def test_hover_and_keys_name_the_owner_that_was_recorded(open_page: Open, explanation: Explanation) -> None:
    page, owners = open_page(), explanation.subject.owners
    assert owners is not None
    area, chosen = page.locator("#owner .grid-area"), random.Random(1)
    area.scroll_into_view_if_needed()
    for _ in range(25):
        row, column = chosen.randrange(owners.rows), chosen.randrange(owners.columns)
        box = area.bounding_box()
        place = (
            box["x"] + (column + 0.5) / owners.columns * box["width"],
            box["y"] + (row + 0.5) / owners.rows * box["height"],
        )
        page.mouse.move(*place)
        _check_owner(page, explanation, row, column)
    page.mouse.move(0, 0)
    page.locator("#owner [role=grid]").focus()
    for _ in range(25):
        move, (down, across) = chosen.choice(
            [("ArrowDown", (1, 0)), ("ArrowUp", (-1, 0)), ("ArrowLeft", (0, -1)), ("ArrowRight", (0, 1))]
        )
        page.keyboard.press(move)
        row = min(max(row + down, 0), owners.rows - 1)
        column = min(max(column + across, 0), owners.columns - 1)
        _check_owner(page, explanation, row, column)


def _check_owner(page: Any, explanation: Explanation, row: int, column: int) -> None:
    owners = explanation.subject.owners
    assert owners is not None
    r, c = row + owners.first_row, column + owners.first_column
    block, warp, lane = owners.at(r, c)
    said = page.inner_text("#owner .say")
    assert said.startswith(f"C[{r}, {c}]: block {block}, warp {warp}, lane {lane};")
    assert page.evaluate("location.hash") == f"#e={r},{c}&b={block}&w={warp}&l={lane}"
    active = page.get_attribute("#owner [role=grid]", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-label") == said
    assert page.locator("#owner figure svg > g.f-thread > rect").count() == len(
        owners.elements(block, warp, lane)
    )


def test_what_is_chosen_is_kept_in_the_address(open_page: Open) -> None:
    chosen = random.Random(2)
    page = open_page()
    for _ in range(30):
        element = [chosen.randrange(16), chosen.randrange(16)]
        numbers = {name: chosen.randrange(1, 99) for name in "bwlsn"}
        listed = [name for name in "ebwlsn" if chosen.random() < 0.6]
        words = [
            f"e={element[0]},{element[1]}" if name == "e" else f"{name}={numbers[name]}" for name in listed
        ]
        hash_ = "#" + "&".join(words)
        if not listed:
            continue
        page.evaluate("hash => { location.hash = hash; }", hash_)
        page.wait_for_timeout(1)
        state = page.evaluate("tilewise.selection.get()")
        names = {"e": "element", "b": "block", "w": "warp", "l": "lane", "s": "step", "n": "line"}
        wanted: dict[str, Any] = {
            name: None if key not in listed else element if key == "e" else numbers[key]
            for key, name in names.items()
        }
        assert state == wanted
        assert page.evaluate("location.hash") == hash_
    page.keyboard.press("Escape")
    assert page.evaluate("Object.values(tilewise.selection.get()).every(one => one === null)")
    assert page.evaluate("location.hash") == ""
    for hostile in ("#e=<img>", "#e=9999999999,1", "#s=-1&w=1e3", "#%00", "#e=1,2,3", "#constructor=1"):
        assert open_page(hostile).evaluate(
            "Object.values(tilewise.selection.get()).every(one => one === null)"
        )


def test_the_last_frame_is_the_product(open_page: Open, explanation: Explanation) -> None:
    page = open_page()
    steps = len(explanation.subject.steps)
    page.clock.install()
    page.locator("#tiles").focus()
    page.keyboard.press(" ")
    page.clock.run_for(1000 * (steps + 2))
    assert page.get_attribute("#tiles", "data-step") == str(steps)
    assert "complete" in page.inner_text("#tiles .say")
    a, b, sums = ([[int(x) if x else None for x in row] for row in _toy(page, name)] for name in "abc")
    product = (np.array(a) @ np.array(b))[2:, 2:]
    assert [row[2:] for row in sums[2:]] == product.tolist()
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute("#tiles", "data-step") == str(steps - 1)


def _toy(page: Any, name: str) -> list[list[str]]:
    texts = page.eval_on_selector_all(
        f'#tiles [data-name="toy-{name}"] > text', "all => all.map(one => one.textContent)"
    )
    return [texts[i : i + 4] for i in range(0, 16, 4)]


def test_without_motion_it_jumps(open_page: Open, explanation: Explanation) -> None:
    page = open_page(reduced_motion="reduce")
    page.locator("#tiles").focus()
    page.keyboard.press(" ")
    assert page.get_attribute("#tiles", "data-step") == str(len(explanation.subject.steps))


def test_orders_read_what_the_product_says(open_page: Open, explanation: Explanation) -> None:
    page, owners = open_page(), explanation.subject.owners
    assert owners is not None
    rows, columns = 96 // owners.rows, 160 // owners.columns
    for index, name in enumerate(ORDERS):
        page.select_option("#order select", str(index))
        for flight in (1, 7, rows * columns):
            page.evaluate(
                "v => { const s = document.querySelectorAll('#order input')[0]; s.value = v; s.dispatchEvent(new Event('input')); }",
                flight,
            )
            tiles = [ORDERS[name](block, rows, columns) for block in range(flight)]
            read = owners.rows * len({t[0] for t in tiles}) + owners.columns * len({t[1] for t in tiles})
            assert page.get_attribute("#order", "data-read") == str(read)


def test_banks_are_those_of_the_pattern(open_page: Open, explanation: Explanation) -> None:
    from tilewise.explain.panels.banks import worst_first

    page, patterns = open_page(), worst_first(explanation.subject.patterns)
    for index in (0, len(patterns[:48]) - 1):
        page.select_option("#banks select", str(index))
        words = page.locator("#banks [data-word]")
        assert words.count() == len(deal_wavefronts(patterns[index]))
        assert f"{patterns[index].wavefronts} wavefronts" in page.inner_text("#banks .say")


@pytest.mark.parametrize("options", [
    {"viewport": {"width": 390, "height": 800}}, {"viewport": {"width": 820, "height": 800}, "color_scheme": "dark"},
    {"viewport": {"width": 1280, "height": 800}, "forced_colors": "active"},
])  # fmt: skip
def test_it_fits(open_page: Open, pages: list[Path], options: dict[str, Any]) -> None:
    for file in pages:
        page = open_page(file=file, **options)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert _texts_outside(page) == []


def _texts_outside(page: Any) -> Any:
    """Texts of figures that are not within them."""
    return page.evaluate(
        """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
            const box = svg.viewBox.baseVal;
            return [...svg.querySelectorAll('text')].filter(text => { const b = text.getBBox();
                return b.width && (b.x < -1 || b.y < -1 || b.x + b.width > box.width + 1 || b.y + b.height > box.height + 1); }).map(text => text.textContent);
        })"""
    )


def test_print_and_no_script_show_everything(open_page: Open, explanation: Explanation) -> None:
    page = open_page(ready=False, java_script_enabled=False)
    assert page.locator("figure svg").count() == len(explanation.panels)
    text = page.inner_text("body")
    assert all(panel.answer in text and panel.question in text for panel in explanation.panels)
    printed = open_page()
    printed.emulate_media(media="print")
    assert not printed.locator("#tiles .controls").is_visible() and printed.locator("#tiles svg").is_visible()


def test_themes(open_page: Open) -> None:
    page = open_page(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)" and page.inner_text("#theme") == "dark"
    page.click("#theme")
    assert page.evaluate(ground) == "rgb(20, 23, 27)" and page.inner_text("#theme") == "light"


def test_keys_lead_to_sections_and_help(open_page: Open, explanation: Explanation) -> None:
    page = open_page()
    for number, panel in enumerate(explanation.panels[:9], 1):
        page.keyboard.press(str(number))
        assert page.evaluate("document.activeElement.id") == panel.key
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()


def test_it_is_small_and_soon_ready(open_page: Open, page: Path) -> None:
    assert page.stat().st_size <= 400 * 1024
    opened = open_page()
    assert opened.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") <= 1000


def test_hostile_texts_stay_texts(open_page: Open, tmp_path: Path) -> None:
    hostile = (
        """</script><script>document.title = "broken"</script><img src=x onerror="document.title='broken'">"""
    )
    drawing = Drawing(hostile, hostile, 40)
    drawing.text(4, 20, hostile)
    panel = Panel(
        "made",
        hostile,
        hostile,
        drawing,
        [Fact("x", hostile, hostile, code=hostile)],
        Table([hostile], [[hostile]]),
        {"text": hostile},
    )
    script = (
        'tilewise.panel("made", (panel) => { panel.say(panel.data.text); throw new Error("of the test"); });'
    )
    file = tmp_path / "hostile.html"
    file.write_text(
        make_page(
            hostile,
            [hostile],
            [panel],
            hostile,
            [hostile],
            {"made": script.replace('throw new Error("of the test");', "")},
        ),
        encoding="utf-8",
    )
    page = open_page(file=file)
    assert page.title() == hostile and page.locator("img").count() == 0
    assert page.inner_text("#made .say") == hostile and page.inner_text("h1") == hostile


def test_axe_finds_nothing(open_page: Open, pages: list[Path]) -> None:
    """axe-core, where its file is at hand: in both themes, wide and narrow."""
    axe = os.environ.get("TILEWISE_AXE")
    if not axe:
        pytest.skip("needs axe-core's axe.min.js, its place in TILEWISE_AXE")
    looks: list[dict[str, Any]] = [
        {"color_scheme": "light"},
        {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}},
    ]
    for options, file in ((options, file) for options in looks for file in pages):
        page = open_page(file=file, **options)
        page.evaluate(Path(axe).read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")
        faults = [
            (one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found["violations"]
        ]
        assert faults == []


def test_a_fault_in_one_panel_leaves_the_others(browser: Any, tmp_path: Path) -> None:
    panels = [Panel(key, key, key, Drawing(key, key, 10)) for key in ("one", "two")]
    scripts = {
        "one": 'tilewise.panel("one", () => { throw new Error("mine"); });',
        "two": 'tilewise.panel("two", (panel) => panel.say("here"));',
    }
    file = tmp_path / "two.html"
    file.write_text(make_page("two", [], panels, "", scripts=scripts), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.wait_for_function(READY)
    assert page.inner_text("#two .say") == "here"
    page.close()


def test_a_line_that_is_chosen_is_shown_by_loads_and_banks(open_page: Open, explanation: Explanation) -> None:
    page = open_page()
    (code,) = (panel for panel in explanation.panels if panel.key == "code")
    lines = {row["line"] for row in code.data["rows"]}
    for line in sorted(lines):
        page.evaluate("line => tilewise.selection.set({line})", line)
        assert f":{line}: " in page.inner_text("#code .say")
        for key, wanted in (("load", False), ("banks", True)):
            touched = [one for one in explanation.subject.patterns if one.shared == wanted]
            if any(explanation.subject.where(one.line).endswith(f":{line}") for one in touched):
                assert f":{line}: " in page.inner_text(f"#{key} .say")
    page.locator("#code [role=grid]").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("location.hash").startswith("#n=")


def test_any_two_rungs_stand_side_by_side(open_page: Open, climb: Path) -> None:
    page = open_page(file=climb)
    above, below, figure = (page.locator("#beside select").nth(i) for i in range(3))
    shown = page.inner_html("#beside svg")
    assert "04_tiled" in shown and "05_tiled_conflicted" in shown
    for chosen in range(figure.locator("option").count()):
        figure.select_option(str(chosen))
        above.select_option("0")
        below.select_option("2")
        said = page.inner_text("#beside .say")
        assert said.startswith("03_simple: ") and " 05_tiled_conflicted: " in said
        assert _texts_outside(page) == []
        assert ("there is no such figure" in said) == (
            figure.input_value() == _index(page, "Do banks collide?")
        )
    assert page.locator("#beside svg script, #beside svg style").count() == 0


def _index(page: Any, text: str) -> str:
    listed = page.locator("#beside select").nth(2).locator("option").all_inner_texts()
    return str(listed.index(text))


def test_the_placement_of_pieces_follows_the_slider(open_page: Open, pages: list[Path]) -> None:
    page = open_page(file=pages[1])
    for piece in (0, 3, 7):
        page.evaluate(
            "v => { const s = document.querySelector('#placement input'); s.value = v; s.dispatchEvent(new Event('input')); }",
            piece,
        )
        groups = [piece ^ row for row in range(8)]
        assert f"A, piece {piece} of 8 rows: groups {', '.join(map(str, groups))}" in page.inner_text(
            "#placement .say"
        )


def test_what_is_chosen_is_marked_in_every_panel(open_page: Open, explanation: Explanation) -> None:
    page = open_page("#e=9,5&b=0&w=4&l=21")
    assert (
        page.locator("#levels svg g.f-thread > circle").count() == 2
    )  # in C and in the block, not in the first warp
    assert page.locator("#order [data-marked]").count() == 1
    assert page.inner_text("#overlap .say").startswith("warp 4: ")
    page.locator("#overlap [role=grid]").focus()
    page.keyboard.press("ArrowDown")
    assert "w=5" in page.evaluate("location.hash")
    page.keyboard.press("Escape")
    assert page.locator("#levels circle, #order [data-marked]").count() == 0
