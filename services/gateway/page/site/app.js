// The page: chats on the left, the conversation, the box below it, the strip above.

import { ApiError, streamChat } from "./api.js";
import { $, copyButton, icon, kIcons, make } from "./dom.js";
import { KeyDialog } from "./key.js";
import { showMarkdown } from "./markdown.js";
import { Settings } from "./settings.js";
import { Chats, saveTheme } from "./storage.js";
import { Strip } from "./strip.js";

const settings = new Settings(begin);
const chats = new Chats();
let running = null;  // {abort, chat, message} of the answer under way
const strip = new Strip(() => settings.key, () => running !== null, showStatus);
const keyDialog = new KeyDialog(settings, () => {
  begin();
  $("prompt").focus();
});

// ---- The list of chats -------------------------------------------------------------------------

function showChats() {
  $("chats").replaceChildren(...chats.list.map((chat) => {
    const current = chat === chats.current;
    const open = make("button", { class: "chat", "aria-current": current ? "true" : null,
      onclick: () => openChat(chat.id) }, chat.title);
    const remove = make("button", { class: "icon small", "aria-label": `Delete ${chat.title}`, onclick: () => {
      if (running?.chat === chat) stop();
      chats.remove(chat.id);
      showAll();
    } }, icon(kIcons.remove));
    return make("li", { class: current ? "current" : null }, open, chat.messages.length > 0 ? remove : null);
  }));
}

function openChat(id) {
  chats.open(id);
  closeSidebar();
  showAll();
  $("prompt").focus();
}

function newChat() {
  chats.begin();
  closeSidebar();
  showAll();
  $("prompt").focus();
}

function openSidebar() {
  document.body.classList.add("sidebar-open");
  $("shade").hidden = false;
  $("open-sidebar").setAttribute("aria-expanded", "true");
  $("new-chat").focus();
}

function closeSidebar() {
  if (!document.body.classList.contains("sidebar-open")) return;
  document.body.classList.remove("sidebar-open");
  $("shade").hidden = true;
  $("open-sidebar").setAttribute("aria-expanded", "false");
  $("open-sidebar").focus();
}

// ---- The conversation --------------------------------------------------------------------------

// How an answer was made, in words.
function noteOf(end, seconds) {
  const { usage, tandem } = end;
  if (!usage) return "";
  const parts = [`${usage.completion_tokens} tokens`];
  const decode = (tandem?.total_seconds ?? seconds) - (tandem?.first_token_seconds ?? 0);
  if (usage.completion_tokens > 1 && decode > 0) parts.push(`${((usage.completion_tokens - 1) / decode).toFixed(1)} tok/s`);
  if (tandem) {
    parts.push(`first after ${tandem.first_token_seconds.toFixed(2)} s`);
    const all = Object.values(tandem.device_seconds).reduce((a, b) => a + b, 0);
    for (const [device, time] of Object.entries(tandem.device_seconds)) {
      if (all > 0) parts.push(`${device} ${Math.round((100 * time) / all)}%`);
    }
    parts.push(`seed ${tandem.seed}`);
  }
  if (end.reason === "length") parts.push("cut at the longest answer");
  return parts.join(" \u00b7 ");
}

// Elements by message, with what they were made from, so that one that stays the same is the same
// element: assistive technology reads out only what is new.
const made = new WeakMap();
function elementOf(message) {
  const from = JSON.stringify([message, running?.message === message]);
  const known = made.get(message);
  if (known?.from === from) return known.element;
  const element = messageElement(message);
  made.set(message, { from, element });
  return element;
}

function messageElement(message) {
  if (message.role === "user") {
    return make("article", { class: "user", "aria-label": "You" }, make("div", { class: "bubble" }, message.content));
  }
  const body = make("div", { class: "answer" });
  showMarkdown(body, message.content);
  const element = make("article", { class: "assistant", "aria-label": "Answer" }, body);
  if (message.error) element.append(make("p", { class: "error", role: "alert" }, message.error));
  const busy = running?.message === message;
  if (busy) {
    element.classList.add("busy");
    if (!message.content) body.append(make("span", { class: "waiting", "aria-label": "Waiting for the first word" }, make("i"), make("i"), make("i")));
  } else {
    // Only the last answer's second button is shown (parts.css).
    const tools = make("div", { class: "tools" }, copyButton(() => message.content, "Copy the answer"),
      make("button", { type: "button", class: "icon small regenerate", "aria-label": "Answer again",
        onclick: regenerate }, icon(kIcons.again)));
    if (message.note) tools.append(make("span", { class: "note" }, message.note));
    element.append(tools);
  }
  return element;
}

function showMessages() {
  const { messages } = chats.current;
  const elements = messages.map(elementOf);
  if (elements.length === 0) {
    elements.push(make("div", { class: "empty" }, make("img", { src: "page/icon.svg", alt: "", width: "56", height: "56" }),
      make("h2", {}, "What shall we talk about?"),
      make("p", {}, "Everything stays between this browser and this server.")));
  }
  elements.forEach((element, i) => {
    const shown = $("messages").children[i];
    if (shown === undefined) $("messages").append(element);
    else if (shown !== element) shown.replaceWith(element);
  });
  while ($("messages").childElementCount > elements.length) $("messages").lastChild.remove();
  $("messages").setAttribute("aria-busy", String(running?.chat === chats.current));
}

function showAll() {
  showChats();
  showMessages();
  showComposer();
  scrollToEnd();
}

const nearEnd = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 80;

function scrollToEnd() {
  $("scroll").scrollTop = $("scroll").scrollHeight;
  $("to-end").hidden = true;
}

// The answer under way, once a frame at most.
let frame = 0;
function showGrowth() {
  if (frame || running?.chat !== chats.current) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    const body = $("messages").lastElementChild?.querySelector(".answer");
    if (!body || running?.chat !== chats.current) return;
    const follow = nearEnd();
    body.querySelector(".waiting")?.remove();
    showMarkdown(body, running.message.content);
    if (follow) scrollToEnd();
  });
}

// ---- Asking ------------------------------------------------------------------------------------

// Turns must alternate: those that brought no answer are left out.
function requestMessages(chat, answer) {
  const messages = [];
  if (settings.system()) messages.push({ role: "system", content: settings.system() });
  for (let i = 0; i + 1 < chat.messages.length; i += 2) {
    const [question, reply] = [chat.messages[i], chat.messages[i + 1]];
    if (reply === answer) messages.push({ role: "user", content: question.content });
    else if (reply.content) messages.push({ role: "user", content: question.content }, { role: "assistant", content: reply.content });
  }
  return messages;
}

async function ask(chat) {
  const message = { role: "assistant", content: "" };
  const abort = new AbortController();
  running = { abort, chat, message };
  chat.messages.push(message);
  chats.touch();
  showAll();
  strip.poll();
  const began = performance.now();
  try {
    const request = { messages: requestMessages(chat, message), ...settings.parameters() };
    for await (const event of streamChat(request, settings.key, abort.signal)) {
      if (event.end) {
        message.note = noteOf(event.end, (performance.now() - began) / 1000);
      } else {
        message.content += event.text;
        showGrowth();
      }
    }
  } catch (error) {
    if (abort.signal.aborted) {
      message.note = "stopped";
    } else {
      message.error = error.status === 401 ? "The server asks for an API key." : error.message;
      if (error.status === 401) showStatus(null, error);
    }
  }
  const follow = nearEnd();
  running = null;
  if (chats.list.includes(chat)) chats.save();
  if (chat === chats.current) showMessages();
  showComposer();
  if (follow) scrollToEnd();
}

function send() {
  const text = $("prompt").value.trim();
  if (!text || running) return;
  if (!$("open-key").hidden) return keyDialog.open();
  $("prompt").value = "";
  fitPrompt();
  chats.current.messages.push({ role: "user", content: text });
  ask(chats.current);
}

function regenerate() {
  if (running || chats.current.messages.length < 2) return;
  chats.current.messages.pop();
  ask(chats.current);
  $("prompt").focus();
}

function stop() {
  running?.abort.abort();
}

// ---- The box -----------------------------------------------------------------------------------

function showComposer() {
  const had = document.activeElement === $("send") || document.activeElement === $("stop");
  $("send").hidden = running !== null;
  $("stop").hidden = running === null;
  $("send").disabled = $("prompt").value.trim() === "";
  if (had) $("prompt").focus();
}

function fitPrompt() {
  $("prompt").style.height = "auto";
  $("prompt").style.height = `${Math.min($("prompt").scrollHeight, 240)}px`;
  showComposer();
}

function showStatus(status, error) {
  const keyless = error?.status === 401;
  const state = status?.state ?? (keyless ? "API key needed" : "not reachable");
  if (keyless && $("open-key").hidden) {
    keyDialog.open(settings.key ? "The server does not know the key that this browser has." : "");
  }
  $("open-key").hidden = !keyless;
  $("strip").hidden = keyless;
  $("state").textContent = state;
  $("state").className = `state ${status ? state : "failed"}`;
  $("state").title = [status?.detail, status?.placement, status?.placementNotice].filter(Boolean).join("\n");
  if (status?.model) {
    $("model").textContent = status.model;
    document.title = `${status.model} \u00b7 Tandem`;
  }
}

// Asks for the server's state, or first for the key without which there is none to be had.
async function begin() {
  if (await keyDialog.missing()) showStatus(null, new ApiError("", 401));
  else strip.poll();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("prompt").addEventListener("input", fitPrompt);
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
$("stop").addEventListener("click", stop);
$("new-chat").addEventListener("click", newChat);
$("open-sidebar").addEventListener("click", openSidebar);
$("close-sidebar").addEventListener("click", closeSidebar);
$("shade").addEventListener("click", closeSidebar);
$("to-end").addEventListener("click", scrollToEnd);
$("scroll").addEventListener("scroll", () => {
  $("to-end").hidden = nearEnd();
});
$("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  saveTheme(theme);
});
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (document.body.classList.contains("sidebar-open")) closeSidebar();
    else stop();
  } else if (event.altKey && event.code === "KeyN") {
    event.preventDefault();
    newChat();
  } else if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) {
    event.preventDefault();
    $("prompt").focus();
  }
});
document.addEventListener("visibilitychange", () => document.hidden || begin());

showAll();
begin();
