// The list of chats, newest first, and the one that is open.

import { keepOldChats, oldChats } from "./storage.js";
import { merge, newChat, newId, readChat } from "./tree.js";

export const isEmpty = (chat) => chat.nodes.length === 0;

export class Chats {
  // `system()` is the system message that a new chat begins with.
  constructor(store, system) {
    this.store = store;
    this.system = system;
    this.list = [];
    this.skipped = new Set();  // ids of chats that another window changed while they were busy here
    this.loaded = new Promise((resolve) => { this.endLoad = resolve; });
    this.begin();
  }

  // Reads what this browser keeps, and takes over what an earlier version of the page kept.
  async load() {
    const kept = (await this.store.all()).map((chat) => readChat(chat)).filter(Boolean);
    // There, one system message held for all chats.
    const old = oldChats().map((value) => [value, readChat(value, this.system())]);
    const taken = old.map(([, chat]) => chat).filter((chat) => chat && !isEmpty(chat));
    const now = Date.now();
    taken.forEach((chat, i) => {
      chat.updated = now - i;  // they were in order
      if (kept.some((other) => other.id === chat.id)) chat.id = newId();
    });
    // Those that cannot be read stay where they are.
    if (old.length > 0 && await this.store.save(...taken)) keepOldChats(old.filter(([, chat]) => !chat).map(([value]) => value));
    this.list = [...kept, ...taken].sort((a, b) => b.updated - a.updated);
    this.current = this.list[0] ?? null;
    if (!this.current) this.begin();
    this.endLoad();
  }

  // An empty chat; one that is empty already is taken again.
  begin() {
    const empty = this.list.find((chat) => isEmpty(chat) && !chat.named);
    this.current = empty ?? newChat(this.system());
    if (empty && !empty.system) empty.system = this.system();
    this.list = [this.current, ...this.list.filter((chat) => chat !== this.current)];
  }

  open(id) {
    this.current = this.list.find((chat) => chat.id === id) ?? this.current;
  }

  // Saves a chat.  `touched`: something was asked in it, so it comes first.
  save(chat, touched = false) {
    if (!this.list.includes(chat)) return;
    if (touched) {
      chat.updated = Date.now();
      this.list = [chat, ...this.list.filter((other) => other !== chat)];
    }
    if (!isEmpty(chat) || chat.named || chat.system !== this.system()) this.store.save(chat);
  }

  // Returns what `restore` needs.
  remove(chat) {
    const at = this.list.indexOf(chat);
    this.list = this.list.filter((other) => other !== chat);
    if (this.current === chat) this.current = this.list[Math.min(at, this.list.length - 1)] ?? null;
    if (!this.current) this.begin();
    this.store.remove(chat.id);
    return { chat, at };
  }

  restore({ chat, at }) {
    this.list.splice(at, 0, chat);
    this.current = chat;
    this.store.save(chat);
  }

  // Adds chats of a file.  One that is here already is left alone; one that differs from it becomes
  // a chat of its own.  Returns {added, known}; rejects if they cannot be kept.
  async add(chats) {
    const added = [];
    let known = 0;
    for (const chat of chats) {
      const here = this.list.find((other) => other.id === chat.id);
      if (here && JSON.stringify(here.nodes) === JSON.stringify(chat.nodes)) {
        ++known;
        continue;
      }
      if (here) chat.id = newId();
      added.push(chat);
    }
    // Without a database all chats last as long as the page.
    if (added.length > 0 && !await this.store.save(...added) && this.store.db) {
      throw new Error("This browser could not save the chats: its storage is full or off. Nothing was imported.");
    }
    this.list = [...this.list, ...added].sort((a, b) => b.updated - a.updated);
    return { added: added.length, known };
  }

  // Another window saved or deleted the chat `id`.  A busy chat stays as it is until `takeSkipped`.
  async refresh(id, isBusy) {
    await this.loaded;
    const read = readChat(await this.store.get(id));
    // Looked up after the read: an earlier message about the same chat may have added it meanwhile.
    const here = this.list.find((chat) => chat.id === id);
    if (here && isBusy(here)) {
      this.skipped.add(id);
      return;
    }
    // An answer may have ended here after the read.
    if (here && read) merge(read, here);
    const was = this.current === here;
    this.list = this.list.filter((chat) => chat !== here);
    if (read) this.list = [...this.list, read].sort((a, b) => b.updated - a.updated);
    if (was) this.current = read ?? this.list[0] ?? null;
    if (!this.current) this.begin();
  }

  // The ids of the chats to refresh now, each once.
  takeSkipped() {
    const ids = [...this.skipped];
    this.skipped.clear();
    return ids;
  }
}
