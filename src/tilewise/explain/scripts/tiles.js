(() => {
  "use strict";
  tilewise.panel("tiles", (panel) => {
    const {boxes, sizes: [m, n, k], rows, columns, steps, toy} = panel.data;
    const [a, b, c] = panel.svg.querySelectorAll('[data-name="moving"] > rect');
    const set = (rect, [x, y, width, height]) => Object.entries({x, y, width, height}).forEach(([name, value]) => rect.setAttribute(name, value));
    const texts = panel.svg.querySelectorAll('[data-name="toy-c"] > text');
    const showToy = (step) => {
      const sums = toy.sums[step], first = toy.first;
      texts.forEach((text, i) => {
        const row = Math.floor(i / 4) - first, column = i % 4 - first;
        text.textContent = row >= 0 && column >= 0 ? sums[row][column] : "";
      });
    };
    const shade = [...panel.svg.querySelectorAll('[data-name="toy-a"], [data-name="toy-b"]')];
    const marks = shade.map((group, i) => {
      const [x, y] = toy.places[i ? "b" : "a"], size = toy.cell * toy.tile;
      const mark = tilewise.svg("rect", {width: size, height: size, class: `none thick ${i ? "s-warp" : "s-block"}`}, panel.svg);
      return {move: (step) => { mark.setAttribute("x", x + (i ? toy.first * toy.cell : step * size)); mark.setAttribute("y", y + (i ? step * size : toy.first * toy.cell)); }};
    });
    marks.forEach((mark) => mark.move(0));
    const player = tilewise.player(panel, {steps: steps.length + 1, rate: Math.max(4, steps.length / 8), on: (step, told) => {
      const [first, end] = steps[Math.min(step, steps.length - 1)];
      const [ax, ay, aw, ah] = boxes.a, [bx, by, bw, bh] = boxes.b;
      set(a, [ax + first / k * aw, ay + rows[0] / m * ah, (end - first) / k * aw, (rows[1] - rows[0]) / m * ah]);
      set(b, [bx + columns[0] / n * bw, by + first / k * bh, (columns[1] - columns[0]) / n * bw, (end - first) / k * bh]);
      c.style.fillOpacity = step / steps.length;
      const by_hand = Math.round(step / steps.length * 2);
      showToy(by_hand);
      marks.forEach((mark) => mark.move(Math.min(by_hand, 1)));
      panel.root.dataset.step = step;
      panel.say(step < steps.length ? `step ${step + 1} of ${steps.length}: k from ${first} to ${end - 1}` : "all steps are done: the tile of C is complete");
      if (told) panel.selection.set({step});
    }});
    panel.selection.on((state) => { if (state.step !== null && state.step !== player.step()) player.go(state.step, false); });
  });
})();
