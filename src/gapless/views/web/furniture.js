// What stands around the canvas: the bar of controls, the map, the legend, the note beside the pointer.

import { swatch, themeNow } from "./looks.js";
import { describe } from "./words.js";

const GROUPS = { findings: "Findings", engines: "Engines", streams: "Streams", host: "Host", ranges: "Ranges" };
const HELP =
  "Arrow keys go from interval to interval and from lane to lane. Plus and minus zoom, Page Up and Page Down move in " +
  "time, Enter shows an interval from close by, 0 shows all, P lights up the critical path, Escape lets go.";
const SHOWN_IN_LEGEND = new Set(["sm", "h2d", "d2h", "peer", "memory", "host", "block", "alloc", "record", "wait"]);
const WORDS = {
  sm: "kernel", h2d: "copy to device", d2h: "copy to host", peer: "copy between devices", memory: "memset, copy on device",
  host: "host work", block: "call that waits", alloc: "allocation", record: "event record", wait: "event wait",
};

export function make(tag, { text, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text; // text from outside is text and nothing else
  element.append(...children);
  return element;
}

function button(words, sign, action, more = {}) {
  const made = make("button", { type: "button", "aria-label": words, title: words, text: sign, ...more });
  made.addEventListener("click", action);
  return made;
}

/** Build the parts of a view inside an element. */
export function furnish(element, view) {
  const { compact = false, map: mapped = !compact, label } = view.options;
  const canvas = make("canvas", { "aria-hidden": "true", class: "gl-canvas" });
  const map = !mapped ? null : make("canvas", { "aria-hidden": "true", class: "gl-map" });
  const note = make("div", { class: "gl-note", "aria-hidden": "true", hidden: "" });
  const live = make("p", { class: "gl-unseen", "aria-live": "polite" });
  const keys = make("p", { class: "gl-unseen", id: `gl-keys-${Math.random().toString(36).slice(2)}`, text: HELP });
  const stage = make("div", {
    class: "gl-stage", tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-describedby": keys.id,
  }, ...(map ? [map] : []), canvas, note);
  const root = make("div", { class: "gl", role: "group" });
  const legend = make("ul", { class: "gl-legend", "aria-label": "Legend" });
  const notes = make("ul", { class: "gl-notes" });
  const bar = compact ? null : makeBar(view);
  root.append(...(bar ? [bar.element] : []), stage, live, keys, ...(compact ? [] : [legend, notes]));
  element.append(root);
  return {
    root, stage, canvas, map, note, live,
    sync: () => bar?.sync(view),
    refresh({ scene }) {
      root.setAttribute("aria-label", label ?? scene.title);
      stage.setAttribute("aria-label", `${label ?? scene.title}: lanes to time`);
      bar?.groups(scene, view);
      bar?.sync(view);
      if (compact) return;
      fillLegend(legend, scene);
      notes.replaceChildren(...scene.notes.map((text) => make("li", { text })));
    },
  };
}

function makeBar(view) {
  const path = button("Critical path", "Critical path", () => view.lightPath(!view.path), { "aria-pressed": "false" });
  const arrows = button("Arrows", "Arrows", () => view.showArrows(!view.arrowsOn), { "aria-pressed": "true" });
  const groups = make("span", { class: "gl-groups", role: "group", "aria-label": "Lanes shown" });
  const element = make("div", { class: "gl-bar", role: "toolbar", "aria-label": "Timeline" },
    make("span", { class: "gl-set" },
      button("Zoom in", "+", () => view.zoom(0.5)), button("Zoom out", "−", () => view.zoom(2)),
      button("Earlier", "‹", () => view.pan(-0.5)), button("Later", "›", () => view.pan(0.5)),
      button("Show all", "All", () => view.fit())),
    make("span", { class: "gl-set" }, path, arrows), groups);
  return {
    element,
    sync({ path: lit, arrowsOn, hidden, scene }) {
      path.setAttribute("aria-pressed", String(lit));
      path.hidden = !scene?.path.length;
      arrows.setAttribute("aria-pressed", String(arrowsOn));
      for (const one of groups.children) one.setAttribute("aria-pressed", String(!hidden.has(one.dataset.group)));
    },
    groups(scene, { hidden }) {
      const there = [...new Set(scene.lanes.map((lane) => lane.group))];
      if (there.join() === Array.from(groups.children, (one) => one.dataset.group).join()) return;
      groups.replaceChildren(...there.map((group) =>
        button(`${GROUPS[group]} lanes`, GROUPS[group], () => view.showGroup(group, hidden.has(group)),
          { "data-group": group, "aria-pressed": "true" })));
    },
  };
}

function fillLegend(legend, scene) {
  const there = new Set();
  const { kind } = scene.items;
  const seen = new Uint8Array(scene.kinds.length);
  for (const one of kind) seen[one] = 1;
  scene.kinds.forEach(({ look }, number) => seen[number] && SHOWN_IN_LEGEND.has(look) && there.add(look));
  legend.replaceChildren(...Array.from(there, (look) => {
    const sample = make("canvas", { width: 32, height: 20, "aria-hidden": "true" });
    swatch(sample, look, themeNow());
    return make("li", {}, sample, document.createTextNode(WORDS[look]));
  }));
}

/** Say in the note what an item is; -1: hide it. */
export function tell(view, item) {
  const { note } = view.parts;
  note.hidden = item < 0;
  if (item < 0) return;
  const { name, facts } = describe(view, item);
  const list = make("dl");
  for (const [what, value] of facts) list.append(make("dt", { text: what }), make("dd", { text: value }));
  note.replaceChildren(make("strong", { text: name }), list);
}

/** Put the note beside what it is about. */
export function place(view, box) {
  const { note, canvas } = view.parts;
  if (!box) {
    note.hidden = true;
    view.told = undefined;
    return;
  }
  const at = Math.max(view.gutter, Math.min(box.x0, view.width));
  const left = Math.max(0, Math.min(at, view.width - note.offsetWidth - 8));
  note.style.left = `${left}px`;
  note.style.top = `${canvas.offsetTop + box.y + box.height + 6}px`;
}
