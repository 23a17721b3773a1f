// SPDX-License-Identifier: Apache-2.0
// The bar above a conversation: its title, and what can be done with all of it.

import { stop } from "./answers.js";
import { byId } from "./dom.js";
import { exportTalks } from "./files.js";
import { removeTalk } from "./list.js";
import { runningNode } from "./log.js";
import { on, save, shown } from "./talks.js";

function showBar() {
  const talk = shown();
  const isNew = !talk.nodes.length;
  byId("title").textContent = talk.title || "New conversation";
  document.title = talk.title ? `${talk.title} - kvdrive` : "kvdrive";
  for (const id of ["rename", "export", "delete"]) byId(id).hidden = isNew || !byId("rename-form").hidden;
}

function rename(yes) {
  byId("rename-form").hidden = !yes;
  byId("title").classList.toggle("hidden", yes); // still a heading for readers
  showBar();
  if (yes) {
    byId("new-title").value = shown().title;
    byId("new-title").select();
  } else byId("rename").focus();
}

byId("rename").addEventListener("click", () => rename(true));
byId("rename-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const talk = shown();
  talk.title = byId("new-title").value.trim() || talk.title;
  save(talk);
  rename(false);
});
byId("new-title").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  event.stopPropagation();
  rename(false);
});
byId("delete").addEventListener("click", async () => {
  const talk = shown();
  await stop(runningNode());
  await removeTalk(talk);
});
byId("export").addEventListener("click", () => exportTalks([shown()], shown().title));
on("list", showBar);
on("log", () => { if (!byId("rename-form").hidden) rename(false); });
