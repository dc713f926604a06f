// What there is to say about a run, under the lanes: why engines wait, races, answers, expectations, calls that fail.

import { $, lookOf, make, SPELT } from "./parts.js";

/** Show it; *point({line, op})* is told what the user wants to see. */
export function tellRun(run, point) {
  $("told").replaceChildren(
    ...races(run, point), ...expectations(run, point), ...answers(run, point), ...failed(run, point), ...reasons(run, point),
  );
}

export function showNumbers(numbers) {
  const longest = Math.max(...numbers.map((one) => one.time), 1e-9);
  $("numbers").replaceChildren(...numbers.map(({ name, reads, time, text, about }, i) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${Math.max(0.5, (100 * time) / longest)}%`;
    return make("li", { class: i === 1 ? "this" : "" },
      make("span", { class: "name", text: name }), make("span", { class: "reads", text: reads }),
      make("span", { class: "time", text }), make("span", { class: "track", "aria-hidden": "true" }, bar),
      make("span", { class: "about", text: about }));
  }));
}

function section(title, look, rows) {
  return rows.length ? [make("h3", { text: title, class: look }), make("ul", { class: "rows" }, ...rows)] : [];
}

/** A place that can be gone to: "line 4". */
function place(line, point, op = "") {
  return line > 0
    ? make("button", { type: "button", class: "link", text: `line ${line}`, title: `line ${line} of the tape`, on: { click: () => point({ line, op }) } })
    : "";
}

function races(run, point) {
  const rows = run.races.map((race) => make("li", { class: race.bad ? "bad" : "" },
    make("p", {}, make("strong", { text: `${race.kind}${race.count > 1 ? ` ×${race.count}` : ""}: ` }), race.said, " ",
      ...race.lines.flatMap((line, i) => [place(line, point, race.ops[i]), " "])),
    make("p", { text: `Why: ${race.why}.` }),
    race.do ? make("p", { text: `To repair it: ${race.do}.` }) : "",
    race.add.length ? make("p", { text: "To repair it, add:" }) : "",
    ...race.add.map((add) => make("p", { class: "add" }, make("code", { text: add.statement }), ` ${add.place} `, place(add.line, point)))));
  return section(`Races: ${run.races_found}`, "bad", rows);
}

function expectations(run, point) {
  const failing = run.expected.filter((one) => !one.holds);
  const rows = run.expected.map((one) => make("li", { class: one.holds ? "good" : "bad" },
    make("span", { class: "sign", text: one.holds ? "✓" : "✗", role: "img", "aria-label": one.holds ? "holds" : "fails" }),
    make("code", { text: one.said }), one.holds ? "" : ` got ${one.got} `, " ", place(one.line, point)));
  return section(run.expectations_held ? `${run.expectations_held}` : "", failing.length ? "bad" : "good", rows);
}

function answers(run, point) {
  const rows = run.answers.map(({ line, said, got, really }) => make("li", {},
    `${said}: `, make("strong", { text: got }), " ", place(line, point), really ? make("p", { class: "really", text: really }) : ""));
  return section("What the program is told", "", rows);
}

function failed(run, point) {
  return section("Calls that fail", "bad", run.failed.map(({ line, said }) => make("li", { class: "bad" }, said, " ", place(line, point))));
}

function reasons(run, point) {
  const often = (text, count) => (count === 1 ? text : text ? `${text} in ${count} gaps` : `${count} times`);
  const rows = run.reasons.map(({ engine, text, count, why, line, by, op }) => make("li", {},
    make("span", { class: `engine ${engine ? lookOf(engine) : ""}`, text: engine || "held up", title: SPELT[engine] }),
    make("span", { class: "time", text: often(text, count) }),
    make("span", { class: "why" }, count > 1 ? `for example, ${why}` : why, " ", place(line, point, op), by && by !== line ? " " : "", by !== line ? place(by, point) : "")));
  if (run.more_reasons) rows.push(make("li", { text: `and ${run.more_reasons} more` }));
  const chain = run.chain ? [make("p", { class: "chain", text: run.chain })] : [];
  const title = section("Why engines wait", "", rows);
  return [...title, ...chain];
}
