// The chat page over a cluster on the trained model that sees: pictures are dropped, answers are the model's.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { answer, ask, Browser, browserPath, set, settle } from "./browser.mjs";
import { cannotSee, conversations, startSeeingCluster } from "./seeing_cluster.mjs";

const why = cannotSee(process.env.TANDEM_BIN) || (!browserPath && "no chromium");
if (why) console.log(`SKIPPED: the page over a model that sees: ${why}`);

// A JPEG that stands on its head, as a phone held upside down writes it: EXIF orientation 3.
function upsideDown(jpeg) {
  const entry = [0x12, 0x01, 3, 0, 1, 0, 0, 0, 3, 0, 0, 0];  // tag 0x0112, a number of 16 bits, one of them, 3
  const tiff = [0x49, 0x49, 42, 0, 8, 0, 0, 0, 1, 0, ...entry, 0, 0, 0, 0];
  const data = [...Buffer.from("Exif\0\0"), ...tiff];
  return Buffer.concat([jpeg.subarray(0, 2), Buffer.from([0xff, 0xe1, 0, data.length + 2, ...data]), jpeg.subarray(2)]);
}

describe("the chat page over a model that sees", { skip: why }, () => {
  const browser = new Browser();
  let cluster;
  let page;

  before(async () => {
    cluster = await startSeeingCluster(process.env.TANDEM_BIN);
    await browser.start();
    page = await browser.open(cluster.url);
    await set(page, { temperature: 0 });
  });
  after(async () => {
    await browser.stop();
    await cluster?.stop();
  });

  const drop = (file, type) => page.evaluate(({ base64, type }) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], "picture", { type }));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  }, { base64: file.toString("base64"), type });

  async function answerTo(file, type, question) {
    await page.click("#new-chat");
    await drop(file, type);
    await page.waitForSelector("#attached img");
    await ask(page, question);
    await settle(page);
    return answer(page);
  }

  test("a dropped PNG gets the reference's answer", async () => {
    const one = conversations()[0];
    assert.equal(await answerTo(one.turns[0].files[0], "image/png", one.turns[0].text), one.answer);
    assert.deepEqual(browser.complaints, []);
  });

  test("a phone's JPEG is seen upright", async () => {
    const one = conversations()[4];
    const [file] = one.turns[0].files;
    assert.equal(await answerTo(file, "image/jpeg", one.turns[0].text), one.answer);
    assert.match(one.answer, /on the right/);
    assert.match(await answerTo(upsideDown(file), "image/jpeg", one.turns[0].text), /on the left/);
  });

  // Noise, which no format makes small.
  test("a large picture is sent smaller, and seen the same", async () => {
    const sent = [];
    await page.route("**/v1/chat/completions", (route) => {
      sent.push(route.request().postData().length);
      return route.continue();
    });
    const large = await page.evaluate(async () => {
      const canvas = new OffscreenCanvas(3000, 2000);
      const context = canvas.getContext("2d");
      const pixels = context.createImageData(3000, 2000);
      for (let i = 0; i < pixels.data.length; ++i) pixels.data[i] = i % 4 === 3 ? 255 : 150 + (Math.imul(i, 2654435761) >>> 26);
      context.putImageData(pixels, 0, 0);
      context.fillStyle = "#e00000";
      context.fillRect(2100, 700, 600, 600);
      const blob = await canvas.convertToBlob({ type: "image/png" });
      const bytes = new Uint8Array(await blob.arrayBuffer());
      let text = "";
      for (let i = 0; i < bytes.length; i += 30000) text += String.fromCharCode(...bytes.subarray(i, i + 30000));
      return btoa(text);
    });
    assert.ok(large.length > 6 << 20, `${large.length} bytes`);
    assert.match(await answerTo(Buffer.from(large, "base64"), "image/png", "Where do you see the red square?"), /red square is on the right/);
    assert.ok(sent[0] < large.length / 3, `${sent[0]} of ${large.length} bytes`);
    await page.unroute("**/v1/chat/completions");
  });
});
