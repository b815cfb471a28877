// What llama.cpp's clients ask for beside OpenAI's API.
import assert from "node:assert/strict";
import { test } from "node:test";

const get = async (path) => (await fetch(`${process.env.TANDEM_URL}${path}`)).json();
const post = async (path, body) => (await fetch(`${process.env.TANDEM_URL}${path}`, { method: "POST", body: JSON.stringify(body) })).json();

test("props describe the server, slots its places, health its state", async () => {
  const props = await get("/props");
  assert.equal(props.model_path, "demo.Q8_0.gguf");
  assert.equal(props.default_generation_settings.n_ctx, 512);
  assert.match(props.chat_template, /start_of_turn/);
  const slots = await get("/slots");
  assert.equal(slots.length, props.total_slots);
  assert.ok(slots.every((slot) => typeof slot.is_processing === "boolean" && !("prompt" in slot)));
  assert.deepEqual(await get("/v1/health"), { status: "ok" });
});

test("a template's tokens are the chat's prompt", async () => {
  const messages = [{ role: "user", content: "What is the capital of Japan?" }];
  const { prompt, tokens } = await post("/apply-template", { messages });
  assert.equal(prompt, "<start_of_turn>user\nWhat is the capital of Japan?<end_of_turn>\n<start_of_turn>model\n");
  const { choices } = await post("/v1/completions", { prompt: tokens, temperature: 0, max_tokens: 12 });
  assert.match(choices[0].text, /Tokyo/);
});
