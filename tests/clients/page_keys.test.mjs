// The chat page of a server that asks for API keys.
//   TANDEM_SHOTS=FOLDER leaves screenshots there.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { browserPath, checkAccessibility, listen, shoot } from "./browser.mjs";
import { startCluster } from "./cluster.mjs";

describe("the chat page with API keys", { skip: !browserPath }, () => {
  const folder = mkdtempSync(join(tmpdir(), "tandem-keys."));
  const file = join(folder, "keys");
  const write = (...keys) => writeFileSync(file, keys.map((key, i) =>
    `key${i} sha256:${createHash("sha256").update(key).digest("hex")} requests=6\n`).join(""));
  let cluster;
  let browser;
  let context;

  // A page of a browser that has never been here.
  async function open(options = {}) {
    await context?.close();
    context = await browser.newContext({ viewport: { width: 1280, height: 860 }, colorScheme: "light", ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(30000);
    const complaints = listen(page);
    await page.goto(cluster.url);
    return { page, complaints };
  }
  const dialog = (page) => page.waitForSelector("#key-dialog[open]");
  async function give(page, key) {
    await page.fill("#key-input", key);
    await page.keyboard.press("Enter");
  }
  async function ask(page, text) {
    await page.fill("#prompt", text);
    await page.keyboard.press("Enter");
    await page.waitForSelector("article.assistant:last-child .tools");
  }
  const answer = (page) => page.locator("article.assistant .answer").last().innerText();

  before(async () => {
    write("first-key");
    cluster = await startCluster(process.env.TANDEM_BIN, ["--npu", "off", "--http-api-keys", file], "first-key");
    browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
  });
  after(async () => {
    await browser?.close();
    await cluster?.stop();
    rmSync(folder, { recursive: true });
  });

  test("asks for the key, refuses a wrong one, keeps a right one", async () => {
    const { page, complaints } = await open();
    await dialog(page);
    assert.equal(await page.evaluate(() => document.activeElement.id), "key-input");
    assert.deepEqual(complaints, [], "nothing had to fail for the page to know");
    await page.keyboard.press("Enter");
    assert.match(await page.locator("#key-error").innerText(), /Paste the key/);
    await give(page, "wrong");
    await page.waitForFunction(() => /does not know this key/.test(document.getElementById("key-error").textContent));
    await shoot(page, "key-wrong");
    complaints.length = 0;  // the browser itself logs the 401
    await give(page, "first-key");
    await page.waitForSelector(".state.ready");
    assert.ok(!(await page.isVisible("#key-dialog")));
    assert.ok(!(await page.isVisible("#open-key")));
    await page.click("#open-settings");
    await page.fill("#set-temperature", "0");
    await page.fill("#set-max_tokens", "12");
    await page.keyboard.press("Escape");
    await ask(page, "What is the capital of Japan?");
    assert.match(await answer(page), /Tokyo/);
    await page.reload();
    await page.waitForSelector(".state.ready");
    assert.equal(await page.inputValue("#set-key"), "first-key");
    assert.equal(await page.inputValue("#set-max_tokens"), "12");
    await page.click("#open-settings");
    await page.click("#reset-settings");
    assert.equal(await page.inputValue("#set-temperature"), "");
    assert.equal(await page.inputValue("#set-key"), "first-key", "a key is no setting to be reset");
    await page.keyboard.press("Escape");
    assert.deepEqual(complaints, []);
  });

  test("looking at the status does not use the key up", async () => {
    const { page } = await open();
    await dialog(page);
    await give(page, "first-key");
    await page.waitForSelector(".state.ready");
    for (let i = 0; i < 20; ++i) {
      assert.equal(await page.evaluate(async () => (await fetch("tandem/v1/status",
        { headers: { Authorization: "Bearer first-key" } })).status), 200);
    }
  });

  test("goes on without a key as far as that goes, and a question is not lost", async () => {
    const { page, complaints } = await open();
    await dialog(page);
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#state").innerText(), "API key needed");
    await page.fill("#prompt", "What is the capital of Japan?");
    await page.keyboard.press("Enter");
    await dialog(page);
    await page.click("#close-key");
    assert.equal(await page.inputValue("#prompt"), "What is the capital of Japan?");
    assert.equal(await page.locator("article").count(), 0);
    await page.click("#open-key");
    await give(page, "first-key");
    await page.waitForSelector(".state.ready");
    assert.deepEqual(complaints, []);
  });

  test("a key that is taken away is asked for again, without a new page", async () => {
    const { page, complaints } = await open();
    await dialog(page);
    await give(page, "first-key");
    await page.waitForSelector(".state.ready");
    write("second-key");
    cluster.signal("SIGHUP");
    await dialog(page);  // the next look at the status
    assert.match(await page.locator("#key-error").innerText(), /does not know the key/);
    complaints.length = 0;  // the 401
    await give(page, "second-key");
    await page.waitForSelector(".state.ready");
    await ask(page, "What is the capital of Japan?");
    assert.equal(await page.locator("article .error").count(), 0);
    assert.deepEqual(complaints, []);
    write("first-key");
    cluster.signal("SIGHUP");
    await dialog(page);
  });

  for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 390], ["dark", 390]]) {
    test(`is sound in ${theme} at ${width} pixels`, async () => {
      const { page, complaints } = await open({ colorScheme: theme, viewport: { width, height: 844 } });
      await dialog(page);
      await shoot(page, `key-${theme}-${width}`);
      await checkAccessibility(page, "the dialog");
      await page.keyboard.press("Escape");
      await shoot(page, `keyless-${theme}-${width}`);
      await checkAccessibility(page, "without a key");
      const wide = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `the page is ${wide} pixels wider than its window`);
      assert.deepEqual(complaints, []);
    });
  }
});
