// SPDX-License-Identifier: Apache-2.0
// The messages of the conversation that is shown.

import { isRunning } from "./answers.js";
import { byId, make } from "./dom.js";
import { messageView } from "./message.js";
import { on, shown } from "./talks.js";
import { nodeOf, pathTo } from "./tree.js";

const NEAR = 80; // pixels from the end within which the log follows an answer
const log = byId("log");

// `focus`: the message whose buttons get the focus.
function showLog(focus) {
  const talk = shown();
  const path = pathTo(talk, talk.leaf);
  log.replaceChildren(...(path.length ? path.map((node) => messageView(talk, node)) : [welcome()]));
  log.scrollTop = log.scrollHeight;
  const view = focus && viewOf(focus);
  if (view) (view.querySelector(".branches button:not(:disabled)") ?? view.querySelector(".tools button"))?.focus();
  showBusy();
}

function welcome() {
  return make("p", { className: "empty" }, make("b", { textContent: "What would you like to know?" }),
    "The drive remembers what was said, so that the next question does not begin from the start.");
}

const viewOf = (id) => log.querySelector(`[data-node="${CSS.escape(id)}"]`);

function showNode(node) {
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR;
  viewOf(node.id)?.refresh();
  if (!isRunning(node)) viewOf(node.parent)?.refresh();
  if (follows) log.scrollTop = log.scrollHeight;
  showBusy();
}

export const runningNode = () => {
  const node = nodeOf(shown(), shown().leaf);
  return isRunning(node) ? node : null;
};

function showBusy() {
  const yes = runningNode() !== null;
  log.setAttribute("aria-busy", yes);
  byId("send").hidden = yes;
  byId("stop").hidden = !yes;
}

on("log", showLog);
on("node", showNode);
