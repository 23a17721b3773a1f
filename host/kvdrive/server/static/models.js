// SPDX-License-Identifier: Apache-2.0
// Which model answers, where the server has several.

import { byId } from "./dom.js";
import { get } from "./server.js";

const CHOSEN = "kvdrive.model"; // in this browser
let names = [];

// The names of the server's models, read once.
export async function readModels() {
  if (names.length) return;
  names = (await get("v1/models")).data.map((one) => one.id);
  byId("models").replaceChildren(...names.map((name) => new Option(name)));
  const before = localStorage.getItem(CHOSEN);
  if (names.includes(before)) byId("models").value = before;
  byId("models").hidden = names.length < 2;
  byId("model").hidden = names.length > 1;
}

// A path about the chosen model, or about another one. Where there is only one, no path names it.
export function about(path, model = byId("models").value) {
  return names.length > 1 && model ? `${path}?model=${encodeURIComponent(model)}` : path;
}

export function whenChosen(work) {
  byId("models").addEventListener("change", () => {
    localStorage.setItem(CHOSEN, byId("models").value);
    work();
  });
}
