(() => {
  "use strict";
  tilewise.panel("order", (panel) => {
    const {rows, columns, flight, tile, names, own, orders, place: [LEFT, TOP, SIDE]} = panel.data;
    if (!orders.length) return;
    const group = panel.svg.querySelector('[data-name="tiles"]'), step = SIDE / Math.max(rows, columns), all = rows * columns;
    let order = own, first = 0, together = flight, marked = null;
    const draw = () => {
      group.replaceChildren();
      tilewise.svg("rect", {x: LEFT, y: TOP, width: columns * step, height: rows * step, class: "f-panel s-rule"}, group);
      const at = (i) => [orders[order][2 * i], orders[order][2 * i + 1]], usedRows = new Set(), usedColumns = new Set();
      for (let i = first; i < Math.min(first + together, all); i++) { const [r, c] = at(i); usedRows.add(r); usedColumns.add(c); tilewise.svg("rect", {x: LEFT + c * step, y: TOP + r * step, width: step, height: step, class: "f-block half"}, group); }
      if (step > 4) tilewise.svg("polyline", {class: "none s-muted round", points: Array.from({length: all}, (_, i) => { const [r, c] = at(i); return `${LEFT + (c + 0.5) * step},${TOP + (r + 0.5) * step}`; }).join(" ")}, group);
      if (marked) { const [r, c] = marked; tilewise.svg("rect", {"data-marked": "", x: LEFT + c * step, y: TOP + r * step, width: step, height: step, class: "none s-thread thick"}, group); }
      const read = usedRows.size * tile[0] + usedColumns.size * tile[1];
      panel.root.dataset.read = read;
      panel.say(`${names[order]}, blocks ${first} to ${Math.min(first + together, all) - 1}: ${usedRows.size} rows and ${usedColumns.size} columns of tiles, ${read.toLocaleString("en")} elements for each k`);
    };
    tilewise.choice(panel.controls, {label: "order", options: names, value: own, on: (index) => { order = index; draw(); }});
    tilewise.slider(panel.controls, {label: "in flight", min: 1, max: all, value: flight, on: (value) => { together = value; draw(); }});
    tilewise.slider(panel.controls, {label: "first", min: 0, max: all - 1, value: 0, on: (value) => { first = value; draw(); }});
    panel.selection.on(({element, block}) => {
      const i = element || block === null || block >= all ? -1 : block;
      marked = element ? [Math.floor(element[0] / tile[0]), Math.floor(element[1] / tile[1])] : i < 0 ? null : [orders[own][2 * i], orders[own][2 * i + 1]];
      if (marked && (marked[0] >= rows || marked[1] >= columns)) marked = null;
      draw();
    });
  });
})();
