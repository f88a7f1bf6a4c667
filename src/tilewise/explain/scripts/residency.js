(() => {
  "use strict";
  tilewise.panel("residency", (panel) => {
    const {stairs, registers, threads} = panel.data;
    const nearest = (value) => stairs.reduce((best, one) => Math.abs(one[0] - value) < Math.abs(best[0] - value) ? one : best);
    tilewise.slider(panel.controls, {label: "registers of a thread", min: stairs[0][0], max: stairs[stairs.length - 1][0], step: 8, value: nearest(registers)[0],
      on: (value) => { const [, warps] = nearest(value); panel.say(`with ${value} registers a thread: ${warps} warps of an SM, ${Math.floor(warps * 32 / threads)} blocks of ${threads} threads`); }});
  });
})();
