// The page: its parts, and how they act on one another.

import { getJson } from "./api.js";
import { Asker } from "./asker.js";
import { Chats } from "./chats.js";
import { Conversation } from "./conversation.js";
import { $ } from "./dom.js";
import { KeyDialog } from "./key.js";
import { Pictures } from "./pictures.js";
import { ApiError } from "./problems.js";
import { Settings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { ChatStore, saveTheme } from "./storage.js";
import { Strip } from "./strip.js";
import { toast } from "./toast.js";
import { Transfer } from "./transfer.js";
import { pathOf } from "./tree.js";

const settings = new Settings(begin);
const keyDialog = new KeyDialog(settings, () => {
  begin();
  $("prompt").focus();
});
const kStorageProblems = {
  read: "This browser could not read the chats that it keeps. Load the page again; they have not been changed.",
  save: "This browser could not save the chat: its storage is full or off. Export the chats that you want to keep, and delete some.",
};
const store = new ChatStore((id) => refresh(id), (what) => toast(kStorageProblems[what]));
const chats = new Chats(store, () => settings.system());
const asker = new Asker(chats, settings, {
  onChange(chat) {
    const follow = conversation.nearEnd();
    if (chat === chats.current) conversation.show();
    sidebar.show();
    showComposer();
    if (follow || asker.running?.chat === chats.current) conversation.scrollToEnd();
    if (asker.running) strip.poll();
    else refreshSkipped();
  },
  onGrowth: (chat, message) => conversation.grow(chat, message),
  onFailure: (error) => (error.status === 401 || error.status === 0) && showStatus(null, error),
});
const conversation = new Conversation(chats, asker, {
  key: () => keyDialog.open(),
  new: () => sidebar.begin(),
  settings: () => $("settings").showModal(),
}, refreshSkipped);
const sidebar = new Sidebar(chats, showAll, (chat) => asker.running?.chat === chat && asker.stop(), refreshSkipped);
const pictures = new Pictures(showComposer);
const strip = new Strip(() => settings.key, () => asker.running !== null, showStatus);
const transfer = new Transfer(chats, showAll);

function showAll() {
  conversation.editing = null;
  sidebar.show();
  conversation.show();
  showComposer();
  conversation.scrollToEnd();
  refreshSkipped();
}

// Another window changed a chat.
async function refresh(id) {
  const current = chats.current;
  await chats.refresh(id, (chat) => asker.running?.chat === chat || conversation.edits(chat) || sidebar.renaming === chat);
  if (sidebar.renaming === null) sidebar.show();
  if (chats.current !== current) conversation.show();
}

// An edit, a renaming or an answer has ended.
function refreshSkipped() {
  chats.takeSkipped().forEach(refresh);
}

// ---- The box -----------------------------------------------------------------------------------

function showComposer() {
  const had = document.activeElement === $("send") || document.activeElement === $("stop");
  $("send").hidden = asker.running !== null;
  $("stop").hidden = asker.running === null;
  $("send").disabled = $("prompt").value.trim() === "" && pictures.urls.length === 0;
  if (had) $("prompt").focus();
}

function fitPrompt() {
  $("prompt").style.height = "auto";
  $("prompt").style.height = `${Math.min($("prompt").scrollHeight, 240)}px`;
  showComposer();
}

function send() {
  const text = $("prompt").value.trim();
  if ((!text && pictures.urls.length === 0) || asker.running) return;
  if (!$("open-key").hidden) return keyDialog.open();
  $("prompt").value = "";
  fitPrompt();
  asker.ask(chats.current, pathOf(chats.current).at(-1) ?? null, text, pictures.takeAll());
}

// ---- The state of the server -------------------------------------------------------------------

function showStatus(status, error) {
  const keyless = error?.status === 401;
  const state = status?.state ?? (keyless ? "API key needed" : "not reachable");
  if (keyless && $("open-key").hidden) {
    keyDialog.open(settings.key ? "The server does not know the key that this browser has." : "");
  }
  $("open-key").hidden = !keyless;
  $("strip").hidden = keyless;
  if ($("state").textContent !== state) $("state").textContent = state;
  $("state").className = `state ${status ? state : "failed"}`;
  $("state").title = [status?.detail, status?.placement, status?.placementNotice].filter(Boolean).join("\n");
  if (status?.model) {
    $("model").textContent = status.model;
    document.title = `${status.model} \u00b7 Tandem`;
  }
}

// Asks for the server's state, and first for a key if the server wants one.
async function begin() {
  if (await keyDialog.missing()) return showStatus(null, new ApiError("", 401));
  strip.poll();
  try {
    pictures.setModel((await getJson("tandem/v1/models", settings.key)).models?.[0]);
  } catch {
    // The strip says that the server does not answer.
  }
}

// ---- Keys and buttons --------------------------------------------------------------------------

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("prompt").addEventListener("input", fitPrompt);
$("prompt").addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "ArrowUp" && $("prompt").value === "" && !asker.running) {
    const question = Asker.lastQuestion(chats.current);
    if (!question) return;
    event.preventDefault();
    conversation.edit(question);
  } else if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    send();
  }
});
$("stop").addEventListener("click", () => asker.stop());
$("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  saveTheme(theme);
});
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (sidebar.isOpen) sidebar.close();
    else asker.stop();
  } else if (event.altKey && event.code === "KeyN") {
    event.preventDefault();
    sidebar.begin();
  } else if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    sidebar.search();
  } else if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) {
    event.preventDefault();
    $("prompt").focus();
  }
});
document.addEventListener("visibilitychange", () => document.hidden || begin());

async function start() {
  if (!await store.open()) {
    $("keeps").textContent = "This browser keeps nothing: chats are lost when the page closes.";
  }
  await chats.load();
  $("prompt").disabled = false;
  showAll();
  $("prompt").focus();
}
start();
begin();
