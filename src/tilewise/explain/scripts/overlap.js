(() => {
  "use strict";
  tilewise.panel("overlap", (panel) => {
    const {spans, kinds, warps, shown, most, place: [LEFT, TOP, ROW]} = panel.data, group = panel.svg.querySelector('[data-name="spans"]');
    const CLASSES = {fetch: "f-mark half", read: "f-block half", multiply: "f-warp half", write: "f-good half", signal: "f-thread half", wait: "f-quiet"};
    const LETTERS = {fetch: "f", read: "r", multiply: "m", write: "w", signal: "s", wait: "·"}, wide = (720 - LEFT - 20) / shown;
    const say = (warp, first) => {
      const counts = kinds.map((kind, i) => [kind, spans.filter((span) => span[0] === warp && span[1] === i).reduce((sum, span) => sum + span[3], 0)]);
      const does = counts.filter((one) => one[1]).map((one) => `${one[0]} ${one[1]}`).join(", ");
      const range = most > shown ? `steps ${first} to ${Math.min(first + shown, most) - 1} of ${most}` : "";
      panel.say(warp === null || warps.indexOf(warp) < 0 ? range : `warp ${warp}: ${does}${range && `; ${range}`}`);
    };
    let from = 0, chosen = null;
    const draw = (first) => {
      from = first;
      group.querySelectorAll("rect, [text-anchor=middle]").forEach((item) => item.remove());
      for (const [warp, kind, start] of spans) {
        const row = warps.indexOf(warp), x = LEFT + (start - first) * wide;
        if (row < 0 || start < first || start >= first + shown) continue;
        tilewise.svg("rect", {x, y: TOP + row * ROW, width: wide - 1, height: 22, class: CLASSES[kinds[kind]]}, group);
        tilewise.svg("text", {x: x + wide / 2, y: TOP + row * ROW + 15, class: "small", "text-anchor": "middle"}, group, LETTERS[kinds[kind]]);
      }
      say(chosen, from);
    };
    if (most > shown) tilewise.slider(panel.controls, {label: "from step", min: 0, max: most - shown, value: 0, on: draw});
    const cells = tilewise.grid(panel, {x: LEFT, y: TOP - 2, width: 720 - LEFT - 20, height: warps.length * ROW, rows: warps.length, columns: 1, label: "warps",
      describe: (r) => `warp ${warps[r]}`, on: (r) => panel.selection.set({warp: warps[r]})});
    panel.selection.on(({warp}) => {
      chosen = warp;
      const row = warps.indexOf(warp);
      if (row < 0) cells.hide(); else cells.show(row, 0, false);
      say(warp, from);
    });
  });
})();
