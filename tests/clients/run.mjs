// Starts a cluster on the demo model, runs the tests against it, stops it.
//   node run.mjs BIN_FOLDER [TEST_FILE...]
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { startCluster } from "./cluster.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const bin = process.argv[2];
const files = process.argv.length > 3 ? process.argv.slice(3) : readdirSync(here).filter((name) => name.endsWith(".test.mjs"));
const npu = existsSync(join(bin, "tandem-npu-worker")) ? "emulate" : "off";

const cluster = await startCluster(bin, ["--npu", npu, "--alias", "house/model"]);
const tests = spawn(process.execPath, ["--test", "--test-concurrency=1", ...files.map((name) => join(here, name))],
  { stdio: "inherit", env: { ...process.env, TANDEM_BIN: bin, TANDEM_URL: cluster.url, TANDEM_GRPC: cluster.grpc } });
const status = await new Promise((resolve) => tests.once("exit", (code) => resolve(code ?? 1)));
await cluster.stop();
process.exit(status);
