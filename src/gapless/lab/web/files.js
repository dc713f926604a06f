// Files: a tape dropped on the page is played, anything else is a timeline and goes to the local server to be explained.

import { $ } from "./parts.js";

const LONGEST_TAPE = 256 * 1024;

export class Files {
  /** *tape(text, name)* and *timeline(file)* are told what came; *say(words)* says what is wrong. */
  constructor({ tape, timeline, say }) {
    Object.assign(this, { tape, timeline, say });
    let depth = 0;
    const shown = (by) => {
      depth = Math.max(0, depth + by);
      $("drop").hidden = depth === 0;
    };
    const ofFiles = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragenter", (event) => ofFiles(event) && (event.preventDefault(), shown(1)));
    addEventListener("dragover", (event) => ofFiles(event) && event.preventDefault());
    addEventListener("dragleave", (event) => ofFiles(event) && shown(-1));
    addEventListener("drop", (event) => {
      if (!ofFiles(event)) return;
      event.preventDefault();
      shown(-depth);
      this.take(event.dataTransfer.files);
    });
    $("open").addEventListener("click", () => $("file").click());
    $("file").addEventListener("change", () => {
      this.take($("file").files);
      $("file").value = "";
    });
  }

  async take(files) {
    if (files.length !== 1) return this.say("Drop one file at a time.");
    const [file] = files;
    const text = await textOf(file);
    if (text === null) this.timeline(file);
    else this.tape(text, file.name);
  }
}

/** The text of a file that may be a tape; null for one that is something else. */
async function textOf(file) {
  if (file.size > LONGEST_TAPE) return null;
  const bytes = new Uint8Array(await file.arrayBuffer());
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    const isJson = /^\s*[[{]/.test(text);
    return text.includes("\0") || (isJson && !file.name.endsWith(".tape")) ? null : text.replaceAll("\r\n", "\n");
  } catch {
    return null;
  }
}
