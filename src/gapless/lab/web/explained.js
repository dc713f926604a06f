// A timeline that was dropped: it goes to the local server, whose page about it is shown in place of the lab's own.

import { $ } from "./parts.js";

export class Explained {
  constructor() {
    this.going = null; // ends the request on its way
    $("explained-close").addEventListener("click", () => this.close());
  }

  async take(file) {
    this.close();
    const { signal } = (this.going = new AbortController());
    const tell = (words) => ($("explained-said").textContent = words);
    const page = (url) => {
      $("explained-page").hidden = $("explained-link").hidden = !url;
      if (url) $("explained-page").src = $("explained-link").href = url;
    };
    this.show(true);
    $("explained-name").textContent = file.name;
    page(null);
    tell("Reading it …");
    try {
      const answer = await send(file, (share) => tell(share < 1 ? `Reading it: ${Math.round(share * 100)}%` : "Explaining it …"), signal);
      if (signal.aborted) return;
      tell(answer.error ? answer.error.said : "The file itself is deleted already; this page goes when the lab ends.");
      page(answer.page);
    } catch (problem) {
      if (!signal.aborted) tell(problem.message);
    }
  }

  close() {
    this.going?.abort();
    $("explained-page").removeAttribute("src");
    this.show(false);
  }

  show(on) {
    $("explained").hidden = !on;
    $("played").hidden = on;
    document.body.classList.toggle("explaining", on);
  }
}

/** Send a timeline to the server; *progress(share)* is told how much is there. Gives the server's answer. */
function send(file, progress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not say how much has been sent
    request.open("POST", `/explain?name=${encodeURIComponent(file.name)}`);
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => progress(event.total ? event.loaded / event.total : 0));
    request.addEventListener("load", () => resolve(request.response ?? { error: { said: "The lab gave no answer." } }));
    request.addEventListener("error", () => reject(new Error("The lab's server does not answer.")));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}
