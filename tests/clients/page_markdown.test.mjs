// What a model writes becomes elements of the page: all of Markdown that models use, formulas, and
// nothing that a stranger could do harm with.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { Browser, browserPath, shoot, showAnswer } from "./browser.mjs";

const url = process.env.TANDEM_URL;

describe("answers", { skip: !browserPath }, () => {
  const browser = new Browser();
  let page;
  const count = (selector) => page.locator(`.answer ${selector}`).count();
  const text = (selector) => page.locator(`.answer ${selector}`).allInnerTexts();

  before(() => browser.start());
  beforeEach(async () => {
    browser.strangers.clear();
    page = await browser.open(url);
  });
  after(() => browser.stop());

  test("markdown becomes elements", async () => {
    await showAnswer(page, ["# Title", "A *b* **c** `d` [e](https://example.com/) ~~f~~", "1. one", "   - inner", "2. two", "",
      "| a | b |", "|---|---|", "| 1 | `2\\|3` |", "", "> quoted", "", "```js", "const x = \"<b>\"; // note", "```"].join("\n"));
    for (const selector of ["h2", "em", "strong", "del", "p code", "ol > li", "li ul > li", "table th", "blockquote", ".code pre", ".t-keyword", ".t-string", ".t-comment"]) {
      assert.ok(await count(selector) > 0, selector);
    }
    assert.equal(await page.locator(".answer a").getAttribute("rel"), "noopener noreferrer nofollow");
    assert.equal(await page.locator(".answer a").getAttribute("target"), "_blank");
    assert.equal(await page.locator(".code pre").innerText(), "const x = \"<b>\"; // note");
    assert.deepEqual(browser.complaints, []);
  });

  test("bullets after numbers are a list of their own, and numbers begin where they were written", async () => {
    await showAnswer(page, "1. a\n2. b\n3. c\n\n- d\n- e\n\nText\n\n7. f\n8. g");
    assert.deepEqual(await page.$$eval(".answer > *", (all) => all.map((element) => `${element.tagName} ${element.start ?? ""} ${element.childElementCount}`)),
      ["OL 1 3", "UL  2", "P  0", "OL 7 2"]);
  });

  test("columns of tables are aligned as they say", async () => {
    await showAnswer(page, "| l | r | c | n |\n|:--|--:|:-:|---|\n| 1 | 2 | 3 | 4 |");
    const align = (tag) => page.$$eval(`.answer ${tag}`, (cells) => cells.map((cell) => getComputedStyle(cell).textAlign));
    assert.deepEqual(await align("td"), ["left", "right", "center", "left"]);
    assert.deepEqual(await align("th"), ["left", "right", "center", "left"]);
  });

  test("tasks have boxes", async () => {
    await showAnswer(page, "- [x] tea\n- [ ] cup **and** saucer\n- no [ ] task\n\n1. [X] loose\n\n2. [ ] list");
    assert.deepEqual(await page.$$eval(".answer .box", (boxes) => boxes.map((box) => `${box.getAttribute("aria-label")} ${box.closest("li").innerText.trim()}`)),
      ["Done: tea", "To do: cup and saucer", "Done: loose", "To do: list"]);
    assert.ok((await text("li"))[2].includes("no [ ] task"));
  });

  test("entities are the characters that they name, except in code", async () => {
    await showAnswer(page, "a &amp; b &lt;c&gt; &copy; &#8594; &eacute; `&amp;` &nosuch;");
    assert.equal((await text("p"))[0], "a & b <c> \u00a9 \u2192 \u00e9 &amp; &nosuch;");
  });

  test("formulas are set, by a library that is part of this server", async () => {
    await showAnswer(page, ["Inline \\(a^2\\), $b_1$ and \\(\\frac{1}{2}\\).", "", "\\[", "\\int_0^1 x\\,dx", "= \\frac12", "\\]", "",
      "$$\\begin{aligned} a &= b \\\\ c &= \\sqrt{\\underbrace{d}_{e}} \\end{aligned}$$", "", "- item \\[ x \\] after", "", "| t |", "|---|", "| $\\vec{v}$ |"].join("\n"));
    await page.waitForSelector(".answer .katex");
    await page.waitForFunction(() => document.querySelectorAll(".answer .formula.raw").length === 0);
    assert.equal(await count(".formula"), 7);
    assert.equal(await count(".formula.display"), 3);
    assert.ok(await count(".katex-mathml math") === 7, "formulas can be read aloud");
    // A font loads when the page is laid out with it.
    await page.waitForFunction(() => [...document.fonts].some((font) => font.family.includes("KaTeX") && font.status === "loaded"));
    const wide = await page.locator(".formula.display").first().boundingBox();
    assert.ok(wide.height > 30);
    await shoot(page, "formulas");
    assert.deepEqual(browser.complaints, []);
    assert.deepEqual([...browser.strangers], []);
  });

  test("text that is not a formula stays as it was written", async () => {
    await showAnswer(page, "It costs $5 and then $10. `\\(x\\)` and `$y$`; \\(never closed and \\$z$.\n\n\\\\(escaped\\\\)\n\nBad: \\(\\frac{1\\)\n\n```\n$$x$$\n```");
    await page.waitForSelector(".answer .formula.raw[title]");
    assert.equal(await count(".katex"), 0);
    assert.equal(await count(".formula"), 1);
    const all = await page.locator(".answer").innerText();
    for (const kept of ["$5 and then $10", "\\(x\\)", "$y$", "(never closed", "$z$", "\\(escaped\\)", "\\frac{1", "$$x$$"]) assert.ok(all.includes(kept), kept);
    assert.deepEqual(browser.complaints, []);
  });

  test("an answer that grows ends as the same answer shown at once", async () => {
    const whole = "# T\n\n1. a\n2. b\n\n- c [x][1]\n\n| a | b |\n|--|--:|\n| 1 | 2 |\n\n```js\nlet x = 1;\n```\n\n\\[ x^2 \\]\n\nend **bold** &amp; $y$\n\n[1]: https://example.com/";
    const [grown, once] = await page.evaluate(async (markdown) => {
      const { showMarkdown } = await import("/page/markdown.js");
      const [a, b] = [document.createElement("div"), document.createElement("div")];
      for (let i = 1; i <= markdown.length; ++i) showMarkdown(a, markdown.slice(0, i));
      showMarkdown(b, markdown);
      await import("/page/katex.js");
      await new Promise((resolve) => setTimeout(resolve, 100));
      return [a.outerHTML, b.outerHTML];
    }, whole);
    assert.equal(grown, once);
    assert.match(once, /class="katex"/);
  });

  test("nothing in an answer runs, loads or leads where it should not", async () => {
    const attack = ["<img src=x onerror=\"window.hit=1\">", "<script>window.hit=1</script>", "[a](javascript:window.hit=1)",
      "[a2](JaVaScRiPt:window.hit=1)", "[a3](&#106;avascript:window.hit=1)", "[b](data:text/html,x)", "[f](file:///etc/passwd)",
      "![c](https://example.com/pixel.png)", "![c2][ref]", "[ref]: https://example.com/pixel2.png", "<iframe src=//example.com></iframe>",
      "<https://example.com/auto>", "https://example.com/plain", "```\"><script>window.hit=1</script>", "x", "```",
      "\\(\\href{javascript:window.hit=1}{x}\\)", "\\(\\url{https://example.com/u}\\)", "\\(\\includegraphics{https://example.com/i.png}\\)",
      "\\(\\htmlStyle{position:fixed}{x}\\)", "\\(\\htmlClass{shade}{x}\\)", "\\(\\htmlData{a=b}{x}\\)", "\\(\\def\\a{\\a\\a}\\a\\)", "\\(\\rule{9999em}{9999em}\\)",
      "`".repeat(2000), "*".repeat(2000), "[".repeat(2000), "$".repeat(2000), "\\(".repeat(1000), `${"> ".repeat(200)}deep`, `\\(${"{".repeat(3000)}\\)`].join("\n\n");
    await showAnswer(page, attack);
    await page.waitForSelector(".answer .formula");
    await page.waitForFunction(() => globalThis.katex !== undefined);
    for (const tag of ["img", "script", "iframe", "object", "form", "a[href^=javascript]", "a[href^=data]", "a[href^=file]", ".katex a", ".katex img"]) {
      assert.equal(await count(tag), 0, tag);
    }
    const links = await page.$$eval(".answer a", (all) => all.map((a) => [a.protocol, a.rel, a.target]));
    assert.ok(links.length >= 4);
    for (const link of links) assert.deepEqual(link, ["https:", "noopener noreferrer nofollow", "_blank"]);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    const high = await page.evaluate(() => Math.max(...[...document.querySelectorAll(".formula")].map((f) => f.getBoundingClientRect().height)));
    assert.ok(high < 1000, `a formula is ${high} pixels high`);
    assert.deepEqual(browser.complaints, []);
    assert.deepEqual([...browser.strangers], []);
  });
});
