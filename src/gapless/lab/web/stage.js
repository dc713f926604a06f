// The lanes: the drawing module of the views, with what the lab adds to it: lines at 3N and N+2, and words in the gaps.

import { mount } from "./lanes.js";
import { $, make, SPELT } from "./parts.js";

const LETTER = 5.8; // px of a word in a gap, about
const SIDES = 4; // px beside it
const MOST_RACES = 40; // that are marked
const ARROWS = {
  fence: (to, from) => `the default stream's fence: the arrow's end waits for its start (${to} waits for ${from})`,
  event: () => "a stream waits for an event",
  block: () => "the host waits for an operation",
};

export class Stage {
  constructor(element, { focused }) {
    this.element = element;
    this.focused = focused;
    this.over = make("div", { class: "over", "aria-hidden": "true" });
    this.legend = make("ul", { class: "legend", "aria-label": "What the lines mean" });
    this.run = null;
    this.view = null;
  }

  /** Draw a run. The axis reaches to what a loop takes one stage after another, so that a faster run is a shorter one. */
  async show(run) {
    const end = Math.max(run.wall, ...run.marks.map((mark) => mark.time));
    const zoomed = this.view && !this.whole;
    if (this.view) await this.view.load(run.scene, { keep: zoomed });
    else {
      this.view = await mount(this.element, run.scene, {
        label: "Lanes of this run",
        launches: false,
        map: false,
        stretch: 1.25,
        spelt: SPELT,
        onmove: () => this.place(),
        onfocus: (item) => this.focused(item >= 0 ? this.view.scene.text(this.view.scene.items.name[item]) : ""),
      });
      this.view.parts.stage.append(this.over);
      this.element.append(this.legend);
      new ResizeObserver(() => requestAnimationFrame(() => this.place())).observe(this.view.parts.stage);
    }
    this.run = run;
    this.end = end;
    this.view.limits = [-end * 0.01, end * 1.01];
    this.view.rule(run.marks.map((mark) => mark.time));
    this.legend.replaceChildren(...this.meanings());
    if (!zoomed) this.view.show(-end * 0.01, end * 1.01, { glide: false });
    this.place();
  }

  /** What the lines mean: an arrow of each kind that is there, and the times that the run is compared with. */
  meanings() {
    const { scene } = this.view;
    const { arrows, items, kinds } = scene;
    const name = (item) => scene.text(items.name[item]) || kinds[items.kind[item]].word;
    const lines = Object.entries(ARROWS).flatMap(([look, says]) => {
      const first = arrows.kind.findIndex((one) => arrows.kinds[one].look === look);
      return first < 0 ? [] : [make("li", { class: look, text: says(name(arrows.to[first]), name(arrows.from[first])) })];
    });
    return [...lines, ...this.run.marks.map(({ means }) => make("li", { class: "rule", text: means }))];
  }

  /** Whether the whole run is in view. */
  get whole() {
    const { view, end } = this;
    return view.t1 - view.t0 >= end * 1.015;
  }

  play(time) {
    this.time = time;
    this.view?.play(time);
    this.place();
  }

  /** Put the focus on an operation by its name. */
  point(name) {
    if (!this.view) return;
    const item = this.item(name);
    if (item >= 0) this.view.focus(item);
  }

  x(time) {
    const { view } = this;
    return view.gutter + ((time - view.t0) / (view.t1 - view.t0)) * (view.width - view.gutter);
  }

  /** Put lines and words where their times are. */
  place() {
    const { view, run } = this;
    if (!view || !run) return;
    const top = view.parts.canvas.offsetTop;
    const parts = [];
    for (const { time, text } of run.marks) {
      const x = this.x(time);
      if (x < view.gutter || x > view.width) continue;
      const mark = make("span", { class: "mark" }, make("span", { text }));
      mark.style.left = `${x}px`;
      mark.style.top = `${top}px`;
      mark.classList.toggle("left", x > view.width - 60);
      parts.push(mark);
    }
    parts.push(...this.issued(top));
    for (const { stream, got, from, to } of run.answers) {
      const row = stream !== undefined && view.rows.find(({ lane }) => lane?.group === "streams" && lane.short === stream);
      if (!row) continue;
      const left = Math.max(this.x(from), view.gutter);
      const span = make("span", { class: "elapsed" }, make("span", { text: `measured: ${got}` }));
      span.style.left = `${left}px`;
      span.style.top = `${top + row.y}px`;
      span.style.width = `${Math.max(0, Math.min(this.x(to), view.width) - left)}px`;
      span.style.height = `${row.height}px`;
      parts.push(span);
    }
    for (const row of view.rows) {
      if (row.lane?.group !== "engines") continue;
      for (const gap of run.idle) {
        if (gap.engine.replace(".", " of device ") !== row.lane.label) continue;
        const from = Math.max(this.x(gap.start), view.gutter);
        const wide = Math.min(this.x(Math.min(gap.end, run.wall)), view.width) - from;
        const text = gap.words.find((one) => one.length * LETTER + SIDES <= wide);
        if (!text || (this.time !== null && this.time !== undefined && this.time < gap.start)) continue;
        const word = make("span", { class: "gap", text });
        word.style.left = `${from}px`;
        word.style.top = `${top + row.y}px`;
        word.style.width = `${wide}px`;
        word.style.height = word.style.lineHeight = `${row.height}px`;
        parts.push(word);
      }
    }
    for (const name of new Set(run.races.slice(0, MOST_RACES).flatMap((race) => race.ops))) {
      const box = view.painter.box(this.item(name));
      if (!box || box.x1 < view.gutter || box.x0 > view.width) continue;
      const left = Math.max(box.x0, view.gutter);
      const mark = make("span", { class: "racing" }, make("span", { text: "race" }));
      mark.style.left = `${left - 2}px`;
      mark.style.top = `${top + box.y - 2}px`;
      mark.style.width = `${Math.max(6, Math.min(box.x1, view.width) - left) + 3}px`;
      mark.style.height = `${box.height + 4}px`;
      parts.push(mark);
    }
    this.over.replaceChildren(...parts);
  }

  /** How many operations the host has issued, over its lane, where the calls themselves take no time. */
  issued(top) {
    const { view, run } = this;
    const host = view.rows.find(({ lane }) => lane?.group === "host");
    if (!host) return [];
    const wide = (text) => text.length * LETTER + SIDES;
    const says = [(count) => `▾ ${count} operation${count === 1 ? "" : "s"} issued`, (count) => `▾ ${count} issued`, (count) => `▾${count}`];
    const marks = run.issued.map(({ time, count }) => ({ x: this.x(time), count })).filter(({ x }) => x >= view.gutter && x < view.width);
    const fits = (say) => marks.every(({ x, count }, i) => x + wide(say(count)) <= (marks[i + 1]?.x ?? view.width + SIDES));
    const say = says.find(fits);
    if (!say) return []; // too many to be told apart
    return marks.map(({ x, count }) => {
      const mark = make("span", { class: "issued", text: say(count) });
      mark.style.left = `${x}px`;
      mark.style.top = `${top + host.y - 16}px`;
      return mark;
    });
  }

  /** The item of an operation; -1 none. */
  item(name) {
    const { scene } = this.view;
    if (this.named !== scene) {
      this.named = scene;
      this.items = new Map();
      scene.items.name.forEach((string, item) => this.items.has(scene.text(string)) || this.items.set(scene.text(string), item));
    }
    return name ? (this.items.get(name) ?? -1) : -1;
  }
}

/** Several runs side by side, engines alone. */
export async function showCards(runs) {
  const element = make("div");
  for (const { preset, run } of runs) {
    const about = run.numbers?.[1]?.about ?? "";
    const title = make("h3", {}, make("a", { href: `#preset=${preset.slug}`, text: preset.title }));
    element.append(make("article", {}, title,
      make("p", { class: "about" }, make("strong", { text: `${run.numbers?.[1]?.reads ?? ""} = ${run.numbers?.[1]?.text ?? ""}` }), ` ${about}`), make("div", { class: "lanes" })));
  }
  $("cards").replaceChildren(...element.children);
  const lanes = $("cards").querySelectorAll(".lanes");
  for (const [i, { preset, run }] of runs.entries())
    await mount(lanes[i], run.scene, { compact: true, label: preset.title, groups: ["engines", "host"] });
}
