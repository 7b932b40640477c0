// SPDX-License-Identifier: BSD-2-Clause
/*
 * live.js - polls stagd: each path once, however many parts of the page show it, only while one does, and only while the page is
 * visible.
 */
import { useEffect, useLayoutEffect, useReducer } from "preact/hooks";
import { get, onAnswer } from "./api.js";

const feeds = new Map(); /* path → feed */

const RETRY_MS = 1000; /* interval of retries after an error, whatever the feed's own interval */

/* Listeners for changes. */
export function subject() {
  const listeners = new Set();
  return {
    told: 0,
    listen(fn) {
      listeners.add(fn);
      return () => listeners.delete(fn);
    },
    tell() {
      this.told++;
      for (const fn of [...listeners]) fn();
    },
  };
}

/* Renders again after a change, even one between the first render and the registration of the listener. */
export function useSubject(s) {
  const [, again] = useReducer((n) => n + 1, 0);
  const drawn = s.told;
  useLayoutEffect(() => {
    const stop = s.listen(again);
    if (s.told !== drawn) again();
    return stop;
  }, [s]);
}

const nothing = subject();

/* ---- connection state -------------------------------------------------------------------------- */

export const link = { state: "connecting", since: Date.now(), subject: subject() };

function setLink(state) {
  if (link.state === state) return;
  const back = state === "live" && link.state !== "connecting";
  link.state = state;
  link.since = Date.now();
  link.subject.tell();
  if (back) refreshAll();
}

onAnswer((error) => {
  if (error?.status === 0) setLink("gone");
  else if (error?.status === 401) setLink("locked");
  else setLink("live");
});

export function useLink() {
  useSubject(link.subject);
  return link;
}

/* ---- feeds ---------------------------------------------------------------------------------------- */

function makeFeed(path) {
  return { path, subject: subject(), data: undefined, error: null, rhythms: [], timer: 0, asking: null, reduce: null };
}

function isWatched(feed) {
  return feed.rhythms.length > 0 && !document.hidden;
}

/* The page does not ask again for what its token may not see: each refusal is audited. */
function plan(feed) {
  clearTimeout(feed.timer);
  if (!isWatched(feed) || feed.error?.status === 403) return;
  const rhythm = Math.min(...feed.rhythms);
  feed.timer = setTimeout(() => ask(feed), feed.error ? Math.min(rhythm, RETRY_MS) : rhythm);
}

async function askNow(feed) {
  try {
    const path = typeof feed.path === "function" ? feed.path(feed.data) : feed.path;
    const answer = await get(path);
    feed.data = feed.reduce ? feed.reduce(feed.data, answer) : answer;
    feed.error = null;
  } catch (error) {
    feed.error = error;
  }
  feed.subject.tell();
}

function ask(feed) {
  clearTimeout(feed.timer);
  feed.asking ??= askNow(feed).finally(() => {
    feed.asking = null;
    plan(feed);
  });
  return feed.asking;
}

function feedOf(key) {
  if (!feeds.has(key)) feeds.set(key, makeFeed(key));
  return feeds.get(key);
}

/* Polls all paths with this prefix now: after a change, or when stagd is back. A response in flight may be stale, so another follows. */
export async function refresh(prefix) {
  const concerned = [...feeds.values()].filter((f) => typeof f.path === "string" && f.path.startsWith(prefix) && f.rhythms.length);
  await Promise.all(concerned.map((f) => f.asking));
  await Promise.all(concerned.map(ask));
}

export function refreshAll() {
  for (const feed of feeds.values()) if (isWatched(feed)) ask(feed);
}

document.addEventListener("visibilitychange", () => {
  for (const feed of feeds.values()) isWatched(feed) ? ask(feed) : clearTimeout(feed.timer);
});

/* Returns {data, error}; data is the last response, even during an error. path null: no request. */
export function useFeed(path, ms = 2000) {
  useSubject(path === null ? nothing : feedOf(path).subject);
  useEffect(() => {
    if (path === null) return undefined;
    const feed = feedOf(path);
    feed.rhythms.push(ms);
    if (feed.rhythms.length === 1) ask(feed);
    return () => {
      feed.rhythms.splice(feed.rhythms.indexOf(ms), 1);
      plan(feed);
    };
  }, [path, ms]);
  if (path === null) return { data: undefined, error: null };
  const feed = feedOf(path);
  return { data: feed.data, error: feed.error };
}

/* ---- history: fetched in pieces, joined here ----------------------------------------------------------- */

const KEPT_S = 600;

/* Joins two pieces of {time, series}; the newer wins. A series is null where it has no sample. */
export function joinHistory(old, piece) {
  if (!piece?.time) return old;
  const from = piece.time[0] ?? Infinity;
  const oldest = (piece.time.at(-1) ?? old?.time.at(-1) ?? 0) - KEPT_S;
  const kept = old ? old.time.map((t, i) => [t, i]).filter(([t]) => t < from && t > oldest).map(([, i]) => i) : [];
  const time = [...kept.map((i) => old.time[i]), ...piece.time];
  const names = new Set([...Object.keys(old?.series ?? {}), ...Object.keys(piece.series ?? {})]);
  const series = {};
  for (const name of names) {
    const before = old?.series[name];
    const after = piece.series[name];
    series[name] = [...kept.map((i) => before?.[i] ?? null), ...piece.time.map((_, i) => after?.[i] ?? null)];
  }
  return { time, series };
}

const historyPath = (data) => (data?.time.length ? `/history?since=${data.time.at(-1)}` : "/history");
feeds.set(historyPath, { ...makeFeed(historyPath), reduce: joinHistory });

export const useHistory = () => useFeed(historyPath, 1000);
