// Asking the server for an answer and following it, one at a time.

import { streamChat } from "./api.js";
import { addCall } from "./calls.js";
import { explain } from "./problems.js";
import { addNode, pathOf, removeLeaf, requestMessages } from "./tree.js";

const kSavePause = 2000;  // milliseconds between saves of an answer that grows

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
    const joules = Object.values(tandem.device_joules ?? {}).reduce((a, b) => a + b, 0);
    if (joules > 0) parts.push(`${joules.toFixed(1)} J`);
    parts.push(`seed ${tandem.seed}`);
  }
  if (end.reason === "length") parts.push("cut at the longest answer");
  return parts.join(" \u00b7 ");
}

export class Asker {
  // `onChange(chat)` is called when an answer begins or ends, `onGrowth` when it grows, `onFailure`
  // with the error that ended one.
  constructor(chats, settings, { onChange, onGrowth, onFailure }) {
    Object.assign(this, { chats, settings, onChange, onGrowth, onFailure });
    this.running = null;  // {abort, chat, message} of the answer under way
  }

  isRunning(message) {
    return this.running?.message === message;
  }

  stop() {
    this.running?.abort.abort();
  }

  // Asks `text` about `images` after `parent` (null: as the first message), which may have been asked
  // other things.
  ask(chat, parent, text, images = []) {
    if (this.running) return;
    const question = addNode(chat, parent, "user", text, images);
    this.run(chat, addNode(chat, question, "assistant", ""));
  }

  // Another answer in the place of `message`, which is kept unless it is empty.
  again(chat, message) {
    if (this.running) return;
    const question = chat.nodes.find((node) => node.id === message.parent);
    if (!message.content && !message.calls) removeLeaf(chat, message);
    this.run(chat, addNode(chat, question, "assistant", ""));
  }

  // Goes on with an answer that was stopped, cut or broken off.
  goOn(chat, message) {
    if (this.running) return;
    message.content = message.content.trimEnd();  // as the model's chat template has it
    this.run(chat, message);
  }

  // Answers the calls of `message` with `results`, a text for each.
  answerCalls(chat, message, results) {
    if (this.running) return;
    message.calls.forEach((call, i) => { call.result = results[i]; });
    this.run(chat, addNode(chat, message, "assistant", ""));
  }

  async run(chat, message) {
    const abort = new AbortController();
    this.running = { abort, chat, message };
    delete message.note;
    delete message.error;
    delete message.way;
    delete message.cut;
    chat.head = message.id;
    this.chats.save(chat, true);
    this.onChange(chat);
    const began = performance.now();
    let saved = began;
    const continues = message.content !== "";
    const request = { messages: requestMessages(chat, message), ...this.settings.parameters({ continues }) };
    try {
      for await (const event of streamChat(request, this.settings.key, abort.signal)) {
        if (event.end) {
          message.note = noteOf(event.end, (performance.now() - began) / 1000);
          if (event.end.reason === "length") message.cut = true;
          continue;
        }
        if (event.call) addCall(message, event.call);
        else message.content += event.text;
        this.onGrowth(chat, message);
        if (performance.now() - saved > kSavePause) {
          saved = performance.now();
          this.chats.save(chat);
        }
      }
    } catch (error) {
      if (abort.signal.aborted) {
        message.note = "stopped";
        message.cut = true;
      } else {
        const { text, way } = explain(error);
        Object.assign(message, { error: text, way, cut: message.content !== "" && !message.calls });
        this.onFailure(error);
      }
    }
    this.running = null;
    this.chats.save(chat);
    this.onChange(chat);
  }

  // The last question that is shown, or null.
  static lastQuestion(chat) {
    return pathOf(chat).findLast((node) => node.role === "user") ?? null;
  }
}
