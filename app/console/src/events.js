// SPDX-License-Identifier: BSD-2-Clause
/*
 * events.js - what has happened: the last events of stagd, live. By its stream; by asking where a stream does not get through.
 */
import { useEffect } from "preact/hooks";
import { get, listOf, streamEvents } from "./api.js";
import { link, subject, useSubject } from "./live.js";

const KEPT = 1000;
const AGAIN_MS = 1000;
const BREAKS_BEFORE_ASKING = 3; /* streams that ended at once: something between us and stagd does not let them through */

const news = new Set();

export const journal = {
  events: [], /* oldest first */
  mode: "connecting", /* stream, asking */
  last: 0,
  subject: subject(),
};

const tell = () => journal.subject.tell();

/* fn(event), each new one, once. */
export function onEvent(fn) {
  news.add(fn);
  return () => news.delete(fn);
}

/* A daemon that was started anew counts from the beginning: an id alone does not name an event. */
const keyOf = (event) => `${event.id} ${event.time}`;
const seen = new Set();

function take(event, fresh) {
  journal.last = event.id;
  if (seen.has(keyOf(event))) return;
  seen.add(keyOf(event));
  journal.events.push(event);
  if (journal.events.length > KEPT) seen.delete(keyOf(journal.events.shift()));
  if (fresh) for (const fn of news) fn(event);
}

function setMode(mode) {
  if (journal.mode === mode) return;
  journal.mode = mode;
  tell();
}

async function fetchSince(fresh) {
  const answer = await get(`/events?since=${journal.last}&limit=${KEPT}`);
  for (const event of listOf(answer, "events")) take(event, fresh);
  tell();
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/* Until the stream ends or breaks. True: it was one, for a while. */
async function listen(signal) {
  const since = Date.now();
  await streamEvents(journal.last, signal, (event) => {
    take(event, true);
    tell();
  }).catch(() => null);
  return Date.now() - since > AGAIN_MS;
}

async function follow(signal) {
  let breaks = 0;
  let fresh = false; /* what was there before we came is no news */
  while (!signal.aborted) {
    try {
      if (link.state === "gone") journal.last = 0; /* perhaps another process now */
      await fetchSince(fresh);
      fresh = true;
      setMode(breaks < BREAKS_BEFORE_ASKING ? "stream" : "asking");
      if (journal.mode === "stream") breaks = (await listen(signal)) ? 0 : breaks + 1;
    } catch {
      /* who asks for the link's state is told already */
    }
    await pause(AGAIN_MS);
  }
}

let following = null;

export function startJournal() {
  following?.abort();
  following = new AbortController();
  follow(following.signal);
}

export function useJournal() {
  useSubject(journal.subject);
  return journal;
}

export function useEvents(fn) {
  useEffect(() => onEvent(fn), [fn]);
}
