// SPDX-License-Identifier: Apache-2.0
// A conversation as a tree: an edited question or another answer is a branch.
//
// talk: {id, title, created, changed, deleted, options, nodes: [node], leaf}
// node: {id, parent, role, content, session, state, answer, figures, error}
//   parent: the id of the message before it, "" for a first one. session: the name on the drive of the sequence that
//   ends with it or goes on behind it. Of answers: state "running", "done" or "failed"; answer: its name at the server.

export const newName = (kind) => `${kind}-${[...crypto.getRandomValues(new Uint32Array(3))].map((one) => one.toString(36)).join("-")}`;

export function newTalk(options) {
  const now = Date.now();
  return { id: newName("chat"), title: "", created: now, changed: now, deleted: 0, options: { ...options }, nodes: [], leaf: "" };
}

export const nodeOf = (talk, id) => talk.nodes.find((one) => one.id === id);
export const childrenOf = (talk, id) => talk.nodes.filter((one) => one.parent === id);
export const siblingsOf = (talk, node) => childrenOf(talk, node.parent);

// The messages up to `id`, the first one first.
export function pathTo(talk, id) {
  const path = [];
  for (let node = nodeOf(talk, id); node; node = nodeOf(talk, node.parent)) path.unshift(node);
  return path;
}

// The newest message behind `node`.
export function leafBelow(talk, node) {
  const children = childrenOf(talk, node.id);
  return children.length ? leafBelow(talk, children.at(-1)) : node;
}

export const sessionsOf = (talk) => new Set(talk.nodes.map((one) => one.session));
export const branchesOf = (talk) => talk.nodes.filter((one) => !childrenOf(talk, one.id).length).length;

// Add a message behind `parent` and go there. Where there is one already, it begins a branch: a session of its own.
export function add(talk, parent, fields) {
  const before = nodeOf(talk, parent);
  const branches = childrenOf(talk, parent).length > 0;
  const session = branches ? `${talk.id}.${sessionsOf(talk).size + 1}` : before?.session || talk.id;
  const node = { id: newName("m"), parent, session, ...fields };
  talk.nodes.push(node);
  talk.leaf = node.id;
  talk.changed = Date.now();
  return node;
}

// What to store of a conversation that another tab may have changed: the messages of both.
export function merged(mine, theirs) {
  if (!theirs) return mine;
  const own = new Set(mine.nodes.map((one) => one.id));
  const done = new Map(theirs.nodes.filter((one) => one.state === "done").map((one) => [one.id, one]));
  const nodes = mine.nodes.map((one) => (one.state && one.state !== "done" && done.get(one.id)) || one);
  return { ...mine, nodes: [...nodes, ...theirs.nodes.filter((one) => !own.has(one.id))] };
}
