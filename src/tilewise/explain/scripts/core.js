"use strict";
// What all panels share: the data, one selection that is kept in the address, controls, and keys.
const tilewise = (() => {
  const makers = {}, panels = {};
  const FIELDS = {e: "element", b: "block", w: "warp", l: "lane", s: "step", n: "line"};
  const EMPTY = {element: null, block: null, warp: null, lane: null, step: null, line: null};
  const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;

  // -- the selection
  let state = {...EMPTY}, listeners = [];
  const readHash = () => {
    const found = {...EMPTY};
    for (const part of location.hash.slice(1).split("&")) {
      const match = /^([ebwlsn])=(\d{1,9})(?:,(\d{1,9}))?$/.exec(part);
      if (!match || (match[1] === "e") !== (match[3] !== undefined)) continue;
      found[FIELDS[match[1]]] = match[1] === "e" ? [Number(match[2]), Number(match[3])] : Number(match[2]);
    }
    return found;
  };
  const writeHash = () => {
    const parts = Object.entries(FIELDS).filter(([, name]) => state[name] !== null)
      .map(([key, name]) => `${key}=${name === "element" ? state[name].join(",") : state[name]}`);
    history.replaceState(null, "", parts.length ? "#" + parts.join("&") : location.pathname + location.search);
  };
  const tell = () => listeners.forEach((listener) => guard(() => listener({...state})));
  const selection = {
    get: () => ({...state}),
    set: (change) => {
      const next = {...state, ...change};
      if (JSON.stringify(next) === JSON.stringify(state)) return;
      state = next;
      writeHash();
      tell();
    },
    on: (listener) => { listeners.push(listener); guard(() => listener({...state})); },
  };
  const guard = (action) => { try { return action(); } catch (error) { console.error(error); return undefined; } };

  // -- the data
  const inflate = async () => {
    const text = document.getElementById("data").textContent;
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    const length = Number(new DataView(buffer).getBigUint64(0, true));
    const kinds = {Int8Array, Uint8Array, Int16Array, Int32Array};
    return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)), (_, value) => {
      if (!value || !value.$array) return value;
      const [kind, offset, count, shape] = value.$array;
      const array = new kinds[kind](buffer, 8 + length + offset, count);
      array.shape = shape;
      return array;
    });
  };

  // -- elements
  const make = (name, attributes, parent, text) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const svg = (name, attributes, parent, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const button = (parent, label, action) => {
    const made = make("button", {type: "button"}, parent, label);
    made.addEventListener("click", () => guard(action));
    return made;
  };
  const slider = (parent, {label, min, max, step = 1, value, on}) => {
    const box = make("label", {}, parent, label);
    const input = make("input", {type: "range", min, max, step}, box);
    const shown = make("span", {}, box, String(value));
    input.value = value;
    const change = () => { shown.textContent = input.value; guard(() => on(Number(input.value))); };
    input.addEventListener("input", change);
    return {set: (next) => { input.value = next; shown.textContent = input.value; }, input};
  };
  const choice = (parent, {label, options, value = 0, on}) => {
    const box = make("label", {}, parent, label);
    const select = make("select", {}, box);
    options.forEach((text, index) => make("option", {value: index}, select, text));
    select.value = value;
    select.addEventListener("change", () => guard(() => on(Number(select.value))));
    return {set: (next) => { select.value = next; }};
  };

  // Steps that are played, gone through one by one, or scrubbed.
  const player = (panel, {steps, on, rate = 4}) => {
    let at = 0, timer = 0, speed = rate, last = 0;
    const play = button(panel.controls, "play", () => toggle());
    button(panel.controls, "←", () => go(at - 1)).setAttribute("aria-label", "a step back");
    button(panel.controls, "→", () => go(at + 1)).setAttribute("aria-label", "a step on");
    const scrub = slider(panel.controls, {label: "step", min: 0, max: steps - 1, value: 0, on: (value) => go(value)});
    const go = (step, told = true) => {
      at = Math.max(0, Math.min(steps - 1, step));
      scrub.set(at);
      guard(() => on(at, told));
    };
    const stop = () => { cancelAnimationFrame(timer); timer = 0; play.textContent = "play"; };
    const frame = (now) => {
      if (!timer) return;
      if (now - last >= 1000 / speed) { last = now; go(at + 1); }
      if (at >= steps - 1) return stop();
      timer = requestAnimationFrame(frame);
    };
    const toggle = () => {
      if (timer) return stop();
      if (reduced) return go(at >= steps - 1 ? 0 : steps - 1);
      if (at >= steps - 1) go(0);
      play.textContent = "pause";
      last = performance.now();
      timer = requestAnimationFrame(frame);
    };
    const keys = {" ": toggle, ArrowLeft: () => { stop(); go(at - 1); }, ArrowRight: () => { stop(); go(at + 1); },
      "[": () => { speed = Math.max(speed / 2, 0.5); }, "]": () => { speed = Math.min(speed * 2, 64); }};
    panel.keys = {...panel.keys, ...keys};
    return {go, step: () => at};
  };

  // Cells under a pointer, or that arrow keys move over: one focusable element, whose active cell says what it is.
  const grid = (panel, {x, y, width, height, rows, columns, label, describe, on}) => {
    const id = `${panel.key}-cell`;
    const group = svg("g", {role: "grid", tabindex: 0, "aria-label": label, "aria-rowcount": rows, "aria-colcount": columns}, panel.svg);
    const area = svg("rect", {x, y, width, height, class: "grid-area"}, group);
    const row = svg("g", {role: "row"}, group);
    const cell = svg("rect", {role: "gridcell", id, class: "none s-text thick", width: width / columns, height: height / rows, opacity: 0}, row);
    let at = [0, 0];
    const show = (r, c, tell = true) => {
      at = [Math.max(0, Math.min(rows - 1, r)), Math.max(0, Math.min(columns - 1, c))];
      cell.setAttribute("x", x + at[1] * width / columns);
      cell.setAttribute("y", y + at[0] * height / rows);
      cell.setAttribute("opacity", 1);
      cell.setAttribute("aria-label", describe(...at));
      group.setAttribute("aria-activedescendant", id);
      if (tell) guard(() => on(...at));
    };
    const point = (event) => {
      const box = area.getBoundingClientRect();
      show(Math.floor((event.clientY - box.top) / box.height * rows), Math.floor((event.clientX - box.left) / box.width * columns));
    };
    area.addEventListener("pointermove", point);
    area.addEventListener("pointerdown", (event) => { point(event); group.focus(); });
    const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    group.addEventListener("keydown", (event) => {
      if (!moves[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      show(at[0] + moves[event.key][0], at[1] + moves[event.key][1]);
    });
    return {show, hide: () => cell.setAttribute("opacity", 0)};
  };

  // -- the page
  const theme = () => {
    const root = document.documentElement, button_ = document.getElementById("theme");
    const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const name = () => { button_.textContent = dark() ? "light" : "dark"; };
    try { const kept = localStorage.getItem("tilewise-theme"); if (kept === "dark" || kept === "light") root.dataset.theme = kept; } catch { /* no storage */ }
    button_.hidden = false;
    button_.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("tilewise-theme", root.dataset.theme); } catch { /* no storage */ }
      name();
    });
    name();
  };
  const keys = () => {
    const sections = [...document.querySelectorAll("section")], help = document.getElementById("help");
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || help.open) return;
      const inField = /^(INPUT|SELECT|BUTTON|SUMMARY|TEXTAREA)$/.test(event.target.tagName);
      if (event.key === "?") help.showModal();
      else if (event.key === "Escape") selection.set(EMPTY);
      else if (/^[1-9]$/.test(event.key) && sections[event.key - 1]) {
        sections[event.key - 1].focus({preventScroll: true});
        sections[event.key - 1].scrollIntoView({behavior: reduced ? "auto" : "smooth"});
      } else if (!inField) {
        const section = event.target.closest && event.target.closest("section");
        const action = section && panels[section.id] && panels[section.id].keys[event.key];
        if (!action) return;
        event.preventDefault();
        guard(action);
      }
    });
  };
  const start = async () => {
    theme();
    keys();
    state = readHash();
    addEventListener("hashchange", () => { if (/[=]/.test(location.hash) || !location.hash) { state = readHash(); tell(); } });
    const data = await inflate();
    for (const [key, maker] of Object.entries(makers)) {
      const root = document.getElementById(key), line = root.querySelector(".say");
      const say = (text) => { line.textContent = text; };
      panels[key] = {key, root, svg: root.querySelector("figure svg"), data: data[key], controls: root.querySelector(".controls"), say, selection, reduced, keys: {}};
      guard(() => maker(panels[key]));
    }
    for (const picture of document.querySelectorAll(".picture")) {
      if (picture.scrollWidth <= picture.clientWidth) continue;
      const about = {tabindex: 0, role: "region", "aria-label": `${picture.closest("section").querySelector("h2").textContent} The figure`};
      Object.entries(about).forEach(([name, value]) => picture.setAttribute(name, value));
    }
    document.documentElement.dataset.ready = "yes";
  };
  // Calls with the index of the pattern of the line that is chosen, whenever another line is.
  const onLine = (panel, patterns, show) => {
    let last = null;
    panel.selection.on(({line}) => {
      const index = line === last ? -1 : patterns.findIndex((one) => one.where.endsWith(`:${line}`));
      last = line;
      if (index >= 0) show(index);
    });
  };
  return {panel: (key, maker) => { makers[key] = maker; }, start: () => guard(start), svg, button, slider, choice, player, grid, onLine, panels, selection};
})();
