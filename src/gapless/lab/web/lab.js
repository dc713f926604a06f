// The lab's page. It shows what the local server works out: the model itself is Python's.
//
// One state: {preset} a preset as it is, {loop} a chunk loop, {tape} a tape; with from (the preset it came from) and t.
// The address holds it, so that every state is a link. Whatever changes it ends in show().

import { $, make } from "./parts.js";
import * as link from "./link.js";
import { Controls } from "./controls.js";
import { Editor } from "./editor.js";
import { Player } from "./player.js";
import { Stage, showCards } from "./stage.js";
import { Files } from "./files.js";
import { Explained } from "./explained.js";
import { showNumbers, tellRun } from "./told.js";

const TYPING = 150; // ms without a key before a tape is played
const QUIET = 250; // ms without a change before the address is written: browsers allow few of these
const FIRST = "one-stream";

const state = { preset: FIRST, loop: null, tape: null, from: null, t: null };
const presets = new Map();
let asking = null; // the request on its way
let waiting = 0; // the timer of typing
let run = null; // what is shown

const stage = new Stage($("lanes"), { focused: (name) => pointAt(name) });
const player = new Player((time) => {
  stage.play(time);
  editor.light(player.lines());
  if (!player.playing) remember({ t: time });
});
const controls = new Controls($("controls"), (loop) => change({ preset: null, loop, tape: null, from: origin() }));
const editor = new Editor($("editor"), (text) => change({ preset: null, loop: null, tape: text, from: origin() }, TYPING));
new Files({
  tape: (text) => {
    select("tape");
    change({ preset: null, loop: null, tape: text, from: null });
  },
  timeline: (file) => explained.take(file),
  say,
});
const explained = new Explained();

/** Say something beside the page's title; *ofRun*: until another run goes well. */
function say(words, ofRun = false) {
  $("status").textContent = words;
  $("status").classList.toggle("of-run", ofRun);
}

const origin = () => state.preset ?? state.from;

// The state

/** Take another state. Going from a tape to a loop or back is a step that the Back button undoes. */
function change(next, delay = 0) {
  const kind = (one) => (one.tape !== null ? "tape" : "loop");
  const steps = state.preset !== null || kind(state) !== kind({ ...state, ...next });
  Object.assign(state, { t: null }, next);
  player.stop();
  player.time = null;
  remember({}, steps);
  clearTimeout(waiting);
  waiting = setTimeout(show, delay);
}

let written = 0;
let writing = 0; // the timer of the address

/** Keep the state in the address: at once as a step of its own, else when things have been quiet for a moment. */
function remember(more, step = false) {
  Object.assign(state, more);
  clearTimeout(writing);
  if (step) writeAddress("pushState");
  else writing = setTimeout(writeAddress, QUIET);
}

async function writeAddress(how = "replaceState") {
  clearTimeout(writing);
  const turn = ++written;
  const hash = `#${await link.write(state)}`;
  if (turn === written && hash !== location.hash) history[how](null, "", hash);
}

async function open() {
  clearTimeout(writing);
  written++;
  let next;
  try {
    next = await link.read(location.hash.slice(1));
    if (next?.preset && !presets.has(next.preset)) throw new Error(`There is no preset “${next.preset.slice(0, 60)}”.`);
  } catch (problem) {
    say(problem.message);
    next = null;
  }
  Object.assign(state, { preset: null, loop: null, tape: null, from: null, t: null }, next ?? { preset: FIRST });
  clearTimeout(waiting);
  explained.close();
  select(state.tape !== null || presets.get(state.preset)?.tape ? "tape" : "controls");
  await show();
}

/** What the server is asked to play for a state. */
function asked() {
  const preset = presets.get(state.preset);
  if (preset?.loop) return { loop: preset.loop };
  if (preset?.tape) return { tape: preset.tape };
  return state.tape !== null ? { tape: state.tape } : { loop: state.loop };
}

// Showing it

async function show() {
  showWords();
  const preset = presets.get(state.preset);
  $("cards").hidden = !preset?.beside;
  $("one").hidden = Boolean(preset?.beside);
  document.body.classList.toggle("beside", Boolean(preset?.beside));
  if (preset?.beside) return showBeside(preset);
  const answer = await play(asked());
  if (!answer) return;
  await take(answer);
  drawn();
}

async function showBeside(preset) {
  controls.show(null);
  asking?.abort();
  const runs = [];
  for (const slug of preset.beside) {
    const one = presets.get(slug);
    runs.push({ preset: one, run: await post(one.loop ? { loop: one.loop } : { tape: one.tape }) });
  }
  if (presets.get(state.preset) !== preset) return;
  await showCards(runs);
  drawn();
}

/** Ask the server to play something; a question that is asked meanwhile takes its place. */
async function play(body) {
  asking?.abort();
  const mine = (asking = new AbortController());
  document.body.classList.add("waiting");
  try {
    return await post(body, mine.signal);
  } catch (problem) {
    if (problem.name !== "AbortError") say("The lab's server does not answer. Start it again: gapless lab", true);
    return null;
  } finally {
    if (asking === mine) document.body.classList.remove("waiting");
  }
}

async function post(body, signal) {
  const answer = await fetch("/play", { method: "POST", body: JSON.stringify(body), signal });
  return answer.json();
}

async function take(answer) {
  const { error } = answer;
  $("stale").hidden = !(error && run);
  document.body.classList.toggle("broken", Boolean(error));
  showProblem(error);
  if (error) {
    editor.mark(new Map(), error);
    $("tab-tape").classList.add("wrong");
    if (!run) $("one").hidden = true;
    controls.show(state.loop ?? presets.get(state.preset)?.loop ?? null);
    return;
  }
  $("one").hidden = false;
  $("tab-tape").classList.remove("wrong");
  run = answer;
  run.marks = marksOf(run);
  controls.show(state.tape !== null || presets.get(state.preset)?.tape ? null : (state.loop ?? presets.get(state.preset).loop));
  editor.show(run.tape);
  editor.mark(lineMarks(run));
  if (state.loop) $("title").textContent = run.title;
  showNumbers(run.numbers);
  $("more").hidden = !run.more_ops;
  tellRun(run, ({ line, op }) => {
    stage.point(op);
    if (line) {
      select("tape");
      editor.go(line);
    }
  });
  player.time = state.t !== null && state.t < run.wall ? state.t : null;
  player.take(run);
  await stage.show(run);
  stage.play(player.time);
  editor.light(player.lines());
}

/** Say that another state is drawn, to whoever waits for it. */
function drawn() {
  document.body.dataset.drawn = location.hash.slice(1);
}

/** Lines across the lanes: what a loop takes serially and pipelined. */
function marksOf({ numbers, title }) {
  if (!title) return [];
  return [numbers[0], numbers[2]].map(({ name, reads, time }) => {
    const short = reads.length < 8;
    return { text: short ? reads : name, time, means: short ? `${reads}: ${name} time` : `${name} time` };
  });
}

function lineMarks({ races, expected, failed }) {
  const marks = new Map();
  for (const { line, holds } of expected) marks.set(line, holds ? "holds" : "fails");
  for (const { lines } of races) for (const line of lines) marks.set(line, "race");
  for (const { line } of failed) marks.set(line, "error");
  marks.delete(0);
  return marks;
}

function showProblem(error) {
  const parts = [];
  if (error?.line) {
    const { line, column, length, said, hint } = error;
    parts.push(make("p", {}, make("strong", { text: `Line ${line}, column ${column}: ` }), said));
    parts.push(make("button", { type: "button", text: "Show it", on: { click: () => editor.go(line, column, length) } }));
    if (hint)
      parts.push(make("button", { type: "button", text: `Write ${hint}`, on: { click: () => editor.replace(line, column, length, hint) } }));
  } else if (error) parts.push(make("p", {}, make("strong", { text: "This cannot be played: " }), error.said));
  $("problem").replaceChildren(...parts);
  if (error && $("tape").hidden) say(error.line ? `Line ${error.line}: ${error.said}` : error.said, true);
  else if ($("status").classList.contains("of-run")) say("");
}

function showWords() {
  const preset = presets.get(origin());
  const changed = state.preset === null;
  $("point").textContent = preset?.point ?? "";
  $("title").textContent = !changed ? preset.title : state.tape !== null ? "A tape" : "A loop over chunks";
  $("why").textContent = changed ? "" : preset.why;
  $("changed").hidden = !changed || !preset;
  $("changed-said").textContent = preset ? `You changed “${preset.title}”.` : "";
  document.title = `${$("title").textContent} · gapless lab`;
  for (const one of document.querySelectorAll("#points a")) {
    if (one.dataset.slug !== state.preset) {
      one.removeAttribute("aria-current");
      continue;
    }
    one.setAttribute("aria-current", "page");
    const list = $("lesson");
    const { top, bottom } = one.getBoundingClientRect();
    if (bottom > list.getBoundingClientRect().bottom || top < 0) list.scrollTop += top - list.clientHeight / 3;
  }
}

/** Show where an operation stands in the tape. */
function pointAt(name) {
  const op = name && run?.ops.find((one) => one.name === name);
  if (op) editor.reveal(op.line);
}

// The page around it

function select(name) {
  for (const one of ["controls", "tape"]) {
    const tab = $(`tab-${one}`);
    tab.setAttribute("aria-selected", String(one === name));
    tab.tabIndex = one === name ? 0 : -1;
    $(one).hidden = one !== name;
  }
}

for (const name of ["controls", "tape"]) $(`tab-${name}`).addEventListener("click", () => select(name));
document.querySelector('[role="tablist"]').addEventListener("keydown", (event) => {
  if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
  const other = $("controls").hidden ? "controls" : "tape";
  select(other);
  $(`tab-${other}`).focus();
});

$("back").addEventListener("click", () => (location.hash = `#preset=${state.from}`));

$("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part behind # is the state
  $("stage").focus();
});

$("share").addEventListener("click", async () => {
  await writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    say("Link copied. In another lab, keep its address and take the part from # on.");
  } catch {
    say("The link is the address of this page: copy it from there.");
  }
});

$("save").addEventListener("click", () => {
  const name = (presets.get(origin())?.slug ?? "lab").replace(/[^\w-]/g, "");
  const url = URL.createObjectURL(new Blob([editor.text], { type: "text/plain" }));
  make("a", { href: url, download: `${name}.tape` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  say(`Saved. Play it anywhere: gapless simulate ${name}.tape`);
});

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;

function theme() {
  const now = chosen ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = now;
  $("theme").setAttribute("aria-pressed", String(now === "dark"));
}

dark.addEventListener("change", theme);
$("theme").addEventListener("click", () => {
  chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  theme();
});

async function start() {
  theme();
  const { points } = await (await fetch("/lesson")).json();
  for (const { title, presets: inside } of points) {
    const rows = inside.map((preset) => {
      presets.set(preset.slug, { ...preset, point: title });
      return make("li", {}, make("a", { href: `#preset=${preset.slug}`, "data-slug": preset.slug, text: preset.title }));
    });
    $("points").append(make("section", {}, make("h3", { text: title }), make("ol", {}, ...rows)));
  }
  if (matchMedia("(max-width: 1100px)").matches) $("lesson-list").open = false;
  $("points").addEventListener("click", (event) => {
    if (event.target.closest("a") && matchMedia("(max-width: 1100px)").matches) $("lesson-list").open = false;
  });
  addEventListener("hashchange", open);
  await open();
}

start().catch((problem) => say(`The lab cannot start: ${problem.message}`));
