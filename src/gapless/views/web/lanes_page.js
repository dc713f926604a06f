// A page of lanes and nothing else: what a notebook shows of a timeline, a schedule or a pipeline's run.

import { mount } from "./lanes.js";

const element = document.querySelector("#lanes");
const view = await mount(element, JSON.parse(document.querySelector("#content").textContent)).catch((problem) => {
  element.textContent = `The lanes cannot be drawn in this browser: ${problem.message}`;
  throw problem;
});
document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
globalThis.gapless = { view }; // for whoever wants to look further from the browser's console
document.documentElement.dataset.ready = performance.now().toFixed(1); // ms from when the page was asked for
