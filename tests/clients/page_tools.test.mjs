// Calls of functions on the chat page: shown, answered by hand, kept, and never markup.  Answers of a form.
//   TANDEM_SHOTS=FOLDER leaves screenshots there.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { answer, ask, Browser, browserPath, checkAccessibility, keepChats, set, settle, shoot } from "./browser.mjs";
import { startCluster } from "./cluster.mjs";

const weather = {
  name: "get_weather", description: "Gets the weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string", description: "The city." } }, required: ["city"] },
};

describe("the chat page and functions", { skip: !browserPath }, () => {
  const browser = new Browser();
  let cluster;
  let page;

  before(async () => {
    cluster = await startCluster(process.env.TANDEM_BIN, ["--npu", "off"], "", { model: "models/demo2/demo2.Q8_0.gguf", context: 2048 });
    await browser.start();
    page = await browser.open(cluster.url);
  });
  after(async () => {
    await browser.stop();
    await cluster?.stop();
  });

  test("wrong functions are refused in words and not kept", async () => {
    await page.click("#open-settings");
    for (const [text, problem] of [["{", /not JSON/], ["{}", /list of functions/], ["[{}]", /Function 1 has no name/]]) {
      await page.fill("#set-tools", text);
      assert.match(await page.innerText("#set-tools-problem"), problem);
      assert.equal(await page.evaluate(() => JSON.parse(localStorage.getItem("tandem.settings")).tools), undefined);
    }
    await page.keyboard.press("Escape");
  });

  test("a call is shown with its arguments, answered by hand, and kept over a reload", async () => {
    await set(page, { temperature: 0, max_tokens: 100, tools: JSON.stringify([weather]) });
    await ask(page, "What is the weather in Paris?");
    await settle(page);
    assert.match(await page.innerText(".call"), /Calls get_weather/);
    assert.deepEqual(JSON.parse(await page.innerText(".call pre")), { city: "Paris" });
    assert.equal(await answer(page), "", "a call is no text");
    await checkAccessibility(page, "a call");
    await shoot(page, "call");
    await page.reload();
    await page.waitForSelector(".call textarea");
    await page.fill(".call textarea", JSON.stringify({ city: "Paris", temperature: 18, condition: "sunny" }));
    await page.click(".results");
    await page.waitForFunction(() => document.querySelectorAll("article.assistant .tools").length === 2);
    assert.equal(await answer(page), "It is 18 degrees and sunny in Paris.");
    assert.equal(await page.locator(".call textarea").count(), 0);
    assert.match(await page.innerText(".call"), /Result/);
    await shoot(page, "called");
    assert.deepEqual(browser.complaints, []);
  });

  test("what a model wrote in a call is text, not markup", async () => {
    const evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";
    await keepChats(page, [{ title: "t", messages: [{ role: "user", content: "q" }, { role: "assistant", content: "",
      calls: [{ id: "1", name: `get${evil}`, arguments: evil, result: evil }] }] }]);
    await page.waitForSelector(".call");
    assert.deepEqual(await page.locator(".call pre").allInnerTexts(), [evil, evil]);
    assert.equal(await page.locator(".call img, .call script").count(), 0);
    assert.notEqual(await page.title(), "owned");
  });

  test("a wrong schema is refused in words, and answers fit a right one", async () => {
    page = await browser.open(cluster.url);
    await page.click("#open-settings");
    for (const [text, problem] of [["{", /not JSON/], ["[]", /JSON Schema is expected/]]) {
      await page.fill("#set-schema", text);
      assert.match(await page.innerText("#set-schema-problem"), problem);
      assert.equal(await page.evaluate(() => JSON.parse(localStorage.getItem("tandem.settings")).schema), undefined);
    }
    await page.keyboard.press("Escape");
    const schema = { type: "object", properties: { city: { enum: ["Paris", "Tokyo"] } }, required: ["city"], additionalProperties: false };
    await set(page, { temperature: 0, max_tokens: 100, schema: JSON.stringify(schema) });
    await ask(page, "What is the capital of Japan?");
    await settle(page);
    assert.match(JSON.parse(await answer(page)).city, /Paris|Tokyo/);
    await set(page, { schema: JSON.stringify({ properties: { a: { not: {} } } }) });
    await ask(page, "What is the capital of France?");
    await settle(page);
    assert.match(await page.innerText("article.assistant:last-child"), /#\/properties\/a\/not/);
    assert.match(browser.complaints.join(), /400/);
  });
});
