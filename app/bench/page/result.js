// SPDX-License-Identifier: BSD-2-Clause
/*
 * result.js - reads the result of a run: fields that may be missing, and figures as text.
 */
export const number = (o, key) => (typeof o?.[key] === "number" ? o[key] : NaN);
export const string = (o, key) => (typeof o?.[key] === "string" ? o[key] : "");
export const list = (o, key) => (Array.isArray(o?.[key]) ? o[key] : []);
const objects = (o, key) => list(o, key).filter((v) => v !== null && typeof v === "object");

/* Three digits; "-" where there is no figure. */
export function figure(v) {
  if (!Number.isFinite(v)) return "-";
  return v.toFixed(v >= 100 ? 0 : v >= 10 ? 1 : v >= 0.1 ? 2 : 4);
}

/* Without the noise of binary fractions: 0.1, not 0.1000000001. */
export const short = (v) => String(Number(v.toPrecision(6)));

export const casesOf = (result, noun) => objects(result, "cases").filter((c) => string(c, "noun") === noun);
export const yardsticks = (c) => objects(c, "yardsticks");
export const hasRatio = (y) => Number.isFinite(number(y, "ratio"));

/* The median, over the cases of a noun, of the ratio to one yardstick; null if no case has it. */
export function typicalRatio(result, noun, yardstick) {
  const v = casesOf(result, noun)
    .flatMap(yardsticks)
    .filter((y) => string(y, "name") === yardstick && hasRatio(y))
    .map((y) => y.ratio)
    .sort((a, b) => a - b);
  const half = v.length >> 1;
  if (v.length === 0) return null;
  return v.length % 2 ? v[half] : Math.sqrt(v[half - 1] * v[half]);
}

/* Latency is shown for cases with one operation in flight: with more it is the time in the queue. */
export function hasLatency(c) {
  return c.latency_us !== null && typeof c.latency_us === "object" && /_lat|_1$/.test(string(c, "case"));
}

export const bandwidthCase = (result, kind, size) =>
  objects(result, "cases").find((c) => string(c, "case").startsWith(kind) && (size === undefined || number(c, "size") === size));

export const yardstickOf = (c, name) => yardsticks(c).find((y) => string(y, "name") === name);
