// SPDX-License-Identifier: Apache-2.0
// The page of `kvdrive serve`. The browser keeps the text of its conversations (localStorage), the server their K and V.
// Text from a model or a server is only ever assigned to textContent.
"use strict";

const STORE = "kvdrive.conversations";
const KEY = "kvdrive.key";
const POLL_MS = 2000;
const TRIES = 10; // a session that has just been stopped is in use for a moment
const TRY_MS = 300;
const byId = (id) => document.getElementById(id);

let conversations = JSON.parse(localStorage.getItem(STORE) || "[]"); // {name, title, messages: [{role, content, note}]}
let current = location.hash.slice(1);
let model = null;
let running = null; // AbortController of the answer that streams
let sessions = [];

// ---- the server ----

class Refusal extends Error {
  constructor(status, text, code) { super(text); Object.assign(this, { status, code }); }
}

async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new Refusal(response.status, said?.error?.message || `the server answered ${response.status}`, said?.error?.code);
}

async function retried(statuses, work) {
  for (let tried = 1; ; tried++) {
    try {
      return await work();
    } catch (error) {
      if (!statuses.includes(error.status) || tried === TRIES) throw error;
      if (error.status === 429) say("Other requests are before this one.");
      await new Promise((done) => setTimeout(done, TRY_MS * tried));
    }
  }
}

function askForKey() {
  const dialog = byId("key-dialog");
  if (!dialog.open) dialog.showModal();
}

byId("key-form").addEventListener("submit", () => {
  sessionStorage.setItem(KEY, byId("key").value);
  byId("key").value = "";
  refresh();
});

async function refresh() {
  try {
    const stats = await (await call("v1/stats")).json();
    model = stats.model;
    showFigures(stats);
    sessions = stats.sessions ? (await (await call("v1/sessions")).json()).data : [];
    byId("in-memory").textContent = sessions.filter((one) => one.where === "memory").length;
    byId("keeps").textContent = stats.sessions ? "" : "This server keeps no conversations: each turn is computed again.";
    showList();
  } catch (error) {
    if (error.status === 401) askForKey();
    else say(error instanceof Refusal ? error.message : "The server does not answer. Trying again.", true);
    return;
  }
  if (byId("status").dataset.lost) say("");
}

// ---- conversations ----

function keep() {
  localStorage.setItem(STORE, JSON.stringify(conversations));
}

const chosen = () => conversations.find((one) => one.name === current);

function choose(name) {
  current = name;
  history.replaceState(null, "", `#${name}`);
  showLog();
  showList();
}

function begin() {
  choose(`chat-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`);
  byId("question").focus();
}

async function drop(name, session) {
  if (name === current && running) running.abort();
  conversations = conversations.filter((one) => one.name !== name);
  keep();
  const remove = () => call(`v1/sessions/${name || session.id}`, { method: "DELETE" }); // each turn has a new number
  if (session) await retried([409], remove).catch((error) => say(error.message, true));
  if (name === current) begin();
  await refresh();
}

function make(tag, fields = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

function showList() {
  const kept = new Map(sessions.map((one) => [one.name || `session ${one.id}`, one]));
  const mine = conversations.map((one) => ({ title: one.title, name: one.name, session: kept.get(one.name) })).reverse();
  const known = new Set(conversations.map((one) => one.name));
  const others = [...kept].filter(([name]) => !known.has(name)).map(([name, session]) => ({ title: name, name: null, session }));
  const focused = document.activeElement?.dataset?.item;
  byId("conversations").replaceChildren(...[...mine, ...others].map(({ title, name, session }) => {
    const about = make("span", { className: "quiet" });
    if (session) {
      about.textContent = `${count(session.tokens)} tokens, ${bytes(session.bytes)}, ${age(session.age_seconds)} `;
      about.append(make("span", { className: `where ${session.where}`, textContent: session.where }));
    } else about.textContent = "no K and V kept";
    const open = make("button", { className: "open", disabled: name === null }, make("b", { textContent: title }), about);
    open.dataset.item = `open ${title} ${session?.id}`;
    open.addEventListener("click", () => { choose(name); fold(); byId("question").focus(); });
    const remove = make("button", { className: "drop", textContent: "✕" });
    remove.dataset.item = `drop ${title} ${session?.id}`;
    remove.setAttribute("aria-label", `Remove ${title}`);
    remove.addEventListener("click", () => drop(name, session));
    const item = make("li", { className: name === current ? "chosen" : "" }, open, remove);
    if (name === current) open.setAttribute("aria-current", "true");
    return item;
  }));
  if (focused) document.querySelector(`[data-item="${CSS.escape(focused)}"]`)?.focus();
}

function bubble(message) {
  const text = make("p", { className: "text", textContent: message.content });
  const note = make("p", { className: "quiet", textContent: message.note || "" });
  byId("log").append(make("div", { className: `message ${message.role}` }, text, ...(message.role === "user" ? [] : [note])));
  byId("log").scrollTop = byId("log").scrollHeight;
  return { text, note };
}

function showLog() {
  byId("log").replaceChildren();
  const messages = chosen()?.messages || [];
  if (!messages.length) {
    byId("log").append(make("p", { className: "empty" }, make("b", { textContent: "What would you like to know?" }),
      "K and V of this conversation stay on the drive, and the next turn goes on from there."));
  }
  messages.forEach(bubble);
}

// ---- asking ----

async function ask(question) {
  let talk = chosen();
  if (!talk) {
    talk = { name: current, title: question.slice(0, 60), messages: [] };
    conversations.push(talk);
  }
  if (!talk.messages.length) byId("log").replaceChildren();
  talk.messages.push({ role: "user", content: question });
  bubble(talk.messages.at(-1));
  keep();
  const answer = { role: "assistant", content: "", note: "" };
  const shown = bubble(answer);
  running = new AbortController();
  busy(true, shown.text);
  const began = performance.now();
  try {
    const response = await opened(talk, running.signal);
    talk.messages.push(answer);
    for await (const chunk of events(response)) {
      if (chunk.error) throw new Refusal(500, chunk.error.message);
      answer.content += chunk.choices?.[0]?.delta?.content || "";
      if (current === talk.name) shown.text.textContent = answer.content;
      if (chunk.usage) answer.note = counts(chunk, (performance.now() - began) / 1000);
      byId("log").scrollTop = byId("log").scrollHeight;
    }
    say("The answer is complete.");
  } catch (error) {
    if (error.status === 401) askForKey();
    say(error.name === "AbortError" ? "Stopped." : error.message, error.name !== "AbortError");
    answer.note = error.name === "AbortError" ? "stopped" : error.message;
  } finally {
    running = null;
    shown.note.textContent = answer.note;
    byId("log").scrollTop = byId("log").scrollHeight;
    busy(false, shown.text);
    keep();
    refresh();
  }
}

async function opened(talk, signal) {
  const messages = talk.messages.map(({ role, content }) => ({ role, content }));
  const most = byId("most").valueAsNumber;
  const body = { model, messages, session: talk.name, stream: true, stream_options: { include_usage: true } };
  const heat = byId("heat").valueAsNumber;
  if (most >= 1) body.max_tokens = most;
  if (heat >= 0) body.temperature = heat;
  const post = () => call("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  return retried([409, 429], post).catch((error) => {
    if (error.code !== "context_length_exceeded") throw error;
    delete body.max_tokens; // as long as there is room
    return post();
  });
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n\n");
    rest = lines.pop();
    for (const line of lines) {
      const text = line.replace(/^data: /, "");
      if (text !== "[DONE]") yield JSON.parse(text);
    }
  }
}

function counts({ usage, kvdrive }, seconds) {
  const found = usage.prompt_tokens_details.cached_tokens;
  const how = kvdrive.resume === "recompute" ? ", computed again because that is faster" : "";
  return `${found} of ${usage.prompt_tokens} prompt tokens were on the drive${how}; ` +
    `${usage.completion_tokens} new tokens, ${(usage.completion_tokens / seconds).toFixed(1)} a second`;
}

function busy(yes, text) {
  text.classList.toggle("busy", yes);
  byId("log").setAttribute("aria-busy", yes);
  byId("send").hidden = yes;
  byId("stop").hidden = !yes;
  if (yes) say("The model answers. Esc stops it.");
}

function say(text, bad = false) {
  const status = byId("status");
  status.textContent = text;
  status.classList.toggle("bad", bad);
  status.dataset.lost = bad ? "yes" : "";
}

// ---- figures ----

const count = (number) => Math.round(number).toLocaleString("en");

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, number < 1024 ? 0 : Math.floor(Math.log2(number) / 10));
  const value = number / 1024 ** power;
  return `${value.toFixed(power && value < 100 ? 1 : 0)} ${units[power]}`;
}

function age(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return "just now";
}

function showFigures(stats) {
  byId("model").textContent = stats.model;
  byId("rate").textContent = stats.tokens_per_second.toFixed(1);
  byId("load").textContent = `${stats.running} running, ${stats.waiting} waiting`;
  const host = stats.host_in_bytes + stats.host_out_bytes;
  const most = Math.max(host, stats.read_inside_bytes, 1);
  byId("inside-bar").value = stats.read_inside_bytes / most;
  byId("host-bar").value = host / most;
  byId("inside").textContent = bytes(stats.read_inside_bytes);
  byId("host").textContent = bytes(host);
  byId("ratio").textContent = host && stats.read_inside_bytes > host ? `${count(stats.read_inside_bytes / host)} bytes read inside for each that moves` : "";
  for (const name of ["cached", "prompt", "generated"]) byId(name).textContent = count(stats[`${name}_tokens`]);
  const figures = stats.sessions || {};
  byId("kept").textContent = count(figures.stored || 0);
  for (const [id, name] of [["kept-bytes", "stored_bytes"], ["written", "bytes_written"], ["today", "bytes_today"], ["per-hit", "bytes_per_hit"]]) {
    byId(id).textContent = bytes(figures[name] || 0);
  }
}

// ---- the keyboard and the phone ----

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = byId("question").value.trim();
  if (!question || running || !model) return;
  byId("question").value = "";
  ask(question);
});
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("ask").requestSubmit();
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") { running?.abort(); fold(); } });
byId("stop").addEventListener("click", () => running?.abort());
byId("new").addEventListener("click", () => { begin(); fold(); });

function fold(except) {
  for (const id of ["list", "figures"]) {
    const shown = id === except && !byId(id).classList.contains("shown");
    byId(id).classList.toggle("shown", shown);
    byId(`show-${id}`).setAttribute("aria-expanded", shown);
  }
}
for (const id of ["list", "figures"]) byId(`show-${id}`).addEventListener("click", () => fold(id));

if (chosen()) choose(current);
else begin();
refresh();
setInterval(() => { if (document.visibilityState === "visible" && !byId("key-dialog").open) refresh(); }, POLL_MS);
