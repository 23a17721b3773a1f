// SPDX-License-Identifier: Apache-2.0
// The dialog with the system prompt and the sampling of a conversation, and the colours of the page.

import { byId } from "./dom.js";
import { save, setDefaults, shown } from "./talks.js";

const NUMBERS = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"];
const THEME = "kvdrive.theme";

function fill(options) {
  byId("system").value = options.system || "";
  for (const name of NUMBERS) byId(name).value = options[name] ?? "";
  byId("for-all").checked = false;
}

function chosen() {
  const options = {};
  if (byId("system").value.trim()) options.system = byId("system").value;
  for (const name of NUMBERS) if (Number.isFinite(byId(name).valueAsNumber)) options[name] = byId(name).valueAsNumber;
  return options;
}

byId("options").addEventListener("click", () => {
  fill(shown().options);
  byId("options-dialog").showModal();
});
byId("options-form").addEventListener("submit", (event) => {
  if (event.submitter?.value === "cancel") return;
  const talk = shown();
  talk.options = chosen();
  if (byId("for-all").checked) setDefaults(talk.options);
  if (talk.nodes.length) save(talk);
});

function paint(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

byId("theme").value = localStorage.getItem(THEME) || "";
paint(byId("theme").value);
byId("theme").addEventListener("change", () => {
  localStorage.setItem(THEME, byId("theme").value);
  paint(byId("theme").value);
});
