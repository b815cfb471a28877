// The API key: whether the server wants one, and the dialog that asks for it.

import { getJson } from "./api.js";
import { $ } from "./dom.js";
import { explain } from "./problems.js";

export class KeyDialog {
  // `settings` keeps the key.  `onKey` is called when there is one that the server takes.
  constructor(settings, onKey) {
    this.settings = settings;
    this.onKey = onKey;
    $("open-key").addEventListener("click", () => this.open());
    $("close-key").addEventListener("click", () => $("key-dialog").close());
    $("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.use($("key-input").value.trim());
    });
  }

  // Whether a request without a key would be refused.  The page asks for the key before a request fails.
  async missing() {
    if (this.settings.key) return false;
    try {
      return (await getJson("health")).api_keys === true;
    } catch {
      return false;  // not reachable, or not up: not the key's fault
    }
  }

  // `why`: what the server said of the key it was shown.
  open(why = "") {
    this.say(why);
    $("key-input").value = "";
    if (!$("key-dialog").open) $("key-dialog").showModal();
  }

  say(why) {
    $("key-error").textContent = why;
    $("key-error").hidden = !why;
    $("key-input").toggleAttribute("aria-invalid", Boolean(why));
  }

  async use(key) {
    if (!key) return this.say("Paste the key here.");
    $("use-key").disabled = true;
    try {
      await getJson("tandem/v1/models", key);
    } catch (error) {
      // What else is wrong is not the key's fault: it is kept, and the page says it.
      if (error.status === 401) return this.refuse();
      if (!error.status) return this.say(explain(error).text);
    } finally {
      $("use-key").disabled = false;
    }
    this.settings.setKey(key);
    $("key-dialog").close();
    this.onKey();
  }

  refuse() {
    this.say("The server does not know this key.");
    $("key-input").select();
    $("key-input").focus();
  }
}
