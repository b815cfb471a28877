// Tools by the clients of OpenAI, Ollama and Anthropic, unmodified, on a model that knows them.
//   TANDEM_TOOL_QUESTIONS=60 asks all recorded questions of each kind.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { startCluster } from "./cluster.mjs";

const each = Number(process.env.TANDEM_TOOL_QUESTIONS ?? 4);
const recorded = readFileSync(new URL("../data/tool_calls.jsonl", import.meta.url), "utf8").trim().split("\n").map((line) => JSON.parse(line));
const ofKind = (kind) => recorded.filter((item) => item.kind === kind).slice(0, each);

const weather = {
  name: "get_weather", description: "Gets the weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string", description: "The city." } }, required: ["city"] },
};
const asFunction = (one) => ({ type: "function", function: one });
const asResponsesTool = (one) => ({ type: "function", strict: false, ...one });
const asAnthropicTool = ({ name, description, parameters }) => ({ name, description, input_schema: parameters });
const ask = "What is the weather in Paris?";
const report = { city: "Paris", temperature: 18, condition: "sunny" };
const final = "It is 18 degrees and sunny in Paris.";

describe("tools", () => {
  let cluster;
  let openai;
  let ollama;
  let anthropic;
  const model = "demo2.Q8_0.gguf";

  before(async () => {
    cluster = await startCluster(process.env.TANDEM_BIN, ["--npu", "off"], "", { model: `models/demo2/${model}`, context: 2048 });
    openai = new OpenAI({ baseURL: `${cluster.url}/v1`, apiKey: "none", maxRetries: 0 });
    ollama = new Ollama({ host: cluster.url });
    anthropic = new Anthropic({ baseURL: cluster.url, apiKey: "none", maxRetries: 0 });
  });
  after(() => cluster?.stop());

  const chat = (functions, messages, extra = {}) => openai.chat.completions.create(
    { model, temperature: 0, max_tokens: 200, messages, tools: functions.map(asFunction), ...extra });
  const callsOf = (message) => (message.tool_calls ?? []).map((call) => {
    assert.match(call.id, /^call_[0-9a-f]{24}$/);
    return { name: call.function.name, parameters: JSON.parse(call.function.arguments) };
  });
  const same = (a, b) => { try { assert.deepEqual(a, b); return true; } catch { return false; } };

  // Whole and streamed answers agree; returns the message.
  async function answer(item) {
    const messages = [{ role: "user", content: item.ask }];
    const whole = (await chat(item.functions, messages)).choices[0];
    const runner = openai.chat.completions.stream({ model, temperature: 0, max_tokens: 200, messages, tools: item.functions.map(asFunction) });
    const streamed = (await runner.finalChatCompletion()).choices[0];
    assert.equal(streamed.finish_reason, whole.finish_reason);
    assert.deepEqual(callsOf(streamed.message), callsOf(whole.message));
    assert.equal(streamed.message.content ?? "", whole.message.content ?? "");
    if (whole.message.tool_calls) assert.equal(whole.message.content, null, "a call is no text");
    return whole;
  }

  for (const kind of ["tool_call", "tool_two_calls", "tool_plain", "tool_refusal"]) {
    test(`recorded questions: ${kind}`, async () => {
      const items = ofKind(kind);
      let right = 0;
      for (const item of items) {
        const choice = await answer(item);
        const calls = kind.endsWith("calls") ? JSON.parse(item.answer) : kind === "tool_call" ? [JSON.parse(item.answer)] : [];
        const fits = calls.length
          ? choice.finish_reason === "tool_calls" && same(callsOf(choice.message), calls)
          : choice.finish_reason === "stop" && !choice.message.tool_calls && choice.message.content === item.answer;
        if (fits) ++right;
        else console.log(`${kind}: ${item.ask}\n  expected ${item.answer}\n  answered ${JSON.stringify(choice.message)}`);
      }
      console.log(`${kind}: ${right} of ${items.length} right`);
      assert.ok(right >= Math.floor(0.9 * items.length), `${right} of ${items.length}`);
    });
  }

  test("recorded questions: tool_answer", async () => {
    const items = ofKind("tool_answer");
    let right = 0;
    for (const item of items) {
      const call = JSON.parse(item.answer);
      const { message } = (await chat(item.functions, [
        { role: "user", content: item.ask },
        { role: "assistant", content: null, tool_calls: [{ id: "1", type: "function", function: { name: call.name, arguments: JSON.stringify(call.parameters) } }] },
        { role: "tool", tool_call_id: "1", content: JSON.stringify(item.result) }])).choices[0];
      if (message.content === item.final) ++right;
      else console.log(`tool_answer: expected ${item.final}\n  answered ${message.content}`);
    }
    console.log(`tool_answer: ${right} of ${items.length} right`);
    assert.ok(right >= Math.floor(0.9 * items.length), `${right} of ${items.length}`);
  });

  test("openai: a stream has the id and the name first, then arguments as they come", async () => {
    const stream = await chat([weather], [{ role: "user", content: ask }], { stream: true });
    const deltas = [];
    let reason;
    for await (const chunk of stream) {
      const [choice] = chunk.choices;
      assert.ok(!choice.delta.content, "no part of a call is text");
      deltas.push(...(choice.delta.tool_calls ?? []));
      reason = choice.finish_reason ?? reason;
    }
    assert.equal(reason, "tool_calls");
    assert.equal(deltas[0].function.name, "get_weather");
    assert.ok(deltas[0].id);
    assert.ok(deltas.length > 2, "arguments come in pieces");
    assert.ok(deltas.every((delta) => delta.index === 0));
    assert.deepEqual(JSON.parse(deltas.map((delta) => delta.function.arguments).join("")), { city: "Paris" });
  });

  test("openai: runTools calls and answers", async () => {
    for (const stream of [false, true]) {
      const asked = [];
      const runner = openai.chat.completions.runTools({ model, temperature: 0, max_tokens: 100, stream, messages: [{ role: "user", content: ask }],
        tools: [{ type: "function", function: { ...weather, parse: JSON.parse, function: (args) => { asked.push(args); return report; } } }] });
      assert.equal(await runner.finalContent(), final);
      assert.deepEqual(asked, [{ city: "Paris" }]);
    }
  });

  test("openai: a call comes back as the model wrote it, so the next turn starts from the cache", async () => {
    const messages = [{ role: "user", content: "What is the weather in Oslo and in Rome?" }];
    const first = await chat([weather], messages);
    const { message } = first.choices[0];
    assert.equal(message.tool_calls.length, 2);
    // As clients write JSON that they have read.
    for (const call of message.tool_calls) call.function.arguments = JSON.stringify(JSON.parse(call.function.arguments));
    const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: JSON.stringify({ ...report, city: JSON.parse(call.function.arguments).city }) }));
    const second = await chat([weather], [...messages, message, ...results.reverse()]);
    assert.equal(second.choices[0].finish_reason, "stop");
    const all = first.usage.prompt_tokens + first.usage.completion_tokens;
    assert.ok(second.usage.prompt_tokens_details.cached_tokens >= all - 16, `${second.usage.prompt_tokens_details.cached_tokens} of ${all}`);
  });

  // Arguments fit the schemas of the recorded functions: types, required ones, no others.
  const kinds = { string: "string", integer: "number", number: "number", boolean: "boolean" };
  const fits = (value, schema) => {
    if (schema.enum) return schema.enum.includes(value);
    if (schema.type === "array") return Array.isArray(value) && value.every((item) => fits(item, schema.items ?? {}));
    if (schema.type === "object") {
      return typeof value === "object" && (schema.required ?? []).every((name) => name in value) &&
        Object.entries(value).every(([name, member]) => schema.properties[name] && fits(member, schema.properties[name]));
    }
    return !schema.type || (typeof value === kinds[schema.type] && (schema.type !== "integer" || Number.isInteger(value)));
  };

  test("openai: a call that must come comes and fits its schema, whatever is asked and however hot", async () => {
    for (const kind of ["tool_call", "tool_two_calls", "tool_plain", "tool_refusal"]) {
      const items = ofKind(kind);
      let right = 0;
      for (const item of items) {
        for (const temperature of [0, 2]) {
          const { choices: [{ finish_reason, message }] } = await chat(item.functions, [{ role: "user", content: item.ask }],
            { tool_choice: "required", temperature, seed: 7, max_tokens: 150 });
          const calls = finish_reason === "length" ? [] : callsOf(message);
          if (temperature === 0 && kind.includes("call")) {
            assert.equal(finish_reason, "tool_calls");
            if (same(calls, kind.endsWith("calls") ? JSON.parse(item.answer) : [JSON.parse(item.answer)])) ++right;
          }
          assert.equal(message.content, null);
          for (const { name, parameters } of calls) {
            const called = item.functions.find((one) => one.name === name);
            assert.ok(called && fits(parameters, called.parameters), `${name} ${JSON.stringify(parameters)}`);
          }
        }
      }
      if (kind.includes("call")) {
        console.log(`${kind}, required: ${right} of ${items.length} right`);
        assert.ok(right >= Math.floor(0.9 * items.length), `${right} of ${items.length}`);
      }
    }
  });

  test("openai: choices of a function, streamed too, and in responses", async () => {
    const roll = { name: "roll", description: "Rolls dice.", parameters: { type: "object", properties: { sides: { enum: [6, 20] } }, required: ["sides"] } };
    const tool_choice = { type: "function", function: { name: "roll" } };
    const { choices: [choice] } = await chat([weather, roll], [{ role: "user", content: ask }], { tool_choice, parallel_tool_calls: false });
    assert.equal(choice.finish_reason, "tool_calls");
    assert.deepEqual(callsOf(choice.message).map((call) => call.name), ["roll"]);
    const runner = openai.chat.completions.stream({ model, temperature: 0, max_tokens: 200, messages: [{ role: "user", content: ask }],
      tools: [weather, roll].map(asFunction), tool_choice, parallel_tool_calls: false });
    assert.deepEqual(callsOf((await runner.finalChatCompletion()).choices[0].message), callsOf(choice.message));
    const response = await openai.responses.create({ model, temperature: 0, input: ask, tools: [weather, roll].map(asResponsesTool),
      tool_choice: { type: "function", name: "roll" }, parallel_tool_calls: false });
    assert.deepEqual(response.output.map((item) => [item.type, item.name]), [["function_call", "roll"]]);
    assert.ok([6, 20].includes(JSON.parse(response.output[0].arguments).sides));
  });

  test("openai: runTools with a call that must come first", async () => {
    const asked = [];
    const runner = openai.chat.completions.runTools({ model, temperature: 0, max_tokens: 100, messages: [{ role: "user", content: ask }],
      tool_choice: { type: "function", function: { name: "get_weather" } },
      tools: [{ type: "function", function: { ...weather, parse: JSON.parse, function: (args) => { asked.push(args); return report; } } }] });
    await runner.done();
    assert.deepEqual(asked, [{ city: "Paris" }]);  // the package ends after the one call
  });

  test("openai: choice none, choices that are wrong, wrong results", async () => {
    const { choices: [none] } = await chat([weather], [{ role: "user", content: "What is the capital of Japan?" }], { tool_choice: "none" });
    assert.equal(none.finish_reason, "stop");
    for (const tool_choice of ["always", { type: "function", function: { name: "roll" } }]) {
      await assert.rejects(chat([weather], [{ role: "user", content: ask }], { tool_choice }),
        (error) => error instanceof OpenAI.BadRequestError && error.param === "tool_choice");
    }
    const unsupported = { ...weather, parameters: { type: "object", properties: { city: { not: {} } } } };
    await assert.rejects(chat([unsupported], [{ role: "user", content: ask }], { tool_choice: "required" }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === "tools[0].function.parameters" && /#\/properties\/city\/not/.test(error.message));
    await assert.rejects(chat([weather], [{ role: "user", content: ask }, { role: "tool", tool_call_id: "7", content: "x" }]),
      (error) => error.param === "messages[1].tool_call_id");
  });

  test("openai: a call that breaks off is reported with what there is", async () => {
    const { choices: [choice] } = await chat([weather], [{ role: "user", content: ask }], { max_tokens: 14 });
    assert.equal(choice.finish_reason, "length");
    assert.equal(choice.message.content, null);
    assert.equal(choice.message.tool_calls[0].function.name, "get_weather");
  });

  test("openai: responses call functions and take their results", async () => {
    const request = { model, temperature: 0, tools: [asResponsesTool(weather)] };
    const input = [{ role: "user", content: ask }];
    const first = await openai.responses.create({ ...request, input });
    const [call] = first.output;
    assert.equal(call.type, "function_call");
    assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
    const second = await openai.responses.create({ ...request,
      input: [...input, ...first.output, { type: "function_call_output", call_id: call.call_id, output: JSON.stringify(report) }] });
    assert.equal(second.output_text, final);
    const events = [];
    let streamed = "";
    for await (const event of await openai.responses.create({ ...request, input, stream: true })) {
      events.push(event.type);
      if (event.type === "response.function_call_arguments.delta") streamed += event.delta;
    }
    assert.equal(streamed, call.arguments);
    assert.ok(!events.includes("response.output_text.delta"));
    assert.equal(events.at(-1), "response.completed");
  });

  test("ollama: calls whole and streamed, and an answer from a result", async () => {
    assert.ok((await ollama.show({ model })).capabilities.includes("tools"));
    const request = { model, options: { temperature: 0 }, tools: [asFunction(weather)] };
    const messages = [{ role: "user", content: ask }];
    const { message } = await ollama.chat({ ...request, messages });
    assert.equal(message.content, "");
    assert.equal(message.tool_calls[0].function.name, "get_weather");
    assert.deepEqual(message.tool_calls[0].function.arguments, { city: "Paris" });
    let text = "";
    const calls = [];
    for await (const part of await ollama.chat({ ...request, messages, stream: true })) {
      text += part.message.content;
      calls.push(...(part.message.tool_calls ?? []));
    }
    assert.equal(text, "");
    assert.deepEqual(calls.map((call) => call.function.arguments), [{ city: "Paris" }]);
    const last = await ollama.chat({ ...request, messages: [...messages, message, { role: "tool", tool_name: "get_weather", content: JSON.stringify(report) }] });
    assert.equal(last.message.content, final);
  });

  test("anthropic: chat, whole and streamed, with a reason and usage", async () => {
    const request = { model, max_tokens: 30, temperature: 0, messages: [{ role: "user", content: "What is the capital of Japan?" }] };
    const whole = await anthropic.messages.create(request);
    assert.match(whole.content[0].text, /Tokyo/);
    assert.equal(whole.stop_reason, "end_turn");
    assert.ok(whole.usage.output_tokens > 0);
    const counted = await anthropic.messages.countTokens({ model, messages: request.messages });
    assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
    const events = [];
    const stream = anthropic.messages.stream(request).on("streamEvent", (event) => events.push(event.type));
    const streamed = await stream.finalMessage();
    assert.deepEqual(streamed.content, whole.content);
    assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
    assert.deepEqual([events[0], events[1], ...events.slice(-3)],
      ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]);
    const cut = await anthropic.messages.create({ ...request, max_tokens: 2 });
    assert.equal(cut.stop_reason, "max_tokens");
    const stopped = await anthropic.messages.create({ ...request, stop_sequences: ["zzz", " Tokyo"] });
    assert.equal(stopped.stop_reason, "stop_sequence");
    assert.equal(stopped.stop_sequence, " Tokyo");
    const brief = await anthropic.messages.create({ ...request, system: [{ type: "text", text: "Be brief." }] });
    assert.ok(brief.usage.input_tokens + brief.usage.cache_read_input_tokens > counted.input_tokens);
  });

  test("anthropic: uses of tools, whole and streamed, and their results", async () => {
    const request = { model, max_tokens: 200, temperature: 0, tools: [asAnthropicTool(weather)] };
    const messages = [{ role: "user", content: ask }];
    const whole = await anthropic.messages.create({ ...request, messages });
    assert.equal(whole.stop_reason, "tool_use");
    const [use] = whole.content;
    assert.match(use.id, /^toolu_/);
    assert.deepEqual({ ...use, id: "" }, { type: "tool_use", id: "", name: "get_weather", input: { city: "Paris" } });
    const stream = anthropic.messages.stream({ ...request, messages });
    let json = "";
    stream.on("inputJson", (piece) => { json += piece; });
    const streamed = await stream.finalMessage();
    assert.deepEqual(streamed.content.map((block) => block.input), [{ city: "Paris" }]);
    assert.deepEqual(JSON.parse(json), { city: "Paris" });
    const last = await anthropic.messages.create({ ...request, messages: [...messages, { role: "assistant", content: whole.content },
      { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: JSON.stringify(report) }] }] });
    assert.equal(last.content[0].text, final);
    assert.equal(last.stop_reason, "end_turn");
  });

  test("anthropic: a use that must come", async () => {
    const request = { model, max_tokens: 200, temperature: 0, tools: [asAnthropicTool(weather)], messages: [{ role: "user", content: "What is the capital of Japan?" }] };
    for (const tool_choice of [{ type: "any" }, { type: "tool", name: "get_weather", disable_parallel_tool_use: true }]) {
      const whole = await anthropic.messages.create({ ...request, tool_choice });
      assert.equal(whole.stop_reason, "tool_use");
      assert.ok(whole.content.length > 0);
      for (const use of whole.content) assert.deepEqual([use.type, use.name, typeof use.input.city], ["tool_use", "get_weather", "string"]);
      const streamed = await anthropic.messages.stream({ ...request, tool_choice }).finalMessage();
      assert.deepEqual(streamed.content.map((use) => use.input), whole.content.map((use) => use.input));
    }
  });

  test("anthropic: errors are the package's own", async () => {
    const request = { model, max_tokens: 5, messages: [{ role: "user", content: "x" }] };
    await assert.rejects(anthropic.messages.create({ ...request, model: "other" }),
      (error) => error instanceof Anthropic.NotFoundError && error.error.error.type === "not_found_error");
    await assert.rejects(anthropic.messages.create({ ...request, tool_choice: { type: "tool", name: "roll" }, tools: [asAnthropicTool(weather)] }),
      (error) => error instanceof Anthropic.BadRequestError && error.error.error.type === "invalid_request_error" && /tool_choice/.test(error.message));
    await assert.rejects(anthropic.messages.create({ ...request, messages: [{ role: "user", content: "long ".repeat(9000) }] }),
      /prompt is too long/);
  });

  test("anthropic: a key goes into x-api-key", async () => {
    const folder = mkdtempSync(join(tmpdir(), "tandem-keys."));
    const file = join(folder, "keys");
    writeFileSync(file, `one sha256:${createHash("sha256").update("right").digest("hex")}\n`);
    const locked = await startCluster(process.env.TANDEM_BIN, ["--npu", "off", "--http-api-keys", file], "right");
    try {
      const say = (apiKey) => new Anthropic({ baseURL: locked.url, apiKey, maxRetries: 0 }).messages.create(
        { model: "demo.Q8_0.gguf", max_tokens: 5, messages: [{ role: "user", content: "Hello." }] });
      assert.equal((await say("right")).role, "assistant");
      await assert.rejects(say("wrong"), (error) => error instanceof Anthropic.AuthenticationError && error.error.error.type === "authentication_error");
    } finally {
      await locked.stop();
      rmSync(folder, { recursive: true });
    }
  });

  test("our own API: a call over REST, asked for or not", async () => {
    for (const choice of [{}, { toolChoice: "TOOL_CHOICE_REQUIRED", requiredTool: "get_weather", parallelToolCalls: false }]) {
      const body = { messages: [{ role: "user", content: ask }], sampling: { temperature: 0 }, ...choice,
        tools: [{ name: weather.name, description: weather.description, parametersJson: JSON.stringify(weather.parameters) }] };
      const response = await fetch(`${cluster.url}/tandem/v1/chat`, { method: "POST", body: JSON.stringify(body) });
      const lines = (await response.text()).trim().split("\n").map((line) => JSON.parse(line));
      const pieces = lines.flatMap((line) => line.toolCalls ?? []);
      assert.equal(lines.map((line) => line.text ?? "").join(""), "");
      assert.equal(lines.at(-1).finishReason, "FINISH_REASON_TOOL_CALLS");
      assert.equal(pieces[0].name, "get_weather");
      assert.deepEqual(JSON.parse(pieces.map((piece) => piece.argumentsJson ?? "").join("")), { city: "Paris" });
    }
  });
});
