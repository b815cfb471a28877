// @grpc/grpc-js, with what the gateway's reflection says and no .proto of ours.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { fileURLToPath } from "node:url";

const target = process.env.TANDEM_GRPC;
const credentials = grpc.credentials.createInsecure();
const options = { longs: Number, defaults: true, enums: String };
let client;

// Asks the reflection service, one request after the other, on one stream.
async function reflect(requests) {
  const definition = loader.loadSync(fileURLToPath(new URL("reflection.proto", import.meta.url)));
  const Reflection = grpc.loadPackageDefinition(definition).grpc.reflection.v1alpha.ServerReflection;
  const reflection = new Reflection(target, credentials);
  const call = reflection.ServerReflectionInfo();
  const answers = [];
  for (const request of requests) {
    call.write(request);
    answers.push(await new Promise((resolve, reject) => call.once("data", resolve).once("error", reject)));
  }
  call.end();
  reflection.close();
  return answers;
}

// The files of an answer and of all they import, as one FileDescriptorSet.
async function descriptorSet(symbol) {
  const [answer] = await reflect([{ fileContainingSymbol: symbol }]);
  const parts = [];
  for (const file of answer.fileDescriptorResponse.fileDescriptorProto) {
    const length = [];
    for (let n = file.length; ; n = Math.floor(n / 128)) {
      length.push(n >= 128 ? (n % 128) + 128 : n);
      if (n < 128) break;
    }
    parts.push(Buffer.from([0x0a, ...length]), file);  // repeated FileDescriptorProto file = 1
  }
  return Buffer.concat(parts);
}

before(async () => {
  const set = await descriptorSet("tandem.v1.Generation");
  const packages = grpc.loadPackageDefinition(loader.loadFileDescriptorSetFromBuffer(set, options));
  client = new packages.tandem.v1.Generation(target, credentials);
});
after(() => client?.close());

const unary = (method, request) =>
  new Promise((resolve, reject) => client[method](request, (error, response) => (error ? reject(error) : resolve(response))));

async function collect(call) {
  const messages = [];
  for await (const message of call) messages.push(message);
  return messages;
}

test("reflection lists the service", async () => {
  const [list] = await reflect([{ listServices: "" }]);
  assert.ok(list.listServicesResponse.service.some((service) => service.name === "tandem.v1.Generation"));
});

test("models, status and tokens", async () => {
  const { models } = await unary("ListModels", {});
  assert.equal(models[0].name, "demo.Q8_0.gguf");
  const status = await unary("GetStatus", {});
  assert.equal(status.state, "ready");
  assert.ok(status.segments.length >= 1);
  const { ids } = await unary("Tokenize", { text: "The capital" });
  assert.equal((await unary("Detokenize", { ids })).text, "The capital");
});

test("texts and tokens are embedded", async () => {
  const { ids } = await unary("Tokenize", { text: "The capital", add_bos: true });
  const { embeddings, usage } = await unary("Embed", { inputs: [{ text: "The capital" }, { tokens: { ids } }] });
  assert.equal(usage.prompt_tokens, 2 * ids.length);
  const [text, tokens] = embeddings.map((embedding) => embedding.values);
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  assert.ok(Math.abs(dot(text, text) - 1) < 1e-5);
  assert.ok(Math.abs(dot(text, tokens) - 1) < 1e-3);
});

test("a chat streams its answer and ends with usage", async () => {
  const messages = await collect(client.Chat({ messages: [{ role: "user", content: "What is the capital of Japan?" }],
    sampling: { temperature: 0 }, limits: { max_tokens: 12 } }));
  assert.match(messages.map((message) => message.text).join(""), /Tokyo/);
  assert.equal(messages.at(-1).finish_reason, "FINISH_REASON_STOP");
  assert.ok(messages.at(-1).usage.completion_tokens > 0);
  assert.match(messages[0].placement, /gpu0/);
});

test("errors have gRPC's codes and name the parameter", async () => {
  await assert.rejects(collect(client.Generate({ text: "x", sampling: { top_p: 2 } })),
    (error) => error.code === grpc.status.INVALID_ARGUMENT && /top_p/.test(error.details));
  await assert.rejects(collect(client.Generate({ text: "x", model: "other" })), (error) => error.code === grpc.status.NOT_FOUND);
});

test("a cancelled call ends as cancelled", async () => {
  const call = client.Generate({ text: "Once upon a time", limits: { max_tokens: 300, ignore_eos: true } });
  await assert.rejects(async () => {
    for await (const message of call) if (message.text) call.cancel();
  }, (error) => error.code === grpc.status.CANCELLED);
});
