// The strip, one line: how the time of a step is shared by the devices, each in its colour, and what
// the server is doing in words.  It opens into a table.

import { getJson } from "./api.js";
import { $, make } from "./dom.js";
import { activityWords, bytes, difference, duration, guessedWords, guessWords, kvWords, missingWords, nameOf, number, percent, placementWords, presentWorkers, replicaRows, sumByDevice, sumByStage } from "./strip_words.js";

const kBusyPause = 1000;
const kIdlePause = 3000;

// Sets text that changes only where it does, so that nothing is drawn or read out again.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export class Strip {
  // `key` and `busy` are asked when needed: the API key, and whether this page waits for an answer.
  // `onStatus` gets each status, or null without one.
  constructor(key, busy, onStatus) {
    this.key = key;
    this.busy = busy;
    this.onStatus = onStatus;
    $("strip-more").addEventListener("click", () => {
      const open = $("strip-table").toggleAttribute("hidden") === false;
      $("strip-more").setAttribute("aria-expanded", String(open));
      $("strip-more").setAttribute("aria-label", open ? "Hide the devices' work" : "Show the devices' work");
      if (this.shown) this.showTable(...this.shown);
    });
  }

  // Asks now, and then again and again while the page can be seen and the server takes its key.
  async poll() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    let pause = kIdlePause;
    try {
      const status = await getJson("tandem/v1/status", this.key());
      this.onStatus(status);
      const later = this.last && number(status.uptimeSeconds) > number(this.last.uptimeSeconds);
      this.show(status, later ? difference(status, this.last) : null);
      this.last = status;
      if (this.busy() || number(status.scheduler?.running) > 0) pause = kBusyPause;
    } catch (error) {
      this.onStatus(null, error);
      if (error.status === 401) return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), pause);
  }

  show(status, spent) {
    const active = spent !== null && spent.segments.some((segment) => segment.calls > 0);
    // With nothing running the last step that did is shown, dimmed.
    if (active) this.recent = spent.segments;
    // Before this page has seen any step: the average since start.
    const segments = this.recent ?? difference(status, { uptimeSeconds: 0 }).segments;
    const workers = presentWorkers(status);
    const shares = sumByDevice(segments);
    const total = shares.reduce((sum, share) => sum + share.trip, 0);
    $("segments").classList.toggle("idle", !active);
    this.showBar(shares, total, workers);
    this.showDevices(workers, shares, total);
    say($("activity"), activityWords(status, active ? spent : null));
    say($("guesses"), guessedWords(active ? spent : null));
    this.shown = [status, segments, total, workers, active ? spent : null];
    this.showTable(...this.shown);
  }

  showBar(shares, total, workers) {
    const element = $("segments");
    const kinds = new Map(workers.map((worker) => [worker.name, worker.kind]));
    while (element.childElementCount > shares.length) element.lastChild.remove();
    while (element.childElementCount < shares.length) element.append(make("i"));
    shares.forEach((share, i) => {
      element.children[i].className = `seg ${kinds.get(share.worker) ?? ""}`;
      element.children[i].style.flexGrow = String(Math.max(total > 0 ? share.trip / total : 1 / shares.length, 0.002));
    });
    const words = shares.map((share) => `${share.worker} ${total > 0 ? percent(share.trip / total) : "not used yet"}`);
    element.setAttribute("aria-label", words.length > 0 ? `Share of a step's time: ${words.join(", ")}` : "No step has run yet");
  }

  showDevices(workers, shares, total) {
    const items = workers.map((worker) => {
      const share = shares.find((other) => other.worker === worker.name);
      const words = share && total > 0 ? percent(share.trip / total) : worker.state === "ready" ? "" : worker.state;
      return [worker, `${nameOf(worker)}\n${words}`];
    });
    // The same elements, where they say the same.
    const state = JSON.stringify(items.map(([, text]) => text));
    if ($("devices").dataset.state === state) return;
    $("devices").dataset.state = state;
    $("devices").replaceChildren(...items.map(([worker, text]) => {
      const [name, words] = text.split("\n");
      const item = make("li", { title: worker.detail || worker.device || null }, make("i", { class: `dot ${worker.kind}` }), make("b", {}, name));
      if (words) item.append(" ", make("span", {}, words));
      if (words.endsWith("%")) item.append(make("span", { class: "seldom" }, " of a step"));
      return item;
    }));
  }

  showTable(status, segments, total, workers, spent) {
    if ($("strip-table").hidden) return;
    const kinds = new Map(workers.map((worker) => [worker.name, worker.kind]));
    const dot = (worker) => make("i", { class: `dot ${kinds.get(worker) ?? ""}` });
    const times = (row) => [
      make("td", {}, total > 0 ? percent(row.trip / total) : "\u2013"),
      make("td", {}, row.steps > 0 ? duration(row.trip / row.steps) : "\u2013"),
      make("td", {}, row.steps > 0 ? duration(row.device / row.steps) : "\u2013"),
    ];
    const table = (caption, head, rows) => make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...rows));
    const stages = sumByStage(segments).map((row) => make("tr", {},
      make("th", { scope: "row" }, row.words, row.count > 1 ? make("small", {}, ` in ${row.count} parts`) : null),
      make("td", {}, dot(row.worker), row.worker), ...times(row)));
    const shares = sumByDevice(segments);
    const devices = workers.map((worker) => {
      const share = shares.find((row) => row.worker === worker.name) ?? { steps: 0, device: 0, trip: 0 };
      const busy = spent ? percent(Math.min(share.device / spent.seconds, 1)) : "\u2013";
      return make("tr", {}, make("th", { scope: "row" }, dot(worker.name), nameOf(worker)), make("td", {}, worker.device || worker.state), ...times(share),
        make("td", {}, busy), make("td", {}, bytes(number(worker.weightBytes))), make("td", {}, bytes(number(worker.kvBytes))));
    });
    const replicas = replicaRows(status).map((row) => make("tr", {}, make("th", { scope: "row" }, row.name),
      ...[row.state, row.devices, row.running, row.waiting, row.requests, row.kv].map((text) => make("td", {}, String(text)))));
    const missing = missingWords(status);
    const notes = [...(missing.length > 0 ? missing : [status.placementNotice]), ...placementWords(status), ...guessWords(status), `KV cache in use: ${kvWords(status)}.`].filter(Boolean);
    $("strip-table").replaceChildren(
      table("By stage", ["Stage", "Device", "Share", "Each step", "On the device"], stages),
      table("By device", ["Device", "Hardware", "Share", "Each step", "On the device", "Busy", "Weights", "KV cache"], devices),
      ...(replicas.length > 0 ? [table("By replica", ["Replica", "State", "Devices", "Running", "Waiting", "Requests", "KV cache"], replicas)] : []),
      make("p", { class: "note" }, notes.join(" ")));
  }
}
