// SPDX-License-Identifier: Apache-2.0
// One message of the log: its text, what is to be said of it, and what can be done with it.

import { again, ask, isRunning, retry } from "./answers.js";
import { copyButton } from "./clipboard.js";
import { button, byId, make } from "./dom.js";
import { show, showGrowing } from "./markup.js";
import { save, tell } from "./talks.js";
import { childrenOf, leafBelow, siblingsOf } from "./tree.js";
import { aboutAnswer, aboutFork } from "./words.js";

const WHO = { user: "You", assistant: "The model" };

export function messageView(talk, node) {
  const text = make("div", { className: "text" });
  const note = make("p", { className: "quiet note" });
  const tools = make("div", { className: "row tools" });
  const view = make("div", { className: `message ${node.role}`, role: "group", "aria-label": WHO[node.role] }, text, note, tools);
  view.dataset.node = node.id;
  let grows = false;

  function refresh() {
    const runs = isRunning(node);
    text.classList.toggle("busy", runs);
    if (node.role === "user") text.textContent = node.content;
    else if (runs && !grows) grow();
    else if (!runs) show(text, node.content);
    note.textContent = notes(talk, node);
    note.classList.toggle("bad", node.state === "failed");
    tools.replaceChildren(...(runs ? [] : actions(talk, node, view)));
  }

  async function grow() {
    grows = true;
    await showGrowing(text, () => (isRunning(node) && view.isConnected ? node.content : null));
    grows = false;
  }

  view.refresh = refresh;
  refresh();
  return view;
}

function notes(talk, node) {
  const figures = node.role === "user" ? childrenOf(talk, node.id)[0]?.figures : node.figures;
  const isBranch = siblingsOf(talk, node).indexOf(node) > 0;
  const said = [isBranch && figures ? aboutFork(figures) : "", node.role === "assistant" && node.figures ? aboutAnswer(node.figures) : "", node.error || ""];
  return said.filter(Boolean).join(" ");
}

function actions(talk, node, view) {
  const found = [copyButton(node.role === "user" ? "Copy question" : "Copy answer", () => node.content)];
  if (node.role === "user") found.push(button("Edit", () => edit(talk, node, view)));
  else found.push(button(node.state === "failed" ? "Try again" : "Regenerate", () => anew(talk, node)));
  const siblings = siblingsOf(talk, node);
  if (siblings.length > 1) found.push(branches(talk, node, siblings));
  return found;
}

function anew(talk, node) {
  if (node.state === "failed" && !node.content) retry(talk, node);
  else again(talk, node.parent);
  byId("question").focus(); // the button is gone
}

function branches(talk, node, siblings) {
  const place = siblings.indexOf(node);
  const what = node.role === "user" ? "question" : "answer";
  const go = (step, sign, name) => button(sign, () => {
    const other = siblings[place + step];
    talk.leaf = leafBelow(talk, other).id;
    save(talk);
    tell("log", other.id);
  }, { disabled: !siblings[place + step], "aria-label": `${name} ${what}` });
  return make("span", { className: "branches", role: "group", "aria-label": `Branches of this ${what}` },
    go(-1, "‹", "Previous"), make("span", { textContent: `Branch ${place + 1} of ${siblings.length}` }), go(1, "›", "Next"));
}

// An edited question is a branch: the one that there is stays.
function edit(talk, node, view) {
  const area = make("textarea", { value: node.content, rows: Math.min(12, node.content.split("\n").length + 1), "aria-label": "Edited question" });
  const back = () => tell("log", node.id);
  const form = make("form", { className: "edit" }, area,
    make("div", { className: "row" }, make("button", { type: "submit", textContent: "Ask as a branch" }), button("Cancel", back)));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const question = area.value.trim();
    if (!question) return;
    ask(talk, node.parent, question);
    byId("question").focus();
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
    if (event.key === "Escape") { event.stopPropagation(); back(); }
  });
  view.replaceChildren(form);
  area.focus();
}
