// What the page keeps in this browser: chats in IndexedDB, settings and theme in localStorage.

import { merge, readChat } from "./tree.js";

const kSettings = "tandem.settings";
const kOldChats = "tandem.chats";  // where earlier versions kept all chats as one text

function read(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

function write(key, text) {
  try {
    localStorage.setItem(key, text);
  } catch {
    // Storage is off or full: it lasts as long as the page.
  }
}

export const loadSettings = () => read(kSettings, {});
export const saveSettings = (settings) => write(kSettings, JSON.stringify(settings));
export const saveTheme = (theme) => write("tandem.theme", theme);

// The chats that an earlier version left, and leaving only some of them there.
export function oldChats() {
  const kept = read(kOldChats, []);
  return Array.isArray(kept) ? kept : [];
}
export function keepOldChats(chats) {
  try {
    if (chats.length > 0) localStorage.setItem(kOldChats, JSON.stringify(chats));
    else localStorage.removeItem(kOldChats);
  } catch {
    // As above.
  }
}

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

// The chats of this browser, each a record, so that two windows do not overwrite one another's.
export class ChatStore {
  // `onChange(id)` is called when another window saved or deleted a chat, `onProblem` with "read" or
  // "save" when that failed.
  constructor(onChange, onProblem) {
    this.onProblem = onProblem;
    this.channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("tandem.chats") : null;
    if (this.channel) this.channel.onmessage = (event) => onChange(event.data);
  }

  // False if this browser keeps nothing: then saving does nothing.
  async open() {
    try {
      const request = indexedDB.open("tandem", 1);
      request.onupgradeneeded = () => request.result.createObjectStore("chats", { keyPath: "id" });
      // Some browsers never answer where storage is off.
      this.db = await Promise.race([done(request), new Promise((_, reject) => { setTimeout(reject, 5000); })]);
      this.db.onversionchange = () => this.db.close();
    } catch {
      this.db = null;
    }
    return this.db !== null;
  }

  async all() {
    if (!this.db) return [];
    try {
      return await done(this.db.transaction("chats").objectStore("chats").getAll());
    } catch (error) {
      this.onProblem("read", error);
      return [];
    }
  }

  async get(id) {
    return this.db ? done(this.db.transaction("chats").objectStore("chats").get(id)) : undefined;
  }

  // All or none of `chats`; true once they are on the disk.  Messages that another window has added
  // to one of them are added here too.
  async save(...chats) {
    return this.change((store) => chats.forEach((chat) => {
      store.get(chat.id).onsuccess = (event) => {
        const stored = readChat(event.target.result);
        if (stored) merge(chat, stored);
        store.put(chat);
        // The last one.  Not waiting for its answer leaves less time for a reload to lose it.
        if (chat === chats.at(-1)) store.transaction.commit();
      };
    }), chats.map((chat) => chat.id));
  }

  async remove(id) {
    return this.change((store) => store.delete(id), [id]);
  }

  async change(work, ids) {
    if (!this.db) return false;
    try {
      const transaction = this.db.transaction("chats", "readwrite");
      const ended = new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error);
      });
      try {
        work(transaction.objectStore("chats"));
      } catch (error) {
        transaction.abort();  // what it had begun
        await ended.catch(() => { throw error; });
      }
      await ended;
    } catch (error) {
      this.onProblem("save", error);
      return false;
    }
    for (const id of ids) this.channel?.postMessage(id);
    return true;
  }
}
