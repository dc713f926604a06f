// Figures, times and items in words, as the terminal says them.

/** A number with three digits: 0.123, 1.23, 12.3, 123, 1234. */
export function figure(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const size = Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.max(0, 2 - size));
}

/** A time in the unit that suits it; given in ns. */
export function duration(ns) {
  const size = Math.abs(ns);
  if (size >= 999.5e6) return `${figure(ns / 1e9)} s`;
  if (size >= 999.5e3) return `${figure(ns / 1e6)} ms`;
  if (size >= 999.5) return `${figure(ns / 1e3)} µs`;
  return `${figure(ns)} ns`;
}

/** A number of bytes in decimal units, as rates are. */
export function size(count) {
  for (const [power, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (count >= 0.9995 * power) return `${figure(count / power)} ${unit}`;
  return `${count} B`;
}

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

/** Round times across a stretch, at most so many: {unit, ticks: [{time, label}]}. */
export function ticksOf(t0, t1, most) {
  const least = (t1 - t0) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-3)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= least * 0.999) ?? 10 * power;
  const furthest = Math.max(Math.abs(t0), Math.abs(t1));
  const [unit, ns] = UNITS.find(([, ns]) => furthest >= ns && step >= ns / 1e4) ?? UNITS.at(-1);
  const digits = Math.max(0, -Math.floor(Math.log10(step / ns) + 1e-9));
  const ticks = [];
  for (let n = Math.ceil(t0 / step); n * step <= t1; n++)
    ticks.push({ time: n * step, label: ((n * step) / ns).toFixed(Math.min(digits, 6)) });
  return { unit, ticks };
}

const SHOWN_ARROWS = 4;

/** What there is to say of an item of a view's scene: its name, and [what, value] pairs. */
export function describe(view, item) {
  const { scene } = view;
  const { items, kinds } = scene;
  const kind = kinds[items.kind[item]];
  const name = scene.text(items.name[item]) || kind.word;
  const lane = scene.lanes[scene.laneOf[item]];
  const facts = [["", `${kind.word}${lane ? `, ${lane.group === "findings" ? `number ${lane.short}` : view.spell(lane)}` : ""}`]];
  facts.push(["at", duration(items.start[item])]);
  if (items.length[item] > 0) facts.push(["takes", duration(items.length[item])]);
  const bytes = items.bytes[item];
  if (bytes >= 0) {
    const rate = items.length[item] > 0 ? `, ${size((bytes / items.length[item]) * 1e9)}/s` : "";
    facts.push(["moves", size(bytes) + rate]);
  }
  if (items.about[item] >= 0) facts.push(["why", scene.text(items.about[item])]);
  const arrows = scene.arrowsAt(item);
  for (const arrow of arrows.slice(0, SHOWN_ARROWS)) facts.push([arrowWords(arrow), otherWords(scene, item, arrow)]);
  if (arrows.length > SHOWN_ARROWS) facts.push(["", `and ${arrows.length - SHOWN_ARROWS} more arrows`]);
  if (scene.onPath(item)) facts.push(["", "on the critical path"]);
  return { name, facts };
}

const OUTWARD = { launch: "issues", event: "awaited by", fence: "fences", block: "keeps waiting" };
const INWARD = { launch: "issued by", event: "event wait for", fence: "fenced by", block: "waits for" };

function arrowWords({ kind, incoming }) {
  return (incoming ? INWARD : OUTWARD)[kind.look];
}

function otherWords(scene, item, { other, kind, incoming }) {
  const { items } = scene;
  const name = scene.text(items.name[other]) || scene.kinds[items.kind[other]].word;
  if (kind.look !== "launch") return name;
  const delay = (items.start[other] - items.start[item]) * (incoming ? -1 : 1);
  return `${name}, ${duration(Math.abs(delay))} ${incoming ? "before" : "later"}`;
}

/** The same as one sentence, for a screen reader. */
export function sentence(view, item) {
  const { name, facts } = describe(view, item);
  return `${name}: ${facts.map(([what, value]) => (what ? `${what} ${value}` : value)).join(", ")}.`;
}
