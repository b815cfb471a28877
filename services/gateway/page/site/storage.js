// What the page keeps in this browser: chats, settings, theme.

const kChats = "tandem.chats";
const kSettings = "tandem.settings";

function read(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function loadSettings() {
  return read(kSettings, {});
}

export function saveSettings(settings) {
  try {
    localStorage.setItem(kSettings, JSON.stringify(settings));
  } catch {
    // Storage is off or full: they last as long as the page.
  }
}

export function saveTheme(theme) {
  try {
    localStorage.setItem("tandem.theme", theme);
  } catch {
    // As above.
  }
}

// Chats, newest first.  A chat is {id, title, messages}; a message {role, content} and, of an
// assistant, {note, error}: what is said about how it was made.
export class Chats {
  constructor() {
    const kept = read(kChats, []);
    this.list = Array.isArray(kept) ? kept.filter((chat) => Array.isArray(chat?.messages)) : [];
    this.current = this.list[0] ?? this.begin();
  }

  // An empty chat; one that is empty already is taken again.
  begin() {
    const empty = this.list.find((chat) => chat.messages.length === 0);
    this.current = empty ?? { id: crypto.randomUUID?.() ?? String(Math.random()), title: "New chat", messages: [] };
    this.list = [this.current, ...this.list.filter((chat) => chat !== this.current)];
    return this.current;
  }

  open(id) {
    this.current = this.list.find((chat) => chat.id === id) ?? this.current;
  }

  remove(id) {
    this.list = this.list.filter((chat) => chat.id !== id);
    if (this.current.id === id) this.current = this.list[0] ?? this.begin();
    this.save();
  }

  // The current chat has changed: it comes first.
  touch() {
    const first = this.current.messages.find((message) => message.role === "user");
    if (first) this.current.title = first.content.trim().split("\n")[0].slice(0, 80);
    this.list = [this.current, ...this.list.filter((chat) => chat !== this.current)];
    this.save();
  }

  // When the browser's room is used up the oldest chats go.
  save() {
    const kept = this.list.filter((chat) => chat.messages.length > 0);
    while (true) {
      try {
        localStorage.setItem(kChats, JSON.stringify(kept));
        return;
      } catch {
        if (kept.length <= 1) return;
        kept.pop();
      }
    }
  }
}
