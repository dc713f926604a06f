// A state of the lab as the part of an address behind #, and back: every state is a link.
//
//   preset=SLUG                          a preset as it is
//   loop&streams=4&...[&from=SLUG]       a chunk loop: what differs from the plain one; where it came from
//   tape=TEXT[&from=SLUG]                a tape: deflated, in base64 that may stand in an address
//   ...&t=NS                             the playhead

const LONGEST = 256 * 1024; // characters of a tape
export const PLAIN = {
  chunks: 4, streams: 3, h2d: "1ms", kernel: "1ms", d2h: "1ms", pageable: false, default_stream: null,
  nonblocking: false, per_thread: false, wait: null, allocation: null, urgent: null, copy_engines: null, machine: "",
};

/** Write a state {preset, loop, tape, from, t}. */
export async function write({ preset, loop, tape, from, t }) {
  const parts = [];
  if (preset) parts.push(`preset=${encodeURIComponent(preset)}`);
  else if (tape !== null && tape !== undefined) parts.push(`tape=${await pack(tape)}`);
  else {
    parts.push("loop");
    for (const [name, value] of Object.entries(loop))
      if (value !== PLAIN[name]) parts.push(`${name}=${encodeURIComponent(value === true ? 1 : value)}`);
  }
  if (from && !preset) parts.push(`from=${encodeURIComponent(from)}`);
  if (t !== null && t !== undefined) parts.push(`t=${Math.round(t)}`);
  return parts.join("&");
}

/** Read what write wrote. Gives null for nothing; throws an Error with a sentence for a damaged link. */
export async function read(text) {
  if (!text) return null;
  const values = new URLSearchParams(text);
  const time = Number(values.get("t") ?? NaN);
  const t = Number.isFinite(time) && time >= 0 ? time : null;
  const from = values.get("from") || null;
  if (values.has("tape")) return { tape: await unpack(values.get("tape")), from, t };
  if (values.has("loop")) {
    const loop = {};
    for (const [name, plain] of Object.entries(PLAIN)) {
      const value = values.get(name);
      if (value === null) continue;
      loop[name] = typeof plain === "boolean" ? value === "1"
        : typeof plain === "number" || name === "copy_engines" ? Number(value) : value;
    }
    return { loop, from, t };
  }
  if (values.has("preset")) return { preset: values.get("preset"), t };
  throw new Error("This link holds no state of the lab.");
}

async function pack(text) {
  const squeezed = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(squeezed).arrayBuffer());
  let binary = "";
  for (let i = 0; i < bytes.length; i += 8192) binary += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpack(packed) {
  const damaged = "The tape in this link is damaged, or it was cut off.";
  let bytes;
  try {
    bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  } catch {
    throw new Error(damaged);
  }
  // Read piece by piece: a short link may hold more text than there is memory for.
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      text += decoder.decode(piece.value, { stream: true });
      if (text.length > LONGEST) break;
    }
  } catch {
    throw new Error(damaged);
  }
  if (text.length > LONGEST) {
    reader.cancel().catch(() => {});
    throw new Error("The tape in this link is longer than the lab plays.");
  }
  return text + decoder.decode();
}
