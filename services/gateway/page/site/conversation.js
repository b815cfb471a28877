// The messages of the chat that is open, and what can be done with each.

import { callList } from "./calls.js";
import { copyButton, $, iconButton, make } from "./dom.js";
import { showMarkdown } from "./markdown.js";
import { thumbnails } from "./pictures.js";
import { pathOf, showVersion, versionsOf } from "./tree.js";

const kWays = { again: "Try again", key: "Enter API key", new: "New chat", settings: "Settings" };

const fit = (area) => {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, 360)}px`;
};

export class Conversation {
  // `ways` are what to do about an error, by name; "again" is the asker's.  `onEdited` is called when
  // an edit has ended.
  constructor(chats, asker, ways, onEdited) {
    Object.assign(this, { chats, asker, ways, onEdited });
    this.editing = null;  // the question, or the chat whose system message, is being edited
    // Elements by message, with what they were made from, so that one that stays the same is the
    // same element: assistive technology reads out only new text.
    this.made = new WeakMap();
    this.frame = 0;
    $("to-end").addEventListener("click", () => this.scrollToEnd());
    $("scroll").addEventListener("scroll", () => { $("to-end").hidden = this.nearEnd(); });
  }

  // Whether a question that is shown, or the system message, of `chat` is being edited.
  edits(chat) {
    return this.editing !== null && (this.editing === chat || pathOf(chat).includes(this.editing));
  }

  nearEnd() {
    return $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 80;
  }

  scrollToEnd() {
    $("scroll").scrollTop = $("scroll").scrollHeight;
    $("to-end").hidden = true;
  }

  show() {
    const chat = this.chats.current;
    this.showSystem(chat);
    const path = pathOf(chat);
    const elements = path.map((message, i) => this.elementOf(chat, message, i === path.length - 1));
    if (elements.length === 0) elements.push(this.welcome());
    elements.forEach((element, i) => {
      const shown = $("messages").children[i];
      if (shown === undefined) $("messages").append(element);
      else if (shown !== element) shown.replaceWith(element);
    });
    while ($("messages").childElementCount > elements.length) $("messages").lastChild.remove();
    $("messages").setAttribute("aria-busy", String(this.asker.running?.chat === chat));
  }

  welcome() {
    return make("div", { class: "empty" }, make("img", { src: "page/icon.svg", alt: "", width: "56", height: "56" }),
      make("h2", {}, "What shall we talk about?"),
      make("p", {}, "Everything stays between this browser and this server."));
  }

  elementOf(chat, message, last) {
    const versions = versionsOf(chat, message);
    const state = { busy: this.asker.isRunning(message), idle: this.asker.running === null, last, versions: versions.length,
      at: versions.indexOf(message), editing: this.editing === message };
    // Pictures never change, and are long.
    const from = JSON.stringify([message, state], (name, value) => (name === "images" ? value.length : value));
    const known = this.made.get(message);
    if (known?.from === from) return known.element;
    const element = message.role === "user" ? this.question(chat, message, versions, state) : this.answer(chat, message, versions, state);
    this.made.set(message, { from, element });
    return element;
  }

  // Arrows between the versions of a message.
  arrows(chat, versions, { at, idle }) {
    if (versions.length < 2) return null;
    const to = (label, kind, other) => {
      const button = iconButton(kind, label, () => {
        showVersion(chat, other);
        this.chats.save(chat);
        this.show();
        const arrows = $("messages").querySelector(`[data-id="${other.id}"] .versions`);
        (arrows?.querySelector(`[aria-label="${label}"]:enabled`) ?? arrows?.querySelector("button:enabled"))?.focus();
      });
      button.disabled = !other || !idle;
      return button;
    };
    return make("span", { class: "versions", role: "group", "aria-label": "Versions" }, to("Earlier version", "before", versions[at - 1]),
      make("span", {}, `${at + 1} of ${versions.length}`), to("Later version", "after", versions[at + 1]));
  }

  question(chat, message, versions, state) {
    const element = make("article", { class: "user", "aria-label": "You", "data-id": message.id });
    if (state.editing) {
      element.append(this.editor(message.content, "Edit your message", "Send", (text) => {
        const parent = chat.nodes.find((node) => node.id === message.parent) ?? null;
        this.asker.ask(chat, parent, text, message.images);
        $("prompt").focus();
      }, message.images?.length > 0));
      return element;
    }
    const edit = iconButton("edit", "Edit the message", () => this.edit(message));
    edit.disabled = !state.idle;
    element.append(make("div", { class: "asked" }, message.images ? thumbnails(message.images) : null,
      message.content ? make("div", { class: "bubble" }, message.content) : null),
      make("div", { class: "tools" }, this.arrows(chat, versions, state), copyButton(() => message.content, "Copy the message"), edit));
    return element;
  }

  answer(chat, message, versions, state) {
    const body = make("div", { class: "answer" });
    showMarkdown(body, message.content);
    const element = make("article", { class: `assistant${state.busy ? " busy" : ""}`, "aria-label": "Answer",
      "data-id": message.id }, body);
    if (state.busy) {
      const label = "Waiting for the first word";
      if (message.calls) element.append(callList(message.calls, null));
      else if (!message.content) body.append(make("span", { class: "waiting", role: "img", "aria-label": label }, make("i"), make("i"), make("i")));
      return element;
    }
    if (message.calls) {
      element.append(callList(message.calls, state.last && state.idle ? (results) => this.act(() => this.asker.answerCalls(chat, message, results)) : null));
    }
    if (message.error) element.append(this.failure(chat, message, state));
    const again = iconButton("again", "Answer again", () => this.act(() => this.asker.again(chat, message)), "regenerate");
    again.disabled = !state.idle;
    const tools = make("div", { class: "tools" }, this.arrows(chat, versions, state));
    if (message.content) tools.append(copyButton(() => message.content, "Copy the answer"));
    if (state.last && (message.content || message.calls || !message.error)) tools.append(again);
    if (state.last && message.cut && message.content && !message.calls) {
      const goOn = make("button", { type: "button", class: "quiet continue",
        onclick: () => this.act(() => this.asker.goOn(chat, message)) }, "Continue");
      goOn.disabled = !state.idle;
      tools.append(goOn);
    }
    if (message.note) tools.append(make("span", { class: "note" }, message.note));
    element.append(tools);
    return element;
  }

  act(work) {
    work();
    $("prompt").focus();
  }

  failure(chat, message, state) {
    const box = make("div", { class: "error", role: "alert" }, make("span", {}, message.error));
    const way = message.way ?? "again";
    if (state.last && state.idle) {
      box.append(make("button", { type: "button", class: "quiet", onclick: () => {
        if (way === "again") this.act(() => this.asker.again(chat, message));
        else this.ways[way]();
      } }, kWays[way]));
    }
    return box;
  }

  // A box to edit `text` in; Enter ends it, Shift Enter breaks the line, Escape leaves all as it was.
  editor(text, label, verb, onDone, mayBeEmpty) {
    const area = make("textarea", { rows: "1", "aria-label": label, "data-editor": "" });
    area.value = text;
    const end = () => {
      this.editing = null;
      this.show();
      $("prompt").focus();
      this.onEdited();
    };
    const finish = () => {
      const value = area.value.trim();
      if (!value && !mayBeEmpty) return;
      this.editing = null;
      onDone(value);
      this.show();
      this.onEdited();
    };
    area.addEventListener("input", () => fit(area));
    area.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") {
        event.stopPropagation();
        end();
      } else if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        finish();
      }
    });
    return make("div", { class: "editor" }, area, make("div", { class: "editor-foot" },
      make("button", { type: "button", class: "quiet", onclick: end }, "Cancel"),
      make("button", { type: "button", class: "primary", onclick: finish }, verb)));
  }

  // Begins to edit a question, or with a chat its system message.
  edit(what) {
    if (what === null || (this.asker.running && what !== this.chats.current)) return;
    this.editing = what;
    this.show();
    const area = document.querySelector("[data-editor]");
    fit(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }

  // The system message of this chat, above its messages.
  showSystem(chat) {
    const element = $("system");
    const state = JSON.stringify([chat.id, chat.system, this.editing === chat]);
    // After a refresh the chat is another object, which the button must edit.
    if (this.systemOf === chat && element.dataset.state === state) return;
    this.systemOf = chat;
    element.dataset.state = state;
    element.classList.toggle("set", chat.system !== "" || this.editing === chat);
    if (this.editing === chat) {
      element.replaceChildren(make("h2", {}, "System message"),
        make("p", { class: "note" }, "How the model should behave in this chat, from its next answer on."),
        this.editor(chat.system, "System message of this chat", "Save", (text) => {
          chat.system = text;
          this.chats.save(chat);
          $("prompt").focus();
        }, true));
    } else if (chat.system) {
      element.replaceChildren(make("h2", {}, "System message", iconButton("edit", "Edit the system message", () => this.edit(chat))),
        make("p", { class: "text", tabindex: "0" }, chat.system));
    } else {
      element.replaceChildren(make("button", { type: "button", class: "quiet", onclick: () => this.edit(chat) }, "Add a system message"));
    }
  }

  // The answer under way has grown; shown once a frame at most.
  grow(chat, message) {
    if (this.frame || chat !== this.chats.current) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const article = $("messages").lastElementChild;
      if (article?.dataset.id !== message.id || !this.asker.isRunning(message)) return;
      const body = article.querySelector(".answer");
      const follow = this.nearEnd();
      body.querySelector(".waiting")?.remove();
      showMarkdown(body, message.content);
      if (message.calls) {
        article.querySelector(".calls")?.remove();
        article.append(callList(message.calls, null));
      }
      if (follow) this.scrollToEnd();
    });
  }
}
