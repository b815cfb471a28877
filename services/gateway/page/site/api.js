// The gateway's API, as the page uses it.

// A refusal or failure, in the server's words.
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function failure(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    const body = await response.json();
    message = body.error?.message ?? body.message ?? message;
  } catch {
    // No JSON: the status line says it.
  }
  return new ApiError(message, response.status);
}

export async function getJson(path, key) {
  const response = await fetch(path, { headers: headers(key), cache: "no-store" });
  if (!response.ok) throw await failure(response);
  return response.json();
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

// Asks for an answer and yields {text} as it comes and {end: {reason, usage, tandem}} once.
export async function* streamChat(request, key, signal) {
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(key) },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await failure(response);
  const end = {};
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      yield { end };
      return;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message, 500);
    const choice = chunk.choices[0];
    if (choice?.delta.content) yield { text: choice.delta.content };
    if (choice?.finish_reason) end.reason = choice.finish_reason;
    if (chunk.usage) Object.assign(end, { usage: chunk.usage, tandem: chunk.tandem });
  }
  throw new ApiError("The connection was lost before the answer ended.", 0);
}
