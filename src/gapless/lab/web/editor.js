// An editor for tapes: a plain text field, with the same text in colours under it and marks beside its lines.

import { make } from "./parts.js";

const TOO_LONG = 60_000; // characters from which the text is shown without colours
const TOKEN = /(#.*)|("[^"]*"?)|(\{[^{}]*\}?)|(->|>=|<=)|(\d[\d./]*(?:ns|us|ms|s|[KMG]i?B|B)?\b)|([A-Za-z_][\w.-]*)|(\s+)|(.)/g;
const STATEMENTS = new Set(
  ("machine stream default-stream buffer thread end repeat expect h2d d2h d2d p2p h2h memset kernel hostfn record wait sync " +
    "query elapsed host read write send receive malloc free hostalloc hostfree reuse destroy device capture end-capture launch")
    .split(" "),
);
const MARKS = {
  error: ["✕", "error"], race: ["!", "race"], fails: ["✗", "expectation fails"], holds: ["✓", "expectation holds"],
};

export class Editor {
  /** Build the editor; *changed(text)* is told what the user writes. */
  constructor(element, changed) {
    this.gutter = make("div", { class: "ed-gutter", "aria-hidden": "true" });
    this.code = make("pre", { class: "ed-code", "aria-hidden": "true" });
    this.field = make("textarea", {
      class: "ed-field", wrap: "off", spellcheck: "false", autocomplete: "off", autocapitalize: "off", autocorrect: "off",
      "aria-label": "Tape", "aria-describedby": "problem", rows: "1",
    });
    this.root = make("div", { class: "ed" }, this.gutter, make("div", { class: "ed-text" }, this.code, this.field));
    element.append(this.root);
    this.marks = new Map(); // line -> kind
    this.error = null;
    this.lit = new Set();
    this.field.addEventListener("input", () => {
      this.error = null; // it may be mended; the next answer says so
      this.marks = new Map();
      this.draw();
      changed(this.field.value);
    });
    this.draw();
  }

  get text() {
    return this.field.value;
  }

  /** Show a text, unless it is there already: then the place in it is kept. */
  show(text) {
    if (this.field.value !== text) {
      this.field.value = text;
      this.error = null;
      this.marks = new Map();
      this.draw();
    }
  }

  /** Mark lines: {line: kind}, and where the text cannot be read: {line, column, length}. */
  mark(marks, error = null) {
    this.marks = marks;
    this.error = error;
    this.draw();
  }

  /** Light up the lines whose operations run now. */
  light(lines) {
    if (lines.size === this.lit.size && [...lines].every((line) => this.lit.has(line))) return;
    this.lit = lines;
    const rows = this.gutter.children;
    for (let i = 0; i < rows.length; i++) rows[i].classList.toggle("lit", lines.has(i + 1));
  }

  /** Put the cursor at a place and bring it into view. */
  go(line, column = 1, length = 0) {
    const start = this.offset(line) + column - 1;
    this.field.focus({ preventScroll: true });
    this.field.setSelectionRange(start, start + length);
    this.gutter.children[line - 1]?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Bring a line into view without taking the focus. */
  reveal(line) {
    const row = this.gutter.children[line - 1];
    if (!row || this.root.offsetParent === null) return;
    const { offsetTop, offsetHeight } = row;
    const { scrollTop, clientHeight } = this.root;
    if (offsetTop < scrollTop || offsetTop + offsetHeight > scrollTop + clientHeight)
      this.root.scrollTop = offsetTop - clientHeight / 2;
    for (const one of this.gutter.querySelectorAll(".pointed")) one.classList.remove("pointed");
    row.classList.add("pointed");
  }

  /** Write something else in a place, so that undo takes it back. */
  replace(line, column, length, text) {
    this.go(line, column, length);
    if (!document.execCommand("insertText", false, text)) {
      this.field.setRangeText(text);
      this.field.dispatchEvent(new Event("input"));
    }
  }

  offset(line) {
    let at = 0;
    for (let i = 1; i < line; i++) at = this.field.value.indexOf("\n", at) + 1;
    return at;
  }

  draw() {
    const lines = this.field.value.split("\n");
    const plain = this.field.value.length > TOO_LONG;
    if (plain) this.code.textContent = this.field.value + "\n";
    else this.code.replaceChildren(...lines.map((line, i) => this.line(line, i + 1)));
    this.gutter.replaceChildren(...lines.map((_, i) => this.number(i + 1)));
    this.root.style.setProperty("--digits", String(lines.length).length);
  }

  number(line) {
    const kind = this.error?.line === line || this.error?.lines?.includes(line) ? "error" : this.marks.get(line);
    const [sign, words] = MARKS[kind] ?? ["", undefined];
    return make("div", { class: `${kind ?? ""}${this.lit.has(line) ? " lit" : ""}`, title: words },
      make("span", { class: "sign", text: sign }), make("span", { text: line }));
  }

  line(text, number) {
    const row = make("span", { class: this.marks.get(number) === "race" ? "race" : "" });
    const { error } = this;
    if (error?.line === number) {
      const at = error.column - 1;
      const length = Math.max(1, error.length);
      const wrong = text.slice(at, at + length) || " ";
      row.append(...colored(text.slice(0, at)), make("span", { class: "wrong", text: wrong }), ...colored(text.slice(at + length)));
    } else row.append(...colored(text));
    row.append("\n");
    return row;
  }
}

/** A line in colours. */
function colored(text) {
  const pieces = [];
  let first = true;
  for (const [whole, comment, string, braces, sign, number, word, space] of text.matchAll(TOKEN)) {
    const look = comment ? "comment" : string || braces ? "braces" : sign ? "" : number ? "number"
      : word && first && STATEMENTS.has(word) ? "word" : "";
    if (!space) first = false;
    pieces.push(look ? make("span", { class: look, text: whole }) : whole);
  }
  return pieces;
}
