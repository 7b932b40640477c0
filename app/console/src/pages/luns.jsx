// SPDX-License-Identifier: BSD-2-Clause
/*
 * luns.jsx - block targets: their logical units and sessions.
 */
import { useState } from "preact/hooks";
import { listOf, part, post, remove } from "../api.js";
import { refresh, useFeed } from "../live.js";
import { Badge, Button, Card, Check, Empty, Facts, Fed, FormDialog, IconButton, Mono, say, SelectField, Table, TextField } from "../ui.jsx";
import { bytes, count, micros, quantile } from "../units.js";

const transportKinds = { "one-shot": "accent", iser: "good", iscsi: "plain", tcp: "plain" };

/* The choices for a logical unit: partitions of stores served here, or a path. */
function placesOf(stores) {
  const list = stores.flatMap((s) => s.partitions.map((p) => [`store:${s.name}/${p.name}`, `${s.name}/${p.name}, ${bytes(p.size)}`]));
  return [...list, ["", "A file or block device…"]];
}

function nextLun(target) {
  const taken = new Set(target.luns.map((l) => l.lun));
  let n = 0;
  while (taken.has(n)) n++;
  return n;
}

function AddLun({ target, stores, onClose }) {
  const places = placesOf(stores);
  const [form, setForm] = useState({ lun: String(nextLun(target)), place: places[0][0], path: "", block: "512", read_only: false, write_back: false });
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  async function save() {
    await post(`/targets/${part(target.name)}/luns`, {
      lun: Number(form.lun),
      where: form.place || form.path,
      block: Number(form.block),
      read_only: form.read_only,
      write_back: form.write_back,
    });
    say(`LUN ${form.lun} was added to ${target.name}`);
    refresh("/targets");
  }
  return (
    <FormDialog title={`New logical unit of ${target.name}`} action="Add it" save={save} onClose={onClose} wide>
      <TextField label="Number" value={form.lun} onInput={set("lun")} inputMode="numeric" required hint="0 to 255" />
      <SelectField label="Block" options={[["512", "512 bytes"], ["4096", "4096 bytes"]]} value={form.block} onChange={set("block")} />
      <SelectField label="Backed by" options={places} value={form.place} onChange={set("place")} wide />
      {form.place === "" && <TextField label="Path" value={form.path} onInput={set("path")} required wide placeholder="/dev/nvme0n1" />}
      <Check label="Read only" checked={form.read_only} onChange={set("read_only")} />
      <Check label="Write back: durable only after a flush" checked={form.write_back} onChange={set("write_back")} />
    </FormDialog>
  );
}

function RemoveLun({ target, lun, onClose }) {
  async function save() {
    await remove(`/targets/${part(target.name)}/luns/${lun.lun}`);
    say(`LUN ${lun.lun} was removed from ${target.name}`);
    refresh("/targets");
  }
  return (
    <FormDialog title={`Remove LUN ${lun.lun} of ${target.name}?`} action="Remove it" kind="danger" save={save} onClose={onClose}>
      <p>Initiators lose it at once. The data in <Mono>{lun.where}</Mono> stays.</p>
    </FormDialog>
  );
}

function RemoveTarget({ target, onClose }) {
  async function save() {
    await remove(`/targets/${part(target.name)}`);
    say(`Target ${target.name} was removed`);
    refresh("/targets");
  }
  return (
    <FormDialog title={`Remove target ${target.name}?`} action="Remove it" kind="danger" save={save} onClose={onClose} confirm={target.name}>
      <p>{target.sessions?.length ? `Its ${target.sessions.length} sessions are logged out.` : "No initiator is logged in."} The data of its logical units stays.</p>
    </FormDialog>
  );
}

function NewTarget({ onClose }) {
  const [form, setForm] = useState({ name: "", iqn: "", alias: "", port: "" });
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  async function save() {
    await post("/targets", { name: form.name, iqn: form.iqn, ...(form.alias ? { alias: form.alias } : {}), ...(form.port ? { port: Number(form.port) } : {}) });
    say(`Target ${form.name} is served`);
    refresh("/targets");
  }
  return (
    <FormDialog title="New block target" action="Create it" save={save} onClose={onClose} wide>
      <TextField label="Name" value={form.name} onInput={set("name")} required hint="Name of its section: letters, digits, . _ -" />
      <TextField label="Port" value={form.port} onInput={set("port")} inputMode="numeric" hint="3260, if empty" />
      <TextField label="iSCSI name" value={form.iqn} onInput={set("iqn")} required wide placeholder="iqn.2026-01.com.example:disk" />
      <TextField label="Alias" value={form.alias} onInput={set("alias")} wide />
    </FormDialog>
  );
}

function Luns({ target, onRemove }) {
  if (!target.luns.length) return <Empty icon="storage" title="No logical unit yet"><p>An initiator that logs in sees an empty target.</p></Empty>;
  const columns = [
    { head: "LUN", cell: (l) => <b>{l.lun}</b> },
    { head: "Of", cell: (l) => <Mono>{l.where}</Mono> },
    { head: "Block", number: true, cell: (l) => bytes(l.block) },
    { head: "Mode", cell: (l) => <span class="row tight">{l.read_only ? <Badge>read only</Badge> : <Badge>read, write</Badge>}{l.write_back && <Badge kind="warn">write back</Badge>}</span> },
    { head: "", class: "actions", cell: (l) => <IconButton icon="trash" label={`Remove LUN ${l.lun} of ${target.name}`} onClick={() => onRemove(l)} /> },
  ];
  return <Table caption={`Logical units of ${target.name}`} columns={columns} rows={target.luns} keyOf={(l) => l.lun} />;
}

function Sessions({ target }) {
  const columns = [
    { head: "Initiator", cell: (s) => <Mono>{s.initiator}</Mono> },
    { head: "From", cell: (s) => <Mono>{s.address}</Mono> },
    { head: "Transport", cell: (s) => <Badge kind={transportKinds[s.transport]}>{s.transport}</Badge> },
    { head: "Reads", number: true, cell: (s) => `${count(s.counters?.reads)}, ${bytes(s.counters?.read_bytes)}` },
    { head: "Writes", number: true, cell: (s) => `${count(s.counters?.writes)}, ${bytes(s.counters?.written_bytes)}` },
    { head: "STags open", number: true, cell: (s) => count(s.counters?.stags_open) },
  ];
  if (!target.sessions?.length) return <p class="inside muted">No initiator is logged in.</p>;
  return <Table caption={`Sessions of ${target.name}`} columns={columns} rows={target.sessions} keyOf={(s) => s.id} />;
}

function Target({ target, stores }) {
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const c = target.counters ?? {};
  const timed = target.latency ?? {};
  return (
    <Card title={`Target ${target.name}`} note={<Mono>{target.iqn}</Mono>} flush level={3}
      actions={
        <>
          <Button icon="plus" onClick={() => setOpen({ kind: "add" })}>Add a LUN</Button>
          <IconButton icon="trash" label={`Remove target ${target.name}`} onClick={() => setOpen({ kind: "target" })} />
        </>
      }>
      <div class="inside">
        <Facts items={[
          ["Port", target.port],
          target.alias ? ["Alias", target.alias] : null,
          ["Reads", `${count(c.reads)}, ${bytes(c.read_bytes)}; p99 ${micros(quantile(timed.read, 0.99))}`],
          ["Writes", `${count(c.writes)}, ${bytes(c.written_bytes)}; p99 ${micros(quantile(timed.write, 0.99))}`],
          ["Errors", count(c.errors)],
        ]} />
      </div>
      <h4 class="inside">Logical units</h4>
      <Luns target={target} onRemove={(lun) => setOpen({ kind: "lun", lun })} />
      <h4 class="inside">Sessions</h4>
      <Sessions target={target} />
      {open?.kind === "add" && <AddLun target={target} stores={stores} onClose={close} />}
      {open?.kind === "lun" && <RemoveLun target={target} lun={open.lun} onClose={close} />}
      {open?.kind === "target" && <RemoveTarget target={target} onClose={close} />}
    </Card>
  );
}

export function Targets({ stores }) {
  const feed = useFeed("/targets", 2000);
  const [adding, setAdding] = useState(false);
  const list = listOf(feed.data, "targets");
  return (
    <>
      <div class="bar">
        <h2>Block targets</h2>
        <Button icon="plus" onClick={() => setAdding(true)}>New target</Button>
      </div>
      <Fed feed={feed} lines={4}>
        {() => list.length ? list.map((t) => <Target key={t.name} target={t} stores={stores} />) : (
          <Card>
            <Empty icon="storage" title="No block target here"><p>A target exports partitions to iSCSI and iSER initiators as disks.</p></Empty>
          </Card>
        )}
      </Fed>
      {adding && <NewTarget onClose={() => setAdding(false)} />}
    </>
  );
}
