// SPDX-License-Identifier: Apache-2.0
// Answers: asked for, read as they come, joined again after a reload or a lost connection, and stopped.

import { pause, say, unsay } from "./dom.js";
import { askForKey } from "./key.js";
import { call, events, isAway, post, remove } from "./server.js";
import { doneElsewhere, save, tell } from "./talks.js";
import { add, newName, pathTo } from "./tree.js";

const TRIES = 10; // a session whose answer was just stopped is in use for a moment
const TRY_MS = 300;
const MOST_PAUSE_MS = 8000;
const SAVE_MS = 1000;
const running = new Map(); // AbortController by message
let model = null;

export const setModel = (name) => { model = name; };
export const isRunning = (node) => running.has(node?.id);

// Ask a question behind the message `parent`.
export function ask(talk, parent, question) {
  if (!talk.title) talk.title = question.slice(0, 60);
  const asked = add(talk, parent, { role: "user", content: question });
  return again(talk, asked.id);
}

// Let the model answer the question `parent`, beside the answers that there are.
export async function again(talk, parent) {
  const node = add(talk, parent, { role: "assistant", content: "", state: "running", answer: newName("answer") });
  await run(talk, node, (signal) => begin(talk, node, signal));
}

// Ask once more for an answer of which nothing came.
export async function retry(talk, node) {
  Object.assign(node, { state: "running", answer: newName("answer"), error: "" });
  await run(talk, node, (signal) => begin(talk, node, signal));
}

// Go on with an answer that ran when the page was left.
export const join = (talk, node) => run(talk, node, (signal) => follow(talk, node, signal));

export async function stop(node) {
  const control = running.get(node?.id);
  if (!control) return;
  await remove(`v1/answers/${node.answer}`).catch(() => control.abort()); // its stream ends with what has come
}

async function run(talk, node, work) {
  if (isRunning(node)) return;
  const control = new AbortController();
  running.set(node.id, control);
  tell("log");
  const saving = setInterval(() => save(talk), SAVE_MS);
  try {
    await save(talk);
    take(node, await work(control.signal));
  } catch (error) {
    if (error.code !== "answer_not_found" || !(await doneElsewhere(talk, node))) fail(node, error);
  } finally {
    clearInterval(saving);
    running.delete(node.id);
    talk.changed = Date.now();
    tell("node", node);
    await save(talk);
  }
}

function take(node, { end, error, usage, kvdrive, seconds }) {
  if (error) throw Object.assign(new Error(error.message), { code: error.code });
  node.state = "done";
  node.figures = { end, usage, kvdrive, seconds };
  say(end === "stopped" ? "Stopped." : "The answer is complete.");
}

function fail(node, error) {
  if (error.name === "AbortError") {
    Object.assign(node, { state: "failed", error: "You stopped it." });
    return say("Stopped.");
  }
  if (error.status === 401) askForKey(error);
  const lost = error.code === "answer_not_found" && node.content;
  const text = lost ? "The server has forgotten the rest of this answer: it was restarted, or the page was away for long." : error.message;
  Object.assign(node, { state: "failed", error: text });
  say(text, { bad: true });
}

// Ask, and read the answer to its end.
async function begin(talk, node, signal) {
  say("The model answers. Esc stops it.");
  for (let tried = 1; ; tried++) {
    await submit(talk, node, signal);
    const end = await follow(talk, node, signal);
    if (end.error?.code !== "session_unavailable" || node.content || tried === TRIES) return end;
    await pause(TRY_MS * tried);
    node.answer = newName("answer");
  }
}

async function submit(talk, node, signal) {
  const system = talk.options.system ? [{ role: "system", content: talk.options.system }] : [];
  const said = pathTo(talk, node.parent).filter((one) => one.content).map(({ role, content }) => ({ role, content }));
  const { system: _, ...sampling } = talk.options;
  const body = { model, messages: [...system, ...said], session: node.session, ...sampling };
  for (let tried = 1; ; tried++) {
    try {
      return await post(`v1/answers/${node.answer}`, body, signal);
    } catch (error) {
      if (error.code === "answer_exists") return null; // it arrived, and the connection was lost before we knew
      if (error.code === "context_length_exceeded" && body.max_tokens) delete body.max_tokens; // as long as there is room
      else if (error.status === 429) say("Other questions are before this one.");
      else if (isAway(error)) say("The server does not answer. Trying again.", { bad: true, about: "away" });
      else throw error;
      await pause(Math.min(MOST_PAUSE_MS, TRY_MS * 2 ** tried));
      signal.throwIfAborted();
    }
  }
}

// Read an answer from its beginning to its end; a lost connection is made anew. Returns the end.
async function follow(talk, node, signal) {
  for (let tried = 1; ; tried++) {
    try {
      let text = "";
      for await (const event of events(await call(`v1/answers/${node.answer}`, { signal }))) {
        unsay("away");
        if (event.text === undefined) return event;
        tried = 1;
        node.content = text += event.text;
        tell("node", node);
      }
    } catch (error) {
      if (!isAway(error)) throw error;
    }
    say("The connection is lost. Trying to join the answer again.", { bad: true, about: "away" });
    await pause(Math.min(MOST_PAUSE_MS, TRY_MS * 2 ** tried));
    signal.throwIfAborted();
  }
}
