// SPDX-License-Identifier: BSD-2-Clause
/*
 * connections.jsx - queue pairs of all processes on this machine that use the adapter, with their throughput.
 */
import { useRef, useState } from "preact/hooks";
import { listOf } from "../api.js";
import { useFeed } from "../live.js";
import { Address, Badge, Card, Empty, Encryption, Fed, PageHead, SearchBox, Table } from "../ui.jsx";
import { bytes, bytesRate, count, micros, quantile, rate } from "../units.js";

const SHOWN = 50; /* rows of a process: a browser needs long for thousands that change each second */

const stateKinds = { RTS: "good", ERR: "bad", SQE: "warn", CLOSING: "warn", TERMINATE: "bad" };

export const keyOf = (c) => `${c.pid}/${c.qpn}`;

/* Computes rates per second from two readings of a queue pair. */
export function ratesOf(before, now, connections) {
  const span = before ? (now - before.at) / 1000 : 0;
  return new Map(connections.map((c) => {
    const old = span > 0 ? before.all.get(keyOf(c)) : undefined;
    const per = (key) => (old && c[key] >= old[key] ? (c[key] - old[key]) / span : undefined);
    return [keyOf(c), { tx: per("tx_bytes"), rx: per("rx_bytes"), completions: per("completions") }];
  }));
}

/* Names daemons: there may be several. */
export function useProgramNames() {
  const { data } = useFeed("/daemons", 10000);
  const names = new Map(listOf(data, "daemons").map((d) => [d.pid, `stagd ${d.name}`]));
  return (process) => names.get(process.pid) ?? process.program;
}

function useRates(data, connections) {
  const state = useRef({ data: null, before: null, rates: new Map() });
  if (data !== state.current.data) {
    const now = Date.now();
    state.current = {
      data,
      rates: ratesOf(state.current.before, now, connections),
      before: { at: now, all: new Map(connections.map((c) => [keyOf(c), c])) },
    };
  }
  return state.current.rates;
}

function columnsOf(rates) {
  const r = (c) => rates.get(keyOf(c)) ?? {};
  return [
    { head: "Queue pair", sort: (c) => c.qpn, cell: (c) => <b class="mono">{c.qpn}</b> },
    { head: "State", sort: (c) => c.state, cell: (c) => <Badge kind={stateKinds[c.state]}>{c.state}</Badge> },
    { head: "Kind", sort: (c) => c.kind ?? "", cell: (c) => c.kind ?? "–" },
    { head: "TLS", sort: (c) => c.tls?.version ?? "", cell: (c) => <Encryption tls={c.tls} /> },
    { head: "Local", cell: (c) => <Address>{c.local}</Address> },
    { head: "Peer", sort: (c) => c.peer ?? "", cell: (c) => <Address>{c.peer}</Address> },
    { head: "Sent", number: true, sort: (c) => r(c).tx, cell: (c) => <span title={bytes(c.tx_bytes)}>{bytesRate(r(c).tx)}</span> },
    { head: "Received", number: true, sort: (c) => r(c).rx, cell: (c) => <span title={bytes(c.rx_bytes)}>{bytesRate(r(c).rx)}</span> },
    { head: "Completions", number: true, sort: (c) => r(c).completions, cell: (c) => rate(r(c).completions) },
    { head: "Send queue", number: true, cell: (c) => (c.sq ? `${c.sq[0]} of ${c.sq[1]}` : "–") },
    { head: "Latency, p50", number: true, cell: (c) => micros(quantile(c.latency, 0.5)) },
    { head: "p99", number: true, sort: (c) => quantile(c.latency, 0.99), cell: (c) => micros(quantile(c.latency, 0.99)) },
  ];
}

function fits(c, words) {
  const text = `${c.program} ${c.pid} ${c.qpn} ${c.state} ${c.kind ?? ""} ${c.local ?? ""} ${c.peer ?? ""} ${c.tls ? `${c.tls.version} ${c.tls.cipher}` : ""}`.toLowerCase();
  return words.every((w) => text.includes(w));
}

/* Groups by process, in the order of the list. */
export function byProcess(list) {
  const groups = new Map();
  for (const c of list) {
    if (!groups.has(c.pid)) groups.set(c.pid, { pid: c.pid, program: c.program, list: [] });
    groups.get(c.pid).list.push(c);
  }
  return [...groups.values()];
}

export function Connections() {
  const feed = useFeed("/connections", 1000);
  const [search, setSearch] = useState("");
  const nameOf = useProgramNames();
  const all = listOf(feed.data, "connections").map((c) => ({ ...c, program: nameOf(c) }));
  const rates = useRates(feed.data, all);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = byProcess(all.filter((c) => fits(c, words)));
  const columns = columnsOf(rates);
  return (
    <>
      <PageHead title="Connections" note={feed.data ? `${count(all.length)} queue pairs of ${byProcess(all).length} processes` : "Queue pairs by process"} />
      <div class="bar"><SearchBox label="Filter connections" value={search} onInput={setSearch} /></div>
      <Fed feed={feed} lines={6}>
        {() => groups.length ? groups.map((g) => (
          <Card key={g.pid} title={`${g.program ?? "Program"}, process ${g.pid}`} note={`${g.list.length} ${g.list.length === 1 ? "queue pair" : "queue pairs"}`} flush>
            <Table caption={`Queue pairs of ${g.program}, process ${g.pid}`} columns={columns} rows={g.list} keyOf={keyOf} shown={SHOWN} dense />
          </Card>
        )) : (
          <Card>
            <Empty icon="connections" title={all.length ? "No match" : "No process that uses the adapter has a connection"}>
              {!all.length && <p>Run one: <code>stag run PROGRAM</code>. Processes of other users are not shown.</p>}
            </Empty>
          </Card>
        )}
      </Fed>
    </>
  );
}
