// SPDX-License-Identifier: BSD-2-Clause
/*
 * newpool.jsx - a pool begins to be served here, as a new one or by joining one that there is; and it is served no more.
 */
import { useState } from "preact/hooks";
import { part, post, remove } from "../api.js";
import { refresh } from "../live.js";
import { Choice, FormDialog, say, TextField } from "../ui.jsx";

/* What a body of POST /pools has: only what was filled in. */
function bodyOf({ how, name, node, size, roll, secrets, address, port, memory, beat, lease, promote }) {
  const filled = { address, beat, lease, promote, ...(how === "join" ? { roll, secrets } : { size, memory }) };
  return {
    name,
    node,
    ...(how === "new" ? { create: true } : {}),
    ...Object.fromEntries(Object.entries(filled).filter(([, value]) => value)),
    ...(port ? { port: Number(port) } : {}),
  };
}

export function NewPool({ onClose }) {
  const [form, setForm] = useState({ how: "new", name: "", node: "", size: "", roll: "", secrets: "", address: "", port: "", memory: "", beat: "", lease: "", promote: "" });
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const field = (key) => ({ value: form[key], onInput: set(key) });
  const times = form.how === "new" ? "Longer on a machine that is often late" : "As its other nodes have it";
  async function save() {
    await post("/pools", bodyOf(form));
    say(form.how === "new" ? `Pool ${form.name} is made` : `${form.node} joins pool ${form.name}`);
    refresh("/pools");
    location.hash = `#/pool/${part(form.name)}`;
  }
  return (
    <FormDialog title="Serve a pool" action="Serve it" save={save} onClose={onClose} wide>
      <TextField label="Name" required hint="Letters, digits, . _ -" {...field("name")} />
      <TextField label="Node" required hint="What this one is called in it" {...field("node")} />
      <Choice label="The pool" options={[["new", "Is new"], ["join", "Runs elsewhere: join it"]]} value={form.how} onChange={set("how")} />
      {form.how === "new" && <TextField label="Size" required placeholder="1G" hint="Of its memory; it stays as it is" {...field("size")} />}
      {form.how === "join" && <TextField label="Roll" required wide placeholder="etcd://10.0.0.1:2379/shop" hint="Where its nodes keep who is primary" {...field("roll")} />}
      {form.how === "join" && <TextField label="File of its secrets" required wide placeholder="/etc/stag/secrets" hint="A copy of the one that its other nodes have" {...field("secrets")} />}
      <TextField label="Address" hint={form.how === "new" ? "127.0.0.1, if empty" : "All of this machine, if empty"} {...field("address")} />
      <TextField label="Port" inputMode="numeric" hint="7175, if empty" {...field("port")} />
      <TextField label="Heartbeat" placeholder="2ms" hint={times} {...field("beat")} />
      <TextField label="Lease" placeholder="20ms" hint={times} {...field("lease")} />
      <TextField label="Promote" placeholder="24ms" hint="Not less than the lease" {...field("promote")} />
      {form.how === "new" && <TextField label="Address of its memory" wide hint="0x200000000000, if empty; a second pool of this daemon wants another" {...field("memory")} />}
    </FormDialog>
  );
}

export function StopPool({ pool, onClose }) {
  const served = pool.kind === "served";
  const word = served ? "serving" : "watching";
  async function save() {
    await remove(`/pools/${part(pool.name)}`);
    say(`Pool ${pool.name} is not ${served ? "served" : "watched"} here any more`);
    refresh("/pools");
  }
  return (
    <FormDialog title={`Stop ${word} pool ${pool.name}?`} action={`Stop ${word} it`} kind="danger" save={save} onClose={onClose} confirm={pool.name}>
      <p>{served ? "A primary hands over first. Where no other node is in sync, all of its values are lost." : "It goes on; it is only not shown here any more."}</p>
    </FormDialog>
  );
}
