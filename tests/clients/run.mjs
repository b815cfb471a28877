// Starts a cluster on the demo model, runs the tests against it, stops it.
//   node run.mjs BIN_FOLDER [TEST_FILE...]
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

const here = dirname(fileURLToPath(import.meta.url));
const bin = process.argv[2];
const files = process.argv.length > 3 ? process.argv.slice(3) : readdirSync(here).filter((name) => name.endsWith(".test.mjs"));
const runtime = mkdtempSync(join(tmpdir(), "tandem-clients."));
const npu = existsSync(join(bin, "tandem-npu-worker")) ? "emulate" : "off";

const cluster = spawn(join(bin, "tandem"), ["serve", "--model", join(here, "../../models/demo/demo.Q8_0.gguf"), "--npu", npu,
  "--runtime-dir", runtime, "--no-packed-cache", "--max-rows", "64", "--context", "512", "--port", "0", "--http", "127.0.0.1:0"],
  { stdio: ["ignore", "ignore", "inherit"] });
const ended = new Promise((resolve) => cluster.once("exit", resolve));
let over = false;
ended.then(() => { over = true; });

// The address is in the gateway's log; it answers 503 until the model is up.
async function waitReady() {
  for (let i = 0; i < 600 && !over; ++i) {
    const log = join(runtime, "logs/gateway.log");
    const found = existsSync(log) && /target=(http:\S+)/.exec(readFileSync(log, "utf8"));
    if (found && (await fetch(`${found[1]}/v1/models`)).ok) return found[1];
    await sleep(100);
  }
  throw new Error("the cluster did not become ready");
}

let status = 1;
try {
  const url = await waitReady();
  const tests = spawn(process.execPath, ["--test", "--test-concurrency=1", ...files.map((name) => join(here, name))],
    { stdio: "inherit", env: { ...process.env, TANDEM_URL: url, TANDEM_GRPC: `unix:${runtime}/gateway.sock` } });
  status = await new Promise((resolve) => tests.once("exit", (code) => resolve(code ?? 1)));
} catch (error) {
  console.error(error);
  for (const name of existsSync(join(runtime, "logs")) ? readdirSync(join(runtime, "logs")) : []) {
    console.error(`--- ${name}\n${readFileSync(join(runtime, "logs", name), "utf8").slice(-2000)}`);
  }
}
cluster.kill("SIGTERM");
await ended;
rmSync(runtime, { recursive: true, force: true });
process.exit(status);
