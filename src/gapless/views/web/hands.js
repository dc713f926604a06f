// What the user's hands do: pointer, wheel, fingers, keys. They all end in the view's own words: zoom, pan, focus.

const DRAG = 3; // px from which a press is a drag
const WHEEL = 0.0022; // zoom a px of wheel

/** Listen to the hands on a view until a signal ends it. */
export function attach(view, signal) {
  const { stage, canvas, map } = view.parts;
  const on = (target, type, does, options = {}) => target.addEventListener(type, does, { signal, ...options });
  const fingers = new Fingers(view);
  on(canvas, "pointerdown", (event) => fingers.down(event));
  on(canvas, "pointermove", (event) => fingers.move(event));
  for (const type of ["pointerup", "pointercancel"]) on(canvas, type, (event) => fingers.up(event));
  on(canvas, "pointerleave", (event) => event.pointerType === "mouse" && view.hover(-1));
  on(canvas, "dblclick", (event) => {
    const item = view.itemAt(event.offsetX, event.offsetY);
    if (item >= 0) view.closeUp(item);
    else view.zoom(0.4, view.timeAt(event.offsetX));
  });
  on(stage, "wheel", (event) => wheel(view, event), { passive: false });
  on(stage, "keydown", (event) => key(view, event));
  for (const type of ["focus", "blur"]) on(stage, type, () => view.draw());
  if (map) attachMap(view, map, on);
}

function attachMap(view, map, on) {
  const jump = (event) => {
    if (!(event.buttons & 1)) return;
    const [first, last] = view.limits;
    const time = first + (event.offsetX / map.clientWidth) * (last - first);
    const half = (view.t1 - view.t0) / 2;
    view.show(time - half, time + half, { glide: false });
  };
  on(map, "pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    jump(event);
  });
  on(map, "pointermove", jump);
}

/** Presses, drags and pinches; a mouse has one finger. */
class Fingers {
  constructor(view) {
    this.view = view;
    this.pressed = new Map(); // pointer -> x
    this.moved = false;
  }

  down(event) {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    this.view.parts.canvas.setPointerCapture(event.pointerId);
    this.pressed.set(event.pointerId, event.offsetX);
    if (this.pressed.size === 1) this.moved = false;
    this.from = event.offsetX;
    this.selecting = event.shiftKey;
  }

  move(event) {
    const { view } = this;
    if (!this.pressed.has(event.pointerId)) {
      if (event.pointerType !== "mouse") return;
      const lane = view.rowAt(event.offsetY)?.lane;
      view.parts.canvas.title = lane && event.offsetX < view.gutter ? view.spell(lane) : ""; // labels are cut short
      view.hover(view.itemAt(event.offsetX, event.offsetY), lane);
      return;
    }
    const before = [...this.pressed.values()];
    this.pressed.set(event.pointerId, event.offsetX);
    const now = [...this.pressed.values()];
    if (Math.abs(event.offsetX - this.from) >= DRAG || now.length > 1) this.moved = true;
    if (!this.moved || this.selecting) return;
    view.hover(-1);
    if (now.length === 1) {
      view.pan((before[0] - now[0]) / (view.width - view.gutter), false);
      return;
    }
    // Two fingers: the times under them stay under them.
    const [a, b] = [view.timeAt(before[0]), view.timeAt(before[1])];
    const apart = now[1] - now[0];
    if (Math.abs(apart) < 10) return;
    const perPx = (b - a) / apart;
    if (!(perPx > 0)) return;
    const t0 = a - (now[0] - view.gutter) * perPx;
    view.show(t0, t0 + perPx * (view.width - view.gutter), { glide: false });
  }

  up(event) {
    const { view } = this;
    if (!this.pressed.delete(event.pointerId) || event.type === "pointercancel") return;
    if (this.selecting && this.moved) {
      const [a, b] = [view.timeAt(this.from), view.timeAt(event.offsetX)].sort((one, other) => one - other);
      view.show(a, b);
    } else if (!this.moved) {
      view.parts.stage.focus({ preventScroll: true });
      const { lane } = view.rowAt(event.offsetY) ?? {};
      view.focus(view.itemAt(event.offsetX, event.offsetY), { reveal: false, lane });
    }
  }
}

/** A wheel zooms with Ctrl (so do pinches on a pad), or once the view has the focus; sideways or with Shift it pans. */
function wheel(view, event) {
  const px = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY * px, 0] : [event.deltaX * px, event.deltaY * px];
  if (Math.abs(dx) > Math.abs(dy)) {
    event.preventDefault();
    view.pan(dx / (view.width - view.gutter), false);
    return;
  }
  const wanted = event.ctrlKey || event.metaKey || document.activeElement === view.parts.stage;
  const [first, last] = view.limits;
  const whole = view.t1 - view.t0 >= (last - first) * 0.999;
  if (!wanted || (dy > 0 && whole && !event.ctrlKey)) return; // the page scrolls
  event.preventDefault();
  const fine = event.ctrlKey ? 4 : 1; // a pinch comes in small steps
  view.zoom(Math.exp(Math.max(-120, Math.min(120, dy)) * WHEEL * fine), view.timeAt(event.offsetX), false);
}

function key(view, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const does = KEYS[event.key] ?? KEYS[event.key.toLowerCase()];
  if (!does) return;
  if (does(view, event) === false) return;
  event.preventDefault();
  event.stopPropagation();
}

const KEYS = {
  ArrowRight: (view, { shiftKey }) => (shiftKey ? view.pan(0.2) : beside(view, 1)),
  ArrowLeft: (view, { shiftKey }) => (shiftKey ? view.pan(-0.2) : beside(view, -1)),
  ArrowDown: (view) => under(view, 1),
  ArrowUp: (view) => under(view, -1),
  Home: (view) => ends(view, 0),
  End: (view) => ends(view, -1),
  PageDown: (view) => view.pan(0.8),
  PageUp: (view) => view.pan(-0.8),
  Enter: (view) => view.focused >= 0 && view.closeUp(view.focused),
  Escape: (view) => (view.focused < 0 ? false : view.focus(-1)),
  "+": (view) => view.zoom(0.5),
  "=": (view) => view.zoom(0.5),
  "-": (view) => view.zoom(2),
  w: (view) => view.zoom(0.5),
  s: (view) => view.zoom(2),
  a: (view) => view.pan(-0.3),
  d: (view) => view.pan(0.3),
  0: (view) => view.fit(),
  p: (view) => view.lightPath(!view.path && view.scene.path.length > 0),
};

/** The lane of what has the focus, else the first one shown that has anything. */
function laneOf(view) {
  const of = view.focusLane?.number ?? (view.focused >= 0 ? view.scene.laneOf[view.focused] : -1);
  return (view.rowOf.get(of) ?? view.rows.find((one) => one.lane?.rows.length))?.lane ?? { rows: [] };
}

function beside(view, step) {
  const lane = laneOf(view);
  const { rows } = lane;
  if (!rows.length) return;
  if (view.focused < 0) {
    view.focus(nearest(view, rows, (view.t0 + view.t1) / 2), { lane });
    return;
  }
  const at = rows.indexOf(view.focused);
  view.focus(rows[Math.max(0, Math.min(rows.length - 1, at + step))], { lane });
}

function under(view, step) {
  const lanes = view.rows.filter((row) => row.lane?.rows.length).map((row) => row.lane);
  if (!lanes.length) return;
  const now = lanes.indexOf(laneOf(view));
  const lane = view.focused < 0 ? lanes[now] : lanes[Math.max(0, Math.min(lanes.length - 1, now + step))];
  const time = view.focused >= 0 ? view.scene.items.start[view.focused] : (view.t0 + view.t1) / 2;
  view.focus(nearest(view, lane.rows, Math.max(view.t0, Math.min(view.t1, time))), { lane });
}

function ends(view, at) {
  const lane = laneOf(view);
  if (lane.rows.length) view.focus(lane.rows.at(at), { lane });
}

/** The item of a lane that runs at a time, else the one that starts closest to it. */
function nearest(view, rows, time) {
  const { start } = view.scene.items;
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (start[rows[middle]] <= time) low = middle + 1;
    else high = middle;
  }
  const before = rows[Math.max(0, low - 1)];
  const after = rows[Math.min(rows.length - 1, low)];
  const inside = view.scene.itemEnd[before] >= time;
  return inside || time - start[before] <= start[after] - time ? before : after;
}
