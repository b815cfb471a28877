// Formulas: finding them in Markdown, and setting them with KaTeX, which is loaded when the first
// one is met.

import { make } from "./dom.js";

const kPairs = [["\\[", "\\]", true], ["\\(", "\\)", false], ["$$", "$$", true], ["$", "$", false]];

// The formula that begins at `at`: {tex, display, end}, or null.  A single dollar follows Pandoc's
// rule, so that prices stay text: no space inside of it, no digit after it.
function formulaAt(text, at, max) {
  for (const [open, close, display] of kPairs) {
    if (!text.startsWith(open, at)) continue;
    const begin = at + open.length;
    let end = text.indexOf(close, begin);
    while (open === "$" && end > 0 && text[end - 1] === "\\") end = text.indexOf(close, end + 1);
    if (end < 0 || end + close.length > max) return null;
    const tex = text.slice(begin, end);
    if (!tex.trim() || tex.includes("`")) return null;  // code binds tighter
    if (open === "$" && (/^\s|\s$|\n\s*\n/.test(tex) || /\d/.test(text[end + 1] ?? ""))) return null;
    return { tex: tex.trim(), display, end: end + close.length };
  }
  return null;
}

function inlineRule(state, silent) {
  const formula = formulaAt(state.src, state.pos, state.posMax);
  if (!formula) return false;
  if (!silent) {
    const token = state.push("formula", "", 0);
    token.content = formula.tex;
    token.meta = { display: formula.display };
  }
  state.pos = formula.end;
  return true;
}

// A formula with its lines to itself.
function blockRule(state, first, last, silent) {
  const begin = state.bMarks[first] + state.tShift[first];
  if (state.sCount[first] - state.blkIndent >= 4) return false;
  const pair = kPairs.find(([open, , display]) => display && state.src.startsWith(open, begin));
  if (!pair) return false;
  const [open, close] = pair;
  for (let line = first; line < last; ++line) {
    const from = line === first ? begin + open.length : state.bMarks[line];
    const text = state.src.slice(from, state.eMarks[line]);
    if (!text.includes(close)) continue;
    if (!text.trimEnd().endsWith(close) || text.trim() === "" || text.indexOf(close) !== text.trimEnd().length - close.length) return false;
    if (silent) return true;
    const token = state.push("formula", "", 0);
    token.block = true;
    token.content = state.getLines(first, line + 1, state.tShift[first], false).trim().slice(open.length, -close.length).trim();
    token.meta = { display: true };
    token.map = [first, line + 1];
    state.line = line + 1;
    return token.content !== "";
  }
  return false;
}

// Teaches a markdown-it parser formulas.
export function addFormulas(parser) {
  parser.inline.ruler.before("escape", "formula", inlineRule);
  parser.block.ruler.before("fence", "formula", blockRule, { alt: ["paragraph", "reference", "blockquote", "list"] });
}

// No links, images or classes of the formula's own; nothing that is huge or expands for ever.
const kLimits = { throwOnError: true, trust: false, strict: "ignore", maxSize: 20, maxExpand: 500 };

let katex = null;
let loading = null;
let waiting = [];

function load() {
  loading ??= import("./katex.js").then(() => {
    katex = globalThis.katex;
    document.head.append(make("link", { rel: "stylesheet", href: "page/katex.css" }));
    for (const fill of waiting.splice(0)) fill();
  }).catch(() => {
    loading = null;  // formulas stay as they were written; the next one tries again
    waiting = [];
  });
}

// KaTeX writes some styles as attributes, which the page's policy forbids; set as properties they
// are allowed.
function deferStyles(node) {
  if (node.attributes?.style) {
    node.attributes["data-style"] = node.attributes.style;
    delete node.attributes.style;
  }
  node.children?.forEach(deferStyles);
}

function set(element, tex, display) {
  try {
    const tree = katex.__renderToDomTree(tex, { ...kLimits, displayMode: display });
    deferStyles(tree);
    const nodes = tree.toNode();
    for (const styled of nodes.querySelectorAll("[data-style]")) {
      styled.style.cssText += styled.dataset.style;
      styled.removeAttribute("data-style");
    }
    element.replaceChildren(nodes);
    element.classList.remove("raw");
  } catch (error) {
    element.title = error.message;  // stays as it was written
  }
}

// An element that shows the formula: as it was written, until KaTeX has loaded or if it is no formula.
export function formula(tex, display) {
  const element = make(display ? "div" : "span", { class: display ? "formula display raw" : "formula raw" }, make("code", {}, tex));
  if (katex) {
    set(element, tex, display);
  } else {
    waiting.push(() => set(element, tex, display));
    load();
  }
  return element;
}
