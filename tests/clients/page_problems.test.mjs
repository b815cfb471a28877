// What goes wrong is said in plain words, with a way out, and nothing that came is lost.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { answer, ask, Browser, browserPath, set, settle, shoot } from "./browser.mjs";

const url = process.env.TANDEM_URL;

describe("problems", { skip: !browserPath }, () => {
  const browser = new Browser();
  let page;
  const error = () => page.locator("article .error span").innerText();
  const chat = "**/v1/chat/completions";
  const refuse = (status, body, headers = {}) => page.route(chat, (route) =>
    route.fulfill({ status, headers, contentType: "application/json", body: JSON.stringify(body) }));

  before(() => browser.start());
  beforeEach(async () => {
    page = await browser.open(url);
    await set(page, { max_tokens: 8, temperature: 0 });
  });
  after(() => browser.stop());

  test("a server that cannot be reached is said so, and asked again on request", async () => {
    await page.route(chat, (route) => route.abort("connectionrefused"));
    await page.route("**/tandem/v1/status", (route) => route.abort("connectionrefused"));
    await ask(page, "What is the capital of Japan?");
    await settle(page);
    assert.match(await error(), /server cannot be reached.*Check that it is running/);
    assert.ok(!(await page.innerText("article.assistant")).includes("fetch"));
    assert.equal(await page.innerText("#state"), "not reachable");
    await shoot(page, "unreachable");
    await page.unroute(chat);
    await page.unroute("**/tandem/v1/status");
    await page.click("article .error button");
    await settle(page);
    assert.match(await answer(page), /Tokyo/);
    assert.equal(await page.locator("article .error").count(), 0);
    assert.equal(await page.locator(".versions").count(), 0, "a failure without a word is no version");
    await page.waitForSelector(".state.ready");
  });

  test("an answer that breaks off keeps what came and can be continued", async () => {
    const event = (content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`;
    await page.route(chat, (route) => route.fulfill({ contentType: "text/event-stream", body: event("The capital") + event(" of Japan is") }));
    await ask(page, "What is the capital of Japan?");
    await settle(page);
    assert.match(await error(), /connection broke/);
    await page.unroute(chat);
    await page.click(".continue");
    await settle(page);
    assert.match(await answer(page), /^The capital of Japan is ?\S/);
    assert.equal(await page.locator("article .error").count(), 0);
  });

  for (const [status, body, headers, words, way] of [
    [429, { error: { message: "the queue is full" } }, { "retry-after": "3" }, /busy.*in 3 seconds.*the queue is full/, "Try again"],
    [503, { error: { message: "the model is loading" } }, {}, /not ready.*in a moment.*the model is loading/, "Try again"],
    [500, { error: { message: "step 7 failed" } }, {}, /failed: step 7 failed\. Try again/, "Try again"],
    [400, { error: { message: "temperature must be at most 2" } }, {}, /refused this: temperature must be at most 2/, "Settings"],
    [502, "<html>", {}, /failed: 502/, "Try again"],
  ]) {
    test(`HTTP status ${status} in plain words`, async () => {
      await refuse(status, body, headers);
      await ask(page, "q");
      await settle(page);
      assert.match(await error(), words);
      assert.equal(await page.locator("article .error button").innerText(), way);
      assert.equal(await page.locator("article .tools .continue").count(), 0);
    });
  }

  test("a chat longer than the context is said so, with a new chat as the way out", async () => {
    await ask(page, "long ".repeat(2000));
    await settle(page);
    assert.match(await error(), /longer than the model can read at once.*context/s);
    await shoot(page, "refused");
    await page.click("article .error button");
    assert.equal(await page.locator("article").count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
  });

  test("chats that cannot be read or saved are said so, and none is lost", async () => {
    await ask(page, "What is the capital of Japan?");
    await settle(page);
    await page.addInitScript(() => {
      for (const name of ["getAll", "put"]) {
        const works = IDBObjectStore.prototype[name];
        IDBObjectStore.prototype[name] = function (...of) {
          if (sessionStorage.getItem("broken") === name) throw new DOMException("full", "QuotaExceededError");
          return works.apply(this, of);
        };
      }
      if (!sessionStorage.getItem("broken")) sessionStorage.setItem("broken", "getAll");
    });
    await page.reload();
    await page.waitForSelector("#toast >> text=could not read the chats");
    await page.waitForSelector("#prompt:enabled");
    await page.evaluate(() => sessionStorage.setItem("broken", "put"));
    await page.reload();
    await page.waitForSelector("article");
    assert.match(await answer(page), /Tokyo/);
    await ask(page, "And of France?");
    await page.waitForSelector("#toast >> text=could not save the chat");
    await settle(page);
    assert.equal(await page.locator("article").count(), 4, "it goes on as long as the page");
  });

  test("a browser without storage is said so, and chats work", async () => {
    await page.addInitScript(() => Object.defineProperty(globalThis, "indexedDB", { get() { throw new Error("off"); } }));
    await page.reload();
    await page.waitForSelector("#prompt:enabled");
    assert.match(await page.innerText("#keeps"), /keeps nothing/);
    await ask(page, "What is the capital of Japan?");
    await settle(page);
    assert.match(await answer(page), /Tokyo/);
  });
});
