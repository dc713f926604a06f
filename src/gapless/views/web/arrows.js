// Arrows: a launch from call to operation, an event from record to wait, a fence as a barrier, a call that waits.

const MANY = 400; // beyond which only those of what is hovered or focused are drawn

/** Arrows to and from what is hovered or focused; all of them while they are few, those of launches where asked for. */
export function drawArrows(painter) {
  const { frame } = painter;
  const { scene } = frame;
  const shown = new Map();
  const add = (item) => {
    for (const arrow of scene.arrowsAt(item)) {
      const [from, to] = arrow.incoming ? [arrow.other, item] : [item, arrow.other];
      shown.set(arrow.number, { from, to, look: arrow.kind.look });
    }
  };
  for (const item of [frame.hovered, frame.focused]) if (item >= 0) add(item);
  const own = new Set(shown.keys());
  if (painter.blocks.length <= MANY) painter.blocks.forEach(add);
  const few = shown.size <= MANY;
  for (const [number, arrow] of shown)
    if (own.has(number) || (few && (frame.launches || arrow.look !== "launch"))) drawArrow(painter, arrow, own.has(number));
}

function drawArrow(painter, { from, to, look }, strong) {
  const [a, b] = [painter.box(from), painter.box(to)];
  if (!a || !b) return;
  const { ctx, ink } = painter;
  const x0 = look === "launch" ? a.x0 : a.x1;
  const x1 = look === "block" ? b.x1 : b.x0;
  const y0 = a.y + (a.y < b.y ? a.height : a.y > b.y ? 0 : a.height / 2);
  const y1 = b.y + (b.y < a.y ? b.height : b.y > a.y ? 0 : b.height / 2);
  ctx.strokeStyle = ctx.fillStyle = look === "block" ? ink.block : ink[look];
  ctx.globalAlpha = strong ? 1 : look === "launch" ? 0.35 : 0.75;
  ctx.lineWidth = strong ? 1.8 : 1.1;
  ctx.setLineDash(look === "fence" ? [5, 3] : look === "block" ? [2, 2] : []);
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  const bend = (y1 - y0) * 0.5;
  if (look === "launch") ctx.lineTo(x1, y1);
  else ctx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
  ctx.stroke();
  ctx.setLineDash([]);
  const down = y1 >= y0 ? 1 : -1;
  ctx.beginPath();
  if (look === "fence") {
    ctx.lineWidth = 3;
    ctx.moveTo(x1, b.y - 1);
    ctx.lineTo(x1, b.y + b.height + 1);
    ctx.stroke(); // a barrier, with the arrow's head before it
    ctx.beginPath();
  }
  if (strong || look !== "launch") {
    ctx.moveTo(x1, y1);
    ctx.lineTo(x1 - 3, y1 - 6 * down);
    ctx.lineTo(x1 + 3, y1 - 6 * down);
    ctx.fill();
  }
  if (look === "event") {
    ctx.beginPath();
    ctx.arc(x0, y0, 2.5, 0, 7);
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}
