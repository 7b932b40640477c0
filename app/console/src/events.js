// SPDX-License-Identifier: BSD-2-Clause
/*
 * events.js - the last events of stagd, live: by its stream, or by polling if something blocks streams.
 */
import { get, listOf, streamEvents } from "./api.js";
import { link, subject, useSubject } from "./live.js";

const KEPT = 1000;
const AGAIN_MS = 1000;
const BREAKS_BEFORE_POLLING = 3; /* streams that ended at once: a proxy probably blocks them */

export const journal = {
  events: [], /* oldest first */
  mode: "connecting", /* stream, polling */
  last: 0,
  subject: subject(),
};

const tell = () => journal.subject.tell();

/* A restarted daemon counts ids from 1 again, so an id alone does not identify an event. */
const keyOf = (event) => `${event.id} ${event.time}`;
const seen = new Set();

function take(event) {
  journal.last = event.id;
  if (seen.has(keyOf(event))) return;
  seen.add(keyOf(event));
  journal.events.push(event);
  if (journal.events.length > KEPT) seen.delete(keyOf(journal.events.shift()));
}

function setMode(mode) {
  if (journal.mode === mode) return;
  journal.mode = mode;
  tell();
}

async function fetchSince() {
  const answer = await get(`/events?since=${journal.last}&limit=${KEPT}`);
  for (const event of listOf(answer, "events")) take(event);
  tell();
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/* Reads the stream until it ends or breaks. Returns true if it lasted for a while. */
async function listen(signal) {
  const since = Date.now();
  await streamEvents(journal.last, signal, (event) => {
    take(event);
    tell();
  }).catch(() => null);
  return Date.now() - since > AGAIN_MS;
}

async function follow(signal) {
  let breaks = 0;
  while (!signal.aborted) {
    try {
      if (link.state === "gone") journal.last = 0; /* it may have been restarted */
      await fetchSince();
      setMode(breaks < BREAKS_BEFORE_POLLING ? "stream" : "polling");
      if (journal.mode === "stream") breaks = (await listen(signal)) ? 0 : breaks + 1;
    } catch {
      /* the connection state already shows it */
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
