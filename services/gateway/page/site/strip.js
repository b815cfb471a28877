// The live strip: one step of the model from left to right, segment by segment, each as wide as its
// share of the step's time and in the colour of its device.

import { $, make } from "./dom.js";
import { getJson } from "./api.js";

const kBusyPause = 1000;
const kIdlePause = 3000;

// 64-bit integers come as strings.
const number = (value) => Number(value ?? 0);
const percent = (share) => `${Math.round(100 * share)}%`;

function duration(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(1)} s`;
  if (seconds >= 1e-3) return `${(1e3 * seconds).toFixed(1)} ms`;
  return `${Math.round(1e6 * seconds)} \u00b5s`;
}

function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  for (; count >= 1000 && unit < 4; ++unit) count /= 1000;
  return `${count.toFixed(count < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

// "Out(3)+Ffn(3)+Qkv(4)" stays; a whole model becomes its ends.
function stages(text) {
  const all = text.split("+");
  return all.length <= 4 ? all.join(" ") : `${all[0]} \u2026 ${all.at(-1)}, ${all.length} stages`;
}

// What the time between two statuses was spent on.
function difference(now, before) {
  const segments = (now.segments ?? []).map((segment, i) => {
    const old = before.segments?.[i] ?? {};
    return {
      worker: segment.worker,
      stages: segment.stages,
      calls: number(segment.calls) - number(old.calls),
      device: number(segment.deviceSeconds) - number(old.deviceSeconds),
      trip: number(segment.roundTripSeconds) - number(old.roundTripSeconds),
    };
  });
  const scheduler = now.scheduler ?? {};
  const seconds = number(now.uptimeSeconds) - number(before.uptimeSeconds);
  const per = (name) => (number(scheduler[name]) - number(before.scheduler?.[name])) / seconds;
  return { segments, seconds, decode: per("completionTokens"), prompt: per("promptTokens"), steps: per("steps") };
}

export class Strip {
  // `key` and `busy` are asked when needed: the API key, and whether this page waits for an answer.
  // `onStatus` is told each status, or null when there is none.
  constructor(key, busy, onStatus) {
    this.key = key;
    this.busy = busy;
    this.onStatus = onStatus;
    $("strip-more").addEventListener("click", () => {
      const open = $("strip-table").toggleAttribute("hidden") === false;
      $("strip-more").setAttribute("aria-expanded", String(open));
      $("strip-more").setAttribute("aria-label", open ? "Hide the segments" : "Show every segment");
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
      if (this.last && number(status.uptimeSeconds) > number(this.last.uptimeSeconds)) {
        this.show(status, difference(status, this.last));
      } else {
        this.show(status, null);
      }
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
    const workers = status.workers ?? [];
    const kinds = new Map(workers.map((worker) => [worker.name, worker.kind]));
    const active = spent !== null && spent.segments.some((segment) => segment.calls > 0);
    // With nothing running the last step that did is shown, dimmed.
    if (active) this.recent = spent.segments;
    // Before this page has seen any step: the average since start.
    const zero = { segments: [], scheduler: {}, uptimeSeconds: 0 };
    const segments = this.recent ?? difference(status, zero).segments;
    const total = segments.reduce((sum, segment) => sum + segment.trip, 0);
    $("segments").classList.toggle("idle", !active);
    this.showSegments(segments, total, kinds);
    this.showDevices(workers, segments, total, active ? spent : null);
    this.showFigures(status, active ? spent : null);
    this.shown = [segments, total, kinds];
    this.showTable(...this.shown);
  }

  showSegments(segments, total, kinds) {
    const element = $("segments");
    while (element.childElementCount > segments.length) element.lastChild.remove();
    while (element.childElementCount < segments.length) element.append(make("i"));
    segments.forEach((segment, i) => {
      const cell = element.children[i];
      const share = total > 0 ? segment.trip / total : 1 / segments.length;
      cell.className = `seg ${kinds.get(segment.worker) ?? ""}`;
      cell.style.flexGrow = String(Math.max(share, 0.002));
      const each = segment.calls > 0 ? `, ${duration(segment.trip / segment.calls)} a call` : "";
      cell.title = `${stages(segment.stages)} on ${segment.worker}: ${percent(share)}${each}`;
    });
    const shares = new Map();
    for (const segment of segments) shares.set(segment.worker, (shares.get(segment.worker) ?? 0) + segment.trip);
    const words = [...shares].map(([worker, time]) => `${worker} ${total > 0 ? percent(time / total) : "not used yet"}`);
    element.setAttribute("aria-label", `One step in ${segments.length} segments: ${words.join(", ")}`);
  }

  showDevices(workers, segments, total, spent) {
    $("devices").replaceChildren(...workers.map((worker) => {
      const of = segments.filter((segment) => segment.worker === worker.name);
      const trip = of.reduce((sum, segment) => sum + segment.trip, 0);
      const device = spent ? of.reduce((sum, segment) => sum + segment.device, 0) / spent.seconds : 0;
      const name = worker.emulated ? `${worker.name}, emulated` : worker.name;
      const share = total > 0 ? `${percent(trip / total)} of a step` : "idle";
      const busy = spent ? `, ${percent(Math.min(device, 1))} busy` : "";
      return make("li", { title: `${worker.device}: ${bytes(number(worker.weightBytes))} weights, ${bytes(number(worker.kvBytes))} KV` },
        make("i", { class: `dot ${worker.kind}` }), make("b", {}, name), ` ${share}${busy}`);
    }));
  }

  showFigures(status, spent) {
    const scheduler = status.scheduler ?? {};
    const used = (scheduler.kvBlocksUsed ?? []).reduce((sum, n) => sum + n, 0);
    const all = (scheduler.kvBlocksTotal ?? []).reduce((sum, n) => sum + n, 0);
    const rate = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
    const figures = [
      ["Decode", spent ? `${rate(spent.decode)} tok/s` : "\u2013"],
      ["Prompt", spent && spent.prompt > 0 ? `${rate(spent.prompt)} tok/s` : "\u2013"],
      ["KV", all > 0 ? `${((100 * used) / all).toFixed(used > 0 ? 1 : 0)}%` : "\u2013"],
      ["Requests", number(scheduler.waiting) > 0 ? `${number(scheduler.running)} + ${number(scheduler.waiting)} waiting` : String(number(scheduler.running))],
    ];
    $("figures").replaceChildren(...figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  }

  showTable(segments, total, kinds) {
    if ($("strip-table").hidden) return;
    const head = ["Segment", "Device", "Share", "Each call", "On the device"];
    const rows = segments.map((segment) => make("tr", {},
      make("td", {}, stages(segment.stages)),
      make("td", {}, make("i", { class: `dot ${kinds.get(segment.worker) ?? ""}` }), segment.worker),
      make("td", {}, total > 0 ? percent(segment.trip / total) : "\u2013"),
      make("td", {}, segment.calls > 0 ? duration(segment.trip / segment.calls) : "\u2013"),
      make("td", {}, segment.calls > 0 ? duration(segment.device / segment.calls) : "\u2013")));
    $("strip-table").replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, ...rows)));
  }
}
