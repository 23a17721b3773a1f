// SPDX-License-Identifier: Apache-2.0
// The list of conversations, the search in it, and what other programs have stored on the drive.

import { isRunning } from "./answers.js";
import { byId, make, pause, say } from "./dom.js";
import { about } from "./models.js";
import * as server from "./server.js";
import * as talks from "./talks.js";
import { branchesOf, sessionsOf } from "./tree.js";
import { offer } from "./undo.js";
import { age, bytes, count, tokens } from "./words.js";

const TRIES = 10; // a session whose answer was just stopped is in use for a moment
const TRY_MS = 300;
const AROUND = 30; // characters beside what was searched
let sessions = []; // as the server lists them
const hidden = new Set(); // of other programs: removed, and not for good yet

export function setSessions(found) {
  sessions = found;
  showList();
}

function showList() {
  const focused = document.activeElement?.dataset?.item;
  const all = talks.all();
  const words = byId("search").value.trim().toLowerCase();
  const found = words ? all.filter((one) => place(one, words) !== null) : all;
  byId("found").textContent = words ? `${count(found.length)} of ${count(all.length)} have it.` : "";
  byId("conversations").replaceChildren(...found.map((one) => own(one, words)));
  showOthers(all);
  if (focused) document.querySelector(`[data-item="${CSS.escape(focused)}"]`)?.focus();
}

// A piece of the text around `words`; "" if it is in the title, null if it is nowhere.
function place(talk, words) {
  if (talk.title.toLowerCase().includes(words)) return "";
  for (const { content } of talk.nodes) {
    const at = content.toLowerCase().indexOf(words);
    if (at >= 0) return `…${content.slice(Math.max(0, at - AROUND), at + words.length + AROUND)}…`;
  }
  return null;
}

function own(talk, words) {
  const names = sessionsOf(talk);
  const kept = sessions.filter((one) => names.has(one.name));
  const about = make("span", { className: "quiet" });
  if (words && place(talk, words)) about.textContent = place(talk, words);
  else if (kept.length) about.append(...onDrive(kept));
  else about.textContent = "not on the drive";
  const branches = branchesOf(talk);
  if (branches > 1) about.append(make("span", { className: "where", textContent: `${branches} branches` }));
  if (talk.nodes.some(isRunning)) about.append(make("span", { className: "where", textContent: "answering" }));
  const open = make("button", { className: "open" }, make("b", { textContent: talk.title || "New conversation" }), about);
  open.dataset.item = talk.id;
  open.addEventListener("click", () => talks.choose(talk.id));
  const isShown = talk.id === talks.shown().id;
  if (isShown) open.setAttribute("aria-current", "true");
  return make("li", { className: isShown ? "chosen" : "" }, open);
}

// Of the sessions of a conversation: the longest one's tokens, and where it is.
function onDrive(kept) {
  const longest = kept.reduce((a, b) => (b.tokens > a.tokens ? b : a));
  const newest = Math.min(...kept.map((one) => one.age_seconds));
  return [`${tokens(longest.tokens)}, ${bytes(longest.bytes)}, ${age(newest)} `,
    make("span", { className: `where ${longest.where}`, textContent: longest.where === "memory" ? "in memory" : "on the drive" })];
}

function showOthers(all) {
  const names = new Set([...all, ...talks.deleted()].flatMap((one) => [...sessionsOf(one)]));
  const others = sessions.filter((one) => !names.has(one.name) && !hidden.has(one.id));
  byId("foreign").hidden = !others.length;
  byId("foreign-count").textContent = `(${count(others.length)})`;
  byId("others").replaceChildren(...others.map((one) => {
    const name = one.name || `number ${one.id}`;
    const drop = make("button", { className: "drop", textContent: "✕", "aria-label": `Remove ${name}` });
    drop.dataset.item = `drop ${one.id}`;
    drop.addEventListener("click", () => removeOther(one, name));
    return make("li", {}, make("span", { className: "open" }, make("b", { textContent: name }), make("span", { className: "quiet" }, ...onDrive([one]))), drop);
  }));
}

function removeOther(session, name) {
  hidden.add(session.id);
  showList();
  offer(`“${name}” is removed.`, () => { hidden.delete(session.id); showList(); }, () => drop(session.name || session.id, session.model));
  byId("undo-button").focus();
}

// Delete a conversation of this browser; its sessions go when that cannot be taken back any more.
export async function removeTalk(talk) {
  talk.deleted = Date.now();
  await talks.save(talk);
  talks.choose("");
  const undo = async () => { talk.deleted = 0; await talks.save(talk); talks.choose(talk.id); };
  offer(`“${talk.title}” is deleted.`, undo, () => purge(talk));
  byId("undo-button").focus();
}

export async function purge(talk) {
  const names = sessionsOf(talk);
  for (const one of sessions) if (names.has(one.name)) await drop(one.name, one.model);
  await talks.forget(talk);
}

// Remove a session from the drive.
async function drop(name, model) {
  for (let tried = 1; ; tried++) {
    try {
      return await server.remove(about(`v1/sessions/${name}`, model));
    } catch (error) {
      if (error.status === 404) return null;
      if (error.status !== 409 || tried === TRIES) return say(`The drive still has “${name}”: ${error.message}`, { bad: true });
      await pause(TRY_MS * tried);
    }
  }
}

talks.on("list", showList);
byId("search").addEventListener("input", showList);
