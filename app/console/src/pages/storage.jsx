// SPDX-License-Identifier: BSD-2-Clause
/*
 * storage.jsx - stores and their partitions; below them block targets (luns.jsx).
 */
import { useState } from "preact/hooks";
import { listOf, part, post, remove } from "../api.js";
import { refresh, useFeed } from "../live.js";
import { freePort } from "../ports.js";
import { Badge, Button, Card, Check, Empty, Facts, Fed, FormDialog, IconButton, Mono, More, PageHead, say, Table, TextField } from "../ui.jsx";
import { bytes, count, micros, percent, quantile } from "../units.js";
import { Targets } from "./luns.jsx";
import { PartitionForm, RemovePartition } from "./partition.jsx";

const TABLE_BYTES = 2 * 1024 * 1024; /* offset of the first partition, after the store's table */

/* ---- layout ------------------------------------------------------------------------ */

/* Returns partitions by offset, and the gaps between them. */
export function layoutOf(store) {
  const list = [];
  let at = TABLE_BYTES;
  for (const p of [...store.partitions].sort((a, b) => a.offset - b.offset)) {
    if (p.offset > at) list.push({ free: true, size: p.offset - at, key: `free ${at}` });
    list.push({ name: p.name, size: p.size, key: p.name });
    at = p.offset + p.size;
  }
  if (store.size > at) list.push({ free: true, size: store.size - at, key: `free ${at}` });
  return list;
}

function Map({ store }) {
  const layout = layoutOf(store);
  const words = layout.map((l) => `${l.free ? "free" : l.name} ${bytes(l.size)}`).join(", ");
  return (
    <div class="map" role="img" aria-label={`Layout of store ${store.name}: ${words || "empty"}`}>
      {layout.map((l, i) => (
        <span key={l.key} class={l.free ? "free" : `used shade-${i % 3}`} style={{ flexGrow: l.size }} title={`${l.free ? "free" : l.name}, ${bytes(l.size)}`}>
          <span>{l.free ? "" : l.name}</span>
        </span>
      ))}
    </div>
  );
}

/* ---- a store ------------------------------------------------------------------------------------------ */

function Grow({ store, onClose }) {
  const [size, setSize] = useState("");
  async function save() {
    await post(`/stores/${part(store.name)}/grow`, size ? { size } : {});
    say(`Store ${store.name} was enlarged`);
    refresh("/stores");
  }
  return (
    <FormDialog title={`Grow store ${store.name}`} action="Grow it" save={save} onClose={onClose}>
      <p>It has {bytes(store.size)}. Left empty: as large as its file or device is now.</p>
      <TextField label="New size" placeholder="2G" value={size} onInput={setSize} wide />
    </FormDialog>
  );
}

function StopServing({ store, onClose }) {
  async function save() {
    await remove(`/stores/${part(store.name)}`);
    say(`Store ${store.name} is not served any more`);
    refresh("/stores");
  }
  return (
    <FormDialog title={`Stop serving store ${store.name}?`} action="Stop serving it" kind="danger" save={save} onClose={onClose} confirm={store.name}>
      <p>Its clients are disconnected. The file <Mono>{store.path}</Mono> and its data stay.</p>
    </FormDialog>
  );
}

async function check(store) {
  try {
    const found = await post(`/stores/${part(store.name)}/check`, {});
    const faults = found?.faults ?? 0;
    say(faults ? `Store ${store.name}: ${faults} faults. Try stag store check --repair` : `Store ${store.name} has no fault`, faults ? "warn" : "good");
  } catch (error) {
    say(error.message, "warn");
  }
}

const levelKinds = { durable: "good", visible: "plain", accepted: "warn" };

function Rights({ partition }) {
  if (!partition.rights?.length) return <span class="muted">only the store's owner</span>;
  return <span class="row tight">{partition.rights.map((r) => <Badge key={r}>{r}</Badge>)}</span>;
}

function Partitions({ store }) {
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const columns = [
    { head: "Partition", sort: (p) => p.name, cell: (p) => <b>{p.name}</b> },
    { head: "Size", number: true, sort: (p) => p.size, cell: (p) => bytes(p.size) },
    { head: "Level", cell: (p) => <Badge kind={levelKinds[p.level]}>{p.level}</Badge> },
    { head: "Order", cell: (p) => p.order },
    { head: "Cache", number: true, cell: (p) => (p.cache_ms ? `${p.cache_ms} ms` : "none") },
    { head: "Rights", cell: (p) => <Rights partition={p} /> },
    {
      head: "", class: "actions", cell: (p) => (
        <span class="row tight">
          <IconButton icon="edit" label={`Change ${p.name}`} onClick={() => setOpen({ kind: "change", p })} />
          <IconButton icon="trash" label={`Remove ${p.name}`} onClick={() => setOpen({ kind: "remove", p })} />
        </span>
      ),
    },
  ];
  return (
    <>
      {store.partitions.length ? (
        <Table caption={`Partitions of store ${store.name}`} columns={columns} rows={store.partitions} keyOf={(p) => p.name} />
      ) : (
        <Empty icon="storage" title="No partition yet"><p>Programs connect to a partition by its name.</p></Empty>
      )}
      <p class="more"><Button icon="plus" onClick={() => setOpen({ kind: "create" })}>New partition</Button> <span class="muted small">largest free range {bytes(store.largest_gap)}</span></p>
      {open?.kind === "create" && <PartitionForm store={store} onClose={close} />}
      {open?.kind === "change" && <PartitionForm store={store} partition={open.p} onClose={close} />}
      {open?.kind === "remove" && <RemovePartition store={store} partition={open.p} onClose={close} />}
    </>
  );
}

function Store({ store }) {
  const [open, setOpen] = useState(null);
  const c = store.counters ?? {};
  const timed = store.latency ?? {};
  const close = () => setOpen(null);
  return (
    <Card title={`Store ${store.name}`} note={<Mono>{store.path}</Mono>} flush level={3}
      actions={
        <>
          <Button onClick={() => check(store)}>Check</Button>
          <Button onClick={() => setOpen("grow")}>Grow</Button>
          <IconButton icon="trash" label={`Stop serving store ${store.name}`} onClick={() => setOpen("stop")} />
        </>
      }>
      <div class="inside">
        <Map store={store} />
        <Facts items={[
          ["Used", `${bytes(store.used)} of ${bytes(store.size)}, ${percent(store.used, store.size)}`],
          store.port ? ["Port", store.port] : null,
          ["TLS", store.tls],
          ["Reads", `${count(c.reads)}, ${bytes(c.read_bytes)}; p99 ${micros(quantile(timed.read, 0.99))}`],
          ["Writes", `${count(c.writes)}, ${bytes(c.written_bytes)}; p99 ${micros(quantile(timed.write, 0.99))}`],
          ["Cache", `${count(c.cache_hits)} hits, ${count(c.cache_misses)} misses`],
          ["Partition table", store.copies === 2 ? "both copies intact" : <Badge kind="bad">one copy is damaged: check it</Badge>],
        ]} />
      </div>
      <Partitions store={store} />
      {open === "grow" && <Grow store={store} onClose={close} />}
      {open === "stop" && <StopServing store={store} onClose={close} />}
    </Card>
  );
}

/* ---- a new store -------------------------------------------------------------------------------------------- */

function NewStore({ onClose }) {
  const { data: status } = useFeed("/status", 5000);
  const [form, setForm] = useState({ name: "", path: "", size: "", port: "", format: true });
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const usual = status?.state && form.name ? `${status.state}/${form.name}.store` : "";
  async function save() {
    await post("/stores", {
      name: form.name,
      path: form.path || usual,
      ...(form.format ? { format: true, ...(form.size ? { size: form.size } : {}) } : {}),
      port: Number(form.port || freePort("store", status)),
    });
    say(`Store ${form.name} is served`);
    refresh("/stores");
  }
  return (
    <FormDialog title="Serve a store" action="Serve it" save={save} onClose={onClose} wide>
      <TextField label="Name" value={form.name} onInput={set("name")} required hint="Letters, digits, . _ -" />
      {form.format && <TextField label="Size" value={form.size} onInput={set("size")} placeholder="1G" hint="Such as 512M or 10G; empty: that of the existing file or device" />}
      <More>
        <TextField label="File, block device, or mem:NAME" value={form.path} onInput={set("path")} wide placeholder={usual || "/var/lib/stag/disk"}
          hint={usual ? `${usual}, if empty` : undefined} />
        <TextField label="Port" value={form.port} onInput={set("port")} inputMode="numeric" hint={`${freePort("store", status)}, if empty`} />
        <Check label="Format a new store there" checked={form.format} onChange={set("format")} />
      </More>
    </FormDialog>
  );
}

export function Storage() {
  const stores = useFeed("/stores", 2000);
  const [adding, setAdding] = useState(false);
  const list = listOf(stores.data, "stores");
  return (
    <>
      <PageHead title="Storage" note="Stores, their partitions, and block targets" />
      <div class="bar">
        <h2>Stores</h2>
        <Button icon="plus" onClick={() => setAdding(true)}>Serve a store</Button>
      </div>
      <Fed feed={stores} lines={6}>
        {() => list.length ? list.map((s) => <Store key={s.name} store={s} />) : (
          <Card>
            <Empty icon="storage" title="No store is served here"><p>A store is a file, a block device or memory, divided into partitions that programs access by RDMA.</p></Empty>
          </Card>
        )}
      </Fed>
      <Targets stores={list} />
      {adding && <NewStore onClose={() => setAdding(false)} />}
    </>
  );
}
