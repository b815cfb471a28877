// Chats of the page: kept, searched, renamed, deleted and brought back, exported and imported; their
// messages edited, answered again and continued.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, beforeEach, describe, test } from "node:test";
import { answer, answerToTheLimit, ask, Browser, browserPath, keepChats, set, settle, shoot } from "./browser.mjs";

const url = process.env.TANDEM_URL;
const chat = (title, ...texts) => ({ title, messages: texts.map((content, i) => ({ role: i % 2 ? "assistant" : "user", content })) });

describe("chats", { skip: !browserPath }, () => {
  const browser = new Browser();
  let page;
  const titles = () => page.locator("#chats .title").allInnerTexts();
  const bubbles = () => page.locator(".bubble").allInnerTexts();
  // What the page asks the server from now on.
  const requests = (of = page) => {
    const bodies = [];
    of.on("request", (request) => request.url().endsWith("/chat/completions") && bodies.push(request.postDataJSON()));
    return bodies;
  };
  const saved = (of = page) => of.evaluate(async () => {
    const db = await new Promise((resolve) => { indexedDB.open("tandem").onsuccess = (event) => resolve(event.target.result); });
    const all = await new Promise((resolve) => { db.transaction("chats").objectStore("chats").getAll().onsuccess = (event) => resolve(event.target.result); });
    db.close();
    return all;
  });
  // A reload loses writes that have not reached the database.
  async function untilSaved(what, condition) {
    const deadline = Date.now() + 20_000;
    while (!condition(await saved())) {
      assert.ok(Date.now() < deadline, `${what} was not saved within 20 s: ${JSON.stringify(await saved())}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  async function act(title, what) {
    await page.locator("#chats li", { hasText: title }).hover();
    await page.click(`[aria-label="${what} ${title}"]`);
  }

  before(() => browser.start());
  beforeEach(async () => {
    page = await browser.open(url);
  });
  after(() => browser.stop());

  test("chats that an earlier version of the page kept are taken over, each with its system message", async () => {
    await page.evaluate(() => localStorage.setItem("tandem.settings", JSON.stringify({ system: "Be brief.", temperature: 0 })));
    await keepChats(page, [chat("First", "q1", "a1", "q2", "a2"), { title: "Second", messages: [{ role: "user", content: "q3" },
      { role: "assistant", content: "half", note: "stopped" }] }, { title: "New chat", messages: [] }]);
    assert.deepEqual(await titles(), ["First", "Second"]);
    assert.deepEqual(await bubbles(), ["q1", "q2"]);
    assert.match(await page.innerText("#system"), /Be brief/);
    await page.click("#chats >> text=Second");
    await page.waitForSelector(".continue");
    assert.equal((await saved()).length, 2);
    assert.equal(await page.evaluate(() => localStorage.getItem("tandem.chats")), null);
    await page.reload();
    await page.waitForSelector("article");
    assert.deepEqual(await titles(), ["First", "Second"]);
  });

  test("old chats stay where they are if they cannot be read", async () => {
    await keepChats(page, [chat("Good", "q", "a"), { title: "Damaged", messages: [{ role: "stranger", content: 1 }] }]);
    assert.deepEqual(await titles(), ["Good"]);
    await page.reload();
    await page.waitForSelector("article");
    assert.deepEqual(await titles(), ["Good"]);
    assert.match(await page.evaluate(() => localStorage.getItem("tandem.chats")), /^\[\{[^{]*Damaged/);
  });

  test("deleting can be undone", async () => {
    await keepChats(page, [chat("One", "q", "a"), chat("Two", "q", "a"), chat("Three", "q", "a")]);
    await act("Two", "Delete");
    assert.deepEqual(await titles(), ["One", "Three"]);
    await act("One", "Delete");
    assert.match(await page.innerText("#toast"), /Deleted 2 chats/);
    await shoot(page, "deleted");
    await page.click("#toast >> text=Undo");
    assert.deepEqual(await titles(), ["One", "Two", "Three"]);
    assert.ok(!(await page.isVisible("#toast")));
    await untilSaved("what was deleted and came back", (chats) => chats.length === 3);
    await page.reload();
    await page.waitForSelector("article");
    assert.deepEqual((await titles()).sort(), ["One", "Three", "Two"]);
    await act("Three", "Delete");
    await page.click("#toast [aria-label=Dismiss]");
    await untilSaved("the deletion", (chats) => chats.length === 2);
  });

  test("a title is shown whole, and can be changed", async () => {
    const long = "Which of the rivers in Europe is the longest of all?";
    await keepChats(page, [chat(long, long, "a"), chat("Other", "q", "a")]);
    const cut = await page.$eval("#chats .title", (title) => title.scrollHeight > title.clientHeight || title.scrollWidth > title.clientWidth);
    assert.ok(!cut, "52 characters fit");
    await act("Other", "Rename");
    await page.keyboard.type("Rivers");
    await page.keyboard.press("Escape");
    assert.deepEqual(await titles(), [long, "Other"]);
    await page.locator("#chats .chat", { hasText: "Other" }).focus();
    await page.keyboard.press("F2");
    await page.keyboard.type("Rivers");
    await page.keyboard.press("Enter");
    assert.deepEqual(await titles(), [long, "Rivers"]);
    await untilSaved("the title", (chats) => chats.some((chat) => chat.title === "Rivers"));
    await page.reload();
    await page.waitForSelector("article");
    assert.deepEqual(await titles(), [long, "Rivers"]);
  });

  test("searches titles and messages", async () => {
    await keepChats(page, [chat("Fox", "Tell me of a fox", "It lived by the RIVER bank."), chat("Capital", "Capital of Japan?", "Tokyo"), chat("Sum", "1 + 1", "2")]);
    await page.keyboard.press("Control+k");
    await page.keyboard.type("river");
    assert.deepEqual(await titles(), ["Fox"]);
    assert.match(await page.innerText("#chats small"), /by the RIVER bank/);
    assert.equal(await page.innerText("#found"), "1 found");
    await page.fill("#search", "capital tokyo");
    assert.deepEqual(await titles(), ["Capital"]);
    await page.keyboard.press("Enter");
    assert.deepEqual(await bubbles(), ["Capital of Japan?"]);
    await page.fill("#search", "nothing like it");
    assert.match(await page.innerText("#found"), /No chat/);
    await page.focus("#search");
    await page.keyboard.press("Escape");
    assert.equal((await titles()).length, 3);
  });

  test("a message can be edited: what followed it is kept as a version", async () => {
    await set(page, { temperature: 0, max_tokens: 12 });
    await ask(page, "What is the capital of Japan?");
    await settle(page);
    await ask(page, "And of Italy?");
    await settle(page);
    const sent = requests();
    await page.keyboard.press("ArrowUp");
    assert.equal(await page.inputValue("[data-editor]"), "And of Italy?");
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
    await page.locator("article.user").first().hover();
    await page.locator("[aria-label='Edit the message']").first().click();
    await page.keyboard.press("Control+a");
    await page.keyboard.type("What is the capital of France?");
    await shoot(page, "editing");
    await page.keyboard.press("Enter");
    await settle(page);
    assert.deepEqual(sent[0].messages, [{ role: "user", content: "What is the capital of France?" }]);
    assert.match(await answer(page), /Paris/);
    assert.deepEqual(await bubbles(), ["What is the capital of France?"]);
    assert.equal(await page.innerText(".versions"), "2 of 2");
    await page.click("[aria-label='Earlier version']");
    assert.deepEqual(await bubbles(), ["What is the capital of Japan?", "And of Italy?"]);
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Later version", "the focus stays at the arrows");
    await page.reload();
    await page.waitForSelector("article");
    assert.deepEqual(await bubbles(), ["What is the capital of Japan?", "And of Italy?"]);
    await page.click("[aria-label='Later version']");
    assert.deepEqual(await bubbles(), ["What is the capital of France?"]);
  });

  test("answering again keeps the answers before", async () => {
    await set(page, { max_tokens: 12, temperature: 1 });
    await ask(page, "Tell me a story.");
    await settle(page);
    const first = await answer(page);
    for (const seed of [5, 6]) {
      await set(page, { seed });
      await page.click(".regenerate");
      await settle(page);
    }
    assert.equal(await page.innerText(".assistant .versions"), "3 of 3");
    await page.click(".assistant [aria-label='Earlier version']");
    await page.click(".assistant [aria-label='Earlier version']");
    assert.equal(await answer(page), first);
    assert.ok(await page.isDisabled(".assistant [aria-label='Earlier version']"));
    await ask(page, "And then?");
    await settle(page);
    assert.equal((await bubbles()).length, 2);
    assert.deepEqual(browser.complaints, []);
  });

  test("an answer that was cut or stopped is continued where it ended", async () => {
    await set(page, { temperature: 0, max_tokens: 24 });
    await ask(page, "Tell me a story.");
    await settle(page);
    const whole = await answer(page);
    await set(page, { max_tokens: 10 });
    await page.click(".regenerate");
    await settle(page);
    const part = await answer(page);
    assert.ok(whole.startsWith(part) && part.length < whole.length);
    await set(page, { max_tokens: 14 });
    await page.click(".continue");
    await settle(page);
    assert.equal((await answer(page)).slice(0, whole.length - 8), whole.slice(0, -8));
    assert.equal(await page.innerText(".versions"), "2 of 2", "the same answer has grown");

    await set(page, { max_tokens: 400, temperature: 1 });
    const endAsUsual = await answerToTheLimit(page);
    await ask(page, "Another story, please.");
    await page.waitForFunction(() => document.querySelector(".busy .answer")?.textContent.length > 20);
    await page.keyboard.press("Escape");
    await settle(page);
    const stopped = await answer(page);
    await endAsUsual();
    const sent = requests();
    await page.click(".continue");
    await settle(page);
    assert.equal(sent[0].messages.at(-1).role, "assistant");
    assert.ok((await answer(page)).startsWith(stopped.trim()) && (await answer(page)).length > stopped.length);
  });

  test("each chat has and shows a system message of its own", async () => {
    await set(page, { temperature: 0, max_tokens: 4, system: "Answer in French." });
    await page.keyboard.press("Alt+n");
    assert.match(await page.innerText("#system"), /Answer in French/);
    const sent = requests();
    await ask(page, "Hello");
    await settle(page);
    assert.deepEqual(sent[0].messages[0], { role: "system", content: "Answer in French." });
    await page.click("[aria-label='Edit the system message']");
    await page.keyboard.press("Control+a");
    await page.keyboard.type("Answer in verse.");
    await shoot(page, "system");
    await page.keyboard.press("Enter");
    assert.match(await page.innerText("#system"), /Answer in verse/);
    await page.keyboard.press("Alt+n");
    assert.match(await page.innerText("#system"), /Answer in French/, "a new chat begins with that of the settings");
    await page.click("[aria-label='Edit the system message']");
    await page.keyboard.press("Control+a");
    await page.keyboard.press("Delete");
    await page.keyboard.press("Enter");
    assert.equal(await page.innerText("#system"), "Add a system message");
    await ask(page, "Hello");
    await settle(page);
    assert.equal(sent[1].messages[0].role, "user");
    await page.locator("#chats .chat").nth(1).click();
    assert.match(await page.innerText("#system"), /Answer in verse/);
    await page.reload();
    await page.waitForSelector("article");
    await page.locator("#chats .chat").nth(1).click();
    assert.match(await page.innerText("#system"), /Answer in verse/);
  });

  test("chats are exported to a file and imported in another browser", async () => {
    await keepChats(page, [chat("One", "q1", "a1"), chat("Two", "q2", "a2 **b**")]);
    const save = async (button) => {
      const [file] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
      return readFileSync(await file.path());
    };
    await page.click("#open-transfer");
    await shoot(page, "transfer");
    const one = await save("#export-one");
    const all = await save("#export-all");
    assert.deepEqual(JSON.parse(one).chats.map((kept) => kept.title), ["One"]);
    assert.equal(JSON.parse(all).chats.length, 2);
    const give = (buffer) => page.setInputFiles("#import-file", { name: "chats.json", mimeType: "application/json", buffer: Buffer.from(buffer) });

    page = await browser.open(url);
    await page.click("#open-transfer");
    assert.ok(await page.isDisabled("#export-all"));
    await give("{");
    await page.waitForFunction(() => /not JSON/.test(document.getElementById("import-error").textContent));
    await give("{\"chats\": []}");
    await page.waitForFunction(() => /no chats of Tandem/.test(document.getElementById("import-error").textContent));
    const circle = JSON.parse(all);
    circle.chats[1].nodes[0].parent = circle.chats[1].nodes[1].id;
    await give(JSON.stringify(circle));
    await page.waitForFunction(() => /Chat 2 of 2 in this file is damaged/.test(document.getElementById("import-error").textContent));
    assert.deepEqual(await saved(), []);
    await give(one);
    await page.waitForSelector("#toast >> text=Imported 1 chat.");
    await page.click("#open-transfer");
    await give(all);
    await page.waitForSelector("#toast >> text=Imported 1 chat. 1 was here already.");
    assert.deepEqual((await titles()).filter((title) => title !== "New chat"), ["One", "Two"]);
    await page.reload();
    await page.waitForSelector("article");
    assert.deepEqual(await titles(), ["One", "Two"]);
  });

  test("an import that the browser cannot save is a failure", async () => {
    await page.click("#open-transfer");
    const file = { format: "tandem.chats", version: 1, chats: [{ id: "1", ...chat("One", "q", "a") }] };
    const give = () => page.setInputFiles("#import-file", { name: "chats.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(file)) });
    // Fails when it is written, as where the storage is full.
    await page.evaluate(() => {
      const { add, put } = IDBObjectStore.prototype;
      globalThis.freeStorage = () => { IDBObjectStore.prototype.put = put; };
      IDBObjectStore.prototype.put = function (value) { add.call(this, value); return add.call(this, value); };
    });
    await give();
    await page.waitForFunction(() => /could not save the chats.*Nothing was imported/.test(document.getElementById("import-error").textContent));
    assert.ok(await page.isVisible("#transfer"));
    assert.match(await page.innerText("#toast"), /could not save the chat/);
    assert.deepEqual(await titles(), ["New chat"]);
    assert.deepEqual(await saved(), []);
    await page.evaluate(() => globalThis.freeStorage());
    await give();
    await page.waitForSelector("#toast >> text=Imported 1 chat.");
    assert.equal((await saved()).length, 1);
    assert.deepEqual(browser.complaints, []);
  });

  test("two windows do not overwrite one another's chats", async () => {
    await keepChats(page, [chat("Old", "q", "a")]);
    const second = await browser.another(url);
    await set(page, { max_tokens: 2 });
    for (const [window, text] of [[page, "from the first"], [second, "from the second"]]) {
      await window.keyboard.press("Alt+n");
      await ask(window, text);
      await settle(window);
    }
    const want = ["Old", "from the first", "from the second"];
    for (const window of [page, second]) {
      await window.waitForFunction((n) => document.querySelectorAll("#chats .chat").length === n, 3);
      assert.deepEqual((await window.locator("#chats .title").allInnerTexts()).sort(), want);
    }
    assert.deepEqual((await saved()).map((kept) => kept.title).sort(), want);
  });

  // Two windows of the chat "Old", and what the browser has kept of it.
  async function twoWindows(...others) {
    await keepChats(page, [chat("Old", "q", "a"), ...others]);
    await set(page, { max_tokens: 4 });
    const second = await browser.another(url);
    await page.bringToFront();
    await page.focus("#prompt");
    return second;
  }
  const bubbleAppears = (of, text) => of.waitForSelector(`.bubble >> text=${text}`);
  const questions = (kept) => kept.find(({ title }) => title === "Old").nodes.filter(({ role }) => role === "user").map(({ content }) => content).sort();

  test("what another window asks while a message is edited is shown when the edit ends", async () => {
    const second = await twoWindows(chat("Other", "q", "a"));
    await page.keyboard.press("ArrowUp");
    await page.waitForSelector("[data-editor]");
    await ask(second, "from the second");
    await settle(second);
    assert.deepEqual(await bubbles(), [], "the box stays");
    await page.keyboard.press("Escape");
    await bubbleAppears(page, "from the second");
    await ask(page, "from the first");
    await settle(page);
    assert.deepEqual(await bubbles(), ["q", "from the second", "from the first"]);
    assert.deepEqual(questions(await saved()), ["from the first", "from the second", "q"]);
  });

  test("an edit in one chat does not hold up what another window asks in another", async () => {
    const second = await twoWindows(chat("Other", "q", "a"));
    await page.keyboard.press("ArrowUp");
    await page.waitForSelector("[data-editor]");
    await second.click("#chats >> text=Other");
    await ask(second, "from the second");
    await settle(second);
    // The chat asked last comes first.
    await page.waitForFunction(() => document.querySelector("#chats .title").textContent === "Other");
    assert.ok(await page.isVisible("[data-editor]"));
    await page.click("#chats >> text=Other");
    assert.deepEqual(await bubbles(), ["q", "from the second"]);
  });

  test("two windows that answer in one chat at once both keep their messages", async () => {
    const second = await twoWindows();
    await set(page, { max_tokens: 400 });
    await answerToTheLimit(page);
    await ask(page, "from the first");
    await page.waitForFunction(() => document.querySelector(".busy .answer")?.textContent.length > 3);
    await bubbleAppears(second, "from the first");
    await ask(second, "from the second");
    await settle(second);
    await page.keyboard.press("Escape");
    await settle(page);
    const want = ["q", "from the first", "from the second"];
    await untilSaved("the end of the first", (kept) => kept[0].nodes.some(({ note }) => note === "stopped"));
    const [kept] = await saved();
    assert.deepEqual(questions([kept]), [...want].sort());
    const texts = kept.nodes.filter(({ role }) => role === "assistant").map(({ content }) => content.trim());
    assert.ok(texts.includes(await answer(page)) && texts.includes(await answer(second)), JSON.stringify(texts));
    for (const window of [page, second]) {
      await window.waitForFunction((all) => JSON.stringify([...document.querySelectorAll(".bubble")].map((bubble) => bubble.innerText)) === all, JSON.stringify(want));
    }
  });

  test("the system message can be edited after another window has changed the chat", async () => {
    const second = await twoWindows();
    await ask(second, "from the second");
    await settle(second);
    await bubbleAppears(page, "from the second");
    await page.click("text=Add a system message");
    await page.waitForSelector("#system [data-editor]");
    await page.keyboard.type("Be brief.");
    await page.keyboard.press("Enter");
    await untilSaved("the system message", ([kept]) => kept.system === "Be brief." && questions([kept]).length === 2);
  });

  test("a title typed while another window asks in the chat is kept", async () => {
    const second = await twoWindows();
    await act("Old", "Rename");
    await ask(second, "from the second");
    await settle(second);
    await page.fill("#title-box", "Rivers");
    await page.press("#title-box", "Enter");
    await bubbleAppears(page, "from the second");
    await untilSaved("the title", ([kept]) => kept.title === "Rivers" && kept.nodes.length === 4);
    await second.waitForSelector("#chats >> text=Rivers");
  });

  test("messages of another window are merged into a chat", async () => {
    const merged = (mine, theirs) => page.evaluate(async (nodes) => {
      const { merge } = await import("./page/tree.js");
      const [chat, stored] = nodes.map((list) => ({ nodes: list.map(([id, parent, content, more]) => (
        { id, parent, role: id.startsWith("q") ? "user" : "assistant", content, ...more })) }));
      chat.head = chat.nodes.at(-1).id;
      merge(chat, stored);
      return [...chat.nodes.map(({ id, content, calls }) => `${id} ${content}${calls?.[0].result ?? ""}`), chat.head];
    }, [mine, theirs]);
    const question = ["q1", null, "q"];
    // What follows the last message shown is shown.
    assert.deepEqual(await merged([question], [question, ["a1", "q1", "a"], ["q2", "a1", ""]]), ["q1 q", "a1 a", "q2 ", "q2"]);
    assert.deepEqual(await merged([question, ["a1", "q1", "a"]], [question, ["a2", "q1", "b"]]), ["q1 q", "a1 a", "a2 b", "a1"]);
    // An answer without text that nothing follows was taken away here, or is still to come.
    assert.deepEqual(await merged([question], [question, ["a1", "q1", ""]]), ["q1 q", "q1"]);
    assert.deepEqual(await merged([question], [question, ["a1", "q1", ""], ["q2", "a1", "r"]]), ["q1 q", "a1 ", "q2 r", "q2"]);
    // Of an answer that both have, the longer text.
    assert.deepEqual(await merged([question, ["a1", "q1", "one"]], [question, ["a1", "q1", "one two"]]), ["q1 q", "a1 one two", "a1"]);
    assert.deepEqual(await merged([question, ["a1", "q1", "one two"]], [question, ["a1", "q1", "one"]]), ["q1 q", "a1 one two", "a1"]);
    assert.deepEqual(await merged([question, ["a1", "q1", "one"]], [question, ["a1", "q1", "one  "]]), ["q1 q", "a1 one", "a1"]);
    const call = { id: "c", name: "f", arguments: "{}" };
    assert.deepEqual(await merged([question, ["a1", "q1", "", { calls: [call] }]],
      [question, ["a1", "q1", "", { calls: [{ ...call, result: "5" }] }]]), ["q1 q", "a1 5", "a1"]);
  });

  test("a chat that another window saves twice in a row is listed once", async () => {
    const count = await page.evaluate(async () => {
      const { Chats } = await import("./page/chats.js");
      const { newChat } = await import("./page/tree.js");
      const saved = { ...newChat(""), id: "of another window" };
      const reads = [];
      const store = { all: async () => [], get: () => new Promise((resolve) => { reads.push(() => resolve(saved)); }) };
      const chats = new Chats(store, () => "");
      const refreshed = [1, 2].map(() => chats.refresh(saved.id, () => false));
      await chats.load();
      while (reads.length < 2) await new Promise((resolve) => { setTimeout(resolve); });
      reads.forEach((end) => end());
      await Promise.all(refreshed);
      return chats.list.filter((chat) => chat.id === saved.id).length;
    });
    assert.equal(count, 1);
  });
});
