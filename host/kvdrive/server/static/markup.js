// SPDX-License-Identifier: Apache-2.0
// Markdown as elements. The server renders and cleans it; this is the only place where a text becomes elements.

import { make, pause } from "./dom.js";
import { copyButton } from "./clipboard.js";
import { post } from "./server.js";

const MOST_TEXTS = 64;
const MOST_CHARACTERS = 256 << 10; // of a request, as the server has it
const MOST_KEPT = 200;
const SHARE = 6; // a text that still grows is rendered again after so many times what rendering it took
const LEAST_MS = 150;
const TRIES = 5; // while other texts are rendered
const TRY_MS = 500;
const policy = globalThis.trustedTypes?.createPolicy("rendered", { createHTML: (html) => html }) ?? { createHTML: (html) => html };
const known = new Map(); // HTML by text
let asked = []; // {text, done}

// The HTML of a text; null while the server cannot be asked, and of a text that is too long or takes too long.
export function htmlOf(text) {
  if (known.has(text)) return Promise.resolve(known.get(text));
  if (text.length > MOST_CHARACTERS) return Promise.resolve(null);
  return new Promise((done) => {
    asked.push({ text, done });
    if (asked.length === 1) setTimeout(askServer);
  });
}

async function askServer() {
  const waiting = asked;
  asked = [];
  while (waiting.length) {
    let size = 0;
    const fits = waiting.findIndex(({ text }, place) => place === MOST_TEXTS || (size += text.length) > MOST_CHARACTERS);
    const some = waiting.splice(0, fits < 0 ? waiting.length : fits);
    const found = await rendered(some.map((one) => one.text));
    some.forEach(({ text, done }, place) => {
      if (found) remember(text, found[place]);
      done(found ? found[place] : null);
    });
  }
}

async function rendered(texts) {
  for (let tried = 1; ; tried++) {
    try {
      return (await post("render", { texts })).html;
    } catch (error) {
      if (error.status !== 429 || tried === TRIES) return null;
      await pause(TRY_MS * tried);
    }
  }
}

function remember(text, html) {
  known.set(text, html);
  if (known.size > MOST_KEPT) known.delete(known.keys().next().value);
}

// Show a text in an element: as it is at first, rendered when the server has done that.
export async function show(element, text) {
  element.wanted = text;
  if (!element.rendered) showPlain(element, text);
  const html = await htmlOf(text);
  if (element.wanted !== text) return;
  if (html === null) showPlain(element, text);
  else showHtml(element, html);
}

// The same for a text that grows: `textNow` returns it, and null when it has ended. At most a request at a time.
export async function showGrowing(element, textNow) {
  for (let text = textNow(), before = ""; text !== null; text = textNow()) {
    const began = performance.now();
    if (text !== before) await show(element, text);
    before = text;
    await pause(Math.max(LEAST_MS, SHARE * (performance.now() - began)));
    known.delete(before); // nobody asks for this beginning again
  }
}

function showPlain(element, text) {
  element.classList.add("plain");
  element.textContent = text;
}

function showHtml(element, html) {
  const open = element.querySelector("details")?.open;
  element.classList.remove("plain");
  element.rendered = true;
  element.innerHTML = policy.createHTML(html);
  if (open) element.querySelector("details").open = true;
  for (const pre of element.querySelectorAll("pre")) frame(pre);
  for (const table of element.querySelectorAll("table")) {
    const around = make("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Table" });
    table.replaceWith(around);
    around.append(table);
  }
}

// A block of code with its language and a button that copies it.
function frame(pre) {
  const language = pre.querySelector("code")?.className.replace("language-", "") || "";
  const text = pre.textContent;
  const head = make("div", { className: "code-head" }, make("span", { textContent: language }), copyButton("Copy code", () => text));
  const around = make("div", { className: "code" });
  pre.replaceWith(around);
  Object.assign(pre, { tabIndex: 0 });
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", language ? `Code in ${language}` : "Code");
  around.append(head, pre);
}
