// Chromium, and what every test of the page asks of it.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

export const browserPath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
if (!browserPath) console.log("SKIPPED: there is no chromium (scripts/setup --tests installs it)");
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// Leaves a screenshot in the folder TANDEM_SHOTS, if that is set.
export async function shoot(page, name) {
  if (process.env.TANDEM_SHOTS) await page.screenshot({ path: `${process.env.TANDEM_SHOTS}/${name}.png` });
}

// What a page's console complains of, from now on.
export function listen(page) {
  const complaints = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  return complaints;
}

export async function checkAccessibility(page, what) {
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const violations = found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target} ${n.failureSummary}`).join("; ")}`);
  assert.deepEqual(violations, [], what);
}
