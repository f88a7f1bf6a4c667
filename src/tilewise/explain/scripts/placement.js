(() => {
  "use strict";
  tilewise.panel("placement", (panel) => {
    const {pieces, vectors} = panel.data, rects = {};
    for (const role of Object.keys(pieces)) rects[role] = [...panel.svg.querySelectorAll(`[data-name="pieces-${role}"] > rect`)];
    const most = Math.max(...Object.values(pieces).flatMap((cells) => cells.map((cell) => cell[3])));
    const least = Math.min(...Object.values(pieces).flatMap((cells) => cells.map((cell) => cell[3])));
    const draw = (number) => {
      const said = [];
      for (const [role, cells] of Object.entries(pieces)) {
        const groups = [];
        cells.forEach((cell, i) => {
          const chosen = cell[3] === number;
          rects[role][i].setAttribute("class", chosen ? "f-block half s-block" : "f-quiet");
          if (chosen && groups.length < 8) groups.push(cell[1]);
        });
        if (groups.length) said.push(`${role.toUpperCase()}, piece ${number} of ${groups.length} ${vectors[role]}s: groups ${groups.join(", ")}`);
      }
      panel.say(said.join("; "));
    };
    tilewise.slider(panel.controls, {label: "piece", min: least, max: most, value: least, on: draw});
    draw(least);
  });
})();
