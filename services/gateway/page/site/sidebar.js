// The list of chats: opening, searching, renaming and deleting them.

import { isEmpty } from "./chats.js";
import { $, iconButton, make } from "./dom.js";
import { toast } from "./toast.js";
import { searchChat, titleOf } from "./tree.js";

export class Sidebar {
  // `onShow` is called when another chat is to be shown, `onRemove` before one is deleted, `onRenamed`
  // when the edit of a title has ended.
  constructor(chats, onShow, onRemove, onRenamed) {
    this.chats = chats;
    this.onShow = onShow;
    this.onRemove = onRemove;
    this.onRenamed = onRenamed;
    this.renaming = null;  // the chat whose title is being edited
    this.deleted = [];     // what the toast can bring back
    $("new-chat").addEventListener("click", () => this.begin());
    $("open-sidebar").addEventListener("click", () => this.open());
    $("close-sidebar").addEventListener("click", () => this.close());
    $("shade").addEventListener("click", () => this.close());
    $("search").addEventListener("input", () => this.show());
    $("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") $("chats").querySelector(".chat")?.click();
      if (event.key !== "Escape" || !$("search").value) return;
      event.stopPropagation();
      $("search").value = "";
      this.show();
    });
  }

  get isOpen() {
    return document.body.classList.contains("sidebar-open");
  }

  open() {
    document.body.classList.add("sidebar-open");
    $("shade").hidden = false;
    $("open-sidebar").setAttribute("aria-expanded", "true");
    $("new-chat").focus();
  }

  close() {
    if (!this.isOpen) return;
    document.body.classList.remove("sidebar-open");
    $("shade").hidden = true;
    $("open-sidebar").setAttribute("aria-expanded", "false");
    $("open-sidebar").focus();
  }

  // Puts the cursor into the search box.
  search() {
    if (getComputedStyle($("open-sidebar")).display !== "none") this.open();
    $("search").focus();
    $("search").select();
  }

  begin() {
    this.chats.begin();
    this.go();
  }

  go() {
    this.close();
    this.onShow();
    $("prompt").focus();
  }

  show() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.chats.list.map((chat) => [chat, words.length > 0 ? searchChat(chat, words) : {}])
      .filter(([chat, match]) => match && (words.length === 0 || !isEmpty(chat)));
    $("chats").replaceChildren(...found.map(([chat, match]) => this.item(chat, match.excerpt)));
    $("found").textContent = words.length === 0 ? "" : found.length === 0 ? "No chat has these words." : `${found.length} found`;
    $("found").hidden = words.length === 0;
  }

  item(chat, excerpt) {
    const current = chat === this.chats.current;
    const item = make("li", { class: current ? "current" : null });
    if (this.renaming === chat) {
      item.append(this.titleBox(chat));
      return item;
    }
    item.append(make("button", { type: "button", class: "chat", "aria-current": current ? "true" : null, title: chat.title,
      onclick: () => {
        this.chats.open(chat.id);
        this.go();
      },
      onkeydown: (event) => event.key === "F2" && this.rename(chat),
    }, make("span", { class: "title" }, chat.title), excerpt ? make("small", {}, excerpt) : null));
    if (!isEmpty(chat) || chat.named) {
      item.append(make("span", { class: "actions" }, iconButton("edit", `Rename ${chat.title}`, () => this.rename(chat)),
        iconButton("remove", `Delete ${chat.title}`, () => this.remove(chat))));
    }
    return item;
  }

  rename(chat) {
    this.renaming = chat;
    this.show();
    $("title-box").select();
  }

  titleBox(chat) {
    const end = (keep) => {
      if (this.renaming !== chat) return;
      this.renaming = null;
      const title = $("title-box").value.trim();
      if (keep && title && title !== chat.title) {
        chat.title = titleOf(title);
        chat.named = true;
        this.chats.save(chat);
      }
      this.show();
      this.onRenamed();
    };
    const back = () => [...$("chats").querySelectorAll(".chat")].find((button) => button.title === chat.title)?.focus();
    return make("input", { id: "title-box", "aria-label": "Title of the chat", value: chat.title, maxlength: "80", autocomplete: "off",
      onblur: () => end(true),
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== "Escape") return;
        if (event.isComposing) return;
        event.preventDefault();
        event.stopPropagation();
        end(event.key === "Enter");
        back();
      } });
  }

  // Deletes a chat; until the toast goes, it and those deleted just before can be brought back.
  remove(chat) {
    this.onRemove(chat);
    this.deleted.push(this.chats.remove(chat));
    this.onShow();
    const words = this.deleted.length === 1 ? `Deleted \u201c${chat.title}\u201d.` : `Deleted ${this.deleted.length} chats.`;
    const kept = this.deleted;
    toast(words, "Undo", () => {
      while (kept.length > 0) this.chats.restore(kept.pop());
      this.onShow();
      $("prompt").focus();
    }, () => { this.deleted = []; });
    this.deleted = kept;  // the toast before it has gone
    $("chats").querySelector(".current .chat")?.focus();
  }
}
