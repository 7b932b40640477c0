// SPDX-License-Identifier: BSD-2-Clause
/*
 * memory.jsx - memory that peers may access: regions and STags, STags that initiators advertised to block targets, and heaps.
 */
import { useState } from "preact/hooks";
import { listOf, part, post, remove } from "../api.js";
import { refresh, useFeed } from "../live.js";
import { Badge, Button, Card, Choice, Empty, Fed, FormDialog, IconButton, Mono, PageHead, say, SearchBox, Table } from "../ui.jsx";
import { bytes, count, DASH, micros, whole } from "../units.js";
import { useProgramNames } from "./connections.jsx";

const SHOWN = 50;

const regionKey = (r) => `${r.pid}/${r.stag}`;
const hex = (n) => (typeof n === "number" ? `0x${n.toString(16)}` : (n ?? DASH));
const hasRemoteAccess = (r) => (r.access ?? []).some((a) => a.startsWith("remote"));

const regionColumns = [
  { head: "STag", sort: (r) => r.stag, cell: (r) => <b class="mono">{r.stag}</b> },
  { head: "Kind", sort: (r) => r.kind, cell: (r) => <Badge>{r.kind}</Badge> },
  { head: "Process", sort: (r) => r.program ?? "", cell: (r) => <>{r.program} <span class="muted small">{r.pid}</span></> },
  { head: "Address", cell: (r) => <Mono>{hex(r.address)}</Mono> },
  { head: "Length", number: true, sort: (r) => r.length, cell: (r) => <span title={whole(r.length)}>{bytes(r.length)}</span> },
  { head: "Access", cell: (r) => <span class="row tight">{(r.access ?? []).map((a) => <Badge key={a} kind={a.startsWith("remote") ? "accent" : "plain"}>{a.replace("_", " ")}</Badge>)}</span> },
  { head: "Lease", number: true, cell: (r) => (r.lease_ns ? micros(r.lease_ns / 1000) : DASH) },
];

function sumsOf(regions) {
  const kinds = new Map();
  for (const r of regions) {
    const sum = kinds.get(r.kind) ?? { kind: r.kind, n: 0, bytes: 0 };
    sum.n++;
    sum.bytes += r.length;
    kinds.set(r.kind, sum);
  }
  return [...kinds.values()].sort((a, b) => b.bytes - a.bytes);
}

function Sums({ regions }) {
  return (
    <div class="tiles">
      {sumsOf(regions).map((s) => (
        <div class="tile" key={s.kind}>
          <p class="muted small">{s.kind}</p>
          <p class="figure">{count(s.n)}</p>
          <p class="muted small">{bytes(s.bytes)}</p>
        </div>
      ))}
    </div>
  );
}

function fits(r, words, whom) {
  if (whom === "peers" && !hasRemoteAccess(r)) return false;
  const text = `${r.stag} ${r.kind} ${r.program} ${r.pid} ${(r.access ?? []).join(" ")} ${hex(r.address)}`.toLowerCase();
  return words.every((w) => text.includes(w));
}

function Regions() {
  const feed = useFeed("/regions", 2000);
  const [search, setSearch] = useState("");
  const [whom, setWhom] = useState("all");
  const nameOf = useProgramNames();
  const all = listOf(feed.data, "regions").map((r) => ({ ...r, program: nameOf(r) }));
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter((r) => fits(r, words, whom));
  return (
    <>
      <Fed feed={feed} lines={2}>{() => <Sums regions={all} />}</Fed>
      <div class="bar">
        <SearchBox label="Filter regions" value={search} onInput={setSearch} />
        <Choice label="Regions shown" hidden options={[["all", "All"], ["peers", "Remote access"]]} value={whom} onChange={setWhom} />
      </div>
      <Card title="Regions and STags" note={`${shown.length} of ${all.length}`} flush>
        <Fed feed={feed} lines={6}>
          {() => shown.length ? (
            <Table caption="Regions" columns={regionColumns} rows={shown} keyOf={regionKey} shown={SHOWN} />
          ) : (
            <Empty icon="memory" title={all.length ? "No match" : "No memory is registered"}>{!all.length && <p>Processes that use the adapter register memory that peers may access. Processes of other users are not shown.</p>}</Empty>
          )}
        </Fed>
      </Card>
    </>
  );
}

/* ---- STags that initiators advertised --------------------------------------------------------------------- */

const endKinds = { open: "accent", closed: "good", withdrawn: "plain", orphaned: "bad" };

function Ledger({ target }) {
  const feed = useFeed(`/targets/${part(target.name)}/stags?limit=50`, 2000);
  const list = listOf(feed.data, "stags");
  const columns = [
    { head: "STag", cell: (s) => <b class="mono">{hex(s.stag)}</b> },
    { head: "State", cell: (s) => <Badge kind={endKinds[s.end]}>{s.end}</Badge> },
    { head: "Session", number: true, cell: (s) => s.session },
    { head: "LUN", number: true, cell: (s) => s.lun },
    { head: "Bytes", number: true, cell: (s) => bytes(s.length) },
    { head: "Duration", number: true, cell: (s) => (s.ended ? micros((s.ended - s.made) / 1000) : DASH) },
    { head: "Initiator", cell: (s) => <Mono>{s.initiator}</Mono> },
  ];
  if (!list.length) return null;
  return (
    <Card title={`STags advertised to target ${target.name}`} note="By one-shot sends of initiators, one a command; the newest 50" flush>
      <Table caption={`STags advertised to ${target.name}`} columns={columns} rows={[...list].reverse()} keyOf={(s) => `${s.stag} ${s.made}`} />
    </Card>
  );
}

/* ---- heaps --------------------------------------------------------------------------------------------- */

/* what: reap, trim. */
async function giveBack(heap, what) {
  try {
    const { bytes: freed } = await post(`/heaps/${part(heap.name)}/${what}`);
    say(`Heap ${heap.name}: ${bytes(freed)} freed`);
    refresh("/heaps");
  } catch (error) {
    say(error.message, "warn");
  }
}

function RemoveHeap({ heap, onClose }) {
  async function save() {
    await remove(`/heaps/${part(heap.name)}`);
    say(`Heap ${heap.name} was removed`);
    refresh("/heaps");
  }
  return (
    <FormDialog title={`Remove heap ${heap.name}?`} action="Remove it" kind="danger" save={save} onClose={onClose} confirm={heap.name}>
      <p>For a heap that no process uses any more. All of its allocations are lost.</p>
    </FormDialog>
  );
}

function Heaps() {
  const feed = useFeed("/heaps", 5000);
  const [removing, setRemoving] = useState(null);
  const list = listOf(feed.data, "heaps");
  if (!list.length) return null;
  const columns = [
    { head: "Heap", cell: (h) => <b>{h.name}</b> },
    { head: "Size", number: true, cell: (h) => bytes(h.size) },
    { head: "Blocks", number: true, cell: (h) => `${count(h.blocks)}, ${bytes(h.block_bytes)}` },
    { head: "Allocated", number: true, cell: (h) => `${count(h.allocations)}, ${bytes(h.allocated_bytes)}` },
    { head: "Processes", number: true, cell: (h) => (h.error ? h.error : `${h.processes.length}, ${h.dead_processes} dead`) },
    {
      head: "", class: "actions", cell: (h) => !h.error && (
        <span class="row tight">
          <Button onClick={() => giveBack(h, "reap")}>Reap {h.name}</Button>
          <Button onClick={() => giveBack(h, "trim")}>Trim {h.name}</Button>
          <IconButton icon="trash" label={`Remove heap ${h.name}`} onClick={() => setRemoving(h)} />
        </span>
      ),
    },
  ];
  return (
    <Card title="Heaps" note="Registered memory that several processes share" flush>
      <Table caption="Heaps" columns={columns} rows={list} keyOf={(h) => h.name} />
      {removing && <RemoveHeap heap={removing} onClose={() => setRemoving(null)} />}
    </Card>
  );
}

export function Memory() {
  const { data: targets } = useFeed("/targets", 5000);
  return (
    <>
      <PageHead title="Memory" note="Memory that peers may access, and its keys" />
      <Regions />
      {listOf(targets, "targets").map((t) => <Ledger key={t.name} target={t} />)}
      <Heaps />
    </>
  );
}
