// How things look: colours, patterns and glyphs of kinds, in light and dark.

export const INK = {
  light: {
    paper: "#ffffff", ink: "#1b1f24", muted: "#667080", faint: "#e6e9ed", band: "#f6f7f9", ring: "#0b57d0", path: "#101418",
    mark: "rgba(222,158,0,0.20)", sm: "#26946f", h2d: "#4c97dc", d2h: "#e29cca", peer: "#b98600", memory: "#8cc3b0",
    host: "#a08a64", call: "#a7afba", block: "#e08a3c", alloc: "#bf4f3f", range: "#c3cad4", step: "#9aa7bd",
    finding: "#d99e00", launch: "#8a94a3", event: "#5a54c9", fence: "#b83a2a", record: "#5a54c9", wait: "#5a54c9", rule: "#6b4fbb",
  },
  dark: {
    paper: "#14171b", ink: "#e4e7eb", muted: "#98a2b0", faint: "#282d34", band: "#191d22", ring: "#8ab4f8", path: "#ffffff",
    mark: "rgba(255,200,60,0.17)", sm: "#2a9c77", h2d: "#5aa7ea", d2h: "#f0b0da", peer: "#d9a52c", memory: "#6d9f8e",
    host: "#a8936c", call: "#66707e", block: "#e5954a", alloc: "#d96a58", range: "#4a535f", step: "#6b7890",
    finding: "#f0b92d", launch: "#7d8796", event: "#a5a0ff", fence: "#ff7d6b", record: "#a5a0ff", wait: "#a5a0ff", rule: "#b9a5ff",
  },
};
// Kinds differ in pattern as well as in colour.
export const PATTERN = { h2d: "up", d2h: "down", peer: "dots", memory: "flat", block: "upright", alloc: "cross" };
const tiles = new Map();

let printing = false; // between the events around it, before the page's media have changed
addEventListener("beforeprint", () => (printing = true));
addEventListener("afterprint", () => (printing = false));

/** "light" or "dark": what the page has been told, else what the system says; paper is light. */
export function themeNow() {
  if (printing || matchMedia("print").matches) return "light";
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "dark" || chosen === "light") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Give the pattern that lies over a look's colour; null where it has none. */
export function patternOf(ctx, look, theme, scale) {
  const how = PATTERN[look];
  if (!how) return null;
  const key = `${how} ${theme} ${scale}`;
  if (!tiles.has(key)) {
    const tile = document.createElement("canvas");
    const size = Math.round(6 * scale);
    tile.width = tile.height = size;
    const pen = tile.getContext("2d");
    pen.strokeStyle = pen.fillStyle = theme === "dark" ? "rgba(0,0,0,0.34)" : "rgba(255,255,255,0.48)";
    pen.lineWidth = 1.3 * scale;
    const line = (...points) => {
      for (const shift of [-size, 0, size]) {
        pen.beginPath();
        pen.moveTo(points[0] * size + shift, points[1] * size);
        pen.lineTo(points[2] * size + shift, points[3] * size);
        pen.stroke();
      }
    };
    if (how === "up" || how === "cross") line(0, 1, 1, 0);
    if (how === "down" || how === "cross") line(0, 0, 1, 1);
    if (how === "flat") line(0, 0.5, 1, 0.5);
    if (how === "upright") line(0.5, 0, 0.5, 1);
    if (how === "dots") pen.fillRect(size * 0.3, size * 0.3, size * 0.4, size * 0.4);
    tiles.set(key, tile);
  }
  const pattern = ctx.createPattern(tiles.get(key), "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}

/** Black or white, whichever reads better on a colour. */
export function legible(color) {
  const [r, g, b] = [1, 3, 5].map((at) => (parseInt(color.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.22 ? "#0c0f12" : "#ffffff";
}

/** The bare name of a kernel: no return type, namespaces, template or arguments. */
export function bare(name) {
  const head = name.replace(/^void /, "").split(/[<(]/, 1)[0];
  const last = head.split("::").pop().trim();
  return last || name;
}

/** Records and waits of events: a dot where it is recorded, a bar with a notch where a stream waits for it. */
export function glyph(ctx, look, color, x, y, height) {
  const middle = y + height / 2;
  ctx.fillStyle = ctx.strokeStyle = color;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  if (look === "record") {
    ctx.arc(x, middle, 3.2, 0, 7);
    ctx.fill();
    return;
  }
  ctx.moveTo(x, y);
  ctx.lineTo(x, y + height);
  ctx.moveTo(x - 4, middle - 4);
  ctx.lineTo(x, middle);
  ctx.lineTo(x - 4, middle + 4);
  ctx.stroke();
}

/** Paint a sample of a look, for a legend. */
export function swatch(canvas, look, theme) {
  const ctx = canvas.getContext("2d");
  ctx.setTransform(2, 0, 0, 2, 0, 0);
  ctx.clearRect(0, 0, 16, 10);
  if (look === "record" || look === "wait") return glyph(ctx, look, INK[theme][look], 8, 0, 10);
  ctx.fillStyle = INK[theme][look];
  ctx.fillRect(0, 0, 16, 10);
  const pattern = patternOf(ctx, look, theme, 2);
  if (!pattern) return;
  ctx.fillStyle = pattern;
  ctx.fillRect(0, 0, 16, 10);
}
