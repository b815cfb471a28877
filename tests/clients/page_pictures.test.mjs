// Pictures on the chat page: chosen, pasted, dropped, shown, sent and kept.  The server of these tests
// accepts none, so its answers about pictures are made up here.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { answer, Browser, browserPath, checkAccessibility, settle, shoot } from "./browser.mjs";

const url = process.env.TANDEM_URL;
// 1 x 1 pixels.
const kPng = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const kUrl = `data:image/png;base64,${kPng}`;
const file = (name = "a.png", mimeType = "image/png") => ({ name, mimeType, buffer: Buffer.from(kPng, "base64") });

describe("pictures on the chat page", { skip: !browserPath }, () => {
  const browser = new Browser();
  let page;
  let requests;

  // A page of a server that accepts pictures, and answers "A dot."
  async function openSeeing() {
    page = await browser.open(url);
    requests = [];
    await page.route("**/tandem/v1/models", (route) => route.fulfill({ json: { models: [{ name: "m", imageTokens: 16 }] } }));
    await page.route("**/v1/chat/completions", (route) => {
      requests.push(route.request().postDataJSON());
      const event = (chunk) => `data: ${JSON.stringify(chunk)}\n\n`;
      return route.fulfill({ contentType: "text/event-stream", body: event({ choices: [{ delta: { content: "A dot." } }] }) +
        event({ choices: [{ delta: {}, finish_reason: "stop" }] }) + "data: [DONE]\n\n" });
    });
    await page.reload();
    await page.waitForSelector("#attach:visible");
  }
  // A paste into the box or a drop onto the page, of a file.
  const give = (kind, type = "image/png") => page.evaluate(({ kind, type, base64 }) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], "a.png", { type }));
    const target = kind === "paste" ? document.getElementById("prompt") : document.body;
    target.dispatchEvent(kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }) :
      new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  }, { kind, type, base64: kPng });
  const attached = () => page.locator("#attached img").count();

  before(() => browser.start());
  beforeEach(() => browser.strangers.clear());
  after(() => browser.stop());

  test("are chosen, pasted, dropped, removed and sent before the text", async () => {
    await openSeeing();
    await page.setInputFiles("#attach-file", [file(), file("b.png")]);
    await page.waitForFunction(() => document.querySelectorAll("#attached img").length === 2);
    await give("paste");
    await give("drop");
    await page.waitForFunction(() => document.querySelectorAll("#attached img").length === 4);
    await checkAccessibility(page, "with pictures in the box");
    await shoot(page, "pictures-box");
    await page.click("#attached [aria-label='Remove picture 4']");
    await page.click("#attached [aria-label='Remove picture 1']");
    assert.equal(await attached(), 2);
    await page.fill("#prompt", "What is it?");
    await page.keyboard.press("Enter");
    await settle(page);
    assert.equal(await answer(page), "A dot.");
    assert.equal(await attached(), 0);
    const image = { type: "image_url", image_url: { url: kUrl } };
    assert.deepEqual(requests[0].messages.at(-1), { role: "user", content: [image, image, { type: "text", text: "What is it?" }] });
    assert.equal(await page.locator("article.user .picture img").count(), 2);
    await checkAccessibility(page, "with pictures in a message");
    await shoot(page, "pictures-sent");
    assert.deepEqual(browser.complaints, []);
  });

  test("stay with their chat: in its next turn, over a reload, and when the question is edited", async () => {
    await openSeeing();
    await page.setInputFiles("#attach-file", file());
    await page.waitForSelector("#attached img");
    await page.click("#send");  // without a text
    await settle(page);
    await page.fill("#prompt", "And now?");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll("article.assistant .tools").length === 2);
    const image = { type: "image_url", image_url: { url: kUrl } };
    assert.deepEqual(requests[1].messages.map((message) => message.content), [[image], "A dot.", "And now?"]);
    await page.reload();
    await page.waitForSelector("article.user .picture img");
    assert.equal(await page.locator("article.user .picture img").count(), 1);
    await page.locator("article.user [aria-label='Edit the message']").first().click();
    await page.fill("[data-editor]", "What colour?");
    await page.keyboard.press("Enter");
    await settle(page);
    assert.deepEqual(requests[2].messages.at(-1).content, [image, { type: "text", text: "What colour?" }]);
    assert.deepEqual(browser.complaints, []);
  });

  test("other files are refused in words, and every picture where the server accepts none", async () => {
    await openSeeing();
    await give("drop", "application/pdf");
    await page.waitForFunction(() => document.getElementById("toast").innerText.includes("is not a picture"));
    assert.equal(await attached(), 0);
    page = await browser.open(url);
    await page.waitForFunction(() => document.getElementById("attach").hidden);
    await give("paste");
    await page.waitForFunction(() => document.getElementById("toast").innerText.includes("it has no vision encoder"));
    assert.equal(await attached(), 0);
    assert.deepEqual(browser.complaints, []);
  });
});
