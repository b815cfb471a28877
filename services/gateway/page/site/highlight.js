// Colours for code: comments, strings, numbers and the keywords that most languages share.

import { make } from "./dom.js";

const kHash = /^(py|python|sh|bash|zsh|shell|ruby|rb|yaml|yml|toml|r|perl|make|makefile|dockerfile|cmake|conf|ini)$/i;
const kDash = /^(sql|lua|haskell|hs|ada|elm)$/i;
const kPlain = /^(|text|txt|plain|output|console|markdown|md|diff|csv)$/i;

const kKeywords = new Set(
  ("abstract as assert async await auto bool boolean break case catch char class const constexpr continue def default " +
    "defer del delete do double elif else end enum except export extends extern false final finally float fn for from func " +
    "function go goto if impl implements import in include inline int interface is lambda let long loop match mod module mut " +
    "namespace new nil none None not null nullptr of operator or and package pass private protected pub public raise return " +
    "self short signed sizeof static struct super switch template then this throw trait true True False try type typedef " +
    "typename union unsafe unsigned use using var virtual void volatile where while with yield " +
    "SELECT FROM WHERE INSERT UPDATE DELETE CREATE TABLE JOIN ON GROUP ORDER BY LIMIT AND OR NOT NULL AS").split(" "));

// Text and spans that together are `text`.
export function highlight(text, language) {
  if (kPlain.test(language) || text.length > 50000) return [text];
  const comment = kHash.test(language) ? "#[^\\n]*" : kDash.test(language) ? "--[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)";
  const pattern = new RegExp(
    `(?<comment>${comment})|(?<string>"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|\`(?:\\\\.|[^\`\\\\])*\`?)` +
      "|(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_]\\w*)", "g");
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    const { comment: c, string: s, number: n, word: w } = match.groups;
    const kind = c ? "comment" : s ? "string" : n ? "number" : kKeywords.has(w) ? "keyword" : null;
    if (!kind) continue;
    nodes.push(text.slice(at, match.index), make("span", { class: `t-${kind}` }, match[0]));
    at = match.index + match[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}
