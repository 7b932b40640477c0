// SPDX-License-Identifier: BSD-2-Clause
/*
 * luns.jsx - block targets: their logical units and sessions.
 */
import { useState } from "preact/hooks";
import { listOf, part, post, remove } from "../api.js";
import { refresh, useFeed } from "../live.js";
import { freePort } from "../ports.js";
import { Badge, Button, Card, Check, Empty, Encryption, Facts, Fed, FormDialog, IconButton, Mono, More, say, SelectField, Table, TextField } from "../ui.jsx";
import { bytes, count, micros, quantile } from "../units.js";

const transportKinds = { "one-shot": "accent", iser: "good", iscsi: "plain", tcp: "plain" };

/* The choices for what a logical unit is backed by: partitions of stores served here, one of another store, or a file or device. */
const OTHER_STORE = "other";
const FILE = "file";
const otherPlaces = [[FILE, "A file or block device…"], [OTHER_STORE, "A partition of a store that is not served here…"]];

function placesOf(stores) {
  const list = stores.flatMap((s) => s.partitions.map((p) => [`store:${s.name}/${p.name}`, `${s.name}/${p.name}, ${bytes(p.size)}`]));
  return [...list, ...otherPlaces];
}

const newUnit = (lun, place) => ({ lun: String(lun), place, path: "", partition: "", block: "512", read_only: false, write_back: false });

/* Builds the API's description of a unit from the fields of its form. */
function unitOf(form) {
  const where = { [FILE]: form.path, [OTHER_STORE]: `${form.path}:${form.partition}` }[form.place] ?? form.place;
  return { lun: Number(form.lun), where, block: Number(form.block), read_only: form.read_only, write_back: form.write_back };
}

/* Shows the fields for the backing of a unit. choices: before those that every unit has. */
function UnitPlace({ form, set, choices }) {
  return (
    <>
      <SelectField label="Backed by" options={choices} value={form.place} onChange={set("place")} wide />
      {form.place === FILE && <TextField label="Path" value={form.path} onInput={set("path")} required wide placeholder="/dev/nvme0n1" />}
      {form.place === OTHER_STORE && <TextField label="Store" value={form.path} onInput={set("path")} required placeholder="/srv/other.store" hint="Its file or device, or mem:NAME" />}
      {form.place === OTHER_STORE && <TextField label="Partition" value={form.partition} onInput={set("partition")} required />}
    </>
  );
}

function UnitOptions({ form, set }) {
  return (
    <>
      <TextField label="LUN number" value={form.lun} onInput={set("lun")} inputMode="numeric" required hint="0 to 16383" />
      <SelectField label="Block" options={[["512", "512 bytes"], ["4096", "4096 bytes"]]} value={form.block} onChange={set("block")} />
      <Check label="Read only" checked={form.read_only} onChange={set("read_only")} />
      <Check label="Write back: durable only after a flush" checked={form.write_back} onChange={set("write_back")} />
    </>
  );
}

function nextLun(target) {
  const taken = new Set(target.luns.map((l) => l.lun));
  let n = 0;
  while (taken.has(n)) n++;
  return n;
}

function AddLun({ target, stores, onClose }) {
  const places = placesOf(stores);
  const [form, setForm] = useState(newUnit(nextLun(target), places[0][0]));
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  async function save() {
    await post(`/targets/${part(target.name)}/luns`, unitOf(form));
    say(`LUN ${form.lun} was added to ${target.name}`);
    refresh("/targets");
  }
  return (
    <FormDialog title={`New logical unit of ${target.name}`} action="Add it" save={save} onClose={onClose} wide>
      <UnitPlace form={form} set={set} choices={places} />
      <More><UnitOptions form={form} set={set} /></More>
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

/* ---- a new target -------------------------------------------------------------------------------- */

const NOTHING = "none";
const transports = [["tcp,iser,one-shot", "iSCSI over TCP, iSER, one-shot"], ["tcp,iser", "iSCSI over TCP, iSER"], ["tcp", "iSCSI over TCP"], ["iser,one-shot", "iSER, one-shot"], ["iser", "iSER"]];
const tlsModes = [["off", "Off"], ["allowed", "Allowed"], ["required", "Required"]];
const emptyTarget = { name: "", iqn: "", alias: "", address: "", port: "", transports: transports[0][0], user: "", secret: "", own_user: "", own_secret_file: "", tls: "off", initiator: "" };

/* Builds the body of POST /targets from the fields that were filled in. */
function targetOf(form, port) {
  const { name, iqn, alias, address, user, secret, own_user, own_secret_file, initiator } = form;
  const filled = Object.entries({ iqn, alias, address, user, secret, own_user, own_secret_file }).filter(([, value]) => value);
  return {
    name,
    port: Number(form.port || port),
    transports: form.transports,
    tls: form.tls,
    ...Object.fromEntries(filled),
    ...(initiator ? { initiators: [{ name: "console", pattern: initiator }] } : {}),
    luns: form.place === NOTHING ? [] : [unitOf(form)],
  };
}

/* CHAP: the secret of initiators, and that with which the target proves itself to them. */
function Chap({ form, set }) {
  return (
    <>
      <TextField label="CHAP user" value={form.user} onInput={set("user")} hint="Name that initiators log in with; empty: anybody may log in" />
      <TextField label="CHAP secret" type="password" value={form.secret} onInput={set("secret")} hint="12 characters or more; stagd keeps it in a file" />
      <TextField label="CHAP user of the target" value={form.own_user} onInput={set("own_user")} hint="If initiators authenticate the target" />
      <TextField label="File of its secret" value={form.own_secret_file} onInput={set("own_secret_file")} placeholder="/etc/stag/target.secret" />
      <SelectField label="TLS" options={tlsModes} value={form.tls} onChange={set("tls")} hint="Needs a CHAP user: its keys are made of the secret" />
      <TextField label="Only initiators named" value={form.initiator} onInput={set("initiator")} placeholder="iqn.2026-01.com.example:*" hint="A name, or a pattern with * and ?; empty: all" />
    </>
  );
}

function NewTarget({ stores, onClose }) {
  const { data: status } = useFeed("/status", 5000);
  const choices = [[NOTHING, "Nothing yet"], ...placesOf(stores)];
  const [form, setForm] = useState({ ...emptyTarget, ...newUnit(0, NOTHING) });
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const port = freePort("target", status);
  async function save() {
    await post("/targets", targetOf(form, port));
    say(`Target ${form.name} is served`);
    refresh("/targets");
  }
  return (
    <FormDialog title="New block target" action="Create it" save={save} onClose={onClose} wide>
      <TextField label="Name" value={form.name} onInput={set("name")} required hint="Letters, digits, . _ -" wide />
      <UnitPlace form={form} set={set} choices={choices} />
      <More>
        <TextField label="iSCSI name" value={form.iqn} onInput={set("iqn")} wide placeholder="iqn.2026-01.com.example:disk" hint="Made of the host's name and the target's, if empty" />
        <TextField label="Alias" value={form.alias} onInput={set("alias")} hint="A second name, for people" />
        <TextField label="Address" value={form.address} onInput={set("address")} hint="All addresses of this machine, if empty" />
        <TextField label="Port" value={form.port} onInput={set("port")} inputMode="numeric" hint={`${port}, if empty`} />
        <SelectField label="Transports" options={transports} value={form.transports} onChange={set("transports")} />
        <Chap form={form} set={set} />
        {form.place !== NOTHING && <UnitOptions form={form} set={set} />}
      </More>
    </FormDialog>
  );
}

function Luns({ target, onRemove }) {
  if (!target.luns.length) return <Empty icon="storage" title="No logical unit yet"><p>An initiator that logs in sees an empty target.</p></Empty>;
  const columns = [
    { head: "LUN", cell: (l) => <b>{l.lun}</b> },
    { head: "Backed by", cell: (l) => <Mono>{l.where}</Mono> },
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
    { head: "TLS", cell: (s) => <Encryption tls={s.tls} /> },
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
          ["TLS", target.tls],
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
      {adding && <NewTarget stores={stores} onClose={() => setAdding(false)} />}
    </>
  );
}
