(() => {
  "use strict";
  tilewise.panel("beside", (panel) => {
    const {rungs, figures, questions, chosen, head} = panel.data;
    const draw = () => {
      const key = questions[chosen[2]][0], said = [];
      const title = panel.svg.querySelector("title"), desc = panel.svg.querySelector("desc");
      panel.svg.replaceChildren(title, desc);
      let top = 0;
      for (const name of [rungs[chosen[0]], rungs[chosen[1]]]) {
        tilewise.svg("text", {x: 16, y: top + 26, class: "large bold"}, panel.svg, name);
        const [height, answer, body] = figures[name][key] || [40, "there is no such figure of it.", ""];
        const place = tilewise.svg("g", {transform: `translate(0 ${top + head})`}, panel.svg);
        const parsed = new DOMParser().parseFromString(`<svg xmlns="http://www.w3.org/2000/svg">${body}</svg>`, "image/svg+xml");
        place.append(...[...parsed.documentElement.childNodes].map((node) => document.importNode(node, true)));
        if (!body) tilewise.svg("text", {x: 16, y: 20, class: "muted"}, place, answer);
        said.push(`${name}: ${answer}`);
        top += head + height;
      }
      panel.svg.setAttribute("viewBox", `0 0 720 ${top}`);
      title.textContent = `${rungs[chosen[0]]} and ${rungs[chosen[1]]}: ${questions[chosen[2]][1]}`;
      desc.textContent = said.join(" ");
      panel.say(said.join(" "));
    };
    const options = {options: rungs};
    tilewise.choice(panel.controls, {...options, label: "above", value: chosen[0], on: (index) => { chosen[0] = index; draw(); }});
    tilewise.choice(panel.controls, {...options, label: "below", value: chosen[1], on: (index) => { chosen[1] = index; draw(); }});
    tilewise.choice(panel.controls, {label: "figure", options: questions.map((one) => one[1]), value: chosen[2], on: (index) => { chosen[2] = index; draw(); }});
    draw();
  });
})();
