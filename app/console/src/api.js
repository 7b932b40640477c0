// SPDX-License-Identifier: BSD-2-Clause
/*
 * api.js - client of stagd's HTTP API.
 *
 * The token comes from the address (#token=…) or from the user, and is kept for this tab only.
 */
const KEY = "stag-token";

/* An error of stagd with its message, or a connection failure (status 0). */
export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? (status ? `stagd answered ${status}` : "stagd does not respond"));
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

/* Takes the token from an address that ends in #token=TOKEN or #token=TOKEN&/PAGE, and removes it from the address bar. */
export function takeToken() {
  const m = /^#token=([^&]+)(?:&(\/.*))?/.exec(location.hash);
  if (!m) return;
  setToken(decodeURIComponent(m[1]));
  history.replaceState(null, "", `${location.pathname}#${m[2] ?? "/"}`);
}

/* Registers fn(error or null), called after every response, to show the connection state. */
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
    if (cause.name === "AbortError") throw cause; /* cancelled by us */
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

/* Encodes a segment of a path: names may have any character. */
export const part = (text) => encodeURIComponent(text);

/* Returns the list of that name in a response; an empty one before the first response. */
export const listOf = (answer, name) => answer?.[name] ?? [];

/* ---- values: bytes, with their version as an ETag ------------------------------------------- */

/* path: the value's name, percent-encoded; lists of values contain it. */
const valuePath = (pool, path) => `/pools/${part(pool)}/values/${path}`;

export async function getValue(pool, path) {
  const response = await send("GET", valuePath(pool, path));
  return { bytes: new Uint8Array(await response.arrayBuffer()), etag: response.headers.get("ETag") };
}

/* etag: store only if the value still has that version; null: only if it does not exist; undefined: always. */
export async function putValue(pool, path, bytes, etag) {
  const headers = etag === undefined ? {} : etag === null ? { "If-None-Match": "*" } : { "If-Match": etag };
  await send("PUT", valuePath(pool, path), { body: bytes, type: "application/octet-stream", headers });
}

export const removeValue = (pool, path) => change("DELETE", valuePath(pool, path));

/* ---- the event stream: a response that does not end --------------------------------------------- */

/* Calls fn for each event. Resolves when the stream ends, rejects when it breaks. EventSource is no option: it sends no token. */
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
