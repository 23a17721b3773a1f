// SPDX-License-Identifier: Apache-2.0
// The field for questions, the keyboard, and the two panels on a phone.

import { ask, stop } from "./answers.js";
import { byId } from "./dom.js";
import { runningNode } from "./log.js";
import { choose, on, shown } from "./talks.js";

const DRAFT = "kvdrive.draft."; // in this tab, for each conversation
const question = byId("question");

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = question.value.trim();
  if (!text || runningNode() || !byId("model").textContent) return;
  question.value = "";
  sessionStorage.removeItem(DRAFT + shown().id);
  ask(shown(), shown().leaf, text);
});
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("ask").requestSubmit();
});
question.addEventListener("input", () => sessionStorage.setItem(DRAFT + shown().id, question.value));

byId("stop").addEventListener("click", () => stop(runningNode()));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  stop(runningNode());
  fold();
});

let last = "";
on("log", () => {
  if (shown().id === last) return;
  last = shown().id;
  question.value = sessionStorage.getItem(DRAFT + last) || "";
  fold();
  question.focus();
});
byId("new").addEventListener("click", () => choose(""));

// Close the panels that lie over the chat on a phone; `except` is opened, or closed if it was open.
function fold(except) {
  for (const id of ["list", "figures"]) {
    const opens = id === except && !byId(id).classList.contains("shown");
    byId(id).classList.toggle("shown", opens);
    byId(`show-${id}`).setAttribute("aria-expanded", opens);
  }
}
for (const id of ["list", "figures"]) byId(`show-${id}`).addEventListener("click", () => fold(id));
