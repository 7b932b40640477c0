// SPDX-License-Identifier: BSD-2-Clause
/*
 * api.js - stagd's HTTP API: one function to ask, and what can be asked for.
 *
 * The token comes in the address (#token=…) or from the person, and is kept for this tab only.
 */
const KEY = "stag-token";

/* What stagd refused, in its own words; or that it could not be reached (status 0). */
export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? (status ? `stagd answered ${status}` : "stagd does not answer"));
    this.status = status;
    this.code = error?.code ?? (status ? "unknown" : "unreachable");
    this.next = error?.next ?? "";
  }
}

let token = sessionStorage.getItem(KEY) ?? "";
const listeners = new Set();

export function setToken(text) {
  token = text.trim();
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

export const hasToken = () => token !== "";

/* An address that ends in #token=TOKEN, or #token=TOKEN&/PAGE, is for the person who was given it: it is taken, and not left to be seen. */
export function takeToken() {
  const m = /^#token=([^&]+)(?:&(\/.*))?/.exec(location.hash);
  if (!m) return;
  setToken(decodeURIComponent(m[1]));
  history.replaceState(null, "", `${location.pathname}#${m[2] ?? "/"}`);
}

/* fn(error or null) after every answer: who shows whether stagd is there listens. */
export function onAnswer(fn) {
  listeners.add(fn);
  return () => listeners.delete(fn);
}

function tell(error) {
  for (const fn of listeners) fn(error);
}

async function errorOf(response) {
  try {
    return new ApiError(response.status, (await response.json()).error);
  } catch {
    return new ApiError(response.status, null);
  }
}

async function send(method, path, { body, type, headers = {}, signal } = {}) {
  const all = { ...headers };
  if (token) all.Authorization = `Bearer ${token}`;
  if (type) all["Content-Type"] = type;
  let response;
  try {
    response = await fetch(`/api/v1${path}`, { method, headers: all, body, signal, cache: "no-store" });
  } catch (cause) {
    if (cause.name === "AbortError") throw cause; /* we did not want it any more */
    const error = new ApiError(0, null);
    tell(error);
    throw error;
  }
  if (!response.ok) {
    const error = await errorOf(response);
    tell(error);
    throw error;
  }
  tell(null);
  return response;
}

const PATIENCE_MS = 8000;

export async function get(path) {
  return (await send("GET", path, { signal: AbortSignal.timeout(PATIENCE_MS) })).json();
}

async function change(method, path, body) {
  const response = await send(method, path, body === undefined ? {} : { body: JSON.stringify(body), type: "application/json" });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

export const post = (path, body = {}) => change("POST", path, body);
export const patch = (path, body) => change("PATCH", path, body);
export const remove = (path) => change("DELETE", path);

/* A part of a path: names may have any character. */
export const part = (text) => encodeURIComponent(text);

/* Lists come under their own name. None yet: an empty one. */
export const listOf = (answer, name) => answer?.[name] ?? [];

/* ---- values: bytes, with their version as an ETag ------------------------------------------- */

/* path: the value's name as it stands in a path; a list of values has it of each. */
const valuePath = (pool, path) => `/pools/${part(pool)}/values/${path}`;

export async function getValue(pool, path) {
  const response = await send("GET", valuePath(pool, path));
  return { bytes: new Uint8Array(await response.arrayBuffer()), etag: response.headers.get("ETag") };
}

/* etag: only if it is still that version; null: only if there is none of this name; undefined: in any case. */
export async function putValue(pool, path, bytes, etag) {
  const headers = etag === undefined ? {} : etag === null ? { "If-None-Match": "*" } : { "If-Match": etag };
  await send("PUT", valuePath(pool, path), { body: bytes, type: "application/octet-stream", headers });
}

export const removeValue = (pool, path) => change("DELETE", valuePath(pool, path));

/* ---- the event stream: a response that does not end --------------------------------------------- */

/* One event a call of fn. Resolves when the stream ends; rejects when it breaks. Not an EventSource: that sends no token. */
export async function streamEvents(since, signal, fn) {
  const response = await send("GET", `/events/stream?since=${since}`, { signal, headers: { Accept: "text/event-stream" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart());
      if (data.length) fn(JSON.parse(data.join("\n")));
    }
  }
}
