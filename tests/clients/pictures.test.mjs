// Pictures by the clients of OpenAI, Ollama and Anthropic, and by agents' libraries, unmodified: answers and
// usage are the reference's.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { cannotSee, conversations, startSeeingCluster } from "./seeing_cluster.mjs";

const why = cannotSee(process.env.TANDEM_BIN);
if (why) console.log(`SKIPPED: pictures by the clients: ${why}`);

// One picture, a JPEG, a WebP, a picture three turns before the question, two pictures.
const kAsked = [0, 4, 7, 11, 12];
const kLimit = 40;  // tokens of an answer

const typeOf = (file) => (file[0] === 0x89 ? "image/png" : file[0] === 0xff ? "image/jpeg" : "image/webp");
const dataUrl = (file) => `data:${typeOf(file)};base64,${file.toString("base64")}`;
// A conversation's messages, with parts made by `image` and `text`.
const messagesOf = ({ turns }, image, text) => turns.flatMap((turn) => [
  { role: "user", content: [...turn.files.map(image), text(turn.text)] },
  ...(turn.answer ? [{ role: "assistant", content: turn.answer }] : [])]);
const textPart = (text) => ({ type: "text", text });

const asChat = (one) => messagesOf(one, (file) => ({ type: "image_url", image_url: { url: dataUrl(file), detail: "high" } }), textPart);
const asResponses = (one) => messagesOf(one, (file) => ({ type: "input_image", image_url: dataUrl(file), detail: "auto" }), (text) => ({ type: "input_text", text }));
const asAnthropic = (one) => messagesOf(one, (file) => ({ type: "image", source: { type: "base64", media_type: typeOf(file), data: file.toString("base64") } }), textPart);
const asVercel = (one) => messagesOf(one, (file) => ({ type: "image", image: file, mediaType: typeOf(file) }), textPart);
const asOllama = ({ turns }) => turns.flatMap((turn) => [
  { role: "user", content: turn.text, images: turn.files },
  ...(turn.answer ? [{ role: "assistant", content: turn.answer }] : [])]);

// No picture, half a picture, and what each error says of them.
const broken = (file) => [
  [Buffer.from("This is no picture."), /images\[0\]: the picture is no PNG, JPEG, WebP, GIF or BMP file/],
  [file.subarray(0, file.length >> 1), /images\[0\]: .*(damaged|cut off)/]];
const asking = (file) => ({ turns: [{ text: "What is it?", files: [file] }] });

describe("pictures", { skip: why }, () => {
  let cluster;
  let openai;
  let ollama;
  let anthropic;
  const model = "demo2";
  const asked = why ? [] : kAsked.map((i) => conversations()[i]);

  before(async () => {
    cluster = await startSeeingCluster(process.env.TANDEM_BIN);
    openai = new OpenAI({ baseURL: `${cluster.url}/v1`, apiKey: "none", maxRetries: 0 });
    ollama = new Ollama({ host: cluster.url });
    anthropic = new Anthropic({ baseURL: cluster.url, apiKey: "none", maxRetries: 0 });
  });
  after(() => cluster?.stop());

  test("openai: chat, whole and streamed", async () => {
    for (const one of asked) {
      const request = { model, messages: asChat(one), temperature: 0, max_tokens: kLimit };
      const whole = await openai.chat.completions.create(request);
      assert.equal(whole.choices[0].message.content, one.answer);
      assert.equal(whole.usage.prompt_tokens, one.promptTokens);
      assert.equal(whole.usage.prompt_tokens_details.image_tokens, one.imageTokens);
      const streamed = await openai.chat.completions.stream({ ...request, stream_options: { include_usage: true } }).finalChatCompletion();
      assert.equal(streamed.choices[0].message.content, one.answer);
      assert.equal(streamed.usage.prompt_tokens, one.promptTokens);
      assert.equal(streamed.usage.prompt_tokens_details.image_tokens, one.imageTokens);
    }
  });

  test("openai: responses, whole and streamed", async () => {
    for (const one of asked) {
      const request = { model, input: asResponses(one), temperature: 0, max_output_tokens: kLimit };
      const whole = await openai.responses.create(request);
      const streamed = await openai.responses.stream(request).finalResponse();  // without output_text
      for (const response of [whole, streamed]) {
        assert.equal(response.output[0].content[0].text, one.answer);
        assert.equal(response.usage.input_tokens, one.promptTokens);
        assert.equal(response.usage.input_tokens_details.image_tokens, one.imageTokens);
      }
    }
  });

  test("openai: a broken picture is a bad request that says which and why", async () => {
    const right = asked[0].turns[0].files[0];
    for (const [file, says] of broken(right)) {
      const refused = (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError, String(error));
        assert.equal(error.type, "invalid_request_error");
        assert.match(error.message, says);
        return true;
      };
      const chat = { model, messages: asChat(asking(file)), max_tokens: 4 };
      const responses = { model, input: asResponses(asking(file)), max_output_tokens: 4 };
      await assert.rejects(openai.chat.completions.create(chat), refused);
      await assert.rejects(openai.chat.completions.create({ ...chat, stream: true }), refused);
      await assert.rejects(openai.responses.create(responses), refused);
      await assert.rejects(openai.responses.create({ ...responses, stream: true }), refused);
    }
    const second = asChat({ turns: [{ text: "What is it?", files: [right, right.subarray(0, 100)] }] });
    await assert.rejects(openai.chat.completions.create({ model, messages: second }),
      (error) => error instanceof OpenAI.BadRequestError && /images\[1\]: /.test(error.message));
    const elsewhere = [{ role: "user", content: [{ type: "image_url", image_url: { url: "https://example.org/a.png" } }] }];
    await assert.rejects(openai.chat.completions.create({ model, messages: elsewhere }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === "messages[0].content[0].image_url.url" && /fetches no images/.test(error.message));
  });

  test("ollama: chat and generate, whole and streamed", async () => {
    const options = { temperature: 0, num_predict: kLimit };
    for (const one of asked) {
      const request = { model, messages: asOllama(one), options };
      const whole = await ollama.chat(request);
      assert.equal(whole.message.content, one.answer);
      assert.equal(whole.prompt_eval_count, one.promptTokens);
      let streamed = "";
      for await (const part of await ollama.chat({ ...request, stream: true })) streamed += part.message.content;
      assert.equal(streamed, one.answer);
    }
    const [{ turns: [{ text: prompt, files: images }], answer }] = asked;
    assert.equal((await ollama.generate({ model, prompt, images, options })).response, answer);
    let streamed = "";
    for await (const part of await ollama.generate({ model, prompt, images: images.map((file) => file.toString("base64")), options, stream: true })) streamed += part.response;
    assert.equal(streamed, answer);
    assert.ok((await ollama.show({ model })).capabilities.includes("vision"));
  });

  test("ollama: a broken picture is status 400 with the text", async () => {
    for (const [file, says] of broken(asked[0].turns[0].files[0])) {
      const refused = (error) => error.name === "ResponseError" && error.status_code === 400 && says.test(error.error);
      const request = { model, messages: asOllama(asking(file)) };
      await assert.rejects(ollama.chat(request), refused);
      await assert.rejects(ollama.chat({ ...request, stream: true }), refused);
      await assert.rejects(ollama.generate({ model, prompt: "What is it?", images: [file] }), refused);
    }
  });

  test("anthropic: messages, whole and streamed", async () => {
    const prompt = ({ input_tokens, cache_read_input_tokens }) => input_tokens + cache_read_input_tokens;
    for (const one of asked) {
      const request = { model, max_tokens: kLimit, temperature: 0, messages: asAnthropic(one) };
      const whole = await anthropic.messages.create(request);
      const streamed = await anthropic.messages.stream(request).finalMessage();
      for (const message of [whole, streamed]) {
        assert.equal(message.content[0].text, one.answer);
        assert.equal(prompt(message.usage), one.promptTokens);
      }
      assert.equal((await anthropic.messages.countTokens({ model, messages: request.messages })).input_tokens, one.promptTokens);
    }
  });

  test("anthropic: a broken picture is a bad request that says which and why", async () => {
    for (const [file, says] of broken(asked[0].turns[0].files[0])) {
      const refused = (error) => error instanceof Anthropic.BadRequestError && error.error.error.type === "invalid_request_error" && says.test(error.message);
      const request = { model, max_tokens: 4, messages: asAnthropic(asking(file)) };
      await assert.rejects(anthropic.messages.create(request), refused);
      await assert.rejects(anthropic.messages.stream(request).finalMessage(), refused);
    }
  });

  // Both libraries are for node 20 and later.
  const old = Number(process.versions.node.split(".")[0]) < 20 && `node is older than 20: ${process.versions.node}`;

  test("ai: by chat and by responses, streamed too, and a broken picture", { skip: old }, async () => {
    const ai = await import("ai");
    const { createOpenAI } = await import("@ai-sdk/openai");
    const vercel = createOpenAI({ baseURL: `${cluster.url}/v1`, apiKey: "none" });
    for (const by of [vercel.chat(model), vercel.responses(model)]) {
      const ask = { model: by, temperature: 0, maxOutputTokens: kLimit, maxRetries: 0 };
      for (const one of asked) {
        const whole = await ai.generateText({ ...ask, messages: asVercel(one) });
        assert.equal(whole.text, one.answer);
        assert.equal(whole.usage.inputTokens, one.promptTokens);
        assert.equal(await ai.streamText({ ...ask, messages: asVercel(one) }).text, one.answer);
      }
      const half = asked[0].turns[0].files[0].subarray(0, 100);
      await assert.rejects(ai.generateText({ ...ask, messages: asVercel(asking(half)) }),
        (error) => ai.APICallError.isInstance(error) && error.statusCode === 400 && /images\[0\]: /.test(error.message));
    }
  });

  test("langchain: pictures of OpenAI's form, and a broken one", { skip: old }, async () => {
    const { ChatOpenAI } = await import("@langchain/openai");
    const chain = new ChatOpenAI({ model, temperature: 0, maxTokens: kLimit, maxRetries: 0, apiKey: "none", configuration: { baseURL: `${cluster.url}/v1` } });
    for (const one of asked) assert.equal((await chain.invoke(asChat(one))).content, one.answer);
    await assert.rejects(chain.invoke(asChat(asking(Buffer.from("no picture")))), (error) => error.status === 400 && /images\[0\]: /.test(error.message));
  });

  test("what was asked again by every client is encoded once", async () => {
    const page = await (await fetch(`${cluster.url}/metrics`)).text();
    const pictures = new Set(asked.flatMap(({ turns }) => turns.flatMap(({ files }) => files.map((file) => file.toString("base64")))));
    assert.equal(Number(/^tandem_pictures_total\{outcome="encoded"\} (\S+)$/m.exec(page)?.[1]), pictures.size);
  });
});
