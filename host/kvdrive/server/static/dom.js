// SPDX-License-Identifier: Apache-2.0
// Elements of the page, and the line that says what happens.

export const byId = (id) => document.getElementById(id);

export function make(tag, fields = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

export function button(text, action, fields = {}) {
  const made = make("button", { type: "button", className: "tool", textContent: text, ...fields });
  made.addEventListener("click", action);
  return made;
}

// `about`: what the text is about, so that it can be taken back without hiding another one.
export function say(text, { bad = false, about = "" } = {}) {
  const status = byId("status");
  status.textContent = text;
  status.classList.toggle("bad", bad);
  status.dataset.about = about;
}

export function unsay(about) {
  if (byId("status").dataset.about === about) say("");
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
