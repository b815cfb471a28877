// Answers of a form that the clients of OpenAI, Ollama and Anthropic ask for, on a model that knows JSON.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { startCluster } from "./cluster.mjs";

const Person = z.object({ name: z.string(), age: z.int(), job: z.string(), hobbies: z.array(z.string()) });
const schema = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" }, job: { type: "string" }, hobbies: { type: "array", items: { type: "string" } } },
  required: ["name", "age", "job", "hobbies"], additionalProperties: false,
};
const clara = { name: "Clara Berg", age: 31, job: "baker", hobbies: ["chess", "rowing"] };
const ask = "Extract the person as JSON with the keys name (string), age (integer), job (string), hobbies (array of string).\n\n" +
  "Clara Berg is 31 years old and a baker. In the evening there is time for chess and rowing.";
const messages = [{ role: "user", content: ask }];

describe("formats", () => {
  let cluster;
  let openai;
  let ollama;
  let anthropic;
  const model = "demo2.Q8_0.gguf";
  const greedy = { model, temperature: 0, max_tokens: 200 };

  before(async () => {
    cluster = await startCluster(process.env.TANDEM_BIN, ["--npu", "off"], "", { model: `models/demo2/${model}`, context: 2048 });
    openai = new OpenAI({ baseURL: `${cluster.url}/v1`, apiKey: "none", maxRetries: 0 });
    ollama = new Ollama({ host: cluster.url });
    anthropic = new Anthropic({ baseURL: cluster.url, apiKey: "none", maxRetries: 0 });
  });
  after(() => cluster?.stop());

  const text = async (extra, asked = messages) => {
    const { choices: [choice] } = await openai.chat.completions.create({ ...greedy, messages: asked, ...extra });
    return choice.message.content;
  };

  test("openai: zod's formats are parsed, whole and streamed", async () => {
    const request = { ...greedy, messages, response_format: zodResponseFormat(Person, "person") };
    const whole = await openai.chat.completions.parse(request);
    assert.deepEqual(whole.choices[0].message.parsed, clara);
    assert.equal(whole.choices[0].finish_reason, "stop");
    const streamed = await openai.chat.completions.stream(request).finalChatCompletion();
    assert.deepEqual(streamed.choices[0].message.parsed, clara);
    assert.equal(streamed.choices[0].message.content, whole.choices[0].message.content);
  });

  // Patterns that look ahead, keys that are strings, formats beside patterns; what comes is parsed by zod.
  test("openai: zod's everyday types are taken", async () => {
    const types = { email: z.email(), url: z.url(), uuid: z.uuid(), time: z.iso.time(), date: z.iso.date(), datetime: z.iso.datetime(), ipv4: z.ipv4(),
      flags: z.record(z.string(), z.boolean()), role: z.enum(["user", "admin"]), note: z.string().max(12).nullable(), count: z.number().int().min(1).max(9),
      list: z.array(z.literal("a")).min(1).max(2), either: z.union([z.boolean(), z.null()]) };
    for (const [name, type] of Object.entries(types)) {
      const request = { ...greedy, temperature: 1, seed: 3, max_tokens: 400, messages: [{ role: "user", content: `A made-up ${name}.` }],
        response_format: zodResponseFormat(z.object({ value: type }), name) };
      const { choices: [choice] } = await openai.chat.completions.create(request);
      // Names and lists without an end in sight may be cut.
      if (choice.finish_reason === "length") continue;
      const parsed = z.object({ value: type }).safeParse(JSON.parse(choice.message.content));
      assert.ok(parsed.success, `${name}: ${choice.message.content} ${parsed.error}`);
    }
  });

  test("openai: responses take zod's formats and tell them back", async () => {
    const format = zodTextFormat(Person, "person");
    const request = { model, temperature: 0, max_output_tokens: 200, input: ask, text: { format } };
    const response = await openai.responses.parse(request);
    assert.deepEqual(response.output_parsed, clara);
    assert.equal(response.text.format.type, "json_schema");
    assert.equal(response.text.format.name, "person");
    const streamed = await openai.responses.stream(request).finalResponse();
    assert.deepEqual(streamed.output_parsed, clara);
  });

  test("openai: at any temperature and for every choice, the answer has its form", async () => {
    const unrelated = [{ role: "user", content: "What is the capital of Japan?" }];
    const { choices } = await openai.chat.completions.create({ ...greedy, messages: unrelated, temperature: 2, seed: 5, n: 4, max_tokens: 1000,
      response_format: { type: "json_schema", json_schema: { name: "pick", strict: true, schema: { type: "object", required: ["city", "sure"], additionalProperties: false,
        properties: { city: { enum: ["Tokyo", "Paris"] }, sure: { type: "boolean" } } } } } });
    for (const { finish_reason, message } of choices) {
      assert.equal(finish_reason, "stop");
      const { city, sure, ...rest } = JSON.parse(message.content);
      assert.ok(["Tokyo", "Paris"].includes(city) && typeof sure === "boolean");
      assert.deepEqual(rest, {});
    }
    assert.equal(typeof JSON.parse(await text({ response_format: { type: "json_object" } })), "object");
  });

  test("openai: members of vLLM and llama.cpp", async () => {
    const capital = [{ role: "user", content: "What is the capital of Japan?" }];
    const of = (extra) => text(extra, capital);
    assert.equal(await of({ guided_choice: ["Paris", "Tokyo"] }), "Tokyo");
    assert.match(await of({ guided_regex: "[A-Z][a-z]{2,5}!" }), /^[A-Z][a-z]{2,5}!$/);
    assert.match(await of({ guided_grammar: 'root ::= "It is " [A-Z] [a-z]{2,5} "."' }), /^It is [A-Z][a-z]{2,5}\.$/);
    assert.match(await of({ guided_grammar: 'start: "It is " CITY "."\nCITY: /[A-Z][a-z]{2,5}/' }), /^It is [A-Z][a-z]{2,5}\.$/);
    assert.match(await of({ grammar: 'root ::= "(" [A-Z] [a-z]{2,5} ")"' }), /^\([A-Z][a-z]{2,5}\)$/);
    assert.equal(await of({ structured_outputs: { choice: ["Rome", "Tokyo"] } }), "Tokyo");
    assert.deepEqual(JSON.parse(await text({ guided_json: schema })), clara);
    assert.deepEqual(JSON.parse(await text({ guided_json: JSON.stringify(schema) })), clara);
    assert.deepEqual(JSON.parse(await text({ json_schema: schema })), clara);
    const completion = await openai.completions.create({ model, prompt: ["The capital of Japan is", "The capital of France is"], temperature: 0, guided_choice: [" Tokyo", " Paris"] });
    assert.ok(completion.choices.every((choice) => [" Tokyo", " Paris"].includes(choice.text)));
  });

  test("openai: with tools the answer has the form or is a call", async () => {
    const tools = [{ type: "function", function: { name: "get_weather", description: "Gets the weather of a city.",
      parameters: { type: "object", properties: { city: { type: "string", description: "The city." } }, required: ["city"] } } }];
    const response_format = { type: "json_schema", json_schema: { name: "person", schema } };
    const request = { ...greedy, tools, response_format };
    const called = await openai.chat.completions.create({ ...request, messages: [{ role: "user", content: "What is the weather in Paris?" }] });
    assert.equal(called.choices[0].finish_reason, "tool_calls");
    assert.deepEqual(JSON.parse(called.choices[0].message.tool_calls[0].function.arguments), { city: "Paris" });
    const told = await openai.chat.completions.create({ ...request, messages, tool_choice: "none" });
    assert.deepEqual(JSON.parse(told.choices[0].message.content), clara);
    const either = (await openai.chat.completions.create({ ...request, messages })).choices[0];
    assert.ok(either.message.tool_calls?.length > 0 || JSON.parse(either.message.content).name, JSON.stringify(either));
    await assert.rejects(openai.chat.completions.create({ ...greedy, messages, tools, guided_regex: "a" }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === "guided_regex" && /tool_choice/.test(error.message));
  });

  test("ollama: json and a schema, in chat and generate, streamed too", async () => {
    const options = { temperature: 0, num_predict: 200 };
    const { message } = await ollama.chat({ model, messages, format: schema, options });
    assert.deepEqual(JSON.parse(message.content), clara);
    assert.deepEqual(JSON.parse((await ollama.generate({ model, prompt: ask, format: z.toJSONSchema(Person), options })).response), clara);
    assert.equal(typeof JSON.parse((await ollama.chat({ model, messages, format: "json", options })).message.content), "object");
    let streamed = "";
    for await (const part of await ollama.chat({ model, messages, format: schema, options, stream: true })) streamed += part.message.content;
    assert.equal(streamed, message.content);
  });

  test("anthropic: an output format, at its new and its older place", async () => {
    const format = { type: "json_schema", schema };
    for (const where of [{ output_config: { format } }, { output_format: format }]) {
      const { content: [block] } = await anthropic.messages.create({ model, max_tokens: 200, temperature: 0, messages, ...where });
      assert.deepEqual(JSON.parse(block.text), clara);
    }
  });

  test("our own API: constraints over REST", async () => {
    const generate = async (constraint) => {
      const body = { text: "The capital of Japan is", sampling: { temperature: 0 }, limits: { maxTokens: 40 }, constraint };
      const response = await fetch(`${cluster.url}/tandem/v1/generate`, { method: "POST", body: JSON.stringify(body) });
      const lines = (await response.text()).trim().split("\n").map((line) => JSON.parse(line));
      return lines.map((line) => line.text ?? "").join("");
    };
    assert.equal(await generate({ choices: { texts: [" Paris", " Tokyo"] } }), " Tokyo");
    assert.match(await generate({ regex: " [A-Z][a-z]{2,5}!" }), /^ [A-Z][a-z]{2,5}!$/);
  });
});
