// SPDX-License-Identifier: Apache-2.0
// Conversations as a file of JSON: all that this browser has of them, which is their text.

import { byId, make, say } from "./dom.js";
import { all, choose, save } from "./talks.js";
import { newName } from "./tree.js";
import { count } from "./words.js";

const KIND = "kvdrive conversations";
const VERSION = 1;
const MOST_BYTES = 64 << 20;
const OPTIONS = { system: "string", max_tokens: "number", temperature: "number", top_p: "number", top_k: "number", min_p: "number", repetition_penalty: "number", seed: "number" };

export function exportTalks(talks, title) {
  const text = JSON.stringify({ kind: KIND, version: VERSION, conversations: talks.map(bare) }, null, 1);
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const name = title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60).replace(/^-|-$/g, "") || "conversation";
  make("a", { href: address, download: `${name}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  say(`${count(talks.length)} exported. The file has the text; what the drive keeps stays there.`);
}

const bare = ({ id, title, created, changed, options, nodes, leaf }) => ({
  id, title, created, changed, options, leaf,
  nodes: nodes.map((one) => ({ id: one.id, parent: one.parent, role: one.role, content: one.content, session: one.session })),
});

// The conversations in the text of a file. Throws an Error with a sentence for anything that is not quite an export.
export function read(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error("This file is no JSON: choose one that this page has exported.");
  }
  if (found?.kind !== KIND || found.version !== VERSION || !Array.isArray(found.conversations)) {
    throw new Error("This file has no conversations of this page: choose one that it has exported.");
  }
  return found.conversations.map(talkOf);
}

function talkOf(given, place) {
  const wrong = (what) => new Error(`Conversation ${place + 1} of the file has ${what}: nothing was imported.`);
  const isText = (value, most) => typeof value === "string" && value.length <= most;
  const isName = (value) => typeof value === "string" && /^[\w.-]{1,100}$/.test(value);
  const isOwn = (session) => isName(session) && (session === given.id || session.startsWith(`${given.id}.`)); // not of other programs
  if (!isName(given?.id) || !given.id.startsWith("chat-") || !isText(given.title, 200) || !Array.isArray(given.nodes) || !given.nodes.length) throw wrong("no name, title or messages");
  const options = Object.entries(given.options || {});
  if (!options.every(([name, value]) => typeof value === OPTIONS[name])) throw wrong("options that there are not");
  const ids = new Set([""]);
  const nodes = given.nodes.map(({ id, parent, role, content, session }) => {
    if (!isName(id) || ids.has(id) || !ids.has(parent)) throw wrong("messages in a wrong order");
    if (!["user", "assistant"].includes(role) || typeof content !== "string" || !isOwn(session)) throw wrong("a message that is none");
    ids.add(id);
    return { id, parent, role, content, session, ...(role === "assistant" ? { state: "done" } : {}) };
  });
  if (!given.leaf || !ids.has(given.leaf)) throw wrong("no last message");
  const when = (value) => (Number.isFinite(value) ? value : Date.now());
  return { id: given.id, title: given.title, created: when(given.created), changed: when(given.changed), deleted: 0, options: Object.fromEntries(options), nodes, leaf: given.leaf };
}

// One that is here already gets other names, so that neither changes the other.
function renamed(talk) {
  const id = newName("chat");
  const nodes = talk.nodes.map((one) => ({ ...one, session: one.session.replace(talk.id, id) }));
  return { ...talk, id, nodes };
}

async function take(file) {
  if (file.size > MOST_BYTES) throw new Error("This file is larger than 64 MiB: export fewer conversations at a time.");
  const found = read(await file.text());
  const known = new Set(all().map((one) => one.id));
  const taken = found.map((one) => (known.has(one.id) ? renamed(one) : one));
  for (const one of taken) await save(one);
  if (taken.length) choose(taken[0].id);
  say(`${count(taken.length)} imported.`);
}

byId("export-all").addEventListener("click", () => exportTalks(all(), `kvdrive ${new Date().toISOString().slice(0, 10)}`));
byId("import").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", async () => {
  const [file] = byId("file").files;
  byId("file").value = "";
  if (file) await take(file).catch((error) => say(error.message, { bad: true }));
});
