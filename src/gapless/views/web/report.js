// The report's page: puts the lanes into it, and lets findings jump to their evidence.

import { LaneView } from "./lanes.js";
import { unpack } from "./scene.js";
import { themeNow } from "./looks.js";

const $ = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];

async function start() {
  const content = JSON.parse($("#content").textContent);
  theme();
  const view = new LaneView($("#lanes"), await unpack(content.scene), {});
  findings(view);
  const compare = await comparison(content.repairs);
  for (const button of all("[data-compare]")) button.addEventListener("click", () => compare(Number(button.dataset.compare)));
  globalThis.gapless = { view }; // for whoever wants to look further from the browser's console
  document.documentElement.dataset.ready = performance.now().toFixed(1); // ms from when the page was asked for
}

function theme() {
  const button = $("#theme");
  const show = () => {
    const dark = themeNow() === "dark";
    button.setAttribute("aria-pressed", String(dark));
    document.documentElement.classList.toggle("dark", dark);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = themeNow() === "dark" ? "light" : "dark";
    show();
  });
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", show);
  show();
}

function findings(view) {
  const lanes = view.scene.lanes.filter((lane) => lane.group === "findings");
  const at = new Map(); // finding -> which of its places is shown
  const show = (finding, nth) => {
    const { count } = lanes[finding].tracks[0];
    if (nth !== null) at.set(finding, ((nth % count) + count) % count);
    view.light(finding, nth === null ? null : at.get(finding));
    at.set(finding, view.nth ?? 0);
    for (const button of all("[data-show]"))
      button.setAttribute("aria-pressed", String(Number(button.dataset.show) === finding));
    for (const words of all("[data-count]"))
      words.textContent =
        Number(words.dataset.count) === finding ? `${(at.get(finding) + 1).toLocaleString("en")} of ${count.toLocaleString("en")}` : "";
    const top = $("#lanes").getBoundingClientRect().top;
    if (top < 0 || top > innerHeight * 0.7) $("#timeline").scrollIntoView({ block: "start" });
  };
  for (const button of all("[data-show]"))
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-pressed") === "true") {
        view.light(null);
        button.setAttribute("aria-pressed", "false");
        view.fit();
      } else show(Number(button.dataset.show), null);
    });
  for (const button of all("[data-step]"))
    button.addEventListener("click", () => {
      const finding = Number(button.dataset.of);
      show(finding, at.has(finding) ? at.get(finding) + Number(button.dataset.step) : null);
    });
}

async function comparison(repairs) {
  if (!repairs.length) return () => {};
  const views = { measured: null, predicted: null };
  let shown = -1;
  const show = async (number) => {
    if (number === shown) return;
    shown = number;
    for (const words of all("[data-repair]")) words.hidden = Number(words.dataset.repair) !== number;
    const scenes = await Promise.all(Object.keys(views).map((side) => unpack(repairs[number][side])));
    if (number !== shown) return; // another one has been chosen meanwhile
    Object.keys(views).forEach((side, at) => {
      if (views[side]) views[side].take(scenes[at], { keep: false });
      else views[side] = new LaneView($(`#${side}`), scenes[at], { compact: true, label: side });
    });
    views.measured.follow(views.predicted);
  };
  for (const choice of all("input[name=repair]")) choice.addEventListener("change", () => show(Number(choice.value)));
  await show(0);
  return async (number) => {
    $(`input[name=repair][value="${number}"]`).checked = true;
    await show(number);
    $("#repaired").scrollIntoView({ block: "start" });
  };
}

try {
  await start();
} catch (problem) {
  $("#lanes").textContent = `The lanes cannot be drawn in this browser: ${problem.message}`;
  throw problem;
}
