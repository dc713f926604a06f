// The map over the lanes: the whole scene in a strip.

import { INK } from "./looks.js";

/** Paints the map; what does not change while one zooms and pans is painted once. */
export class MapPainter {
  /** The whole scene in a strip over the lanes, a row an engine, with what is shown now left bright. */
  paint(canvas, frame, [first, last]) {
    const ctx = canvas.getContext("2d", { alpha: false });
    const { scale } = frame;
    const ink = INK[frame.theme];
    const [width, height] = [canvas.width / scale, canvas.height / scale];
    const key = [canvas.width, canvas.height, frame.theme, first, last].join();
    if (this.kept?.key !== key || this.kept.scene !== frame.scene)
      this.kept = { key, scene: frame.scene, picture: this.picture(canvas, frame, first, last) };
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(this.kept.picture, 0, 0);
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    const [from, to] = [frame.t0, frame.t1].map((time) => ((time - first) / (last - first)) * width);
    ctx.fillStyle = frame.theme === "dark" ? "rgba(20,23,27,0.66)" : "rgba(255,255,255,0.7)";
    ctx.fillRect(0, 0, from, height);
    ctx.fillRect(to, 0, width - to, height);
    ctx.strokeStyle = ink.muted;
    ctx.lineWidth = 1;
    ctx.strokeRect(Math.max(0.5, from), 0.5, Math.max(3, Math.min(width - 1, to) - Math.max(0.5, from)), height - 1);
  }

  /** The part of the map that stays as it is while one zooms and pans. */
  picture({ width, height }, { scene, scale, theme }, first, last) {
    const picture = document.createElement("canvas");
    picture.width = width;
    picture.height = height;
    const ctx = picture.getContext("2d", { alpha: false });
    ctx.fillStyle = INK[theme].band;
    ctx.fillRect(0, 0, width, height);
    const lanes = scene.lanes.filter((lane) => lane.group === "engines");
    const rows = lanes.length ? lanes : scene.lanes.slice(0, 3);
    const margin = 2 * scale;
    const each = (height - 2 * margin) / Math.max(1, rows.length);
    const perPixel = (last - first) / width;
    rows.forEach((lane, number) => {
      ctx.fillStyle = INK[theme][lane.look] ?? INK[theme].range;
      if (!lane.busy.count) return;
      for (let x = 0; x < width; x++) {
        const share = lane.busy.share(first + x * perPixel, first + (x + 1) * perPixel);
        if (share <= 0) continue;
        const high = Math.max(scale, share * (each - scale));
        ctx.fillRect(x, margin + (number + 1) * each - high - scale, 1, high);
      }
    });
    return picture;
  }
}
