// The chat page in a real browser, driven by its keys and buttons.
//   TANDEM_SHOTS=FOLDER leaves screenshots there.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { browserPath, checkAccessibility as checkAccessibilityOf, listen, shoot } from "./browser.mjs";

const url = process.env.TANDEM_URL;

describe("the chat page", { skip: !browserPath }, () => {
  let browser;
  let context;
  let page;
  let complaints = [];
  const strangers = new Set();

  async function open(options = {}) {
    await context?.close();
    context = await browser.newContext({ viewport: { width: 1280, height: 860 }, colorScheme: "light", ...options });
    page = await context.newPage();
    page.setDefaultTimeout(30000);
    complaints = listen(page);
    page.on("request", (request) => {
      if (new URL(request.url()).origin !== new URL(url).origin) strangers.add(request.url());
    });
    await page.goto(url);
    await page.waitForSelector(".state.ready");
  }
  const shot = (name) => shoot(page, name);
  const settle = () => page.waitForSelector("article.assistant:last-child .tools");
  const answer = () => page.locator("article.assistant .answer").last().innerText();

  // Through the dialog, as a person does.
  async function set(values) {
    await page.click("#open-settings");
    for (const [name, value] of Object.entries(values)) await page.fill(`#set-${name}`, String(value));
    await shot("settings");
    await page.keyboard.press("Escape");
    await page.waitForSelector("#settings:not([open])", { state: "hidden" });
  }
  async function ask(text) {
    await page.fill("#prompt", text);
    await page.keyboard.press("Enter");
  }
  // A page whose history holds one answer, as a model could have written it.
  async function showAnswer(content) {
    await page.evaluate((text) => localStorage.setItem("tandem.chats", JSON.stringify([{ id: "1", title: "t",
      messages: [{ role: "user", content: "q" }, { role: "assistant", content: text }] }])), content);
    await page.reload();
    await page.waitForSelector(".answer");
  }
  const checkAccessibility = (what) => checkAccessibilityOf(page, what);

  before(async () => {
    browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
  });
  beforeEach(() => {
    complaints.length = 0;
    strangers.clear();
  });
  after(async () => {
    await browser?.close();
  });

  test("sends, streams, answers again, and keeps the chat over a reload", async () => {
    await open();
    await shot("empty");
    await set({ temperature: 0, max_tokens: 12 });
    await ask("What is the capital of Japan?");
    await settle();
    const first = await answer();
    assert.match(first, /Tokyo/);
    const note = await page.locator(".tools .note").innerText();
    assert.match(note, /\d+ tokens .* tok\/s .* gpu0 \d+% .* seed \d+/);
    await shot("answered");

    await page.evaluate(() => { document.querySelector("article.assistant").dataset.old = "yes"; });
    await page.click(".regenerate");
    await page.waitForSelector("article.assistant:not([data-old]) .tools");
    assert.equal(await answer(), first);
    assert.equal(await page.locator("article").count(), 2);

    await ask("And of France?");
    await page.waitForFunction(() => document.querySelectorAll("article .tools").length === 2);
    await page.reload();
    await page.waitForSelector("article");
    assert.equal(await page.locator("article").count(), 4);
    assert.equal(await page.locator(".answer").first().innerText(), first);
    assert.equal(await page.inputValue("#set-max_tokens"), "12");
    assert.deepEqual(complaints, []);
    assert.deepEqual([...strangers], []);
  });

  test("stops an answer, and the server with it", async () => {
    await open();
    await set({ max_tokens: 400, temperature: 1 });
    const streams = () => page.waitForFunction(() => document.querySelector(".busy .answer")?.textContent.length > 3);
    await ask("Tell me a story.");
    await streams();
    await page.keyboard.press("Escape");
    await settle();
    assert.equal(await page.locator(".tools .note").innerText(), "stopped");
    assert.ok((await answer()).length > 3);
    await page.waitForSelector("#send");
    while (true) {
      const status = await (await fetch(`${url}/tandem/v1/status`)).json();
      if (!status.scheduler.running) break;
    }
    await ask("Tell me another story.");
    await streams();
    await page.click("#stop");
    await settle();
    assert.equal(await page.locator(".tools .note").last().innerText(), "stopped");
    assert.deepEqual(complaints, []);
  });

  test("the strip shows every segment on its device", async () => {
    await open();
    await set({ max_tokens: 60, temperature: 0 });
    await ask("Tell me a story.");
    const status = await (await fetch(`${url}/tandem/v1/status`)).json();
    // The difference between two looks a second apart: seen even if the answer has ended meanwhile.
    await page.waitForFunction((numWorkers) => {
      const devices = [...document.querySelectorAll("#devices li")].map((item) => item.innerText);
      const figures = document.getElementById("figures").innerText;
      return devices.length === numWorkers && /gpu0.* \d+% of a step, \d+% busy/.test(devices[0]) &&
        /Decode\s*[\d.]+ tok\/s[\s\S]*KV\s*[\d.]+%/.test(figures) && !document.querySelector("#segments.idle");
    }, status.workers.length);
    assert.equal(await page.locator("#segments .seg").count(), status.segments.length);
    await page.click("#strip-more");
    await page.waitForSelector("#strip-table tbody tr");
    assert.equal(await page.locator("#strip-table tbody tr").count(), status.segments.length);
    await shot("strip");
    await settle();
    assert.deepEqual(complaints, []);
  });

  test("markdown becomes elements, and nothing else does", async () => {
    await open();
    await showAnswer(["# Title", "A *b* **c** `d` [e](https://example.com/) ~~f~~", "1. one", "   - inner", "2. two", "",
      "| a | b |", "|---|---|", "| 1 | `2|3` |", "", "> quoted", "", "```js", "const x = \"<b>\"; // note", "```"].join("\n"));
    const count = (selector) => page.locator(`.answer ${selector}`).count();
    for (const selector of ["h2", "em", "strong", "del", "p code", "ol > li", "ul > li", "table th", "blockquote", ".code pre", ".t-keyword", ".t-string", ".t-comment"]) {
      assert.ok(await count(selector) > 0, selector);
    }
    assert.equal(await page.locator(".answer a").getAttribute("rel"), "noopener noreferrer nofollow");
    assert.equal(await page.locator(".code pre").innerText(), "const x = \"<b>\"; // note");

    const attack = ["<img src=x onerror=\"window.hit=1\">", "<script>window.hit=1</script>", "[a](javascript:window.hit=1)",
      "[b](data:text/html,x)", "![c](https://example.com/pixel.png)", "<iframe src=//example.com></iframe>", "```\"><script>window.hit=1</script>", "x", "```",
      "`".repeat(2000), "*".repeat(2000), "[".repeat(2000), `${"> ".repeat(200)}deep`].join("\n\n");
    await showAnswer(attack);
    for (const tag of ["img", "script", "iframe", "a[href^=javascript]", "a[href^=data]"]) assert.equal(await count(tag), 0, tag);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.deepEqual(complaints, []);
    assert.deepEqual([...strangers], []);
  });

  test("a refusal is shown in the server's words", async () => {
    await open();
    await ask("long ".repeat(2000));
    await page.waitForSelector("article .error");
    assert.match(await page.locator("article .error").innerText(), /context/);
    complaints.length = 0;  // the browser itself logs the 400
    await shot("refused");
  });

  test("the keyboard is enough", async () => {
    await open();
    await page.keyboard.type("one");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("two");
    assert.equal(await page.inputValue("#prompt"), "one\ntwo");
    await showAnswer("kept");
    await page.keyboard.press("Alt+n");
    assert.equal(await page.locator("article").count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
    await page.locator("#chats .chat", { hasText: "t" }).last().focus();
    await page.keyboard.press("Enter");
    await page.waitForSelector("article");
    assert.deepEqual(complaints, []);
  });

  for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 390], ["dark", 390]]) {
    test(`is sound in ${theme} at ${width} pixels`, async () => {
      await open({ colorScheme: theme, viewport: { width, height: 844 } });
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
      await showAnswer("# Title\n\nText with `code` and a [link](https://example.com).\n\n```py\n# note\nx = \"s\" + 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote");
      await page.waitForSelector(".state.ready");
      const wide = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `the page is ${wide} pixels wider than its window`);
      await shot(`${theme}-${width}`);
      await checkAccessibility(`${theme} at ${width}`);
      await page.click("#open-settings");
      await checkAccessibility(`settings, ${theme} at ${width}`);
      await page.keyboard.press("Escape");
      if (width < 500) {
        assert.ok(!(await page.isVisible("#new-chat")));
        await page.click("#open-sidebar");
        await page.waitForSelector("#new-chat");
        await page.keyboard.press("Escape");
        await page.waitForSelector("#new-chat", { state: "hidden" });
      }
      await page.click("#theme");
      const other = theme === "dark" ? "light" : "dark";
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), other);
      await page.reload();
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), other, "the choice is kept");
      assert.deepEqual(complaints, []);
    });
  }
});
