// The controls of the chunk loop: a form whose values are the options of gapless's ChunkLoop.

import { make } from "./parts.js";
import { PLAIN } from "./link.js";

const NONE = "none"; // of the choices: what the plain loop has

const CHOICES = [
  ["Work", [
    range("chunks", "Chunks", 1, 16),
    range("streams", "Streams", 1, 8),
    time("h2d", "Copy in"),
    time("kernel", "Kernel"),
    time("d2h", "Copy out"),
  ]],
  ["Accidents", [
    choice("memory", "Host memory", [[NONE, "pinned"], ["pageable", "pageable"]]),
    choice("default_stream", "On the default stream", [[NONE, "nothing"], ["copy", "copy out"], ["kernel", "kernel"]]),
    choice("kind", "The other streams", [[NONE, "blocking"], ["nonblocking", "non-blocking"], ["per_thread", "per-thread default"]]),
    choice("wait", "Host waits after each chunk", [
      [NONE, "not at all"], ["device", "device"], ["stream", "stream"], ["event", "event"], ["query", "query"],
    ]),
    choice("allocation", "Memory for each chunk", [[NONE, "before the loop"], ["malloc", "cudaMalloc"], ["pool", "pool"]]),
  ]],
  ["GPU", [
    choice("copy_engines", "Copy engines", [[NONE, "two"], ["1", "one"]]),
    choice("urgent", "Urgent request beside it", [[NONE, "none"], ["same", "same priority"], ["high", "high priority"]]),
    choice("machine", "Machine", [[NONE, "teaching"], ["h200", "H200"], ["fermi", "Fermi"]]),
  ]],
];

function range(name, label, min, max) {
  return { name, label, type: "range", min, max, step: 1, say: String };
}

function time(name, label) {
  return { name, label, type: "range", min: 0.25, max: 4, step: 0.25, say: (value) => `${value} ms` };
}

function choice(name, label, options) {
  return { name, label, type: "choice", options };
}

export class Controls {
  /** Build the form; *changed(loop)* is told each loop that the user chooses. */
  constructor(form, changed) {
    this.form = form;
    for (const [title, knobs] of CHOICES)
      form.append(make("fieldset", {}, make("legend", { text: title }), ...knobs.map((knob) => this.build(knob))));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      this.sayValues();
      changed(this.loop());
    });
  }

  build(knob) {
    if (knob.type === "range") {
      const input = make("input", {
        type: "range", name: knob.name, id: `knob-${knob.name}`, min: knob.min, max: knob.max, step: knob.step,
      });
      const output = make("output", { for: input.id });
      return make("div", { class: "knob" }, make("label", { for: input.id, text: knob.label }), input, output);
    }
    const options = knob.options.map(([value, text]) =>
      make("label", {}, make("input", { type: "radio", name: knob.name, value }), make("span", { text })));
    return make("div", { class: "knob choice", role: "radiogroup", "aria-label": knob.label },
      make("span", { class: "label", text: knob.label }), make("div", { class: "options" }, ...options));
  }

  /** Show a loop; null where what is played is a tape: then the controls stand for a new one. */
  show(loop) {
    const values = { ...PLAIN, ...(loop ?? {}) };
    const { elements } = this.form;
    for (const name of ["chunks", "streams"]) elements[name].value = values[name];
    for (const name of ["h2d", "kernel", "d2h"]) elements[name].value = milliseconds(values[name]);
    elements.memory.value = values.pageable ? "pageable" : NONE;
    elements.kind.value = values.nonblocking ? "nonblocking" : values.per_thread ? "per_thread" : NONE;
    elements.copy_engines.value = values.copy_engines === 1 ? "1" : NONE;
    for (const name of ["default_stream", "wait", "allocation", "urgent", "machine"]) elements[name].value = values[name] || NONE;
    this.form.classList.toggle("idle", loop === null);
    this.sayValues();
  }

  sayValues() {
    for (const [, knobs] of CHOICES)
      for (const { name, type, say } of knobs)
        if (type === "range") {
          const input = this.form.elements[name];
          const said = say(Number(input.value));
          input.parentElement.querySelector("output").value = said;
          input.setAttribute("aria-valuetext", said);
        }
  }

  /** The loop that the form shows: what differs from the plain one. */
  loop() {
    const { elements } = this.form;
    const all = {
      chunks: Number(elements.chunks.value),
      streams: Number(elements.streams.value),
      h2d: `${elements.h2d.value}ms`,
      kernel: `${elements.kernel.value}ms`,
      d2h: `${elements.d2h.value}ms`,
      pageable: elements.memory.value === "pageable",
      nonblocking: elements.kind.value === "nonblocking",
      per_thread: elements.kind.value === "per_thread",
      copy_engines: elements.copy_engines.value === "1" ? 1 : null,
      machine: elements.machine.value === NONE ? "" : elements.machine.value,
    };
    for (const name of ["default_stream", "wait", "allocation", "urgent"])
      all[name] = elements[name].value === NONE ? null : elements[name].value;
    return Object.fromEntries(Object.entries(all).filter(([name, value]) => value !== PLAIN[name]));
  }
}

function milliseconds(text) {
  const [, number, unit] = /^([\d.]+)(ns|us|ms|s)?$/.exec(text) ?? [];
  return number === undefined ? 1 : Number(number) * { ns: 1e-6, us: 1e-3, ms: 1, s: 1e3 }[unit ?? "ms"];
}
