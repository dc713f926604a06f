// Lanes of intervals to time, on a canvas: what the report's page, the lab and the notebook all show timelines with.
//
//   import { mount } from "./lanes.js"          (and link lanes.css)
//   const view = await mount(element, scene)    scene: see gapless/views/scene.py
//
// The view can then be told what to show; every one of these may be called at any time:
//   view.show(t0, t1)        a stretch of time, in ns from the scene's zero
//   view.fit()               all of it
//   view.light(k, nth)       finding k (from 0): its spans lit up, the nth (default: a typical one) in view; null: none
//   view.lightPath(on)       the critical path lit up, all else dim
//   view.rule(times)         dashed lines at times to compare with, in ns, below the intervals
//   view.play(ns)            a playhead: what comes after it is only hinted at; null: none
//   await view.load(scene, {keep: true})   another scene, at the same stretch of time
//   view.follow(other)       two views zoom and pan together
//   view.destroy()
// Options of mount: {compact: true} leaves out the bar and the map, {map: false} the map alone; {stretch} makes lanes
// higher; {label} names the view for a screen reader; {groups} are the groups of lanes shown at first; {launches: false} draws
// which call issued what only for what has the focus; {spelt: {H2D: "H2D copy in"}} spells labels of lanes out where there is room; {onmove(t0, t1)} and {onfocus(item)} are told what the user does.

import { Track, unpack } from "./scene.js";
import { Painter } from "./paint.js";
import { MapPainter } from "./map.js";
import { themeNow } from "./looks.js";
import { sentence, ticksOf } from "./words.js";
import { furnish, place, tell } from "./furniture.js";
import { attach } from "./hands.js";

export { unpack } from "./scene.js";
export { duration, figure, size } from "./words.js";

const HEIGHT = { findings: 10, engines: 22, streams: 18, host: 18, ranges: 14 };
const INNER = { engines: 14, streams: 12, host: 12, ranges: 13 }; // of each track of several
const TITLES = { findings: "findings", engines: "engines", streams: "streams", host: "host", ranges: "ranges" };
const AXIS = 20;
const MAP = 34;
const HEAD = 18;
const GAP = 3;
const SHORTEST = 10; // ns that a view can be zoomed in to
const MARGIN = 0.01;
const GLIDE = 160; // ms that a jump takes

/** Show a scene inside an element. Rejects where the scene cannot be unpacked. */
export async function mount(element, scene, options = {}) {
  const unpacked = await unpack(scene);
  return new LaneView(element, unpacked, options);
}

export class LaneView {
  constructor(element, scene, options) {
    this.options = options;
    this.hidden = new Set(options.groups ? Object.keys(HEIGHT).filter((group) => !options.groups.includes(group)) : []);
    this.path = false;
    this.arrowsOn = true;
    this.finding = null; // number of the finding lit up
    this.hovered = this.focused = -1; // items, and the lanes in which they are meant
    this.hoverLane = this.focusLane = null;
    this.cursor = null;
    this.rules = [];
    this.followers = new Set();
    this.parts = furnish(element, this);
    this.painter = new Painter(this.parts.canvas);
    this.mapPainter = new MapPainter();
    this.stop = new AbortController(); // ends everything that listens
    this.take(scene);
    attach(this, this.stop.signal);
    this.watch();
  }

  /** Show another scene that has been unpacked; *keep*: at the same stretch of time. */
  take(scene, { keep = false } = {}) {
    this.scene = scene;
    this.hovered = this.focused = -1;
    this.hoverLane = this.focusLane = null;
    this.paths = new Map();
    if (!scene.lanes.some((lane) => lane.group === "findings" && Number(lane.short) === this.finding + 1)) this.finding = null;
    const margin = (scene.last - scene.first) * MARGIN;
    this.limits = [scene.first - margin, scene.last + margin];
    if (!keep) {
      cancelAnimationFrame(this.gliding);
      this.t0 = scene.start - (scene.end - scene.start) * MARGIN;
      this.t1 = scene.end + (scene.end - scene.start) * MARGIN;
    }
    this.parts.refresh(this);
    this.layOut();
  }

  async load(json, options) {
    this.take(await unpack(json), options);
  }

  // What is shown

  show(t0, t1, { glide = true } = {}) {
    const [least, most] = this.limits;
    const wide = Math.min(Math.max(t1 - t0, SHORTEST), most - least);
    const from = Math.min(Math.max(t0 + (t1 - t0 - wide) / 2, least), most - wide);
    cancelAnimationFrame(this.gliding);
    const still = !glide || matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still || this.t1 - this.t0 <= 0) return this.move(from, from + wide);
    const [a, b, began] = [this.t0, this.t1, performance.now()];
    const step = (now) => {
      const done = Math.min(1, Math.max(0, (now - began) / GLIDE));
      const eased = 1 - (1 - done) ** 3;
      this.move(a + (from - a) * eased, b + (from + wide - b) * eased);
      if (done < 1) this.gliding = requestAnimationFrame(step);
    };
    this.gliding = requestAnimationFrame(step);
  }

  move(t0, t1) {
    this.t0 = t0;
    this.t1 = t1;
    this.draw();
    for (const other of this.followers)
      if (other.t0 !== t0 || other.t1 !== t1) other.move(t0, t1);
    this.options.onmove?.(t0, t1);
  }

  fit() {
    const { start, end } = this.scene;
    this.show(start - (end - start) * MARGIN, end + (end - start) * MARGIN);
  }

  /** Zoom by a factor (below 1: in) around a time. */
  zoom(factor, around = this.middle(), glide = true) {
    this.show(around - (around - this.t0) * factor, around + (this.t1 - around) * factor, { glide });
  }

  /** Move by a share of what is shown. */
  pan(share, glide = true) {
    const by = (this.t1 - this.t0) * share;
    this.show(this.t0 + by, this.t1 + by, { glide });
  }

  /** Where zooming by keys and buttons holds on to: what has the focus, if it is in view. */
  middle() {
    const { items } = this.scene;
    const at = this.focused >= 0 ? items.start[this.focused] + items.length[this.focused] / 2 : NaN;
    return at >= this.t0 && at <= this.t1 ? at : (this.t0 + this.t1) / 2;
  }

  follow(other) {
    this.followers.add(other);
    other.followers.add(this);
    this.limits = other.limits = [
      Math.min(this.limits[0], other.limits[0]), Math.max(this.limits[1], other.limits[1]),
    ];
    other.move(this.t0, this.t1);
  }

  light(finding, nth = null) {
    const lanes = this.scene.lanes.filter((lane) => lane.group === "findings");
    this.finding = finding === null || !lanes[finding] ? null : finding;
    const track = this.finding === null ? null : lanes[finding].tracks[0];
    if (track?.count) {
      const i = nth === null ? typical(track) : ((nth % track.count) + track.count) % track.count;
      this.nth = i; // of the finding's spans is the one in view
      const wide = Math.max(track.length(i), (this.scene.end - this.scene.start) / 1e5);
      this.show(track.start(i) - 1.5 * wide, track.end(i) + 1.5 * wide);
      this.focus(track.rows[i], { reveal: false });
    } else this.draw();
  }

  lightPath(on) {
    this.path = on;
    this.parts.sync(this);
    this.draw();
  }

  showArrows(on) {
    this.arrowsOn = on;
    this.parts.sync(this);
    this.draw();
  }

  showGroup(group, on) {
    if (on) this.hidden.delete(group);
    else this.hidden.add(group);
    this.parts.sync(this);
    this.layOut();
  }

  rule(times) {
    this.rules = times;
    this.draw();
  }

  /** The label of a lane, spelt out. */
  spell({ label }) {
    return this.options.spelt?.[label] ?? label;
  }

  play(time) {
    this.cursor = time;
    this.draw();
  }

  /** Give the focus to an item (-1: none), as it is drawn in a lane, bring it into view and say what it is. */
  focus(item, { reveal = true, lane = null } = {}) {
    this.focused = item;
    this.focusLane = lane;
    if (item >= 0) {
      const { items } = this.scene;
      const [start, end] = [items.start[item], this.scene.itemEnd[item]];
      if (reveal && (end < this.t0 || start > this.t1)) {
        const wide = this.t1 - this.t0;
        this.show(start - wide * 0.4, start + wide * 0.6);
      }
      this.parts.live.textContent = sentence(this, item);
    }
    this.options.onfocus?.(item);
    this.draw();
  }

  hover(item, lane = null) {
    if (item === this.hovered && lane === this.hoverLane) return;
    this.hovered = item;
    this.hoverLane = lane;
    this.draw();
  }

  /** Show an item as wide as its surroundings allow. */
  closeUp(item) {
    const { items } = this.scene;
    const wide = Math.max(items.length[item], SHORTEST);
    this.show(items.start[item] - wide, items.start[item] + 2 * wide);
  }

  // Where things are

  layOut() {
    const rows = [];
    let y = AXIS + GAP;
    let group = "";
    for (const lane of this.scene.lanes) {
      if (this.hidden.has(lane.group)) continue;
      if (lane.group !== group) {
        group = lane.group;
        if (!this.options.compact) {
          rows.push({ y, height: HEAD, text: TITLES[group], measured: lane.measured });
          y += HEAD;
        }
      }
      const several = lane.tracks.length > 1;
      const trackHeight = Math.round((several ? INNER[group] : HEIGHT[group]) * (this.options.stretch ?? 1));
      const height = trackHeight * lane.tracks.length;
      rows.push({ lane, y, height, trackHeight });
      y += height + GAP;
    }
    this.rows = rows;
    this.rowOf = new Map(rows.filter((row) => row.lane).map((row) => [row.lane.number, row]));
    this.height = y + GAP;
    this.resize();
  }

  resize() {
    const width = Math.max(200, Math.floor(this.parts.stage.clientWidth));
    const scale = matchMedia("print").matches ? 2 : Math.min(3, window.devicePixelRatio || 1);
    this.width = width;
    this.scale = scale;
    this.gutter = width < 560 ? 62 : 148;
    fit(this.parts.canvas, width, this.height, scale);
    if (this.parts.map) {
      this.parts.map.style.marginLeft = `${this.gutter}px`;
      fit(this.parts.map, width - this.gutter, MAP, scale);
    }
    this.paint();
  }

  timeAt(x) {
    return this.t0 + ((x - this.gutter) / (this.width - this.gutter)) * (this.t1 - this.t0);
  }

  /** The row of a lane at a height of the canvas, in px. */
  rowAt(y) {
    return this.rows.find((one) => one.lane && y >= one.y && y < one.y + one.height + GAP);
  }

  /** The item at a place of the canvas, in px; -1 none. */
  itemAt(x, y) {
    const row = this.rowAt(y);
    if (!row || x < this.gutter) return -1;
    const near = ((this.t1 - this.t0) / (this.width - this.gutter)) * 3;
    const time = this.timeAt(x);
    const track = row.lane.tracks[Math.min(row.lane.tracks.length - 1, Math.floor((y - row.y) / row.trackHeight))];
    for (const one of [row.lane.glyphs, track]) {
      const first = one.firstOpen(time - near);
      const after = one.firstFrom(time + near, first);
      if (first >= after) continue;
      const inside = one === track && one.firstOpen(time);
      if (inside !== false && inside < after && one.start(inside) <= time) return one.rows[inside];
      return one.rows[one.longest(first, after)];
    }
    return -1;
  }

  /** The items of a lane's track (null: of all of them) that are on the critical path, as a track. */
  pathOf(lane, number) {
    const key = `${lane.number} ${number}`;
    if (!this.paths.has(key)) {
      const { items, itemEnd } = this.scene;
      const track = number === null ? new Track(lane.rows, items.start, itemEnd) : lane.tracks[number];
      this.paths.set(key, track.only((item) => this.scene.onPath(item)));
    }
    return this.paths.get(key);
  }

  // Drawing

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (!this.stop.signal.aborted) this.paint();
    });
  }

  frame() {
    const findings = this.scene.lanes.filter((lane) => lane.group === "findings");
    const ticks = ticksOf(this.t0, this.t1, (this.width - this.gutter) / 90);
    return {
      scene: this.scene, t0: this.t0, t1: this.t1, width: this.width, height: this.height, scale: this.scale,
      gutter: this.gutter, axisHeight: AXIS, rows: this.rows, rowOf: this.rowOf, theme: themeNow(),
      finding: this.finding === null ? null : findings[this.finding], hovered: this.hovered, hoverLane: this.hoverLane,
      focused: this.focused, focusLane: this.focusLane,
      cursor: this.cursor, rules: this.rules, spell: (lane) => this.spell(lane), path: this.path, pathOf: (lane, number) => this.pathOf(lane, number),
      arrows: this.arrowsOn, launches: this.options.launches ?? true, ...ticks,
    };
  }

  paint() {
    const began = performance.now();
    const frame = this.frame();
    this.painter.paint(frame);
    if (this.parts.map) this.mapPainter.paint(this.parts.map, frame, this.limits);
    this.parts.root.dataset.theme = frame.theme;
    const hovers = this.hovered >= 0;
    const shown = hovers ? this.hovered : document.activeElement === this.parts.stage ? this.focused : -1;
    if (shown !== this.told) tell(this, (this.told = shown));
    place(this, shown >= 0 ? this.painter.box(shown, hovers ? this.hoverLane : this.focusLane) : null);
    this.cost = performance.now() - began; // ms
  }

  watch() {
    const { signal } = this.stop;
    const sized = new ResizeObserver(() => this.resize());
    sized.observe(this.parts.stage);
    const themed = new MutationObserver(() => this.recolor());
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    for (const query of ["(prefers-color-scheme: dark)", "print"])
      matchMedia(query).addEventListener("change", () => (this.resize(), this.recolor()), { signal });
    addEventListener("beforeprint", () => this.resize(), { signal });
    addEventListener("afterprint", () => this.resize(), { signal });
    signal.addEventListener("abort", () => (sized.disconnect(), themed.disconnect()));
  }

  recolor() {
    this.parts.refresh(this);
    this.draw();
  }

  destroy() {
    this.stop.abort();
    for (const other of this.followers) other.followers.delete(this);
    this.parts.root.remove();
  }
}

function fit(canvas, width, height, scale) {
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}

/** A span from the middle of those that make up half of the whole time, so that neither the shortest nor a freak shows. */
function typical(track) {
  const lengths = Float64Array.from({ length: track.count }, (_, i) => track.length(i)).sort();
  let left = track.covered[track.count] / 2;
  let least = lengths.at(-1);
  for (let i = lengths.length - 1; i >= 0 && left > 0; i--) left -= least = lengths[i];
  const usual = [];
  for (let i = 0; i < track.count; i++) if (track.length(i) >= least) usual.push(i);
  return usual[usual.length >> 1];
}
