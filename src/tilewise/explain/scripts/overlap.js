(() => {
  "use strict";
  tilewise.panel("overlap", (panel) => {
    const {spans, kinds, warps, shown, most, place: [LEFT, TOP, ROW]} = panel.data, group = panel.svg.querySelector('[data-name="spans"]');
    if (most <= shown) return;
    const CLASSES = {fetch: "f-mark half", read: "f-block half", multiply: "f-warp half", write: "f-good half", signal: "f-thread half", wait: "f-quiet"};
    const LETTERS = {fetch: "f", read: "r", multiply: "m", write: "w", signal: "s", wait: "·"}, wide = (720 - LEFT - 20) / shown;
    const draw = (first) => {
      group.querySelectorAll("rect, [text-anchor=middle]").forEach((item) => item.remove());
      for (const [warp, kind, start] of spans) {
        const row = warps.indexOf(warp), x = LEFT + (start - first) * wide;
        if (row < 0 || start < first || start >= first + shown) continue;
        tilewise.svg("rect", {x, y: TOP + row * ROW, width: wide - 1, height: 22, class: CLASSES[kinds[kind]]}, group);
        tilewise.svg("text", {x: x + wide / 2, y: TOP + row * ROW + 15, class: "small", "text-anchor": "middle"}, group, LETTERS[kinds[kind]]);
      }
      panel.say(`steps ${first} to ${Math.min(first + shown, most) - 1} of ${most}`);
    };
    tilewise.slider(panel.controls, {label: "from step", min: 0, max: most - shown, value: 0, on: draw});
  });
})();
