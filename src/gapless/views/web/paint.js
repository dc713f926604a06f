// Paints a scene on a canvas: a step a pixel column where intervals are tiny, blocks with names where they are not.

import { bound } from "./scene.js";
import { drawArrows } from "./arrows.js";
import { bare, glyph, INK, legible, PATTERN, patternOf } from "./looks.js";

const FONT = '11px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const LETTER = 6; // px that a letter of a block's name takes, about
const HALO = 4; // px of a block's own colour around its name, half of them outside the letters
const STEPS = 8; // heights of a column of tiny intervals
const APART = 14; // px between records and waits of events, on average, from which they are drawn
const FIGURES = 90; // px of the gutter from which it says how busy a lane is
const MOST_BANDS = 400; // beyond which they are not drawn one by one

/** Paints one frame of what a view shows: {scene, t0, t1, width, height, gutter, rows, ...} (see LaneView.frame). */
export class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d", { alpha: false });
    this.fitted = new Map();
  }

  paint(frame) {
    const { ctx } = this;
    this.frame = frame;
    this.ink = INK[frame.theme];
    this.scale = frame.scale;
    this.perNs = (frame.width - frame.gutter) / (frame.t1 - frame.t0);
    this.blocks = []; // items drawn as blocks, with their place, for arrows
    ctx.setTransform(frame.scale, 0, 0, frame.scale, 0, 0);
    ctx.font = FONT;
    ctx.textBaseline = "middle";
    ctx.fillStyle = this.ink.paper;
    ctx.fillRect(0, 0, frame.width, frame.height);
    this.rowsBehind();
    this.axis();
    ctx.save();
    ctx.beginPath();
    ctx.rect(frame.gutter, 0, frame.width - frame.gutter, frame.height);
    ctx.clip();
    if (frame.finding) this.bands(frame.finding);
    this.rules();
    this.lanes();
    if (frame.arrows) drawArrows(this);
    this.ring(frame.hovered, frame.hoverLane, this.ink.muted);
    this.ring(frame.focused, frame.focusLane, this.ink.ring);
    if (frame.cursor !== null) this.line(this.x(frame.cursor), frame.axisHeight, frame.height, this.ink.ring, 1.5);
    ctx.restore();
    this.labels();
  }

  x(time) {
    return this.frame.gutter + (time - this.frame.t0) * this.perNs;
  }

  rowsBehind() {
    const { ctx, frame, ink } = this;
    for (const row of frame.rows) {
      if (!row.lane) continue;
      ctx.fillStyle = ink.band;
      ctx.fillRect(frame.gutter, row.y, frame.width - frame.gutter, row.height);
    }
  }

  axis() {
    const { ctx, frame, ink } = this;
    ctx.textAlign = "left";
    for (const tick of frame.ticks) {
      const x = Math.round(this.x(tick.time)) + 0.5;
      if (x < frame.gutter) continue;
      this.line(x, frame.axisHeight - 5, frame.height, ink.faint, 1);
      ctx.fillStyle = ink.muted;
      ctx.fillText(tick.label, x + 3, frame.axisHeight / 2);
    }
    ctx.fillText(frame.unit, 4, frame.axisHeight / 2);
  }

  /** Dashed lines at times that are compared with: below the intervals, of which they hide nothing. */
  rules() {
    const { ctx, frame, ink } = this;
    ctx.setLineDash([5, 4]);
    for (const time of frame.rules) this.line(this.x(time), frame.axisHeight, frame.height, ink.rule, 1.5);
    ctx.setLineDash([]);
  }

  line(x, y0, y1, color, width) {
    const { ctx } = this;
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.beginPath();
    ctx.moveTo(x, y0);
    ctx.lineTo(x, y1);
    ctx.stroke();
  }

  /** Shade the stretches of time in which a finding costs, as long as they can be told apart. */
  bands(lane) {
    const { ctx, frame, ink } = this;
    const track = lane.tracks[0];
    const first = track.firstOpen(frame.t0);
    const after = track.firstFrom(frame.t1, first);
    if (after - first > MOST_BANDS) return;
    ctx.fillStyle = ink.mark;
    for (let i = first; i < after; i++) {
      const x = this.x(track.start(i));
      ctx.fillRect(x, frame.axisHeight, Math.max(1, this.x(track.end(i)) - x), frame.height);
    }
  }

  lanes() {
    for (const row of this.frame.rows) {
      if (!row.lane) continue;
      if (this.isCrowded(row.lane)) this.lane(row.lane, row.lane.busy, null, row.y, row.height);
      else
        row.lane.tracks.forEach((track, number) => {
          const gap = row.lane.tracks.length > 1 ? 1 : 0;
          this.lane(row.lane, track, number, row.y + number * row.trackHeight, row.trackHeight - gap);
        });
      this.glyphs(row);
    }
  }

  /** Whether a lane of several tracks holds more than can be told apart: then how busy it is says more. */
  isCrowded({ tracks, nested, busy }) {
    if (tracks.length === 1 || nested) return false;
    const { frame } = this;
    const first = busy.firstOpen(frame.t0);
    return busy.firstFrom(frame.t1, first) - first > (frame.width - frame.gutter) / 2;
  }

  lane(lane, track, number, y, height) {
    const { ctx, frame } = this;
    if (frame.cursor !== null) return this.played(track, y, height);
    const dims = frame.path && lane.group !== "findings";
    ctx.globalAlpha = dims ? 0.22 : 1;
    this.track(track, y, height);
    ctx.globalAlpha = 1;
    if (dims) this.track(frame.pathOf(lane, number), y, height, true);
  }

  /** What is done by now in full, what is to come as a hint. */
  played(track, y, height) {
    const { ctx, frame } = this;
    const x = this.x(frame.cursor);
    ctx.globalAlpha = 0.15;
    this.track(track, y, height);
    ctx.globalAlpha = 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, y, x, height);
    ctx.clip();
    this.track(track, y, height);
    ctx.restore();
  }

  track(track, y, height, lit = false) {
    const { ctx, frame, ink } = this;
    const { kinds, items } = frame.scene;
    const pixel = 1 / this.scale;
    const perPixel = pixel / this.perNs;
    const { starts, ends, covered, rows } = track;
    const base = y + height;
    const tiny = new Map(); // look -> one shape of all columns of tiny intervals, as a list of [x, top, x after]
    let i = track.firstOpen(frame.t0);
    while (i < track.count && starts[i] < frame.t1) {
      if (ends[i] - starts[i] >= perPixel) {
        this.block(rows[i], starts[i], ends[i], y, height, lit);
        i++;
        continue;
      }
      // All that begin in this pixel column: as high as they fill the time, in the colour of the longest.
      const column = Math.floor((starts[i] - frame.t0) / perPixel);
      let next = Math.max(i + 1, track.firstFrom(frame.t0 + (column + 1) * perPixel, i));
      const longest = track.longest(i, next);
      if (ends[longest] - starts[longest] >= perPixel) next = Math.max(i + 1, longest);
      const step = Math.max(1, Math.min(STEPS, Math.round(((covered[next] - covered[i]) / perPixel) * STEPS)));
      const { look } = kinds[items.kind[rows[longest < next ? longest : i]]];
      const x = frame.gutter + column * pixel;
      const top = base - Math.max(2, (height * step) / STEPS);
      let shape = tiny.get(look);
      if (!shape) tiny.set(look, (shape = []));
      if (shape.length && shape[shape.length - 1] === x && shape[shape.length - 2] === top) shape[shape.length - 1] += pixel;
      else shape.push(x, top, x + pixel);
      i = next;
    }
    for (const [look, shape] of tiny) {
      ctx.fillStyle = ink[look];
      ctx.beginPath();
      for (let at = 0; at < shape.length; at += 3) {
        ctx.moveTo(shape[at], base);
        ctx.lineTo(shape[at], shape[at + 1]);
        ctx.lineTo(shape[at + 2], shape[at + 1]);
        ctx.lineTo(shape[at + 2], base);
      }
      ctx.fill();
    }
  }

  block(item, start, end, y, height, lit) {
    const { ctx, frame, ink } = this;
    const { items, kinds, strings } = frame.scene;
    const { look } = kinds[items.kind[item]];
    const from = Math.max(this.x(start), frame.gutter - 4);
    const wide = Math.min(this.x(end), frame.width + 4) - from;
    const gap = wide >= 3 ? 0.75 : 0;
    ctx.fillStyle = ink[look];
    ctx.fillRect(from, y, wide - gap, height);
    if (wide >= 5 && PATTERN[look]) {
      ctx.fillStyle = patternOf(ctx, look, frame.theme, this.scale);
      ctx.fillRect(from, y, wide - gap, height);
    }
    if (lit) {
      ctx.strokeStyle = ink.path;
      ctx.lineWidth = 1.5;
      ctx.strokeRect(from + 0.75, y + 0.75, Math.max(0, wide - gap - 1.5), height - 1.5);
    }
    this.blocks.push(item);
    if (look === "finding" || height < 11) return;
    const room = Math.floor((Math.min(wide, frame.width - from) - 8) / LETTER);
    if (room < 2 || items.name[item] < 0) return;
    const name = bare(strings[items.name[item]]);
    if (room < Math.min(4, name.length)) return;
    ctx.fillStyle = legible(ink[look]);
    ctx.textAlign = "left";
    const text = name.length <= room ? name : name.slice(0, room - 1) + "…";
    const place = [text, Math.max(from, frame.gutter) + 4, y + height / 2 + 0.5, wide - 6];
    if (PATTERN[look]) {
      // A halo clears the pattern around the letters alone, so that the block stays one piece.
      ctx.strokeStyle = ink[look];
      ctx.lineWidth = HALO;
      ctx.lineJoin = "round";
      ctx.strokeText(...place);
    }
    ctx.fillText(...place);
  }

  /** Records and waits of events: a dot where it is recorded, a bar with a notch where a stream waits for it. */
  glyphs(row) {
    const { ctx, frame, ink } = this;
    const track = row.lane.glyphs;
    const first = track.firstFrom(frame.t0);
    const after = track.firstFrom(frame.t1, first);
    if ((after - first) * APART > frame.width) return; // they would hide what they stand on
    for (let i = first; i < after; i++) {
      const item = track.rows[i];
      const { look } = frame.scene.kinds[frame.scene.items.kind[item]];
      glyph(ctx, look, ink[look], this.x(track.start(i)), row.y, row.height);
    }
  }

  /** Where an item is drawn, in a lane of several: {x0, x1, y, height}; null where its lane is not shown. */
  box(item, lane = null) {
    const { frame } = this;
    const { scene } = frame;
    const row = item >= 0 && frame.rowOf.get(lane ? lane.number : scene.laneOf[item]);
    if (!row) return null;
    const track = lane && lane.number !== scene.laneOf[item] ? lane.trackOf(item, scene.items.start[item]) : scene.trackOf[item];
    const x0 = this.x(scene.items.start[item]);
    const height = row.trackHeight;
    const x1 = Math.max(x0 + 1, this.x(scene.itemEnd[item]));
    return { x0, x1, y: row.y + track * height, height };
  }

  ring(item, lane, color) {
    const box = this.box(item, lane);
    if (!box) return;
    const { ctx } = this;
    const wide = Math.max(5, box.x1 - box.x0);
    ctx.strokeStyle = color;
    ctx.lineWidth = 2;
    ctx.strokeRect(box.x0 - 1, box.y - 1, wide + 1, box.height + 2);
  }

  labels() {
    const { ctx, frame, ink } = this;
    ctx.fillStyle = ink.paper;
    ctx.fillRect(0, frame.axisHeight, frame.gutter, frame.height);
    ctx.font = FONT;
    const { start, done } = frame.scene;
    const inside = [Math.max(frame.t0, start), Math.min(frame.t1, done)];
    const measured = inside[0] < inside[1] ? inside : [frame.t0, frame.t1]; // the margins are no part of the run
    for (const row of frame.rows) {
      if (!row.lane) {
        ctx.fillStyle = ink.muted;
        ctx.textAlign = "left";
        ctx.fillText(row.text, 4, row.y + row.height / 2, frame.gutter - 8);
        ctx.textAlign = "right";
        if (row.measured && frame.gutter >= FIGURES) ctx.fillText("busy", frame.gutter - 6, row.y + row.height / 2);
        continue;
      }
      const middle = row.y + row.height / 2;
      const share = row.lane.measured ? row.lane.busy.share(...measured) : null;
      const figure = share === null || frame.gutter < FIGURES ? "" : `${share > 0 && share < 0.005 ? "<1" : Math.round(share * 100)}%`;
      ctx.fillStyle = ink.ink;
      ctx.textAlign = "left";
      const room = frame.gutter - 16 - (figure ? 34 : 0);
      if (row.height >= 10) ctx.fillText(this.fitting([frame.spell(row.lane), row.lane.label, row.lane.label.split(" (")[0], row.lane.short], room), 8, middle);
      ctx.fillStyle = ink.muted;
      ctx.textAlign = "right";
      if (figure) ctx.fillText(figure, frame.gutter - 6, middle);
    }
    ctx.textAlign = "left";
  }

  /** The first of some texts that fits into so many px, else what fits of the last. */
  fitting(texts, room) {
    const key = `${room} ${texts.join("\n")}`;
    if (!this.fitted.has(key)) {
      const wide = (text) => this.ctx.measureText(text).width;
      let text = texts.find((one) => wide(one) <= room);
      if (text === undefined) {
        const last = texts.at(-1);
        text = last.slice(0, bound(Math.min(last.length, 200), (length) => wide(`${last.slice(0, length + 1)}…`) <= room)) + "…";
      }
      this.fitted.set(key, text);
    }
    return this.fitted.get(key);
  }
}
