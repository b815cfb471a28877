// A line at the bottom of the page that says what was done, with a way to undo it.

import { $, iconButton, make } from "./dom.js";

const kSeconds = 20;
let timer = 0;
let onGone = null;

// Shows `text` and, if there is one, a button `action` that calls `onAction`.  It goes after a
// while, unless it is pointed at or has the focus; then `gone` is called.
export function toast(text, action = null, onAction = null, gone = null) {
  close();
  onGone = gone;
  const button = action && make("button", { type: "button", class: "quiet", onclick: () => {
    onGone = null;
    close();
    onAction();
  } }, action);
  $("toast").replaceChildren(make("span", {}, text), button ?? "", iconButton("close", "Dismiss", close));
  $("toast").hidden = false;
  wait();
}

function wait() {
  clearTimeout(timer);
  timer = setTimeout(() => ($("toast").matches(":hover, :focus-within") ? wait() : close()), kSeconds * 1000);
}

export function close() {
  clearTimeout(timer);
  $("toast").hidden = true;
  $("toast").replaceChildren();
  onGone?.();
  onGone = null;
}
