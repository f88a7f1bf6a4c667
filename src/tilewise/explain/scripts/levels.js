(() => {
  "use strict";
  tilewise.panel("levels", (panel) => {
    const {boxes} = panel.data, marks = tilewise.svg("g", {class: "f-thread"}, panel.svg);
    panel.selection.on(({element}) => {
      marks.replaceChildren();
      if (!element) return;
      for (const {place: [x, y, width, height], rows: [top, high], columns: [left, across]} of boxes) {
        const r = element[0] - top, c = element[1] - left;
        if (r >= 0 && c >= 0 && r < high && c < across) tilewise.svg("circle", {cx: x + (c + 0.5) / across * width, cy: y + (r + 0.5) / high * height, r: 4}, marks);
      }
    });
  });
})();
