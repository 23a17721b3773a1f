// SPDX-License-Identifier: Apache-2.0
// The page of `kvdrive serve`: it begins here. The browser keeps the text of conversations, the server their K and V.

import { join, setModel } from "./answers.js";
import "./bar.js";
import "./composer.js";
import { byId, say, unsay } from "./dom.js";
import "./files.js";
import { showFigures } from "./figures.js";
import { askForKey, isAsking, whenGiven } from "./key.js";
import { purge, setSessions } from "./list.js";
import { about, readModels, whenChosen } from "./models.js";
import "./options.js";
import { get, isAway } from "./server.js";
import * as talks from "./talks.js";

const POLL_MS = 2000;
const MOST_PAUSE_MS = 15_000;
let failed = 0; // looks at the server since the last one that it answered
let timer = 0;
let joined = false;

async function look() {
  clearTimeout(timer);
  timer = 0;
  try {
    await readModels();
    const stats = await get(about("v1/stats"));
    const stored = stats.sessions ? (await get("v1/sessions")).data : [];
    setModel(stats.model);
    showFigures(stats, stored);
    setSessions(stored);
    answered();
  } catch (error) {
    if (error.status === 401) return askForKey(error); // and look again when a key was given
    failed += 1;
    if (isAway(error)) away();
    else say(error.message, { bad: true });
  }
  next(Math.min(MOST_PAUSE_MS, POLL_MS * 2 ** Math.max(0, failed - 1)));
}

function next(ms) {
  clearTimeout(timer);
  timer = setTimeout(() => (document.visibilityState === "visible" ? look() : next(POLL_MS)), ms);
}

function away() {
  say("The server does not answer. Trying again.", { bad: true, about: "server" });
  byId("try-now").hidden = false;
}

function answered() {
  failed = 0;
  unsay("server");
  byId("try-now").hidden = true;
  if (!joined) goOn();
  joined = true;
}

// What was under way when the page was left.
function goOn() {
  for (const talk of talks.deleted()) purge(talk);
  for (const talk of talks.all()) for (const node of talk.nodes) if (node.state === "running") join(talk, node);
}

byId("try-now").addEventListener("click", look);
whenGiven(look);
whenChosen(look);
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible" && !isAsking()) look(); });

await talks.load();
talks.choose(location.hash.slice(1));
look();
