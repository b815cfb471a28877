// The libraries of the chat page are those that npm has, and each is whole.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const vendor = join(dirname(fileURLToPath(import.meta.url)), "../../services/gateway/page/vendor");

test("every file has its checksum", () => {
  execFileSync("sha256sum", ["--check", "--strict", "--quiet", "SHA256SUMS"], { cwd: join(vendor, "dist") });
});

test("the files are what make.mjs makes of the packages", (t) => {
  const run = spawnSync(process.execPath, [join(vendor, "make.mjs"), "--check"], { encoding: "utf8" });
  if (run.status !== 0 && /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT/.test(run.stderr)) return t.skip("npm cannot be reached");
  assert.equal(run.status, 0, run.stderr);
});
