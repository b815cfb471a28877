// The official openai package, unmodified.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.TANDEM_URL}/v1`, apiKey: "none", maxRetries: 0 });
const model = "demo.Q8_0.gguf";
const alias = "house/model";  // run.mjs's
const question = [{ role: "user", content: "What is the capital of Japan?" }];
const greedy = { model, messages: question, temperature: 0, max_tokens: 12 };

// Waits until nothing runs.
async function idle() {
  while (true) {
    const status = await (await fetch(`${process.env.TANDEM_URL}/tandem/v1/status`)).json();
    if (!status.scheduler.running && !status.scheduler.waiting) return status;
  }
}

test("models are listed and found by name", async () => {
  const list = await client.models.list();
  assert.deepEqual(list.data.map((entry) => entry.id), [model, alias]);
  assert.equal((await client.models.retrieve(model)).object, "model");
  await assert.rejects(client.models.retrieve("other"), (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
});

test("the model answers to its file's name, with and without suffix, and to its alias", async () => {
  for (const name of [model, "demo.Q8_0", alias, `${alias}:latest`]) {
    const answer = await client.chat.completions.create({ ...greedy, model: name });
    assert.match(answer.choices[0].message.content, /Tokyo/, name);
    assert.equal(answer.model, model);
    assert.ok((await client.models.retrieve(name)).id);
    assert.equal((await client.embeddings.create({ model: name, input: "a" })).data.length, 1);
  }
});

test("fields that agents add change nothing, and are listed as ignored", async () => {
  const plain = await client.chat.completions.create(greedy);
  const busy = await client.chat.completions.create({ ...greedy, max_tokens: -1, store: true, reasoning_effort: "low" });
  assert.equal(busy.choices[0].message.content, plain.choices[0].message.content);
  assert.deepEqual(busy.tandem.ignored, ["store", "reasoning_effort"]);
  const response = await client.responses.create({ model, input: question, temperature: 0, max_output_tokens: -1, store: true,
    reasoning: { effort: "low", summary: "auto" }, include: ["reasoning.encrypted_content"] });
  assert.match(response.output_text, /Tokyo/);
  assert.equal(response.store, false);
  await assert.rejects(client.responses.create({ model, input: "x", previous_response_id: response.id }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "previous_response_id" && /does not keep responses/.test(error.message));
});

test("invalid JSON names no parameter", async () => {
  const answer = await fetch(`${process.env.TANDEM_URL}/v1/chat/completions`, { method: "POST", body: '{"model": tru}' });
  assert.equal(answer.status, 400);
  const { error } = await answer.json();
  assert.equal(error.param, null);
  assert.equal(error.code, "invalid_json");
});

test("a chat answers, with usage and a reason", async () => {
  const answer = await client.chat.completions.create(greedy);
  assert.match(answer.choices[0].message.content, /Tokyo/);
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.ok(answer.id.startsWith("chatcmpl-"));
  assert.equal(answer.model, model);
  assert.ok(answer.usage.prompt_tokens > 5);
  assert.ok(answer.usage.completion_tokens > 0);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.ok(answer.usage.prompt_tokens_details.cached_tokens < answer.usage.prompt_tokens);
  assert.match(answer.tandem.placement, /gpu0/);
});

test("a stream has the same text, one id, a role, a reason and usage at its end", async () => {
  const whole = await client.chat.completions.create(greedy);
  const stream = await client.chat.completions.create({ ...greedy, stream: true, stream_options: { include_usage: true } });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  assert.equal(new Set(chunks.map((chunk) => `${chunk.id} ${chunk.created} ${chunk.model}`)).size, 1);
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.deepEqual(chunks.at(-1).usage, whole.usage);
  assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === null));
});

test("a conversation's next turn starts where the last one ended", async () => {
  const messages = [{ role: "user", content: `Which number follows? ${Array.from({ length: 60 }, (_, i) => 7 * i).join(" ")}` }];
  const ask = (extra = {}) => client.chat.completions.create({ model, temperature: 0, max_tokens: 8, messages, ...extra });
  const alone = await ask({ cache_prompt: false });
  assert.equal(alone.usage.prompt_tokens_details.cached_tokens, 0);
  const first = await ask();
  assert.equal(first.usage.prompt_tokens_details.cached_tokens, 0);
  assert.equal(first.choices[0].message.content, alone.choices[0].message.content);
  messages.push(first.choices[0].message, { role: "user", content: "And then?" });
  const second = await ask();
  assert.ok(second.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens - 16);
  assert.ok(second.usage.prompt_tokens_details.cached_tokens < second.usage.prompt_tokens);
});

test("the package's own stream helper puts the message together", async () => {
  const runner = client.chat.completions.stream(greedy);
  const completion = await runner.finalChatCompletion();
  assert.match(completion.choices[0].message.content, /Tokyo/);
});

test("log-probabilities belong to the text", async () => {
  const answer = await client.chat.completions.create({ ...greedy, logprobs: true, top_logprobs: 3 });
  const { content } = answer.choices[0].logprobs;
  assert.equal(content.map((token) => token.token).join(""), answer.choices[0].message.content);
  for (const token of content) {
    assert.ok(token.logprob <= 0);
    assert.equal(token.top_logprobs.length, 3);
    assert.equal(token.top_logprobs[0].token, token.token, "greedy takes the most probable");
    assert.deepEqual(token.bytes, [...Buffer.from(token.token)]);
  }
  const stream = await client.chat.completions.create({ ...greedy, logprobs: true, top_logprobs: 3, stream: true });
  const streamed = [];
  for await (const chunk of stream) streamed.push(...(chunk.choices[0].logprobs?.content ?? []));
  assert.deepEqual(streamed, content);
});

test("stop texts end an answer before them", async () => {
  const whole = (await client.chat.completions.create(greedy)).choices[0].message.content;
  for (const stop of ["Tokyo", ["zzz", " Tokyo"]]) {
    const answer = await client.chat.completions.create({ ...greedy, stop, logprobs: true });
    assert.equal(answer.choices[0].message.content, whole.slice(0, whole.indexOf(Array.isArray(stop) ? stop[1] : stop)));
    assert.equal(answer.choices[0].finish_reason, "stop");
  }
  // A token that the text ends before is not reported, nor is the stop itself.
  const answer = await client.chat.completions.create({ ...greedy, stop: " Tokyo", logprobs: true });
  assert.equal(answer.choices[0].logprobs.content.map((token) => token.token).join(""), answer.choices[0].message.content);
});

test("the same seed gives the same answer, choices differ in seed alone", async () => {
  const request = { ...greedy, temperature: 1.5, seed: 7, max_tokens: 8 };
  const [one, again] = await Promise.all([client.chat.completions.create(request), client.chat.completions.create(request)]);
  assert.equal(one.choices[0].message.content, again.choices[0].message.content);
  assert.equal(one.tandem.seed, 7);
  const three = await client.chat.completions.create({ ...request, n: 3 });
  assert.deepEqual(three.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.equal(three.choices[0].message.content, one.choices[0].message.content);
  assert.equal(three.usage.prompt_tokens, one.usage.prompt_tokens);
  const second = await client.chat.completions.create({ ...request, seed: 8 });
  assert.equal(three.choices[1].message.content, second.choices[0].message.content);
});

test("max_completion_tokens and logit_bias hold", async () => {
  const cut = await client.chat.completions.create({ ...greedy, max_tokens: undefined, max_completion_tokens: 2 });
  assert.equal(cut.choices[0].finish_reason, "length");
  assert.equal(cut.usage.completion_tokens, 2);
  const tokens = await (await fetch(`${process.env.TANDEM_URL}/tokenize`, { method: "POST", body: JSON.stringify({ content: " Tokyo" }) })).json();
  const biased = await client.chat.completions.create({ ...greedy, logit_bias: { [tokens.tokens[0]]: 100 }, max_tokens: 2 });
  assert.match(biased.choices[0].message.content, /^ ?Tokyo/);
});

test("completions continue texts and tokens, and echo", async () => {
  const request = { model, temperature: 0, max_tokens: 4 };
  const two = await client.completions.create({ ...request, prompt: ["The capital of", "One two three"] });
  assert.equal(two.choices.length, 2);
  const echoed = await client.completions.create({ ...request, prompt: "The capital of", echo: true, logprobs: 1 });
  assert.equal(echoed.choices[0].text, `The capital of${two.choices[0].text}`);
  assert.equal(echoed.choices[0].logprobs.tokens.join(""), echoed.choices[0].text);
  assert.equal(echoed.choices[0].logprobs.text_offset[0], 0);
  const stream = await client.completions.create({ ...request, prompt: "The capital of", stream: true });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0].text;
  assert.equal(text, two.choices[0].text);
});

test("responses answer whole and streamed", async () => {
  const request = { model, input: "What is the capital of Japan?", temperature: 0, max_output_tokens: 12 };
  const whole = await client.responses.create(request);
  assert.match(whole.output_text, /Tokyo/);
  assert.equal(whole.status, "completed");
  const stream = await client.responses.create({ ...request, stream: true });
  let text = "";
  let last;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.equal(last.type, "response.completed");
  assert.equal(last.response.usage.output_tokens, whole.usage.output_tokens);
  const cut = await client.responses.create({ ...request, max_output_tokens: 2 });
  assert.equal(cut.status, "incomplete");
  assert.equal(cut.incomplete_details.reason, "max_output_tokens");
});

test("errors have a class, a type, a parameter and a code", async () => {
  const refuse = async (request, param, code) => {
    await assert.rejects(client.chat.completions.create({ ...greedy, ...request }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, String(error));
      assert.equal(error.type, "invalid_request_error");
      assert.equal(error.param, param);
      assert.equal(error.code, code);
      return true;
    });
  };
  await refuse({ temperature: 9 }, "temperature", "invalid_value");
  await refuse({ messages: [] }, "messages", "empty_array");
  await refuse({ stream: true, n: 0 }, "n", "invalid_value");
  await refuse({ tool_choice: "required" }, "tool_choice", "invalid_value");
  await refuse({ response_format: { type: "xml" } }, "response_format.type", "unsupported_parameter");
  const named = (schema) => ({ type: "json_schema", json_schema: { name: "answer", schema } });
  await refuse({ response_format: named({ properties: { a: { not: {} } } }) }, "response_format.json_schema.schema", "invalid_value");
  await refuse({ response_format: named({}), guided_regex: "a" }, "guided_regex", "invalid_value");
  await refuse({ guided_regex: "a(" }, "guided_regex", "invalid_value");
  const picture = (url) => ({ messages: [{ role: "user", content: [{ type: "image_url", image_url: { url } }] }] });
  await refuse(picture("data:,"), "messages[0].content[0].image_url.url", "invalid_value");
  await refuse(picture("https://a.example/1.png"), "messages[0].content[0].image_url.url", "unsupported_parameter");
  await refuse({ messages: [{ role: "user", content: "long ".repeat(2000) }] }, "messages", "context_length_exceeded");
  await assert.rejects(client.chat.completions.create({ ...greedy, model: "gpt-9" }), (error) => error instanceof OpenAI.NotFoundError);
});

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

test("embeddings are unit vectors, the same for texts and their tokens, in numbers and in base64", async () => {
  const input = ["What is the capital of Japan?", "The sum of 2 and 3 is", "Once"];
  const answer = await client.embeddings.create({ model, input });  // the package asks for base64 and decodes it
  assert.equal(answer.object, "list");
  assert.equal(answer.model, model);
  assert.deepEqual(answer.data.map((entry) => [entry.object, entry.index]), input.map((_, i) => ["embedding", i]));
  const vectors = answer.data.map((entry) => entry.embedding);
  for (const vector of vectors) {
    assert.equal(vector.length, vectors[0].length);
    assert.ok(Math.abs(dot(vector, vector) - 1) < 1e-5);
  }
  assert.ok(dot(vectors[0], vectors[1]) < 0.999);
  // Rows are summed in other chunks and company, and the device's rounding may differ.
  const numbers = await client.embeddings.create({ model, input: input[1], encoding_format: "float" });
  assert.equal(numbers.data.length, 1);
  assert.ok(Math.abs(dot(numbers.data[0].embedding, vectors[1]) - 1) < 1e-3);
  const { tokens } = await (await fetch(`${process.env.TANDEM_URL}/tokenize`, { method: "POST", body: JSON.stringify({ content: input[1], add_special: true }) })).json();
  const ids = await client.embeddings.create({ model, input: [tokens] });
  assert.ok(Math.abs(dot(ids.data[0].embedding, vectors[1]) - 1) < 1e-3);
  assert.equal(ids.usage.prompt_tokens, tokens.length);
  assert.equal(ids.usage.total_tokens, tokens.length);
});

test("more texts than the queue holds are embedded, and wrong ones named", async () => {
  const input = Array.from({ length: 200 }, (_, i) => `Text ${i}`);
  const answer = await client.embeddings.create({ model, input });
  assert.equal(answer.data.length, 200);
  const refuse = (body, param, code) => assert.rejects(client.embeddings.create({ model, input: "a", ...body }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === param && error.code === code);
  await refuse({ dimensions: 7 }, "dimensions", "unsupported_parameter");
  await refuse({ input: ["a", ""] }, "input", "invalid_value");
  await refuse({ input: "long ".repeat(2000) }, "input", "context_length_exceeded");
});

test("an aborted stream frees its place", async () => {
  const stream = await client.chat.completions.create({ ...greedy, messages: [{ role: "user", content: "Tell me a story." }], max_tokens: 400, ignore_eos: true, stream: true });
  let seen = 0;
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content && ++seen === 2) break;  // aborts the request
  }
  assert.ok(stream.controller.signal.aborted);
  const status = await idle();
  assert.ok(status.scheduler.kvBlocksUsed.every((used) => used === 0));
});
