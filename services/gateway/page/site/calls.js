// Calls of functions: what a model asked for, and what it is given back by hand.

import { make } from "./dom.js";

// Functions as text, for a request's `tools`; undefined: there are none.  Throws an Error whose
// message names the fault.  A function may be given alone or within {type, function}.
export function readTools(text) {
  if (!text.trim()) return undefined;
  let list;
  try {
    list = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}`);
  }
  if (!Array.isArray(list)) throw new Error("A list of functions is expected: [{\"name\": ...}]");
  return list.map((entry, i) => {
    const one = entry?.function ?? entry;
    if (typeof one?.name !== "string") throw new Error(`Function ${i + 1} has no name.`);
    return { type: "function", function: one };
  });
}

// Adds a piece of a call, as a stream has it, to a message.
export function addCall(message, delta) {
  message.calls ??= [];
  const call = message.calls[delta.index] ??= { id: delta.id, name: delta.function.name, arguments: "" };
  call.arguments += delta.function.arguments ?? "";
}

// The calls of a stored message; null: they are no calls.
export function readCalls(value) {
  if (!Array.isArray(value)) return null;
  const calls = [];
  for (const call of value) {
    if (typeof call?.id !== "string" || typeof call.name !== "string" || typeof call.arguments !== "string") return null;
    calls.push({ id: call.id, name: call.name, arguments: call.arguments,
      ...(typeof call.result === "string" ? { result: call.result } : {}) });
  }
  return calls;
}

// An answer with calls, and the results that there are, as messages of a request.
export function callMessages({ content, calls }) {
  return [{ role: "assistant", content: content || null, tool_calls: calls.map((call) => (
    { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } })) },
  ...calls.filter((call) => call.result !== undefined).map((call) => ({ role: "tool", tool_call_id: call.id, content: call.result }))];
}

// Arguments on lines of their own if they are JSON.
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// The calls of a message.  `onResults(texts)`: called with a text for each call when the user has
// answered them; null: they cannot be answered now.
export function callList(calls, onResults) {
  const areas = [];
  const boxes = calls.map((call) => {
    const box = make("div", { class: "call" }, make("div", { class: "code-bar" }, `Calls ${call.name}`),
      make("pre", { tabindex: "0", "aria-label": `Arguments of ${call.name}` }, make("code", {}, pretty(call.arguments))));
    if (call.result !== undefined) {
      box.append(make("div", { class: "code-bar" }, "Result"), make("pre", { tabindex: "0", "aria-label": `Result of ${call.name}` },
        make("code", {}, call.result)));
    } else if (onResults) {
      const area = make("textarea", { rows: "2", "aria-label": `Result of ${call.name}`, placeholder: "Its result, as JSON or text" });
      areas.push(area);
      box.append(area);
    }
    return box;
  });
  const list = make("div", { class: "calls" }, ...boxes);
  if (areas.length > 0) {
    const send = () => onResults(areas.map((area) => area.value.trim()));
    areas.forEach((area) => area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    }));
    list.append(make("div", { class: "editor-foot" }, make("button", { type: "button", class: "primary results", onclick: send },
      areas.length === 1 ? "Send the result" : "Send the results")));
  }
  return list;
}
