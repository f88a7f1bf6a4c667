(() => {
  "use strict";
  tilewise.panel("banks", (panel) => {
    const {patterns, place: [LEFT, TOP, CELL, ROW]} = panel.data, group = panel.svg.querySelector('[data-name="pattern"]');
    let chosen = 0, upTo = -1;
    const draw = () => {
      const one = patterns[chosen];
      group.querySelectorAll("[data-word]").forEach((word) => word.remove());
      if (!group.dataset.cleared) { group.querySelectorAll(".f-good, .f-bad").forEach((word) => word.remove()); group.dataset.cleared = "yes"; }
      group.querySelector("text").textContent = `${one.name}`;
      for (const [lane, bank, turn] of one.words) {
        const served = upTo < 0 ? turn === 0 : turn <= upTo, now = upTo >= 0 && turn === upTo;
        tilewise.svg("rect", {"data-word": "", x: LEFT + bank * CELL + 1, y: TOP + lane * ROW + 1, width: CELL - 2, height: ROW - 2,
          class: now ? "f-mark" : served ? "f-good" : "f-bad half"}, group);
      }
      const head = `${one.where}: ${one.wavefronts} wavefronts, ${one.phases} without conflicts; ${one.runs} times`;
      panel.say(upTo < 0 ? head : `${head}. Turn ${upTo + 1} of the banks, of ${turns()}`);
    };
    const turns = () => 1 + Math.max(...patterns[chosen].words.map((word) => word[2]));
    const choose = (index) => { chosen = index; upTo = -1; draw(); };
    const access = tilewise.choice(panel.controls, {label: "access", options: patterns.map((one) => `${one.where}: ${one.name}, ${one.wavefronts} wavefronts (${one.phases})`), on: choose});
    const most = 1 + Math.max(...patterns.flatMap((one) => one.words.map((word) => word[2])));
    if (most > 1) tilewise.player(panel, {steps: most, rate: 6, on: (step) => { upTo = Math.min(step, turns() - 1); draw(); }});
    draw();
    tilewise.onLine(panel, patterns, (index) => { access.set(index); choose(index); });
  });
})();
