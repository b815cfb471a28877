// The chat page in a real browser, driven by its keys and buttons.
//   TANDEM_SHOTS=FOLDER leaves screenshots there.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { answer as answerOf, answerToTheLimit, ask as askOf, Browser, browserPath, checkAccessibility as checkAccessibilityOf, set as setOf, settle as settleOf, shoot, showAnswer as showAnswerOf } from "./browser.mjs";

const url = process.env.TANDEM_URL;

describe("the chat page", { skip: !browserPath }, () => {
  const browser = new Browser();
  let page;
  const open = async (options) => { page = await browser.open(url, options); };
  const shot = (name) => shoot(page, name);
  const settle = () => settleOf(page);
  const answer = () => answerOf(page);
  const set = (values) => setOf(page, values);
  const ask = (text) => askOf(page, text);
  const showAnswer = (content) => showAnswerOf(page, content);
  const untilIdle = async () => {
    while (true) {
      const status = await (await fetch(`${url}/tandem/v1/status`)).json();
      if (!status.scheduler.running) break;
    }
  };
  const checkAccessibility = (what) => checkAccessibilityOf(page, what);

  before(() => browser.start());
  beforeEach(() => browser.strangers.clear());
  after(() => browser.stop());

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

    await page.click(".regenerate");
    await settle();
    assert.equal(await answer(), first);
    assert.equal(await page.locator("article").count(), 2);

    await ask("And of France?");
    await page.waitForFunction(() => document.querySelectorAll("article.assistant .tools").length === 2);
    await page.reload();
    await page.waitForSelector("article");
    assert.equal(await page.locator("article").count(), 4);
    assert.equal(await page.locator(".answer").first().innerText(), first);
    assert.equal(await page.inputValue("#set-max_tokens"), "12");
    assert.deepEqual(browser.complaints, []);
    assert.deepEqual([...browser.strangers], []);
  });

  test("stops an answer, and the server with it", async () => {
    await open();
    await set({ max_tokens: 400, temperature: 1 });
    await answerToTheLimit(page);
    const streams = () => page.waitForFunction(() => document.querySelector(".busy .answer")?.textContent.length > 3);
    await ask("Tell me a story.");
    await streams();
    await page.keyboard.press("Escape");
    await settle();
    assert.equal(await page.locator(".tools .note").innerText(), "stopped");
    assert.ok((await answer()).length > 3);
    await page.waitForSelector("#send");
    await untilIdle();
    await ask("Tell me another story.");
    await streams();
    await page.click("#stop");
    await settle();
    assert.equal(await page.locator(".tools .note").last().innerText(), "stopped");
    await untilIdle();
    assert.deepEqual(browser.complaints, []);
  });

  test("the strip is one line in plain words, and its table sums stages and devices", async () => {
    await open();
    const height = async () => (await page.locator("#strip").boundingBox()).height;
    const idle = await height();
    assert.equal(await page.innerText("#activity"), "Idle");
    await set({ max_tokens: 60, temperature: 0 });
    const heights = page.evaluate(() => new Promise((resolve) => {
      const seen = new Set();
      const look = () => {
        seen.add(document.getElementById("strip").getBoundingClientRect().height);
        if (document.querySelector("article .note")) resolve([...seen]);
        else requestAnimationFrame(look);
      };
      look();
    }));
    await ask("Tell me a story.");
    const status = await (await fetch(`${url}/tandem/v1/status`)).json();
    // The difference between two looks a second apart: seen even if the answer has ended meanwhile.
    await page.waitForFunction((numWorkers) => {
      const devices = [...document.querySelectorAll("#devices li")].map((item) => item.innerText);
      return devices.length === numWorkers && /gpu0.* \d+% of a step/.test(devices[0]) &&
        /^(Writing|Reading) [\d.]+ tokens\/s/.test(document.getElementById("activity").innerText) && !document.querySelector("#segments.idle");
    }, status.workers.length);
    assert.deepEqual(await heights, [idle], "its height never changes");
    // The longest words there are.
    for (const width of [390, 900]) {
      await page.setViewportSize({ width, height: 800 });
      const over = await page.evaluate(() => {
        document.getElementById("activity").textContent = "Writing 1234 tokens/s, 128 waiting";
        document.getElementById("guesses").textContent = "1234 of 1234 guesses right";
        const line = document.querySelector("#strip .line");
        return line.scrollWidth - line.clientWidth;
      });
      assert.ok(over <= 0, `${over} pixels too wide at ${width}`);
    }
    await page.setViewportSize({ width: 1280, height: 860 });
    assert.equal(await page.locator("#segments .seg").count(), status.workers.length);
    await page.click("#strip-more");
    await page.waitForSelector("#strip-table tbody tr");
    const rows = (table) => page.locator(`#strip-table table:nth-of-type(${table}) tbody tr`);
    assert.ok(await rows(1).count() <= 4, "all layers' attention is one row");
    assert.equal(await rows(2).count(), status.workers.length);
    const percents = (await rows(1).allInnerTexts()).map((row) => Number(/(\d+)%/.exec(row)[1]));
    const sum = percents.reduce((a, b) => a + b, 0);
    assert.ok(sum >= 98 && sum <= 102, `the shares are ${percents}`);
    if (status.workers.length > 1) assert.match((await rows(1).allInnerTexts()).join("\n"), /Attention in \d+ parts\s*npu0/);
    await shot("strip");
    await settle();
    assert.deepEqual(browser.complaints, []);
  });

  test("stages have words", async () => {
    await open();
    const words = (...stages) => page.evaluate(async (all) => (await import("/page/strip_words.js")).sumByStage(
      all.map((text) => ({ stages: text, worker: "gpu0", calls: 2, device: 1, trip: 2 }))).map((row) => `${row.words} ${row.count} ${row.trip}`), stages);
    assert.deepEqual(await words("Embed..Head"), ["Whole model 1 2"]);
    assert.deepEqual(await words("Embed+Qkv(0)", "Out(0)+Ffn(0)+Qkv(1)", "Out(1)+Ffn(1)+Qkv(2)"),
      ["Token embedding + query, key, value 1 2", "Attention output + feed-forward + query, key, value 2 4"]);
    assert.deepEqual(await words("Embed..Ffn(2)", "Qkv(3)..Head"),
      ["Token embedding to feed-forward of layer 2 1 2", "Query, key, value of layer 3 to output head 1 2"]);
  });

  test("the strip counts from 0 what a new placement computes", async () => {
    await open();
    const spent = (before, now) => page.evaluate(async (statuses) => {
      const { difference } = await import("/page/strip_words.js");
      const [old, current] = statuses.map((segments, i) => ({ uptimeSeconds: i + 1, segments: segments.map(([index, worker, stages, calls]) => (
        { ...(index > 0 && { index }), worker, stages, calls: String(calls), deviceSeconds: calls, roundTripSeconds: 2 * calls })) }));
      return difference(current, old).segments.map(({ worker, calls, device, trip }) => `${worker} ${calls} ${device} ${trip}`);
    }, [before, now]);
    const whole = (calls, worker = "gpu0") => [0, worker, "Embed..Head", calls];
    const split = (calls) => [[0, "gpu0", "Embed+Qkv(0)", calls], [1, "npu0", "Attend(0)", calls], [2, "gpu0", "Out(0)..Head", calls]];
    assert.deepEqual(await spent([whole(50)], [whole(53)]), ["gpu0 3 3 6"]);
    assert.deepEqual(await spent(split(50), [whole(3)]), ["gpu0 3 3 6"]);
    assert.deepEqual(await spent([whole(50)], split(53)), ["gpu0 53 53 106", "npu0 53 53 106", "gpu0 53 53 106"]);
    // The first segment stays as it was: its counters begin again all the same.
    const other = [split(9)[0], [1, "gpu1", "Attend(0)", 9], split(9)[2]];
    assert.deepEqual(await spent(split(5), other), ["gpu0 9 9 18", "gpu1 9 9 18", "gpu0 9 9 18"]);
    // Away and back between two statuses.
    assert.deepEqual(await spent([whole(50)], [whole(3)]), ["gpu0 3 3 6"]);
    assert.deepEqual(await spent([whole(20), whole(50)], [whole(24), whole(53)]), ["gpu0 4 4 8", "gpu0 3 3 6"]);
    // The replica before has left, and one has joined.
    assert.deepEqual(await spent([whole(50), whole(20, "gpu1")], [whole(24, "gpu1"), whole(2, "gpu2")]), ["gpu1 4 4 8", "gpu2 2 2 4"]);
  });

  test("an NPU that this machine does without is no device", async () => {
    await open();
    await page.route("**/tandem/v1/status", async (route) => {
      const response = await route.fetch();
      const status = await response.json();
      const gpu = status.workers.filter((worker) => worker.kind === "gpu");
      await route.fulfill({ response, json: { ...status, workers: [...gpu, { name: "unix:/run/tandem/npu.sock", kind: "npu", target: "unix:/run/tandem/npu.sock", state: "absent", detail: "this machine has no NPU" }] } });
    });
    await page.reload();
    await page.waitForSelector("#devices li");
    assert.equal(await page.locator("#devices li").count(), 1);
    await page.click("#strip-more");
    assert.match(await page.innerText("#strip-table"), /This machine has no NPU\./);
    assert.ok(!(await page.innerText("#strip")).includes("sock"));
  });

  test("replicas have a table of their own", async () => {
    await open();
    await page.route("**/tandem/v1/status", async (route) => {
      const response = await route.fetch();
      const status = await response.json();
      const replicas = [
        { state: "ready", workers: ["gpu0"], scheduler: { running: 2, waiting: 1, kvBlocksUsed: [5, 5], kvBlocksTotal: [50, 50] }, requests: "7" },
        { replica: 1, state: "recovering", detail: "gpu1 is gone", workers: ["gpu1"] }];
      await route.fulfill({ response, json: { ...status, replicas } });
    });
    await page.reload();
    await page.waitForSelector("#devices li");
    await page.click("#strip-more");
    const cells = (row) => page.locator(`#strip-table table:nth-of-type(3) tbody tr:nth-of-type(${row}) > *`).allInnerTexts();
    assert.deepEqual(await cells(1), ["Replica 0", "ready", "gpu0", "2", "1", "7", "10.0%"]);
    assert.deepEqual(await cells(2), ["Replica 1", "recovering: gpu1 is gone", "gpu1", "0", "0", "0", "\u2013"]);
  });

  test("guesses of the next tokens have words, while they are made and in all", async () => {
    await open();
    let made = 10;
    await page.route("**/tandem/v1/status", async (route) => {
      const response = await route.fetch();
      const status = await response.json();
      made += 40;
      const drafters = [{ name: "lookup" }, { name: "draft", draftedTokens: String(made), acceptedTokens: String(made - 10),
        about: "small.gguf on gpu0", detail: made > 200 ? "draft: loading weights: 40%" : "" }];
      const segments = status.segments.map((segment) => ({ ...segment, calls: String(made) }));
      await route.fulfill({ response, json: { ...status, segments, scheduler: { ...status.scheduler, running: 1, drafters } } });
    });
    await page.reload();
    await page.waitForFunction(() => document.getElementById("guesses").innerText === "40 of 40 guesses right");
    await page.click("#strip-more");
    await page.waitForFunction(() => /Tokens guessed from repeated text: none yet\. Tokens guessed by the draft model \(small\.gguf on gpu0\): \d+ of \d+ right \(9\d%\); not now: draft: loading weights: 40%\./
      .test(document.getElementById("strip-table").innerText));
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
    assert.deepEqual(browser.complaints, []);
  });

  for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 390], ["dark", 390]]) {
    test(`is sound in ${theme} at ${width} pixels`, async () => {
      await open({ colorScheme: theme, viewport: { width, height: 844 } });
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
      await set({ max_tokens: 4, system: "Answer in one word." });
      await showAnswer("# Title\n\nText with `code`, \\(x^2\\) and a [link](https://example.com).\n\n```py\n# note\nx = \"s\" + 1\n```\n\n- [x] done\n- [ ] open\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n> quote\n\n\\[ \\frac{1}{2} \\]");
      await page.waitForSelector(".katex");
      await page.waitForSelector(".state.ready");
      const fits = async (what) => {
        const wide = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `the page is ${wide} pixels wider than its window: ${what}`);
        const over = await page.evaluate(() => document.querySelector("#strip .line").scrollWidth - document.querySelector("#strip .line").clientWidth);
        assert.ok(over <= 0, `the strip's line is ${over} pixels wider than the strip: ${what}`);
        await shot(`${theme}-${width}-${what}`);
        await checkAccessibility(`${what}, ${theme} at ${width}`);
      };
      await fits("answer");
      await page.click("#strip-more");
      await fits("strip");
      await page.click("#strip-more");
      await page.click(".regenerate");
      await settle();
      await fits("versions");
      await page.focus("#prompt");
      await page.keyboard.press("ArrowUp");
      await fits("editing");
      await page.keyboard.press("Escape");
      await page.route("**/v1/chat/completions", (route) => route.abort());
      await ask("Is anybody there?");
      await page.waitForSelector("article .error");
      await fits("error");
      browser.complaints.length = 0;  // the browser itself logs the failure
      await page.click("#open-settings");
      await fits("settings");
      await page.keyboard.press("Escape");
      if (width < 500) {
        assert.ok(!(await page.isVisible("#new-chat")));
        await page.click("#open-sidebar");
        await page.waitForSelector("#new-chat");
        await page.waitForFunction(() => document.getElementById("sidebar").getBoundingClientRect().left === 0);
      }
      await page.fill("#search", "title");
      await fits("search");
      await page.click("#open-transfer");
      await fits("transfer");
      await page.keyboard.press("Escape");
      await page.locator("#chats li.current").hover();
      await page.click("[aria-label='Delete t']");
      await fits("deleted");
      if (width < 500) {
        await page.focus("#open-transfer");
        await page.keyboard.press("Escape");
        await page.waitForSelector("#new-chat", { state: "hidden" });
      }
      await page.click("#theme");
      const other = theme === "dark" ? "light" : "dark";
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), other);
      await page.reload();
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), other, "the choice is kept");
      assert.deepEqual(browser.complaints, []);
    });
  }
});
