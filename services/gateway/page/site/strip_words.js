// What the strip says, from the statuses of the server.

// 64-bit integers come as strings.
export const number = (value) => Number(value ?? 0);
export const percent = (share) => `${Math.round(100 * share)}%`;
export const rate = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));

export function duration(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(1)} s`;
  if (seconds >= 1e-3) return `${(1e3 * seconds).toFixed(1)} ms`;
  return `${Math.round(1e6 * seconds)} \u00b5s`;
}

export function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  for (; count >= 1000 && unit < 4; ++unit) count /= 1000;
  return `${count.toFixed(count < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

const kStages = { Embed: "token embedding", Qkv: "query, key, value", Attend: "attention", Out: "attention output",
  Ffn: "feed-forward", Head: "output head" };

const capital = (words) => words[0].toUpperCase() + words.slice(1);

// "Qkv(2)" is "query, key, value of layer 2".
function stageOfLayer(stage) {
  const [, name, layer] = /^(\w+)(?:\((\d+)\))?/.exec(stage) ?? ["", stage];
  return `${kStages[name] ?? name}${layer ? ` of layer ${layer}` : ""}`;
}

// "Out(3)+Ffn(3)" is "Attention output + feed-forward", of whichever layer; "Qkv(2)..Ffn(9)" is
// "Query, key, value of layer 2 to feed-forward of layer 9"; all stages are the "Whole model".
export function stageWords(stages) {
  if (stages === "Embed..Head") return "Whole model";
  const [first, last] = stages.split("..");
  if (last) return capital(`${stageOfLayer(first)} to ${stageOfLayer(last)}`);
  const names = [...new Set(stages.split("+").map((stage) => stage.replace(/\(.*/, "")))];
  return capital(names.map((name) => kStages[name] ?? name).join(" + "));
}

const countersOf = (segment) => [segment.calls, segment.deviceSeconds, segment.roundTripSeconds].map(number);

// The plans of a status: each replica's is a list of segments that begins at index 0.
function plansOf(status) {
  const plans = [];
  for (const segment of status.segments ?? []) {
    if (number(segment.index) === 0 || plans.length === 0) plans.push([]);
    plans.at(-1).push(segment);
  }
  return plans;
}

// Whether `now` and `before` are the same plan with the same counters.  A new plan counts from 0.
const goesOn = (now, before) => now.length === before.length && now.every((segment, i) => (
  segment.worker === before[i].worker && segment.stages === before[i].stages &&
  countersOf(segment).every((count, j) => count >= countersOf(before[i])[j])));

// What the time between two statuses was spent on.
export function difference(now, before) {
  const plans = plansOf(before);
  const segments = plansOf(now).flatMap((plan) => {
    const place = plans.findIndex((other) => goesOn(plan, other));
    const [old] = place >= 0 ? plans.splice(place, 1) : [[]];
    return plan.map((segment, i) => {
      const [calls, device, trip] = countersOf(segment).map((count, j) => count - (old[i] ? countersOf(old[i])[j] : 0));
      return { worker: segment.worker, stages: segment.stages, calls, device, trip };
    });
  });
  const seconds = number(now.uptimeSeconds) - number(before.uptimeSeconds);
  const per = (name) => (number(now.scheduler?.[name]) - number(before.scheduler?.[name])) / seconds;
  const guesses = { made: sumOfGuesses(now, "draftedTokens") - sumOfGuesses(before, "draftedTokens"),
    right: sumOfGuesses(now, "acceptedTokens") - sumOfGuesses(before, "acceptedTokens") };
  return { segments, seconds, decode: per("completionTokens"), prompt: per("promptTokens"), guesses };
}

const sumOfGuesses = (status, name) => (status.scheduler?.drafters ?? []).reduce((sum, drafter) => sum + number(drafter[name]), 0);

// The segments summed by what they compute and where: one row for the attention of all layers.
// A step runs each segment once.  `calls` is the most that any of them had, the number of steps.
export function sumByStage(segments) {
  const rows = new Map();
  for (const segment of segments) {
    const words = stageWords(segment.stages);
    const key = `${words}\n${segment.worker}`;
    const row = rows.get(key) ?? { words, worker: segment.worker, count: 0, steps: 0, device: 0, trip: 0 };
    row.count += 1;
    row.steps = Math.max(row.steps, segment.calls);
    row.device += segment.device;
    row.trip += segment.trip;
    rows.set(key, row);
  }
  return [...rows.values()];
}

// And by device alone.
export function sumByDevice(segments) {
  const rows = new Map();
  for (const segment of segments) {
    const row = rows.get(segment.worker) ?? { worker: segment.worker, steps: 0, device: 0, trip: 0 };
    row.steps = Math.max(row.steps, segment.calls);
    row.device += segment.device;
    row.trip += segment.trip;
    rows.set(segment.worker, row);
  }
  return [...rows.values()];
}

// A worker that no gateway has reached has an address in the place of a name.
export function nameOf(worker) {
  if (/[/:]/.test(worker.name)) return worker.kind.toUpperCase();
  if (!worker.emulated) return worker.name;
  return `${worker.name} (${worker.kind === "gpu" ? "software" : "emulated"})`;
}

// The devices of this cluster, without those that the policy leaves out.
export const presentWorkers = (status) => (status.workers ?? []).filter((worker) => worker.state !== "absent");

// The words for workers that are not at work: "This machine has no NPU."
export function missingWords(status) {
  return (status.workers ?? []).filter((worker) => worker.detail && worker.state !== "ready").map((worker) => {
    const detail = `${worker.detail.replace(/[.\s]*$/, "")}.`;
    const kind = worker.kind.toUpperCase();
    if (worker.state !== "absent") return `${nameOf(worker)} is ${worker.state}: ${detail}`;
    return detail.includes(`no ${kind}`) ? capital(detail) : `No ${kind}: ${detail}`;
  });
}

// "Writing 41.2 tokens/s", "Reading 812 tokens/s" or "Idle".
export function activityWords(status, spent) {
  const running = number(status.scheduler?.running);
  const waiting = number(status.scheduler?.waiting);
  const queue = waiting > 0 ? `, ${waiting} waiting` : running > 1 ? `, ${running} requests` : "";
  if (spent && spent.decode > 0) return `Writing ${rate(spent.decode)} tokens/s${queue}`;
  if (spent && spent.prompt > 0) return `Reading ${rate(spent.prompt)} tokens/s${queue}`;
  if (running > 0) return `Working${queue}`;
  return waiting > 0 ? `${waiting} waiting` : "Idle";
}

// "30 of 40 guesses right": of the tokens guessed ahead since the status before.
export const guessedWords = (spent) => (spent?.guesses.made > 0 ? `${spent.guesses.right} of ${spent.guesses.made} guesses right` : "");

const kDrafters = { lookup: "from repeated text", draft: "by the draft model" };

// Since the start, a sentence for each way of guessing: "Tokens guessed by the draft model
// (small.gguf on gpu0): 490 of 527 right (93%)."  Nothing where nothing guesses.
export function guessWords(status) {
  return (status.scheduler?.drafters ?? []).map((drafter) => {
    const made = number(drafter.draftedTokens);
    const right = number(drafter.acceptedTokens);
    const by = `${kDrafters[drafter.name] ?? `by ${drafter.name}`}${drafter.about ? ` (${drafter.about})` : ""}`;
    const count = made > 0 ? `${right} of ${made} right (${percent(right / made)})` : "none yet";
    return `Tokens guessed ${by}: ${count}${drafter.detail ? `; not now: ${drafter.detail.replace(/[.\s]*$/, "")}` : ""}.`;
  });
}

// Which placement was chosen over which, where there was a choice.
export function placementWords(status) {
  const [best, ...others] = status.placements ?? [];
  if (others.length === 0) return [];
  const rate = (placement) => `${number(placement.predictedDecodeTokensPerSecond).toFixed(1)} tokens a second`;
  const energy = ({ predictedJoulesPerToken: joules }) => (number(joules) > 0 ? `, ${number(joules).toPrecision(3)} J a token` : "");
  const rows = [best, ...others].map((placement) => `${placement.placement} (${rate(placement)}${energy(placement)}${placement.inForce ? ", in use" : ""})`);
  return [`Placements measured: ${rows.join("; ")}.`];
}

// Several plans that serve the model side by side: a row for each.
export const replicaRows = (status) => (status.replicas ?? []).map((replica) => ({
  name: `Replica ${number(replica.replica)}${replica.role ? `, ${replica.role}` : ""}`,
  state: replica.detail && replica.state !== "ready" ? `${replica.state}: ${replica.detail}` : replica.state,
  devices: (replica.workers ?? []).join(", "),
  running: number(replica.scheduler?.running),
  waiting: number(replica.scheduler?.waiting),
  requests: number(replica.requests),
  kv: kvWords(replica),
}));

export function kvWords(status) {
  const sum = (counts) => (counts ?? []).reduce((total, count) => total + count, 0);
  const used = sum(status.scheduler?.kvBlocksUsed);
  const all = sum(status.scheduler?.kvBlocksTotal);
  return all > 0 ? `${((100 * used) / all).toFixed(used > 0 ? 1 : 0)}%` : "\u2013";
}
