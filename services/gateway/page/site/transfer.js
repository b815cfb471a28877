// Chats to and from files, so that they can be kept, moved and shared.

import { $ } from "./dom.js";
import { isEmpty } from "./chats.js";
import { toast } from "./toast.js";
import { readChat } from "./tree.js";

const kFormat = "tandem.chats";

// The text of a file with `chats`.
export function toFile(chats) {
  return JSON.stringify({ format: kFormat, version: 1, exported: new Date().toISOString(), chats }, null, 1);
}

// The chats of a file's text.  Throws an Error whose message describes the fault.
export function fromFile(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON. Choose a file that this page exported.");
  }
  if (value?.format !== kFormat || !Array.isArray(value.chats)) {
    throw new Error("This file holds no chats of Tandem. Choose a file that this page exported.");
  }
  if (value.version !== 1) {
    throw new Error(`This file was made by a later version of the page (version ${String(value.version)} of the format, 1 is known).`);
  }
  return value.chats.map((chat, i) => {
    const read = readChat(chat);
    if (!read) throw new Error(`Chat ${i + 1} of ${value.chats.length} in this file is damaged. Nothing was imported.`);
    return read;
  });
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

export class Transfer {
  // `onShow` is called when the list of chats has changed.
  constructor(chats, onShow) {
    this.chats = chats;
    this.onShow = onShow;
    const day = () => new Date().toISOString().slice(0, 10);
    $("open-transfer").addEventListener("click", () => this.open());
    $("export-all").addEventListener("click", () => {
      download(`tandem-chats-${day()}.json`, toFile(this.chats.list.filter((chat) => !isEmpty(chat))));
    });
    $("export-one").addEventListener("click", () => {
      const name = this.chats.current.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 40);
      download(`tandem-${name || "chat"}-${day()}.json`, toFile([this.chats.current]));
    });
    $("import").addEventListener("click", () => $("import-file").click());
    $("import-file").addEventListener("change", () => this.take($("import-file").files[0]));
  }

  open() {
    const full = this.chats.list.filter((chat) => !isEmpty(chat));
    $("export-all").disabled = full.length === 0;
    $("export-one").disabled = isEmpty(this.chats.current);
    this.say("");
    $("transfer").showModal();
  }

  say(text) {
    $("import-error").textContent = text;
    $("import-error").hidden = !text;
  }

  async take(file) {
    if (!file) return;
    try {
      const { added, known } = await this.chats.add(fromFile(await file.text()));
      this.onShow();
      $("transfer").close();
      toast(`Imported ${plural(added, "chat")}.${known > 0 ? ` ${known === 1 ? "1 was" : `${known} were`} here already.` : ""}`);
    } catch (error) {
      this.say(error.message);
    }
    $("import-file").value = "";  // so that the same file can be chosen again
  }
}
