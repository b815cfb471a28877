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
  remove: "M6 6l12 12M18 6L6 18",
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

// A button that copies what `text` returns and says so for a moment.
export function copyButton(text, label) {
  const button = make("button", { type: "button", class: "icon small", "aria-label": label }, icon(kIcons.copy));
  button.addEventListener("click", async () => {
    await copy(text());
    button.replaceChildren(icon(kIcons.done));
    setTimeout(() => button.replaceChildren(icon(kIcons.copy)), 1200);
  });
  return button;
}
