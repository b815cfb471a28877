// The gateway's API, as the page uses it.

import { ApiError, kBroken } from "./problems.js";

const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

// A failure in the server's words.
async function failure(response) {
  let message = `${response.status} ${response.statusText}`;
  let code = null;
  try {
    const body = await response.json();
    message = body.error?.message ?? body.message ?? message;
    code = body.error?.code ?? null;
  } catch {
    // No JSON: the status line says it.
  }
  const retryAfter = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
  return new ApiError(message, response.status, { code, retryAfter: Number.isFinite(retryAfter) ? retryAfter : null });
}

// fetch(), which throws for a failure to connect as for a mistake in the program.
async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(error.message, 0);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export async function getJson(path, key) {
  const response = await send(path, { headers: headers(key), cache: "no-store" });
  try {
    return await response.json();
  } catch {
    throw new ApiError("the answer is not JSON", 0);
  }
}

// The data of each event of a server-sent stream; comments are skipped.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      const data = event.split("\n").filter((line) => line.startsWith("data: "));
      if (data.length > 0) yield data.map((line) => line.slice(6)).join("\n");
    }
  }
}

// Asks for an answer and yields {text} and {call}, a piece of a call, as they come, and
// {end: {reason, usage, tandem}} once.
export async function* streamChat(request, key, signal) {
  const response = await send("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(key) },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const end = {};
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") {
        yield { end };
        return;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message, 500, { code: chunk.error.code });
      const choice = chunk.choices[0];
      if (choice?.delta.content) yield { text: choice.delta.content };
      for (const call of choice?.delta.tool_calls ?? []) yield { call };
      if (choice?.finish_reason) end.reason = choice.finish_reason;
      if (chunk.usage) Object.assign(end, { usage: chunk.usage, tandem: chunk.tandem });
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    throw new ApiError(error.message, 0, { code: kBroken });
  }
  throw new ApiError("the stream ended early", 0, { code: kBroken });
}
