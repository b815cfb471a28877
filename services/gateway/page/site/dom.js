// Building elements.  Text is always set as text: nothing here, or anywhere on the page, parses HTML.

export const $ = (id) => document.getElementById(id);

// make("a", {href: "x", class: "y", onclick: f}, "text", child, ...)
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A line drawing of 24 by 24.
export function icon(path) {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(ns, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

export const kIcons = {
  copy: "M9 9h10v11H9zM5 15V4h10",
  done: "M5 13l5 5L19 7",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4",
  remove: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  close: "M6 6l12 12M18 6L6 18",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  before: "M14 6l-6 6 6 6",
  after: "M10 6l6 6-6 6",
  go: "M8 5l11 7-11 7z",
};

// Pages from plain HTTP of another machine have no clipboard; selecting and copying works there.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = make("textarea", { class: "hidden", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// A button with a drawing alone, named `label`.
export function iconButton(kind, label, onclick, more = "") {
  return make("button", { type: "button", class: `icon small ${more}`, "aria-label": label, title: label, onclick }, icon(kIcons[kind]));
}

// A button that copies what `text` returns and says so for a moment.
export function copyButton(text, label) {
  const button = make("button", { type: "button", class: "icon small", "aria-label": label, title: label }, icon(kIcons.copy));
  button.addEventListener("click", async () => {
    await copy(text());
    button.replaceChildren(icon(kIcons.done));
    button.setAttribute("aria-label", "Copied");
    setTimeout(() => {
      button.replaceChildren(icon(kIcons.copy));
      button.setAttribute("aria-label", label);
    }, 1200);
  });
  return button;
}
