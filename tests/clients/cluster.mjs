// A cluster on the demo model, for tests.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

const here = dirname(fileURLToPath(import.meta.url));

// Starts `tandem serve` of the folder `bin`, with `flags` beside those it needs, and waits until it
// answers.  Returns {url, grpc, signal, log, stop}.  `key`: what it is asked with.  `model`: a path,
// relative to the root of the source, served with `context` positions.
export async function startCluster(bin, flags = [], key = "", { model = "models/demo/demo.Q8_0.gguf", context = 512 } = {}) {
  const runtime = mkdtempSync(join(tmpdir(), "tandem-clients."));
  const serve = spawn(join(bin, "tandem"), ["serve", "--model", resolve(here, "../..", model),
    "--runtime-dir", runtime, "--no-packed-cache", "--max-rows", "64", "--context", `${context}`, "--port", "0",
    "--http", "127.0.0.1:0", ...flags], { stdio: ["ignore", "ignore", "inherit"] });
  const ended = new Promise((resolve) => serve.once("exit", resolve));
  let over = false;
  ended.then(() => { over = true; });
  const logs = join(runtime, "logs");
  const log = (name) => (existsSync(join(logs, `${name}.log`)) ? readFileSync(join(logs, `${name}.log`), "utf8") : "");
  const stop = async () => {
    serve.kill("SIGTERM");
    await ended;
    rmSync(runtime, { recursive: true, force: true });
  };

  // The address is in the gateway's log; it answers 503 until the model is up.
  for (let i = 0; i < 600 && !over; ++i) {
    const url = /target=(http:\S+)/.exec(log("gateway"))?.[1];
    if (url && (await fetch(`${url}/v1/models`, { headers: key ? { authorization: `Bearer ${key}` } : {} })).ok) {
      return { url, grpc: `unix:${runtime}/gateway.sock`, signal: (name) => serve.kill(name), log, stop };
    }
    await sleep(100);
  }
  for (const name of existsSync(logs) ? readdirSync(logs) : []) {
    console.error(`--- ${name}\n${readFileSync(join(logs, name), "utf8").slice(-2000)}`);
  }
  await stop();
  throw new Error("the cluster did not become ready");
}
