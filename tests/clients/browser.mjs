// Chromium, and what every test of the page asks of it.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

// Without windows to draw, a page takes half the processor time.
export const browserPath = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
if (!browserPath) console.log("SKIPPED: there is no chromium-headless-shell (scripts/setup --tests installs it), nor another Chromium");
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

// A browser for the tests of one file: `open()` gives a page of a browser that has never been here,
// at `url`.
export class Browser {
  // What pages ask of any other server than theirs.
  strangers = new Set();
  complaints = [];

  async start() {
    this.browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
  }

  async open(url, options = {}) {
    await this.context?.close();
    this.context = await this.browser.newContext({ viewport: { width: 1280, height: 860 }, colorScheme: "light", ...options });
    return this.another(url);
  }

  // One more window of the same browser.
  async another(url) {
    const page = await this.context.newPage();
    page.setDefaultTimeout(30000);
    this.complaints = listen(page);
    page.on("request", (request) => {
      if (!/^(blob|data):/.test(request.url()) && new URL(request.url()).origin !== new URL(url).origin) this.strangers.add(request.url());
    });
    await page.goto(url);
    await page.waitForSelector(".state.ready");
    await page.waitForSelector("#prompt:enabled");
    return page;
  }

  async stop() {
    await this.browser?.close();
  }
}

// A page that has kept these chats, as the first version of the page kept them: [{title, messages}].
export async function keepChats(page, chats) {
  await page.evaluate(async (kept) => {
    const db = await new Promise((resolve) => { indexedDB.open("tandem").onsuccess = (event) => resolve(event.target.result); });
    await new Promise((resolve) => { db.transaction("chats", "readwrite").objectStore("chats").clear().onsuccess = resolve; });
    db.close();
    localStorage.setItem("tandem.chats", JSON.stringify(kept));
  }, chats.map((chat, i) => ({ id: String(i + 1), ...chat })));
  await page.reload();
  await page.waitForSelector("#prompt:enabled");
}

// A page whose only chat holds one answer, as a model could have written it.
export async function showAnswer(page, content) {
  await keepChats(page, [{ title: "t", messages: [{ role: "user", content: "q" }, { role: "assistant", content }] }]);
  await page.waitForSelector(".answer");
}

export async function ask(page, text) {
  await page.fill("#prompt", text);
  await page.keyboard.press("Enter");
}

// No answer of the page ends before its limit, until the returned function is called.
export async function answerToTheLimit(page) {
  const path = "**/v1/chat/completions";
  const add = (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true }) });
  await page.route(path, add);
  return () => page.unroute(path, add);
}

// Waits for the end of the answer under way.
export async function settle(page) {
  await page.waitForSelector("#stop", { state: "hidden" });
  await page.waitForSelector("article.assistant:last-child .tools");
}

// Settings, through the dialog, as a person does.
export async function set(page, values) {
  await page.click("#open-settings");
  for (const [name, value] of Object.entries(values)) await page.fill(`#set-${name}`, String(value));
  await page.keyboard.press("Escape");
  await page.waitForSelector("#settings:not([open])", { state: "hidden" });
}

export const answer = (page) => page.locator("article.assistant .answer").last().innerText();
