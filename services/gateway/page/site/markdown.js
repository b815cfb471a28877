// Markdown to DOM nodes.  The text is a stranger's: nodes are built one by one and text is set as
// text, so nothing in it can become a tag, an attribute or a script.

import { copyButton, make } from "./dom.js";
import { highlight } from "./highlight.js";

const kFence = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const kHeading = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const kRule = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kQuote = /^\s{0,3}>\s?(.*)$/;
const kTableRule = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// Cuts text into blocks: {kind, lines, ...}.  A fence that is not closed yet reaches to the end.
function blocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const found = [];
  let at = 0;
  const take = (kind, test, more = {}) => {
    const begin = at;
    while (at < lines.length && test(lines[at], at - begin)) ++at;
    found.push({ kind, lines: lines.slice(begin, at), ...more });
  };
  const plain = (line) =>
    line.trim() !== "" && !kFence.test(line) && !kHeading.test(line) && !kRule.test(line) &&
    !kItem.test(line) && !kQuote.test(line);
  while (at < lines.length) {
    const line = lines[at];
    const fence = kFence.exec(line);
    if (line.trim() === "") {
      ++at;
    } else if (fence) {
      const begin = ++at;
      const closes = (l) => l.trim().startsWith(fence[1]) && l.trim().replaceAll(fence[1][0], "") === "";
      while (at < lines.length && !closes(lines[at])) ++at;
      found.push({ kind: "code", lines: lines.slice(begin, at), language: fence[2] });
      ++at;
    } else if (kHeading.test(line)) {
      take("heading", (_, i) => i === 0);
    } else if (kRule.test(line)) {
      take("rule", (_, i) => i === 0);
    } else if (kQuote.test(line)) {
      take("quote", (l) => kQuote.test(l));
    } else if (kItem.test(line)) {
      take("list", (l, i) => i === 0 || kItem.test(l) || (l.trim() !== "" && /^\s+/.test(l)) ||
        (l.trim() === "" && kItem.test(lines[at + 1] ?? "")));
    } else if (line.includes("|") && kTableRule.test(lines[at + 1] ?? "")) {
      take("table", (l) => l.includes("|"));
    } else {
      take("text", (l, i) => i === 0 || plain(l));
    }
  }
  return found;
}

// The marks that begin and end inline elements, tried in this order where a mark stands.
const kInline = [
  [/^(`+)([\s\S]*?[^`])\1(?!`)/, (m) => make("code", {}, m[2].replace(/^ (.*) $/, "$1"))],
  [/^\*\*(?=\S)([\s\S]*?\S)\*\*/, (m) => wrap("strong", m[1])],
  [/^__(?=\S)([\s\S]*?\S)__(?!\w)/, (m) => wrap("strong", m[1])],
  [/^~~(?=\S)([\s\S]*?\S)~~/, (m) => wrap("del", m[1])],
  [/^\*(?=[^\s*])([\s\S]*?[^\s*])\*(?!\*)/, (m) => wrap("em", m[1])],
  [/^_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)/, (m) => wrap("em", m[1])],
  [/^\[([^\]\n]+)\]\(([^\s)]+)(?:\s+"[^"]*")?\)/, (m) => link(m[2], inline(m[1])) ?? m[0]],
  [/^<?(https?:\/\/[^\s<>()]*[^\s<>().,;:!?'"])>?/, (m) => link(m[1], [m[1]]) ?? m[0]],
  [/^\\([\\`*_{}[\]()#+.!|~>-])/, (m) => m[1]],
];

function wrap(tag, text) {
  return make(tag, {}, ...inline(text));
}

// Only to the web and to mail; other addresses (javascript:, data:) stay text.
function link(address, children) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  return make("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

function inline(text) {
  const nodes = [];
  let plain = "";
  const flush = () => {
    if (plain) nodes.push(plain);
    plain = "";
  };
  for (let at = 0; at < text.length;) {
    const mark = text[at];
    const inWord = /\w/.test(text[at - 1] ?? "");
    if (mark === "\n") {
      flush();
      nodes.push(make("br"));
      ++at;
      continue;
    }
    const rest = "`*_~[<h\\".includes(mark) && !(inWord && (mark === "_" || mark === "h")) ? text.slice(at, at + 4000) : "";
    let matched = null;
    for (const [pattern, build] of rest ? kInline : []) {
      const match = pattern.exec(rest);
      if (!match) continue;
      matched = [match[0].length, build(match)];
      break;
    }
    if (matched) {
      flush();
      nodes.push(matched[1]);
      at += matched[0];
    } else {
      plain += mark;
      ++at;
    }
  }
  flush();
  return nodes;
}

// Items by their indentation; what is indented deeper belongs to the item before.
function list(lines) {
  const first = kItem.exec(lines[0]);
  const indent = first[1].length;
  const numbered = /\d/.test(first[2]);
  const start = numbered ? Number.parseInt(first[2], 10) : 1;
  const element = make(numbered ? "ol" : "ul", { start: start === 1 ? null : String(start) });
  let inner = null;
  const close = () => {
    if (!inner) return;
    const text = inner.lines.findIndex((line) => kItem.test(line) || kFence.test(line));
    const head = text < 0 ? inner.lines : inner.lines.slice(0, text);
    const item = make("li", {}, ...inline(head.join("\n").trim()));
    if (text >= 0) item.append(...renderBlocks(dedent(inner.lines.slice(text))));
    element.append(item);
  };
  for (const line of lines) {
    const match = kItem.exec(line);
    if (match && match[1].length <= indent + 1) {
      close();
      inner = { lines: [match[3]] };
    } else if (inner) {
      inner.lines.push(line);
    }
  }
  close();
  return element;
}

function dedent(lines) {
  const depth = Math.min(...lines.filter((line) => line.trim()).map((line) => line.search(/\S/)));
  return lines.map((line) => line.slice(depth)).join("\n");
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
  const row = (line, tag) => make("tr", {}, ...cells(line).map((cell) => make(tag, {}, ...inline(cell))));
  const body = lines.slice(2).map((line) => row(line, "td"));
  const element = make("table", {}, make("thead", {}, row(lines[0], "th")), make("tbody", {}, ...body));
  return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, element);
}

function code(block) {
  const text = block.lines.join("\n");
  const bar = make("div", { class: "code-bar" }, make("span", {}, block.language || "text"), copyButton(() => text, "Copy the code"));
  const pre = make("pre", { tabindex: "0", "aria-label": "Code" }, make("code", {}, ...highlight(text, block.language)));
  return make("div", { class: "code" }, bar, pre);
}

const kBuild = {
  heading: (block) => {
    const match = kHeading.exec(block.lines[0]);
    // The page's own heading is the first level.
    return make(`h${Math.min(match[1].length + 1, 6)}`, {}, ...inline(match[2]));
  },
  rule: () => make("hr"),
  quote: (block) => make("blockquote", {}, ...renderBlocks(block.lines.map((line) => kQuote.exec(line)[1]).join("\n"))),
  list: (block) => list(block.lines),
  table: (block) => table(block.lines),
  code,
  text: (block) => make("p", {}, ...inline(block.lines.map((line) => line.trim()).join("\n"))),
};

function renderBlocks(text) {
  return blocks(text).map((block) => kBuild[block.kind](block));
}

// Shows `text` in `element`, keeping the blocks that have not changed since the last call, so that
// a growing answer costs only its last block.
export function showMarkdown(element, text) {
  const found = blocks(text);
  const old = element.shownBlocks ?? [];
  const sources = found.map((block) => `${block.kind} ${block.language ?? ""}\n${block.lines.join("\n")}`);
  let same = 0;
  while (same < old.length && old[same] === sources[same]) ++same;
  while (element.childNodes.length > same) element.lastChild.remove();
  element.append(...found.slice(same).map((block) => kBuild[block.kind](block)));
  element.shownBlocks = sources;
}
