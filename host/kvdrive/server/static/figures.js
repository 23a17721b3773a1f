// SPDX-License-Identifier: Apache-2.0
// The live figures of the server.

import { byId } from "./dom.js";
import { kept, remembered, travelled, wear } from "./words.js";

// `stats`: /v1/stats. `stored`: the sessions that the server lists.
export function showFigures(stats, stored) {
  byId("model").textContent = stats.model;
  byId("rate").textContent = stats.tokens_per_second.toFixed(1);
  byId("load").textContent = `${stats.running} ${stats.running === 1 ? "answer is" : "answers are"} being generated, ${stats.waiting || "none"} ${stats.waiting > 1 ? "wait" : "waits"}.`;
  showPicture(stats.read_inside_bytes, stats.host_in_bytes + stats.host_out_bytes);
  byId("remembered").textContent = remembered(stats.cached_tokens, stats.prompt_tokens, stats.generated_tokens);
  const sessions = stats.sessions;
  byId("kept").textContent = sessions ? kept(sessions, sessions.stored || 0, stored.filter((one) => one.where === "memory").length) : "";
  byId("wear").textContent = sessions ? wear(sessions) : "Nothing is kept on flash.";
  byId("keeps").textContent = sessions ? "" : "This server keeps no conversations: each question is read from the start.";
}

function showPicture(inside, moved) {
  const share = inside + moved ? inside / (inside + moved) : 0;
  const percent = Math.round(100 * share);
  byId("inside").value = share;
  byId("inside-share").textContent = inside + moved ? `${percent} % inside the drive` : "";
  byId("moved-share").textContent = inside + moved ? `${100 - percent} % travelled` : "";
  byId("travelled").textContent = travelled(inside, moved);
}
