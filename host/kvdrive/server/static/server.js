// SPDX-License-Identifier: Apache-2.0
// Requests to the server. The key is in this tab only.

const KEY = "kvdrive.key";

export class Refusal extends Error {
  constructor(status, text, code, sentKey = false) {
    super(text);
    Object.assign(this, { status, code, sentKey });
  }
}

export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

// Throws a Refusal for an answer that is none, and what `fetch` throws where no answer came.
export async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const said = (await response.json().catch(() => null))?.error;
  throw new Refusal(response.status, said?.message || `the server answered ${response.status}`, said?.code, Boolean(key));
}

export const get = async (path) => (await call(path)).json();
export const post = async (path, body, signal) => (await call(path, { method: "POST", body: JSON.stringify(body), signal })).json();
export const remove = (path) => call(path, { method: "DELETE" });

export const isAway = (error) => !(error instanceof Refusal) && error.name !== "AbortError";

// The documents of a stream of events.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line.replace(/^data: /, ""));
  }
}
