(() => {
  "use strict";
  tilewise.panel("load", (panel) => {
    const {patterns} = panel.data, group = panel.svg.querySelector('[data-name="pattern"]');
    const LEFT = 24, LANE = 21, TOP = 64, WIDTH = 720, MOST = 12;
    const draw = (index) => {
      const one = patterns[index], add = (name, attributes, text) => tilewise.svg(name, attributes, group, text);
      group.replaceChildren();
      const used = one.lanes.filter((lane) => lane >= 0);
      const touched = [...new Set(used.flatMap((lane) => [lane >> 7, (lane + one.size - 1) >> 7]))].sort((a, b) => a - b);
      const shown = touched.slice(0, MOST), wide = (WIDTH - 2 * LEFT - (shown.length - 1) * 6) / shown.length;
      add("text", {x: LEFT, y: 22, class: "mono"}, `${one.name}, ${one.size} bytes a lane`);
      add("text", {x: LEFT, y: 44, class: "small muted"}, `lanes${one.first ? `; the first touches ${one.first}` : ""}`);
      shown.forEach((line, i) => {
        const x = LEFT + i * (wide + 6);
        add("text", {x, y: 236, class: "small muted"}, `line ${line - touched[0]}`);
        for (let sector = 0; sector < 4; sector++) {
          const from = line * 128 + sector * 32, hit = used.some((lane) => lane < from + 32 && lane + one.size > from);
          add("rect", {x: x + sector * wide / 4, y: 190, width: wide / 4 - 1, height: 28, class: hit ? "f-block half s-block" : "f-quiet"});
        }
      });
      one.lanes.forEach((offset, lane) => {
        const x = LEFT + lane * LANE, at = shown.indexOf(offset >> 7);
        add("rect", {x, y: TOP - 12, width: LANE - 2, height: 24, class: offset >= 0 ? "f-thread half s-thread" : "f-quiet"});
        add("text", {x: x + LANE / 2 - 1, y: TOP + 5, class: "small", "text-anchor": "middle"}, lane);
        if (offset >= 0 && at >= 0) add("line", {x1: x + LANE / 2 - 1, y1: TOP + 14, x2: LEFT + at * (wide + 6) + (offset % 128 + one.size / 2) / 128 * wide, y2: 188, class: "s-thread"});
      });
      if (touched.length > shown.length) add("text", {x: WIDTH - LEFT, y: 236, class: "small muted", "text-anchor": "end"}, `and ${touched.length - shown.length} lines more`);
      panel.say(`${one.where}: ${one.sectors} sectors, ${one.least} would do; ${one.runs} times`);
    };
    const access = tilewise.choice(panel.controls, {label: "access", options: patterns.map((one) => `${one.where}: ${one.name}, ${one.sectors} sectors (least ${one.least})`), on: draw});
    draw(0);
    tilewise.onLine(panel, patterns, (index) => { access.set(index); draw(index); });
  });
})();
