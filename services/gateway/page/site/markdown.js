// Markdown to DOM nodes.  markdown-it cuts the text into tokens; nodes are built from them one by
// one and text is set as text, so nothing that a model wrote can become a tag, an attribute or a
// script.  Nothing is loaded either: an image becomes a link.

import { copyButton, make } from "./dom.js";
import { highlight } from "./highlight.js";
import MarkdownIt from "./markdown-it.js";
import { addFormulas, formula } from "./math.js";

// html: false makes tags text.
const parser = new MarkdownIt({ html: false, linkify: true, breaks: true, typographer: false });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
// Only to the web and to mail; other addresses (javascript:, data:) stay text.
parser.validateLink = (address) => /^(?:https?:\/\/|mailto:)/i.test(address.trim());
addFormulas(parser);

const kTags = new Set(["p", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "table", "thead", "tbody",
  "tr", "th", "td", "em", "strong", "del", "a"]);
const kTask = /^\[([ xX])\]\s+/;

const link = (address, ...children) =>
  make("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);

function code(text, language) {
  const bar = make("div", { class: "code-bar" }, make("span", {}, language || "text"), copyButton(() => text, "Copy the code"));
  const label = language ? `Code in ${language}` : "Code";
  const pre = make("pre", { tabindex: "0", role: "region", "aria-label": label }, make("code", {}, ...highlight(text, language)));
  return make("div", { class: "code" }, bar, pre);
}

// The element that a token opens.
function opened(token) {
  let tag = token.tag === "s" ? "del" : token.tag;
  // The page's own heading is the first level.
  const heading = /^h([1-6])$/.exec(tag);
  if (heading) tag = `h${Math.min(Number(heading[1]) + 1, 6)}`;
  if (!kTags.has(tag)) tag = "span";
  if (tag === "a") return link(token.attrGet("href"));
  const align = /text-align:(\w+)/.exec(token.attrGet("style") ?? "");
  return make(tag, { start: tag === "ol" ? token.attrGet("start") : null, class: align && align[1] !== "left" ? `to-${align[1]}` : null });
}

// Elements without content.
const kLeaves = {
  text: (token) => token.content,
  softbreak: () => make("br"),
  hardbreak: () => make("br"),
  hr: () => make("hr"),
  code_inline: (token) => make("code", {}, token.content),
  code_block: (token) => code(token.content.replace(/\n$/, ""), ""),
  fence: (token) => code(token.content.replace(/\n$/, ""), token.info.trim().split(/\s+/)[0]),
  formula: (token) => formula(token.content, token.meta.display),
  image: (token) => link(token.attrGet("src"), token.content || "image"),
};

// "[x] done" in a list is a box with a tick.  `holder` is the item or its first paragraph.
function takeTask(holder, tokens) {
  const item = holder.tagName === "P" ? holder.parentElement : holder;
  const match = tokens[0]?.type === "text" ? kTask.exec(tokens[0].content) : null;
  if (!match || item?.tagName !== "LI" || holder.hasChildNodes() || (item !== holder && item.firstChild !== holder)) return;
  tokens[0].content = tokens[0].content.slice(match[0].length);
  const ticked = match[1] !== " ";
  item.classList.add("task");
  holder.append(make("span", { class: ticked ? "box ticked" : "box", role: "img", "aria-label": ticked ? "Done:" : "To do:" }));
}

function build(tokens, root) {
  const stack = [root];
  const top = () => stack.at(-1);
  for (const token of tokens) {
    if (token.nesting < 0) {
      const closed = stack.pop();
      if (closed.tagName === "TABLE") stack.pop();
    } else if (token.hidden && token.nesting > 0) {
      stack.push(top());  // the paragraph of a tight list's item
    } else if (token.nesting > 0) {
      let parent = top();
      if (token.tag === "table") {
        parent = make("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" });
        top().append(parent);
        stack.push(parent);
      }
      const element = opened(token);
      parent.append(element);
      stack.push(element);
    } else if (token.type === "inline") {
      takeTask(top(), token.children);
      build(token.children, top());
    } else {
      top().append((kLeaves[token.type] ?? kLeaves.text)(token));
    }
  }
}

// The tokens of each outermost block, with the text that they came from.
function blocksOf(text) {
  const env = {};
  const tokens = parser.parse(text, env);
  const lines = text.split("\n");
  // An address that is named below a block changes it.
  const references = JSON.stringify(env.references ?? {});
  const blocks = [];
  let depth = 0;
  for (const token of tokens) {
    if (depth === 0) {
      const source = token.map ? lines.slice(...token.map).join("\n") : "";
      blocks.push({ source: `${token.type} ${token.tag} ${references}\n${source}`, tokens: [] });
    }
    blocks.at(-1).tokens.push(token);
    depth += token.nesting;
  }
  return blocks;
}

// Shows `text` in `element`, keeping the blocks that have not changed since the last call, so that
// a growing answer costs only its last block.
export function showMarkdown(element, text) {
  const blocks = blocksOf(text.replace(/\r\n?/g, "\n"));
  const old = element.shownBlocks ?? [];
  let same = 0;
  while (same < old.length && same < blocks.length && old[same] === blocks[same].source) ++same;
  while (element.childNodes.length > same) element.lastChild.remove();
  for (const block of blocks.slice(same)) build(block.tokens, element);
  element.shownBlocks = blocks.map((block) => block.source);
}
