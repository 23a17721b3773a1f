// SPDX-License-Identifier: Apache-2.0
// The text of conversations, in this browser (IndexedDB): one record each, so that tabs do not overwrite each other's.

import { merged } from "./tree.js";

const TALKS = "conversations";
let opened = null;
const channel = new BroadcastChannel("kvdrive");

function database() {
  opened ??= new Promise((done, failed) => {
    const request = indexedDB.open("kvdrive", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(TALKS, { keyPath: "id" });
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  return opened;
}

async function work(mode, action) {
  const transaction = (await database()).transaction(TALKS, mode);
  return new Promise((done, failed) => {
    let found;
    transaction.oncomplete = () => done(found);
    transaction.onabort = () => failed(transaction.error);
    action(transaction.objectStore(TALKS), (value) => { found = value; });
  });
}

export const all = () => work("readonly", (store, done) => {
  store.getAll().onsuccess = (event) => done(event.target.result);
});

export const one = (id) => work("readonly", (store, done) => {
  store.get(id).onsuccess = (event) => done(event.target.result);
});

export async function put(talk) {
  await work("readwrite", (store) => {
    store.get(talk.id).onsuccess = (event) => store.put(merged(talk, event.target.result));
  });
  channel.postMessage(talk.id);
}

export async function erase(id) {
  await work("readwrite", (store) => store.delete(id));
  channel.postMessage(id);
}

// `handler` gets the id of a conversation that another tab has changed.
export const onOtherTab = (handler) => { channel.onmessage = (event) => handler(event.data); };
