// SPDX-License-Identifier: Apache-2.0
// Numbers as people say them.

export const count = (number) => Math.round(number).toLocaleString("en");
export const tokens = (number) => `${count(number)} ${number === 1 ? "token" : "tokens"}`;

export function bytes(number) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, number < 1024 ? 0 : Math.floor(Math.log2(number) / 10));
  const value = number / 1024 ** power;
  return `${value.toFixed(power && value < 100 ? 1 : 0)} ${units[power]}`;
}

export function age(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return "just now";
}

// Of an answer that has ended: how fast it came, and what the drive had of the tokens before it.
export function aboutAnswer({ end, usage, kvdrive, seconds }) {
  return [pace(usage.completion_tokens, seconds), found(usage, kvdrive), ending(end), dropped(kvdrive.removed_tokens)].filter(Boolean).join(" ");
}

function pace(made, { first, all }) {
  if (made < 2 || all <= first) return `${tokens(made)} in ${all.toFixed(1)} s.`;
  return `${tokens(made)}, ${((made - 1) / (all - first)).toFixed(1)} a second, the first after ${first.toFixed(1)} s.`;
}

function found(usage, kvdrive) {
  const had = usage.prompt_tokens_details.cached_tokens;
  const all = usage.prompt_tokens;
  if (!had && kvdrive.resume === "recompute") return `The model read all ${tokens(all)} before it again, because that is faster here than to use the drive.`;
  if (!had) return `The model read all ${tokens(all)} before it; the drive had none of them yet.`;
  return `The drive had ${count(had)} of the ${tokens(all)} before it (${bytes(kvdrive.found_bytes)}), so the model read only ${count(all - had)}.`;
}

function ending(end) {
  return {
    length: "It was cut off because it is as long as the options or the context allow.",
    stopped: "You stopped it.",
    unread: "It was stopped because no page had read it for a minute.",
  }[end] || "";
}

const dropped = (number) => (number ? `The context was full: the oldest ${tokens(number)} were dropped.` : "");

// Of a branch: what it shares with the others. "" if the drive forked nothing for it.
export function aboutFork({ usage, kvdrive }) {
  const had = usage.prompt_tokens_details.cached_tokens;
  return had && kvdrive.resume !== "recompute" ? `A fork on the drive: it shares ${tokens(had)} with the others, and nothing was copied.` : "";
}

export function travelled(inside, moved) {
  if (!inside && !moved) return "Nothing has been asked yet.";
  const read = `The drive read ${bytes(inside)} of keys and values by itself; `;
  if (inside <= moved) return `${read}${bytes(moved)} travelled between it and the computer. Long conversations change that.`;
  return `${read}only ${bytes(moved)} travelled between it and the computer: one byte for every ${count(inside / Math.max(moved, 1))} that stayed inside.`;
}

export function remembered(found, asked, made) {
  if (!asked) return "Nothing has been asked yet.";
  return `Questions had ${tokens(asked)} with all that came before them; ${count(found)} of these (${Math.round((100 * found) / asked)} %) were on the drive and did not have to be read again. ${tokens(made)} were generated.`;
}

export function kept(sessions, number, inMemory) {
  const memory = inMemory ? ` ${count(inMemory)} of them ${inMemory === 1 ? "is" : "are"} in memory now.` : "";
  return `${count(number)} ${number === 1 ? "conversation is" : "conversations are"} on the drive, ${bytes(sessions.stored_bytes || 0)} in all.${memory}`;
}

export function wear(sessions) {
  const each = sessions.bytes_per_hit ? ` That is ${bytes(sessions.bytes_per_hit)} for each time that something was found.` : "";
  return `${bytes(sessions.bytes_written || 0)} were written so far, ${bytes(sessions.bytes_today || 0)} of them today.${each}`;
}
