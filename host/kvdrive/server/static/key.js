// SPDX-License-Identifier: Apache-2.0
// The dialog for the key of a server that has one.

import { byId } from "./dom.js";
import { setKey } from "./server.js";

export const isAsking = () => byId("key-dialog").open;

// `refusal`: the server's 401; it says whether a key was sent.
export function askForKey(refusal) {
  if (isAsking()) return;
  if (refusal.sentKey) setKey("");
  byId("key-wrong").hidden = !refusal.sentKey;
  byId("key-wrong").textContent = refusal.sentKey ? "That key is wrong: the server does not know it. Check it and try again." : "";
  if (refusal.sentKey) byId("key").setAttribute("aria-invalid", "true");
  else byId("key").removeAttribute("aria-invalid");
  byId("key-dialog").showModal();
}

export function whenGiven(handler) {
  byId("key-form").addEventListener("submit", () => {
    setKey(byId("key").value);
    byId("key").value = "";
    handler();
  });
}
