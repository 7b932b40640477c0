// SPDX-License-Identifier: BSD-2-Clause
/*
 * ports.js - ports for new services: the usual one, or the next that nothing of this daemon has.
 */
export const PORTS = { pool: 7175, store: 7174, target: 3260 };

const STEP = 10; /* the usual ports are next to each other */

/* status: that of the daemon; undefined before the first response. */
export function freePort(kind, status) {
  const services = ["pools", "stores", "targets"].flatMap((list) => status?.[list] ?? []);
  const taken = new Set(services.map((s) => s.port));
  let port = PORTS[kind];
  while (taken.has(port)) port += STEP;
  return port;
}
