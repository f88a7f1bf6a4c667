(() => {
  "use strict";
  tilewise.panel("code", (panel) => {
    const {rows, place: [x, y, width, row]} = panel.data;
    const describe = (r) => `${rows[r].where}: ${rows[r].says}. ${rows[r].text}`;
    const cells = tilewise.grid(panel, {x, y, width, height: rows.length * row, rows: rows.length, columns: 1, label: "lines of the source", describe,
      on: (r) => panel.selection.set({line: rows[r].line})});
    panel.selection.on(({line}) => {
      const r = rows.findIndex((one) => one.line === line);
      if (r < 0) { cells.hide(); panel.say("point at a line, or move over them with the arrow keys: loads and banks above show what it touches"); return; }
      cells.show(r, 0, false);
      panel.say(describe(r));
    });
  });
})();
