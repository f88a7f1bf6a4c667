(() => {
  "use strict";
  tilewise.panel("owner", (panel) => {
    const {first, warp, lane, block, place: [x, y, scale], threads, grid, engine} = panel.data;
    const [rows, columns] = warp.shape, width = columns * scale, height = rows * scale;
    const blockOf = (i) => typeof block === "number" ? block : block[i];
    const split = (linear, [sx, sy]) => [linear % sx, Math.floor(linear / sx) % sy, Math.floor(linear / (sx * sy))].join(", ");
    const describe = (r, c) => {
      const i = r * columns + c;
      if (warp[i] < 0) return `C[${first[0] + r}, ${first[1] + c}]: nobody`;
      const who = `block ${blockOf(i)}, warp ${warp[i]}, lane ${lane[i]}`;
      return `C[${first[0] + r}, ${first[1] + c}]: ${who}; blockIdx (${split(blockOf(i), grid)}), threadIdx (${split(warp[i] * 32 + lane[i], threads)})${engine ? ", stored by the copy engine" : ""}`;
    };
    const marks = tilewise.svg("g", {class: "f-thread"}, panel.svg);
    const mark = (r, c) => {
      marks.replaceChildren();
      const own = r * columns + c;
      for (let i = 0, drawn = 0; i < warp.length && drawn < 1024; i++) {
        if (warp[i] !== warp[own] || lane[i] !== lane[own] || blockOf(i) !== blockOf(own)) continue;
        tilewise.svg("rect", {x: x + i % columns * scale, y: y + Math.floor(i / columns) * scale, width: scale, height: scale}, marks);
        drawn++;
      }
    };
    const cells = tilewise.grid(panel, {x, y, width, height, rows, columns, label: "elements of the tile of C", describe, on: (r, c) => {
      const i = r * columns + c;
      panel.selection.set({element: [first[0] + r, first[1] + c], block: blockOf(i), warp: warp[i] < 0 ? null : warp[i], lane: lane[i] < 0 ? null : lane[i]});
    }});
    panel.selection.on(({element}) => {
      const r = element ? element[0] - first[0] : -1, c = element ? element[1] - first[1] : -1;
      if (r < 0 || c < 0 || r >= rows || c >= columns) { marks.replaceChildren(); cells.hide(); panel.say("point at an element, or move over it with the arrow keys"); return; }
      cells.show(r, c, false);
      mark(r, c);
      panel.say(describe(r, c));
    });
  });
})();
