// Agents' libraries, unmodified: Vercel's ai and LangChain, on a model that knows JSON and tools.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { z } from "zod";
import { startCluster } from "./cluster.mjs";

const Person = z.object({ name: z.string(), age: z.int(), job: z.string(), hobbies: z.array(z.string()) });
const clara = { name: "Clara Berg", age: 31, job: "baker", hobbies: ["chess", "rowing"] };
const ask = "Extract the person as JSON with the keys name (string), age (integer), job (string), hobbies (array of string).\n\n" +
  "Clara Berg is 31 years old and a baker. In the evening there is time for chess and rowing.";
const weather = { name: "get_weather", description: "Gets the weather of a city.", schema: z.object({ city: z.string().describe("The city.") }) };
const timer = { name: "set_timer", description: "Starts a timer.", schema: z.object({ minutes: z.int().describe("Length in minutes") }) };
const report = { city: "Paris", temperature: 18, condition: "sunny" };
const final = "It is 18 degrees and sunny in Paris.";

// LangChain needs node 20.
const old = Number(process.versions.node.split(".")[0]) < 20 && `node is older than 20: ${process.versions.node}`;

describe("agents' libraries", { skip: old }, () => {
  let ai;
  let langchain;
  let cluster;
  let vercel;
  let chain;
  const model = "demo2.Q8_0.gguf";

  before(async () => {
    cluster = await startCluster(process.env.TANDEM_BIN, ["--npu", "off"], "", { model: `models/demo2/${model}`, context: 2048 });
    ai = await import("ai");
    langchain = await import("langchain");
    const { createOpenAI } = await import("@ai-sdk/openai");
    const { ChatOpenAI } = await import("@langchain/openai");
    vercel = createOpenAI({ baseURL: `${cluster.url}/v1`, apiKey: "none" });
    chain = new ChatOpenAI({ model, temperature: 0, maxTokens: 200, maxRetries: 0, apiKey: "none", configuration: { baseURL: `${cluster.url}/v1` } });
  });
  after(() => cluster?.stop());

  test("ai: objects by chat and by responses, streamed too", async () => {
    for (const one of [vercel.chat(model), vercel.responses(model)]) {
      const request = { model: one, schema: Person, prompt: ask, temperature: 0, maxOutputTokens: 200, maxRetries: 0 };
      assert.deepEqual((await ai.generateObject(request)).object, clara);
      const stream = ai.streamObject(request);
      let parts = 0;
      for await (const part of stream.partialObjectStream) parts += part ? 1 : 0;
      assert.ok(parts > 1);
      assert.deepEqual(await stream.object, clara);
    }
  });

  test("ai: a tool is called and its result told", async () => {
    for (const one of [vercel.chat(model), vercel.responses(model)]) {
      const asked = [];
      const { text } = await ai.generateText({ model: one, temperature: 0, maxOutputTokens: 200, maxRetries: 0, prompt: "What is the weather in Paris?", stopWhen: ai.stepCountIs(4),
        tools: { get_weather: ai.tool({ description: weather.description, inputSchema: weather.schema, execute: (input) => { asked.push(input); return report; } }) } });
      assert.deepEqual(asked, [{ city: "Paris" }]);
      assert.equal(text, final);
    }
  });

  test("langchain: structured output by a schema and by a function", async () => {
    assert.deepEqual(await chain.withStructuredOutput(Person, { method: "jsonSchema", name: "person" }).invoke(ask), clara);
    const called = await chain.withStructuredOutput(Person, { method: "functionCalling", name: "person" }).invoke(ask);
    assert.deepEqual(Person.parse(called), called);
  });

  test("langchain: an agent of two tools ends", async () => {
    const asked = [];
    const agent = langchain.createAgent({ model: chain, tools: [
      langchain.tool((input) => { asked.push(input); return JSON.stringify(report); }, weather),
      langchain.tool(() => "ok", timer)] });
    const { messages } = await agent.invoke({ messages: [{ role: "user", content: "What is the weather in Paris?" }] }, { recursionLimit: 8 });
    assert.deepEqual(asked, [{ city: "Paris" }]);
    assert.equal(messages.at(-1).content, final);
  });
});
