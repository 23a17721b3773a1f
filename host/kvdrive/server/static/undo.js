// SPDX-License-Identifier: Apache-2.0
// What was deleted can be taken back for a while. It is gone for good after that, or when something else is deleted.

import { byId } from "./dom.js";

const UNDO_MS = 15_000;
let offered = null; // {undo, commit, timer}

export function offer(text, undo, commit) {
  settle();
  byId("undo-text").textContent = text;
  byId("undo").hidden = false;
  offered = { undo, commit, timer: setTimeout(whenLeft, UNDO_MS) };
}

// Not under the hands of somebody who is about to press the button.
function whenLeft() {
  if (byId("undo").matches(":hover, :focus-within")) offered.timer = setTimeout(whenLeft, UNDO_MS);
  else settle();
}

function take() {
  const taken = offered;
  offered = null;
  clearTimeout(taken?.timer);
  byId("undo").hidden = true;
  return taken;
}

const settle = () => take()?.commit();

byId("undo-button").addEventListener("click", () => take()?.undo());
