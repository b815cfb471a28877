// What went wrong, in plain words, with the way out.

// A refusal or failure.  `status` is HTTP's, 0 if there was no answer; `code` is the API's.
export class ApiError extends Error {
  constructor(message, status, more = {}) {
    super(message);
    this.status = status;
    this.code = more.code ?? null;
    this.retryAfter = more.retryAfter ?? null;  // seconds
  }
}

// The connection broke while an answer came.
export const kBroken = "connection_broken";

const sentence = (text) => (/[.!?]$/.test(text.trim()) ? text.trim() : `${text.trim()}.`);

// {text, way}: what to say of `error`, and what to offer: "again", "key", "new" (a new chat) or
// "settings".
export function explain(error) {
  if (!(error instanceof ApiError)) {
    return { text: `This page failed: ${sentence(String(error?.message ?? error))} Load it again if this happens twice.`, way: "again" };
  }
  const wait = error.retryAfter ? `in ${error.retryAfter} ${error.retryAfter === 1 ? "second" : "seconds"}` : "in a moment";
  const words = sentence(error.message);
  if (error.code === kBroken) return { text: "The connection broke before the answer was complete. What came is kept.", way: "again" };
  if (error.status === 0) {
    return { text: "The server cannot be reached. Check that it is running and that this computer is connected to it, then try again.", way: "again" };
  }
  if (error.status === 401) return { text: "The server asks for an API key.", way: "key" };
  if (error.status === 403) return { text: `The server does not allow this: ${words}`, way: "key" };
  if (error.status === 404) return { text: `The server does not have this model or address: ${words}`, way: "again" };
  if (error.status === 413) {
    return { text: `This chat, with its pictures, is larger than the server takes at once. Start a new chat, or send fewer or smaller pictures. The server says: ${words}`, way: "new" };
  }
  if (error.code === "context_length_exceeded") {
    return { text: `This chat is longer than the model can read at once. Start a new chat, or shorten the message. The server says: ${words}`, way: "new" };
  }
  if (error.status === 429) return { text: `The server is busy. Try again ${wait}. It says: ${words}`, way: "again" };
  if (error.status === 503) return { text: `The model is not ready. Try again ${wait}. The server says: ${words}`, way: "again" };
  if (error.status === 504) return { text: "The answer took longer than the server allows. Try again, or ask for a shorter answer in the settings.", way: "again" };
  if (error.status >= 500) return { text: `The server failed: ${words} Try again; its log says more.`, way: "again" };
  return { text: `The server refused this: ${words}`, way: "settings" };
}
