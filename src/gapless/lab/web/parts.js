// What the parts of the page are made with.

export const $ = (id) => document.getElementById(id);

/** Make an element; text is text and nothing else, wherever it comes from. */
export function make(tag, { text, on = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  if (text !== undefined) element.textContent = text;
  for (const [type, does] of Object.entries(on)) element.addEventListener(type, does);
  element.append(...children);
  return element;
}

export const LOOKS = { H2D: "h2d", SM: "sm", D2H: "d2h", P2P: "peer", copy: "h2d" };

/** What the engines do, spelt out. */
export const SPELT = { H2D: "H2D copy in", SM: "SM kernels", D2H: "D2H copy out" };

/** The look of an engine by its label, which may name a device: "H2D.1". */
export const lookOf = (engine) => LOOKS[engine.split(".")[0]] ?? "host";
