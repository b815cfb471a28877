// The ollama package, unmodified.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ollama } from "ollama";

const client = new Ollama({ host: process.env.TANDEM_URL });
const model = "demo.Q8_0.gguf";
const request = { model, messages: [{ role: "user", content: "What is the capital of Japan?" }], options: { temperature: 0, num_predict: 12 } };

test("models are listed, shown and said to be running", async () => {
  const { models } = await client.list();
  assert.deepEqual(models.map((entry) => entry.name), [`${model}:latest`, "house/model:latest"]);
  assert.equal(models[0].digest, models[1].digest);
  assert.equal(models[0].details.quantization_level, "Q8_0");
  assert.ok(models[0].size > 0);
  const shown = await client.show({ model: models[0].name });
  assert.equal(shown.model_info["general.architecture"], "gemma3");
  assert.ok(shown.capabilities.includes("completion"));
  const running = await client.ps();
  assert.equal(running.models[0].model, `${model}:latest`);
  const [major, minor] = (await client.version()).version.split(".").map(Number);
  assert.ok(major > 0 || minor >= 13, "VS Code's Copilot asks for 0.6.4, /v1/responses came with 0.13.3");
});

test("the model answers to its file's name, with and without suffix, and to its alias", async () => {
  for (const name of [model, "demo.Q8_0", "demo.Q8_0:latest", "house/model", "house/model:latest"]) {
    assert.match((await client.chat({ ...request, model: name })).message.content, /Tokyo/, name);
    assert.ok((await client.show({ model: name })).details);
  }
});

test("a limit of -1 or -2 means no limit, and penalties look back as far as repeat_last_n says", async () => {
  for (const num_predict of [-1, -2]) {
    const answer = await client.chat({ ...request, options: { temperature: 0, num_predict, repeat_penalty: 1.1, repeat_last_n: 8 } });
    assert.equal(answer.done_reason, "stop");
  }
});

test("a chat answers whole, with durations in nanoseconds", async () => {
  const answer = await client.chat(request);
  assert.equal(answer.message.role, "assistant");
  assert.match(answer.message.content, /Tokyo/);
  assert.equal(answer.done, true);
  assert.equal(answer.done_reason, "stop");
  assert.ok(answer.prompt_eval_count > 5 && answer.eval_count > 0);
  assert.ok(answer.total_duration >= answer.eval_duration + answer.prompt_eval_duration - 1e6);
  assert.ok(Number.isInteger(answer.total_duration) && answer.total_duration > 1e6);
});

test("a stream has the same text, line by line", async () => {
  const whole = await client.chat(request);
  const parts = [];
  for await (const part of await client.chat({ ...request, stream: true })) parts.push(part);
  assert.equal(parts.map((part) => part.message.content).join(""), whole.message.content);
  assert.ok(parts.slice(0, -1).every((part) => part.done === false));
  assert.equal(parts.at(-1).done, true);
  assert.equal(parts.at(-1).eval_count, whole.eval_count);
});

test("generate renders the template unless the prompt is raw", async () => {
  const options = { temperature: 0, num_predict: 4 };
  const turn = await client.generate({ model, prompt: "What is the capital of Japan?", options: { temperature: 0, num_predict: 12 } });
  assert.match(turn.response, /Tokyo/);
  const raw = await client.generate({ model, prompt: "The capital of", raw: true, options });
  assert.equal(raw.eval_count, 4);
  assert.equal(raw.done_reason, "length");
});

test("texts are embedded, and by the older route too", async () => {
  const input = ["What is the capital of Japan?", "Once"];
  const answer = await client.embed({ model, input });
  const { model_info } = await client.show({ model });
  assert.equal(answer.model, model);
  assert.equal(answer.embeddings.length, 2);
  assert.equal(answer.embeddings[0].length, model_info["gemma3.embedding_length"]);
  assert.ok(answer.prompt_eval_count > 5 && answer.total_duration > 0);
  const { embedding } = await client.embeddings({ model, prompt: input[0] });
  const cosine = embedding.reduce((sum, value, i) => sum + value * answer.embeddings[0][i], 0);
  assert.ok(Math.abs(cosine - 1) < 1e-3);
});

test("errors carry their text and status", async () => {
  await assert.rejects(client.chat({ ...request, model: "llama3" }), (error) => error.status_code === 404 && /model 'llama3' not found/.test(error.error));
  await assert.rejects(client.chat({ ...request, format: "xml" }), (error) => error.status_code === 400 && /format/.test(error.error));
  await assert.rejects(client.chat({ ...request, format: { not: {} } }), (error) => error.status_code === 400 && /format.*#\/not/.test(error.error));
  await assert.rejects(client.chat({ ...request, options: { temperature: -1 } }), (error) => error.status_code === 400);
});

test("abort ends a stream", async () => {
  const stream = await client.chat({ ...request, messages: [{ role: "user", content: "Tell me a story." }], options: { num_predict: 300 }, stream: true });
  await assert.rejects(async () => {
    for await (const part of stream) if (part.message.content) stream.abort();
  }, { name: "AbortError" });
});

test("tokens go to text and back", async () => {
  const post = async (path, body) => (await fetch(`${process.env.TANDEM_URL}${path}`, { method: "POST", body: JSON.stringify(body) })).json();
  const text = "Straße, 東京, <bos> and \u{1F600}";
  const { tokens } = await post("/tokenize", { content: text });
  assert.equal((await post("/detokenize", { tokens })).content, text);
  const pieces = (await post("/tokenize", { content: text, with_pieces: true })).tokens;
  assert.deepEqual(pieces.map((token) => token.id), tokens);
  const special = (await post("/tokenize", { content: text, add_special: true })).tokens;
  assert.deepEqual(special.slice(1), tokens);
});
