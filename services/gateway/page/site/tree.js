// A chat and the tree of its messages.
//
// A chat is {id, title, named, created, updated, system, nodes, head}.  `system` is its system
// message, `named` whether a person chose its title.  Its messages are `nodes`, each
// {id, parent, role, content, created}, of a question {images}, data: URLs of pictures before the
// text, and, of an answer, {note, error, cut, calls}: how it was made,
// what went wrong, whether it can be continued, and the functions it calls, each
// {id, name, arguments, result}.  After an answer with calls comes another answer.  Editing a
// question or asking for another answer adds a node beside the old one, so nothing is lost.  The
// page shows the path from a root to `head`.

import { callMessages, readCalls } from "./calls.js";
import { isPicture } from "./pictures.js";

export const newId = () => crypto.randomUUID?.() ?? `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;

export function newChat(system = "") {
  const now = Date.now();
  return { id: newId(), title: "New chat", named: false, created: now, updated: now, system, nodes: [], head: null };
}

const find = (chat, id) => chat.nodes.find((node) => node.id === id) ?? null;

// The messages that are shown, oldest first.
export function pathOf(chat, head = chat.head) {
  const path = [];
  for (let node = find(chat, head); node; node = find(chat, node.parent)) path.unshift(node);
  return path;
}

// Adds a message after `parent` (a node, or null for a first message) and shows it.
export function addNode(chat, parent, role, content, images = []) {
  const node = { id: newId(), parent: parent?.id ?? null, role, content, created: Date.now() };
  if (images.length > 0) node.images = images;
  chat.nodes.push(node);
  chat.head = node.id;
  if (role === "user" && !chat.named && node.parent === null) chat.title = titleOf(content || "Picture");
  return node;
}

export const titleOf = (text) => text.trim().split("\n")[0].slice(0, 80) || "New chat";

// A message and the others in its place, oldest first.
export const versionsOf = (chat, node) => chat.nodes.filter((other) => other.parent === node.parent && other.role === node.role);

// Shows `node` and, after it, the newest of what followed it.
export function showVersion(chat, node) {
  let last = node;
  for (let next = last; next; next = chat.nodes.findLast((other) => other.parent === last.id)) last = next;
  chat.head = last.id;
}

// Takes a message away that nothing follows.
export function removeLeaf(chat, node) {
  chat.nodes = chat.nodes.filter((other) => other !== node);
  if (chat.head === node.id) chat.head = node.parent;
}

// A text, or parts if there are pictures.
function contentOf(node) {
  if (!node.images) return node.content;
  const images = node.images.map((url) => ({ type: "image_url", image_url: { url } }));
  return node.content ? [...images, { type: "text", text: node.content }] : images;
}

const sizeOf = (node) => node.content.trimEnd().length + (node.calls ? JSON.stringify(node.calls).length : 0);

// Adds to `chat` the messages of `stored`, the same chat as another window saved it.  An answer that
// both have grows in one of them: the longer one is kept.  An answer without text that nothing
// follows is left out: `again` has removed it here, or its window saves it again with its text.
// What was added after the last message shown is shown too.
export function merge(chat, stored) {
  const places = new Map(chat.nodes.map((node, i) => [node.id, i]));
  const followed = new Set(stored.nodes.map((node) => node.parent));
  for (const node of stored.nodes) {
    const place = places.get(node.id);
    if (place !== undefined) {
      if (sizeOf(node) > sizeOf(chat.nodes[place])) chat.nodes[place] = node;
    } else if (node.role === "user" || sizeOf(node) > 0 || followed.has(node.id)) {
      chat.nodes.push(node);
      if (node.parent === chat.head) chat.head = node.id;
    }
  }
}

// What the server is asked for `answer`.  Turns must alternate: questions without an answer are left
// out.  An answer that has text already is continued.
export function requestMessages(chat, answer) {
  const path = pathOf(chat, answer.parent);
  const messages = [];
  if (chat.system.trim()) messages.push({ role: "system", content: chat.system.trim() });
  path.forEach((node, i) => {
    const next = path[i + 1];
    if (node.calls) {
      messages.push(...callMessages(node));
    } else if (node.role === "user" ? next === undefined || next.content || next.calls : node.content) {
      messages.push({ role: node.role, content: contentOf(node) });
    }
  });
  if (answer.content) messages.push({ role: "assistant", content: answer.content });
  return messages;
}

const text = (value, fallback = "") => (typeof value === "string" ? value : fallback);
const time = (value) => (Number.isFinite(value) ? value : Date.now());

// A chat in this page's form, from a file or from what an earlier version stored; null if it is not a
// chat.  Earlier versions had a list of `messages` instead of the tree.
export function readChat(value, system = "") {
  if (typeof value !== "object" || value === null) return null;
  const chat = { ...newChat(text(value.system, system)), title: text(value.title).slice(0, 200) || "New chat",
    named: value.named === true, created: time(value.created), updated: time(value.updated ?? value.created) };
  if (text(value.id)) chat.id = value.id;
  const old = Array.isArray(value.messages);
  const nodes = old ? value.messages : value.nodes;
  if (!Array.isArray(nodes)) return null;
  const known = new Set();
  for (const node of nodes) {
    if (!["user", "assistant"].includes(node?.role) || typeof node.content !== "string") return null;
    const read = { id: old ? newId() : text(node.id), parent: old ? chat.head : (node.parent ?? null), role: node.role,
      content: node.content, created: time(node.created ?? chat.created) };
    // A parent comes before its children: so there are no circles.
    if (!read.id || known.has(read.id) || (read.parent !== null && !known.has(read.parent))) return null;
    for (const name of ["note", "error"]) if (text(node[name])) read[name] = node[name];
    if (node.images !== undefined) {
      if (!Array.isArray(node.images) || node.role !== "user" || !node.images.every(isPicture)) return null;
      if (node.images.length > 0) read.images = node.images;
    }
    const calls = node.calls === undefined ? undefined : readCalls(node.calls);
    if (calls === null) return null;
    if (calls?.length > 0) read.calls = calls;
    if (node.cut === true || (old && node.note === "stopped")) read.cut = true;
    known.add(read.id);
    chat.nodes.push(read);
    chat.head = read.id;
  }
  if (!old && known.has(value.head)) chat.head = value.head;
  return chat;
}

// Whether every word of `words` is in the chat; where, as a piece of text around the first of them.
export function searchChat(chat, words) {
  const texts = [chat.title, ...chat.nodes.map((node) => node.content)];
  const has = (piece, word) => piece.toLowerCase().includes(word);
  if (!words.every((word) => texts.some((piece) => has(piece, word)))) return null;
  const found = texts.slice(1).find((piece) => has(piece, words[0])) ?? "";
  const at = found.toLowerCase().indexOf(words[0]);
  return { excerpt: found && `${at > 24 ? "\u2026" : ""}${found.slice(Math.max(0, at - 24), at + 60).replace(/\s+/g, " ").trim()}` };
}
