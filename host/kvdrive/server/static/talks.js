// SPDX-License-Identifier: Apache-2.0
// The conversations of this browser, and the one that is shown.

import { say } from "./dom.js";
import * as store from "./store.js";
import { nodeOf, newTalk } from "./tree.js";

const DEFAULTS = "kvdrive.options";
const OLD = "kvdrive.conversations"; // where earlier versions of the page kept them
const talks = new Map();
const handlers = { list: [], log: [], node: [] };
let current = newTalk({});

// kind: "list" (titles, order), "log" (the messages that are shown), "node" (one message, given to the handler).
export const on = (kind, handler) => handlers[kind].push(handler);
export const tell = (kind, detail) => handlers[kind].forEach((handler) => handler(detail));

export const shown = () => current;
export const all = () => [...talks.values()].filter((one) => !one.deleted).sort((a, b) => b.changed - a.changed);
export const deleted = () => [...talks.values()].filter((one) => one.deleted);
export const defaults = () => JSON.parse(localStorage.getItem(DEFAULTS) || "{}");
export const setDefaults = (options) => localStorage.setItem(DEFAULTS, JSON.stringify(options));

export async function load() {
  try {
    for (const talk of await store.all()) talks.set(talk.id, talk);
    await takeOld();
  } catch (error) {
    complain(error);
  }
  store.onOtherTab(async (id) => {
    const stored = await store.one(id);
    const own = talks.get(id);
    if (!stored) talks.delete(id);
    else if (own) take(own, stored);
    else talks.set(id, stored);
    tell("list");
    if (id === current.id) tell("log");
  });
}

// What another tab has stored, in the objects that this one works with.
function take(own, stored) {
  for (const node of stored.nodes) {
    const known = nodeOf(own, node.id);
    if (!known) own.nodes.push(node);
    else if (known.state === "running" || known.state === "done") Object.assign(known, node.state === "running" ? {} : node);
  }
  Object.assign(own, { title: stored.title, deleted: stored.deleted, options: stored.options, changed: stored.changed });
}

async function takeOld() {
  for (const { name, title, messages } of JSON.parse(localStorage.getItem(OLD) || "[]")) {
    const talk = { ...newTalk({}), id: name, title };
    let parent = "";
    messages.forEach(({ role, content }, place) => {
      const id = `${name}-${place}`;
      talk.nodes.push({ id, parent, role, content, session: name, ...(role === "assistant" ? { state: "done" } : {}) });
      talk.leaf = parent = id;
    });
    await save(talk);
  }
  localStorage.removeItem(OLD);
}

export function choose(id) {
  current = talks.get(id) || newTalk(defaults());
  history.replaceState(null, "", `#${current.id}`);
  tell("log");
  tell("list");
}

export async function save(talk) {
  talks.set(talk.id, talk);
  tell("list");
  try {
    await store.put(talk);
  } catch (error) {
    complain(error);
  }
}

// True if another tab has read the answer `node` to its end; it is here then, too.
export async function doneElsewhere(talk, node) {
  const stored = await store.one(talk.id).catch(() => null);
  const other = stored && nodeOf(stored, node.id);
  if (other?.state !== "done") return false;
  Object.assign(node, other);
  return true;
}

export async function forget(talk) {
  talks.delete(talk.id);
  tell("list");
  await store.erase(talk.id).catch(complain);
}

function complain(error) {
  const full = error?.name === "QuotaExceededError";
  say(full ? "This browser has no room for more text: export conversations and delete some." : "This browser stores nothing: the text is gone when the tab is closed.", { bad: true });
}
