// The threshold explorer, and the switch between light and dark.
//
// Everything shown is counted beforehand: for each threshold the page looks up four counts and one
// packed picture. Names are only ever set as text.
"use strict";

(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  // ---- light and dark -------------------------------------------------------------------------
  const KEY = "knifeedge-theme";
  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be off for pages opened from disk
    }
  };
  const themeButton = byId("theme");
  const showTheme = (theme) => {
    if (theme) root.dataset.theme = theme;
    const dark = (theme || (systemDark.matches ? "dark" : "light")) === "dark";
    themeButton.textContent = dark ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", dark ? "Switch to light" : "Switch to dark");
    return dark;
  };
  let dark = showTheme(remembered());
  systemDark.addEventListener("change", () => (dark = showTheme(root.dataset.theme)));
  themeButton.addEventListener("click", () => {
    const theme = dark ? "light" : "dark";
    dark = showTheme(theme);
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // not remembered then
    }
  });

  // ---- the explorer ---------------------------------------------------------------------------
  const data = JSON.parse(byId("data").textContent);
  if (data.views.length === 0) return;
  const slider = byId("threshold");
  const canvas = byId("judged");
  const backdrop = byId("backdrop");
  const pen = canvas.getContext("2d");
  const curveLayer = byId("live-curve");
  const strip = byId("strip");
  const SVG = "http://www.w3.org/2000/svg";
  // Nothing, hit, false alarm, miss: the colours of the match pictures.
  const COLOURS = data.colours.map(([r, g, b], n) => [r, g, b, n ? 255 : 0]);
  const KEPT = 24; // pictures unpacked at a time, a few MB each
  const unpacked = new Map();
  const state = { view: 0, image: 0, loss: 0 };

  const view = () => data.views[state.view];
  const image = () => view().images[state.image];
  const loss = () => view().losses[state.loss];
  const judged = () => image().losses[state.loss];
  const level = () => Number(slider.value) - 1;

  // Counts at a threshold: matched edges, edges, matched pixels of the map, pixels of the map.
  const at = (counts, t) => [counts.matched_gt[t], counts.gt, counts.matched_map[t], counts.map[t]];
  const scores = ([matchedGt, gt, matchedMap, map]) => {
    const precision = matchedMap / Math.max(map, 1);
    const recall = matchedGt / Math.max(gt, 1);
    const total = precision + recall;
    return { precision, recall, f: 2 * precision * (recall / (total === 0 ? 1 : total)) };
  };
  const bestLevel = (counts) => {
    let best = 0;
    let most = -1;
    for (let t = 0; t < 99; t++) {
      const { f } = scores(at(counts, t));
      if (f > most) [best, most] = [t, f];
    }
    return best;
  };
  const element = (name, attributes, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const shape = (name, attributes) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  // One map's classes at all thresholds, 2 bits a pixel: inflated, the differences undone.
  const classes = (one, size) => {
    if (!unpacked.has(one)) {
      if (unpacked.size >= KEPT) unpacked.delete(unpacked.keys().next().value);
      unpacked.set(one, inflate(one.packed, Math.ceil(size / 4)));
    }
    return unpacked.get(one);
  };
  const inflate = async (text, row) => {
    const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer());
    for (let n = row; n < planes.length; n++) planes[n] ^= planes[n - row];
    return planes;
  };

  const draw = async () => {
    const { width, height } = image();
    const one = judged();
    const t = level();
    if (!one) return;
    const planes = await classes(one, width * height);
    if (one !== judged() || t !== level()) return; // moved on while this was unpacked
    const row = Math.ceil((width * height) / 4);
    const picture = pen.createImageData(width, height);
    const drawn = [0, 0, 0, 0];
    for (let pixel = 0; pixel < width * height; pixel++) {
      const kind = (planes[t * row + (pixel >> 2)] >> (2 * (pixel & 3))) & 3;
      drawn[kind]++;
      if (kind) picture.data.set(COLOURS[kind], 4 * pixel);
    }
    pen.putImageData(picture, 0, 0);
    canvas.dataset.shown = `${state.view} ${state.image} ${state.loss} ${t + 1}`;
    canvas.dataset.hits = drawn[1];
    canvas.dataset.falseAlarms = drawn[2];
    canvas.dataset.misses = drawn[3];
  };

  const put = (id, value, text) => {
    const cell = byId(id);
    cell.textContent = text;
    cell.dataset.value = value;
  };
  const show = () => {
    const t = level();
    const one = judged();
    for (const [where, counts] of [["image", one], ["all", loss()]]) {
      const [matchedGt, gt, matchedMap, map] = counts ? at(counts, t) : [0, 0, 0, 0];
      const { precision, recall, f } = scores([matchedGt, gt, matchedMap, map]);
      const texts = { precision, recall, f };
      for (const name in texts) put(`${where}-${name}`, texts[name], texts[name].toFixed(4));
      const numbers = { hits: matchedMap, "false-alarms": map - matchedMap, misses: gt - matchedGt };
      for (const name in numbers) {
        put(`${where}-${name}`, numbers[name], numbers[name].toLocaleString("en-GB"));
      }
    }
    const text = ((t + 1) / 100).toFixed(2);
    put("shown-threshold", (t + 1) / 100, text);
    const f = byId("image-f").textContent;
    slider.setAttribute("aria-valuetext", `${text}; F of this image ${f}`);
    slider.style.setProperty("--at", `${(t / 98) * 100}%`);
    canvas.setAttribute(
      "aria-label",
      `${image().name} with ${loss().name} at threshold ${text}: ` +
        `${byId("image-hits").textContent} hits, ` +
        `${byId("image-false-alarms").textContent} false alarms, ` +
        `${byId("image-misses").textContent} misses`,
    );
    movePoints(t);
    draw().catch(() => (byId("explorer-problem").hidden = false));
  };

  // ---- curves ---------------------------------------------------------------------------------
  const [left, top, wide, tall] = curveLayer.dataset.plot.split(" ").map(Number);
  const place = (counts, t) => {
    const { precision, recall } = scores(at(counts, t));
    return [left + recall * wide, top + (1 - precision) * tall];
  };
  const levels = Array.from({ length: 99 }, (_, t) => t);
  const path = (points) => (points.length ? "M" + points.map((p) => p.join(" ")).join("L") : "M0 0");
  const prPath = (counts) =>
    path(
      levels.filter((t) => counts.map[t] > 0)
        .map((t) => place(counts, t).map((x) => x.toFixed(1))),
    );
  const fPath = (counts) =>
    path(levels.map((t) => [t, ((1 - scores(at(counts, t)).f) * 100).toFixed(2)]));
  const points = {};
  const drawCurves = () => {
    const one = judged();
    const colour = `c${state.loss % 6}`;
    curveLayer.replaceChildren();
    strip.replaceChildren();
    for (const [name, counts] of [["image", one], ["all", loss()]]) {
      if (!counts) continue;
      curveLayer.append(shape("path", { class: `curve ${colour} of-${name}`, d: prPath(counts) }));
      strip.append(shape("path", { class: `curve ${colour} of-${name}`, d: fPath(counts) }));
    }
    for (const [name, t] of [["fixed", loss().fixed], ["best", loss().best]]) {
      strip.append(shape("path", { class: `at-${name}`, d: `M${t - 1} 0V100` }));
    }
    points.line = shape("path", { class: "now", d: "M0 0V100" });
    strip.append(points.line);
    for (const [name, counts] of [["image", one], ["all", loss()]]) {
      points[name] = shape("circle", { class: `point ${colour} of-${name}`, r: 6 });
      if (counts) curveLayer.append(points[name]);
    }
  };
  const movePoints = (t) => {
    points.line.setAttribute("d", `M${t} 0V100`);
    for (const [name, counts] of [["image", judged()], ["all", loss()]]) {
      if (!counts) continue;
      const [x, y] = place(counts, t);
      points[name].setAttribute("cx", x.toFixed(2));
      points[name].setAttribute("cy", y.toFixed(2));
    }
  };

  // ---- choosing -------------------------------------------------------------------------------
  const radios = (box, name, entries, chosen, choose) => {
    const old = box.querySelector("legend");
    box.replaceChildren(old);
    entries.forEach((entry, number) => {
      const input = element("input", { type: "radio", name, value: number });
      input.checked = number === chosen;
      input.addEventListener("change", () => choose(number));
      const parts = [input];
      if (entry.picture) parts.push(element("img", { src: entry.picture, alt: "" }));
      const words = element("span", {});
      words.textContent = entry.name;
      box.append(element("label", { title: entry.name }, ...parts, words));
    });
  };
  const setLevel = (t) => {
    slider.value = Math.min(99, Math.max(1, t));
    show();
  };
  const jumpButton = (id, t, words) => {
    const button = byId(id);
    button.textContent = `${words} ${(t / 100).toFixed(2)}`;
    button.onclick = () => setLevel(t);
  };
  const picture = (kind) => byId(`picture-${view().run}-${image().number}-${kind}`);
  const showBackdrop = () => {
    const kind = document.querySelector("input[name=backdrop]:checked").value;
    const source = kind === "map" ? `map-${state.loss}` : kind;
    const chosen = kind === "none" ? null : picture(source);
    backdrop.hidden = !chosen;
    if (chosen) backdrop.src = chosen.src;
  };
  const refresh = () => {
    const { width, height } = image();
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    delete canvas.dataset.shown;
    pen.clearRect(0, 0, width, height);
    byId("image-name").textContent = image().name;
    byId("stage").style.aspectRatio = `${width} / ${height}`;
    canvas.classList.toggle("small", width < 500);
    jumpButton("to-fixed", loss().fixed, "Fixed beforehand");
    jumpButton("to-best", loss().best, "Best on all images");
    const one = judged();
    if (one) jumpButton("to-image", bestLevel(one) + 1, "Best on this one");
    showBackdrop();
    drawCurves();
    show();
  };
  const chooseLoss = (number) => {
    state.loss = number;
    refresh();
  };
  const chooseImage = (number) => {
    state.image = number;
    refresh();
  };
  const chooseView = (number, imageNumber = 0) => {
    state.view = number;
    state.image = imageNumber;
    state.loss = Math.min(state.loss, view().losses.length - 1);
    byId("all-name").textContent = `all ${view().total} images`;
    byId("explorer-protocol").textContent = view().protocol;
    const entries = view().images.map((one) => ({
      name: one.name,
      picture: byId(`picture-${view().run}-${one.number}-image`).src,
    }));
    radios(byId("images"), "image", entries, state.image, chooseImage);
    radios(byId("losses"), "loss", view().losses, state.loss, chooseLoss);
    slider.value = loss().fixed;
    refresh();
  };

  const views = byId("view");
  data.views.forEach((one, number) => {
    const option = element("option", { value: number });
    option.textContent = one.title;
    views.append(option);
  });
  byId("view-box").hidden = data.views.length < 2;
  views.addEventListener("change", () => chooseView(Number(views.value)));
  slider.addEventListener("input", show); // the slider's handler
  for (const input of document.querySelectorAll("input[name=backdrop]")) {
    input.addEventListener("change", showBackdrop);
  }
  const follow = (event) => {
    const box = strip.getBoundingClientRect();
    setLevel(Math.round(((event.clientX - box.left) / box.width) * 98) + 1);
  };
  strip.addEventListener("pointerdown", (event) => {
    strip.setPointerCapture(event.pointerId);
    follow(event);
  });
  strip.addEventListener("pointermove", (event) => event.buttons && follow(event));
  for (const button of document.querySelectorAll("button[data-explore]")) {
    const [run, number] = button.dataset.explore.split(" ").map(Number);
    const found = data.views.findIndex((one) => one.run === run);
    const place = found < 0 ? -1 : data.views[found].images.findIndex((i) => i.number === number);
    button.hidden = place < 0;
    button.addEventListener("click", () => {
      views.value = found;
      chooseView(found, place);
      byId("explorer").scrollIntoView();
      slider.focus({ preventScroll: true });
    });
  }
  byId("explorer-body").hidden = false;
  chooseView(0);
})();
