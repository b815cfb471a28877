// Sampling settings: the dialog, and what it means for a request.

import { readTools } from "./calls.js";
import { $, make } from "./dom.js";
import { loadSettings, saveSettings } from "./storage.js";

// By OpenAI's names, and the gateway's beyond those.
const kFields = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, hint: "0 is greedy" },
  { name: "top_p", label: "Top p", min: 0, max: 1, step: 0.01, hint: "Share of probability kept" },
  { name: "top_k", label: "Top k", min: 0, max: 1000, step: 1, hint: "Tokens kept, 0 for all" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, hint: "Relative to the best" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.5, max: 2, step: 0.05, hint: "1 is off" },
  { name: "max_tokens", label: "Longest answer", min: 1, max: 1000000, step: 1, hint: "Tokens" },
  { name: "seed", label: "Seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, hint: "Repeats an answer" },
];

// A JSON Schema as text; undefined: there is none.  Throws an Error whose message names the fault.
function readSchema(text) {
  if (!text.trim()) return undefined;
  let schema;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}`);
  }
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
    throw new Error("A JSON Schema is expected: {\"type\": \"object\", ...}");
  }
  return schema;
}

// Fields with text of a form: their ids, and what reads them.
const kFormedFields = [["set-tools", readTools], ["set-schema", readSchema]];

export class Settings {
  // `onKey` is called when another API key was typed here.
  constructor(onKey) {
    this.values = loadSettings();
    for (const field of kFields) {
      const id = `set-${field.name}`;
      const input = make("input", { id, name: field.name, type: "number", min: field.min, max: field.max,
        step: field.step, inputmode: "decimal", placeholder: "default", "aria-describedby": `${id}-hint` });
      $("sampling").append(make("div", { class: "field" }, make("label", { for: id }, field.label), input,
        make("small", { id: `${id}-hint` }, field.hint)));
    }
    this.form = $("settings-form");
    this.fill();
    for (const [id] of kFormedFields) $(id).addEventListener("input", () => this.checkFormed());
    this.form.addEventListener("input", () => this.read());
    $("set-key").addEventListener("change", onKey);
    $("reset-settings").addEventListener("click", () => {
      this.values = this.key ? { key: this.key } : {};  // a key is no matter of taste
      saveSettings(this.values);
      this.fill();
    });
    $("open-settings").addEventListener("click", () => $("settings").showModal());
    // A click beside a dialog closes it, as Escape does.
    for (const dialog of [$("settings"), $("transfer")]) {
      dialog.addEventListener("click", (event) => {
        if (event.target === dialog) dialog.close();
      });
    }
  }

  get key() {
    return this.values.key ?? "";
  }

  setKey(key) {
    this.values.key = key;
    saveSettings(this.values);
    this.fill();
  }

  // What a request gets beside its messages.  One that continues an answer gets no schema, which
  // would be of the rest alone.
  parameters({ continues = false } = {}) {
    const parameters = {};
    for (const { name } of kFields) {
      if (this.values[name] !== undefined) parameters[name] = this.values[name];
    }
    const tools = readTools(this.values.tools ?? "");
    if (tools) parameters.tools = tools;
    const schema = continues ? undefined : readSchema(this.values.schema ?? "");
    if (schema) parameters.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
    return parameters;
  }

  // The system message of new chats.
  system() {
    return (this.values.system ?? "").trim();
  }

  // Names the fault in the functions and in the schema; wrong ones are not kept.
  checkFormed() {
    for (const [id, read] of kFormedFields) {
      let problem = "";
      try {
        read($(id).value);
      } catch (error) {
        problem = error.message;
      }
      $(id).setCustomValidity(problem);
      $(id).setAttribute("aria-invalid", String(problem !== ""));
      $(`${id}-problem`).textContent = problem;
    }
  }

  fill() {
    for (const element of this.form.elements) {
      if (element.name) element.value = this.values[element.name] ?? "";
    }
    this.checkFormed();
  }

  read() {
    this.values = {};
    for (const element of this.form.elements) {
      if (!element.name || element.value === "" || !element.checkValidity()) continue;
      this.values[element.name] = element.type === "number" ? element.valueAsNumber : element.value;
    }
    saveSettings(this.values);
  }
}
