// SPDX-License-Identifier: BSD-2-Clause
/*
 * units.js - formats sizes, rates and times. An unknown value is a dash.
 */
export const DASH = "–";

const known = (n) => typeof n === "number" && Number.isFinite(n);

/* Three significant digits: 1.23, 12.3, 123. */
function short(n) {
  const digits = Math.abs(n) >= 100 ? 0 : Math.abs(n) >= 10 ? 1 : 2;
  return String(Number(n.toFixed(digits)));
}

function scaled(n, step, units) {
  let unit = 0;
  while (Math.abs(n) >= step && unit + 1 < units.length) {
    n /= step;
    unit++;
  }
  return `${short(n)}${units[unit]}`;
}

export const bytes = (n) => (known(n) ? scaled(n, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]) : DASH);
export const bytesRate = (n) => (known(n) ? `${bytes(n)}/s` : DASH);
export const count = (n) => (known(n) ? scaled(n, 1000, ["", " k", " M", " G", " T"]) : DASH);
export const rate = (n) => (known(n) ? `${count(n)}/s` : DASH);
export const micros = (us) => (known(us) ? (us < 1000 ? `${short(us)} µs` : us < 1e6 ? `${short(us / 1e3)} ms` : `${short(us / 1e6)} s`) : DASH);
export const whole = (n) => (known(n) ? n.toLocaleString("en").replaceAll(",", " ") : DASH);
export const percent = (part, all) => (known(part) && all > 0 ? `${short((100 * part) / all)} %` : DASH);

export function seconds(s) {
  if (!known(s)) return DASH;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function ago(time, now = Date.now()) {
  const s = (now - new Date(time).getTime()) / 1000;
  if (!known(s)) return DASH;
  return s < 2 ? "now" : `${seconds(s)} ago`;
}

export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

/* Formats an exact size that can be typed again: 256M, 4100. */
export function exactSize(n) {
  let unit = 0;
  while (n > 0 && n % 1024 === 0 && unit < 5) {
    n /= 1024;
    unit++;
  }
  return `${n}${" KMGTP"[unit].trim()}`;
}

/* Parses 64M, 1.5 GiB or 4096 to bytes; null: not a size. */
export function parseSize(text) {
  const m = /^\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?\s*$/i.exec(text);
  if (!m) return null;
  const shift = "KMGTP".indexOf(m[2].toUpperCase()) + 1;
  const n = Math.round(Number(m[1]) * 1024 ** (m[2] ? shift : 0));
  return Number.isSafeInteger(n) && n > 0 ? n : null;
}

/* Returns a quantile, in µs, of a histogram {count, buckets: [[upper_ns, count], …]}; null: it is empty. */
export function quantile(h, q) {
  if (!h || !h.count || !h.buckets?.length) return null;
  const rank = q * h.count;
  let seen = 0;
  for (const [upper, n] of h.buckets) {
    if (seen + n >= rank) {
      const lower = upper / 2 ** 0.25;
      return Math.min(lower + (upper - lower) * ((rank - seen) / n), h.max_ns ?? upper) / 1000;
    }
    seen += n;
  }
  return (h.max_ns ?? h.buckets.at(-1)[0]) / 1000;
}
