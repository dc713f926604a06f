// Play, step and scrub: where the playhead is, and what each engine does there.

import { $, lookOf, make, SPELT } from "./parts.js";
import { duration as inUnits } from "./words.js";

const SECONDS = 6; // that a whole run plays
const STILL = 700; // ms from step to step where motion is not wanted

const duration = (ns) => (ns === 0 ? "0 ms" : inUnits(ns));

export class Player {
  /** *moved(time)* is told where the playhead is; null: at the end, all is shown. */
  constructor(moved) {
    this.moved = moved;
    this.run = { wall: 0, ops: [], idle: [], engines: [] };
    this.moments = [0];
    this.time = null;
    this.playing = false;
    const on = (id, does) => $(id).addEventListener("click", does);
    on("play", () => (this.playing ? this.stop() : this.start()));
    on("step", () => this.step(1));
    on("back-step", () => this.step(-1));
    on("first", () => this.go(0));
    on("last", () => this.go(null));
    $("scrub").addEventListener("input", () => {
      const time = Number($("scrub").value);
      this.go(time >= this.run.wall ? null : time);
    });
    $("player").addEventListener("keydown", (event) => this.key(event));
  }

  /** Take another run; the playhead stays where it is, if the run gets there. */
  take(run) {
    this.run = run;
    const moments = new Set([0]);
    for (const op of run.ops) moments.add(op.start).add(op.end);
    this.moments = [...moments].filter((time) => time < run.wall).sort((a, b) => a - b);
    $("scrub").max = Math.max(1, run.wall);
    if (this.time !== null && this.time >= run.wall) this.time = null;
    this.show();
  }

  go(time) {
    this.stop();
    this.set(time);
  }

  set(time) {
    this.time = time;
    this.show();
    this.moved(time);
  }

  /** To the next moment at which something starts or ends, or the one before. */
  step(by) {
    this.stop();
    const now = this.time ?? this.run.wall;
    const next = by > 0 ? this.moments.find((time) => time > now) : this.moments.findLast((time) => time < now);
    if (by > 0) this.set(next ?? null);
    else if (next !== undefined) this.set(next);
  }

  start() {
    if (!this.run.wall) return;
    if (this.time === null) this.set(0);
    this.playing = true;
    this.showButton();
    $("now").setAttribute("aria-live", "off");
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.timer = setInterval(() => this.tick(this.moments.find((time) => time > this.time)), STILL);
      return;
    }
    let before = performance.now();
    const frame = (now) => {
      if (!this.playing) return;
      const time = this.time + ((now - before) / 1000 / SECONDS) * this.run.wall;
      before = now;
      this.tick(time < this.run.wall ? time : undefined);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  tick(time) {
    if (time === undefined) this.go(null);
    else this.set(time);
  }

  stop() {
    this.playing = false;
    clearInterval(this.timer);
    $("now").setAttribute("aria-live", "polite");
    this.showButton();
  }

  showButton() {
    $("play").textContent = this.playing ? "❚❚" : "▶";
    $("play").setAttribute("aria-label", this.playing ? "Stop" : "Play");
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const does = { ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), Home: () => this.go(0), End: () => this.go(null) }[event.key];
    const space = event.key === " " && event.target.tagName !== "BUTTON";
    if (!does && !space) return;
    event.preventDefault();
    if (space) $("play").click();
    else does();
  }

  /** Lines of the tape whose operations run at the playhead. */
  lines() {
    if (this.time === null) return new Set();
    return new Set(this.run.ops.filter((op) => op.start <= this.time && this.time < op.end).map((op) => op.line));
  }

  show() {
    const { run, time } = this;
    const said = time === null ? `${duration(run.wall)}, the end` : duration(time);
    $("scrub").value = time ?? run.wall;
    $("scrub").setAttribute("aria-valuetext", said);
    $("clock").value = time === null ? duration(run.wall) : `${duration(time)} of ${duration(run.wall)}`;
    $("now").hidden = time === null;
    if (time !== null) $("now").replaceChildren(...run.engines.flatMap((engine) => this.now(engine, time)));
  }

  /** What an engine does at a time, or why it does nothing. */
  now(engine, time) {
    const busy = this.run.ops.filter((op) => op.engine === engine && op.start <= time && time < op.end);
    const gap = this.run.idle.find((one) => one.engine === engine && one.start <= time && time < one.end);
    const said = busy.length ? busy.slice(0, 4).map((op) => `${op.name} (stream ${op.stream})`).join(", ") + (busy.length > 4 ? ` and ${busy.length - 4} more` : "")
      : gap ? `idle: ${gap.why}` : "idle";
    return [
      make("dt", { class: lookOf(engine), text: engine, title: SPELT[engine] }),
      make("dd", { class: busy.length ? "busy" : "idle", text: said }),
    ];
  }
}
