// A scene: intervals, lanes and arrows, unpacked from the JSON that gapless/views/scene.py writes (the contract is there).

const SUMMARY = 16; // rows under one entry of a track's summary, level by level

/** Unpack a scene. Rejects where the JSON is of another version or damaged. */
export async function unpack(json) {
  if (json.version !== 1) throw new Error(`This is a scene of version ${json.version}; version 1 is known here.`);
  const bytes = await gunzip(fromBase64(json.data));
  return new Scene(json, (column, Type) => decode(bytes, column, Type));
}

async function gunzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** A column is [offset, count, bytes a value, 1 if differences]: byte planes, low bytes first, of zigzag numbers. */
function decode(bytes, [offset, count, width, differences], Type) {
  const out = new Type(count);
  const unfolded = width > 4 ? wide(bytes, offset, count, width) : narrow(bytes, offset, count, width);
  if (!differences) out.set(unfolded);
  else for (let i = 0, last = 0; i < count; i++) out[i] = last += unfolded[i];
  return out;
}

function narrow(bytes, offset, count, width) {
  const values = new Int32Array(count);
  for (let plane = 0; plane < width; plane++) {
    const from = offset + plane * count;
    for (let i = 0; i < count; i++) values[i] |= bytes[from + i] << (8 * plane);
  }
  for (let i = 0; i < count; i++) values[i] = (values[i] >>> 1) ^ -(values[i] & 1);
  return values;
}

/** The same for numbers beyond 32 bits, which shifts cannot hold. */
function wide(bytes, offset, count, width) {
  const values = new Float64Array(count);
  for (let plane = 0, scale = 1; plane < width; plane++, scale *= 256) {
    const from = offset + plane * count;
    for (let i = 0; i < count; i++) values[i] += bytes[from + i] * scale;
  }
  for (let i = 0; i < count; i++) values[i] = values[i] % 2 ? -(values[i] + 1) / 2 : values[i] / 2;
  return values;
}

class Scene {
  constructor(json, column) {
    this.strings = json.strings;
    this.kinds = json.kinds.map(([word, look]) => ({ word, look }));
    this.start = json.start;
    this.end = Math.max(json.end, json.start + 1);
    this.done = Math.max(json.done ?? json.end, json.start + 1); // before the end where another, longer run sets the scale
    this.title = json.title;
    this.items = {
      start: column(json.items.start, Float64Array),
      length: column(json.items.length, Float64Array),
      name: column(json.items.name, Int32Array),
      kind: column(json.items.kind, Uint8Array),
      bytes: column(json.items.bytes, Float64Array),
      about: column(json.items.about, Int32Array),
    };
    const { start, length } = this.items;
    this.itemEnd = start.map((begin, i) => begin + length[i]);
    this.lanes = json.lanes.map((lane, number) => new Lane(this, lane, number, column));
    this.arrows = {
      kinds: json.arrows.kinds.map(([word, look]) => ({ word, look })),
      from: column(json.arrows.from, Int32Array),
      to: column(json.arrows.to, Int32Array),
      kind: column(json.arrows.kind, Uint8Array),
    };
    this.path = column(json.path, Int32Array);
    this.notes = json.notes;
    this.place();
    this.first = this.lanes.reduce((least, { rows }) => (rows.length ? Math.min(least, start[rows[0]]) : least), this.start);
    this.last = this.itemEnd.reduce((most, end) => Math.max(most, end), this.end);
  }

  /** Say of each item in which lane it is drawn; of those in two, the stream's. */
  place() {
    const count = this.items.start.length;
    this.laneOf = new Int16Array(count).fill(-1);
    this.trackOf = new Uint8Array(count);
    for (const lane of this.lanes)
      [...lane.tracks, lane.glyphs].forEach((track, number) => {
        for (const row of track.rows) {
          this.laneOf[row] = lane.number;
          this.trackOf[row] = number % lane.tracks.length;
        }
      });
  }

  /** All arrows that touch an item: [{other, kind, incoming}]. */
  arrowsAt(item) {
    const { from, to, kind, kinds } = this.arrows;
    const { incoming, outgoing } = (this.index ??= {
      incoming: group(to, this.laneOf.length), outgoing: group(from, this.laneOf.length),
    });
    const list = (index, ends, isIn) =>
      Array.from(index(item), (a) => ({ other: ends[a], kind: kinds[kind[a]], incoming: isIn, number: a }));
    return [...list(incoming, from, true), ...list(outgoing, to, false)];
  }

  text(string) {
    return string >= 0 ? this.strings[string] : "";
  }

  /** Whether an item is on the critical path. */
  onPath(item) {
    this.pathFlags ??= this.path.reduce((flags, row) => ((flags[row] = 1), flags), new Uint8Array(this.laneOf.length));
    return this.pathFlags[item] === 1;
  }
}

/** Give a function from a value (from 0 to below *most*) to the positions at which a column holds it. */
function group(column, most) {
  const first = new Uint32Array(most + 1);
  for (const value of column) first[value + 1]++;
  for (let value = 0; value < most; value++) first[value + 1] += first[value];
  const order = new Uint32Array(column.length);
  const next = first.slice();
  for (let i = 0; i < column.length; i++) order[next[column[i]]++] = i;
  return (value) => order.subarray(first[value], first[value + 1]);
}

class Lane {
  constructor(scene, json, number, column) {
    this.number = number;
    this.label = json.label;
    this.short = json.short;
    this.group = json.group;
    this.look = json.look;
    const rows = column(json.rows, Uint32Array);
    const track = column(json.track, Uint8Array);
    const { start } = scene.items;
    const end = scene.itemEnd;
    this.rows = rows;
    this.tracks = [];
    if (json.tracks <= 1) this.tracks.push(new Track(rows, start, end));
    else
      for (let t = 0; t < json.tracks; t++) this.tracks.push(new Track(rows.filter((_, i) => track[i] === t), start, end));
    this.glyphs = new Track(column(json.glyphs, Uint32Array), start, end); // records and waits of events
    // Ranges hold each other; all else lies in several tracks only where it overlaps.
    this.nested = this.group === "ranges";
    this.busy = this.tracks.length > 1 && !this.nested ? merged(rows, start, end) : this.tracks[0];
    this.measured = this.group === "engines" || this.group === "streams";
  }

  /** In which of its tracks an item lies. */
  trackOf(item, start) {
    const found = this.tracks.findIndex((track) => {
      for (let i = track.firstFrom(start); i < track.count && track.start(i) === start; i++)
        if (track.rows[i] === item) return true;
      return false;
    });
    return Math.max(0, found);
  }
}

/** The time that rows (in order of start) cover, as intervals that do not touch; each stands for the first of its rows. */
function merged(rows, start, end) {
  const from = new Float64Array(rows.length);
  const to = new Float64Array(rows.length);
  const first = new Uint32Array(rows.length);
  let count = 0;
  for (const row of rows) {
    if (count && start[row] <= to[count - 1]) to[count - 1] = Math.max(to[count - 1], end[row]);
    else {
      from[count] = start[row];
      first[count] = row;
      to[count++] = end[row];
    }
  }
  const track = new Track(Uint32Array.from({ length: count }, (_, i) => i), from, to);
  track.rows = first.slice(0, count);
  return track;
}

/** The first of 0 .. count for which a monotonous test is false. */
export function bound(count, isBefore, low = 0) {
  let high = count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isBefore(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Intervals in order of start, of which hardly any overlap. The longest of any run of them and the time they cover are
 * found in a few steps however many there are, so that drawing costs a step a pixel column and not a step an interval.
 */
export class Track {
  constructor(rows, start, end) {
    this.rows = rows;
    this.count = rows.length;
    this.starts = new Float64Array(this.count);
    this.ends = new Float64Array(this.count);
    this.covered = new Float64Array(this.count + 1); // by the intervals before each
    for (let i = 0; i < this.count; i++) {
      this.starts[i] = start[rows[i]];
      this.ends[i] = end[rows[i]];
      this.covered[i + 1] = this.covered[i] + this.ends[i] - this.starts[i];
    }
    this.summaries = [];
    for (let below = null, count = this.count; count > SUMMARY; below = this.summaries.at(-1), count = below.length) {
      const level = new Uint32Array(Math.ceil(count / SUMMARY));
      for (let i = 0; i < level.length; i++)
        level[i] = this.longer(below ? below[i * SUMMARY] : i * SUMMARY, below, i * SUMMARY, Math.min(count, (i + 1) * SUMMARY));
      this.summaries.push(level);
    }
  }

  start(i) {
    return this.starts[i];
  }

  end(i) {
    return this.ends[i];
  }

  length(i) {
    return this.ends[i] - this.starts[i];
  }

  /** The longest of *best* and of [first, after) of a level of the summary; of the intervals themselves for null. */
  longer(best, level, first, after) {
    const { starts, ends } = this;
    let most = ends[best] - starts[best];
    for (let i = first; i < after; i++) {
      const one = level ? level[i] : i;
      if (ends[one] - starts[one] > most) {
        most = ends[one] - starts[one];
        best = one;
      }
    }
    return best;
  }

  /** The longest of [first, after), which holds at least one. */
  longest(first, after) {
    let best = first;
    let level = null;
    for (const above of this.summaries) {
      if (after - first <= 2 * SUMMARY) break;
      const low = Math.ceil(first / SUMMARY);
      const high = Math.floor(after / SUMMARY);
      best = this.longer(best, level, first, low * SUMMARY);
      best = this.longer(best, level, high * SUMMARY, after);
      [first, after, level] = [low, high, above];
    }
    return this.longer(best, level, first, after);
  }

  /** The first interval that starts at a time or later, looked for from a place near it. */
  firstFrom(time, near = 0) {
    const { starts, count } = this;
    let step = 1;
    let low = near;
    while (near + step < count && starts[near + step] < time) {
      low = near + step;
      step *= 2;
    }
    let high = Math.min(count, near + step + 1);
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (starts[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The first interval that is not over before a time. */
  firstOpen(time) {
    const next = this.firstFrom(time);
    return next > 0 && this.end(next - 1) > time ? next - 1 : next;
  }

  /** The same with some of its intervals alone. */
  only(isWanted) {
    const wanted = Uint32Array.from(this.rows.keys()).filter((i) => isWanted(this.rows[i]));
    const track = new Track(wanted, this.starts, this.ends);
    track.rows = wanted.map((i) => this.rows[i]);
    return track;
  }

  /** The share of [start, end) that is covered. */
  share(start, end) {
    const spent = (time) => {
      const next = this.firstFrom(time);
      return this.covered[next] - (next ? Math.max(0, this.end(next - 1) - time) : 0);
    };
    return Math.min(1, (spent(end) - spent(start)) / (end - start));
  }
}
