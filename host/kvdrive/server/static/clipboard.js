// SPDX-License-Identifier: Apache-2.0
// Copying. Pages without https have no `navigator.clipboard`, unless they come from this machine.

import { button, make, say } from "./dom.js";

const SHOWN_MS = 1500;

export function copyButton(name, textNow) {
  const made = button("Copy", async () => {
    const copied = await copy(textNow());
    if (!copied) return say("This browser does not let the page copy: select the text instead.", { bad: true });
    say("Copied.");
    made.textContent = "Copied";
    setTimeout(() => { made.textContent = "Copy"; }, SHOWN_MS);
  }, { "aria-label": name });
  return made;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { value: text, readOnly: true, className: "hidden" });
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return copied;
  }
}
