// SPDX-License-Identifier: BSD-2-Clause
/*
 * newpool.jsx - dialogs to serve a pool, new or existing, and to stop serving it.
 */
import { useState } from "preact/hooks";
import { part, post, remove } from "../api.js";
import { refresh, useFeed } from "../live.js";
import { freePort } from "../ports.js";
import { Check, Choice, FormDialog, More, say, TextField } from "../ui.jsx";

/* Builds the body of POST /pools from the fields that were filled in. */
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

/* The pools of a daemon are mapped at addresses this far apart. */
const MEMORY = 0x200000000000;
const STEP = 2 ** 40;

function nextMemory(status) {
  const served = status?.pools?.length ?? 0;
  return served ? `0x${(MEMORY + served * STEP).toString(16)}` : "";
}

export function NewPool({ onClose }) {
  const { data: status } = useFeed("/status", 5000);
  const [form, setForm] = useState({ how: "new", name: "", node: "", size: "", roll: "", secrets: "", address: "", port: "", memory: "", beat: "", lease: "", promote: "" });
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const field = (key) => ({ value: form[key], onInput: set(key) });
  const node = form.node || (status?.name ?? "");
  const times = form.how === "new" ? "Longer on a machine that often stalls" : "As on its other nodes";
  async function save() {
    const filled = { ...form, node, memory: form.memory || nextMemory(status), port: form.port || String(freePort("pool", status)) };
    await post("/pools", bodyOf(filled));
    say(form.how === "new" ? `Pool ${form.name} was created` : `${node} joins pool ${form.name}`);
    refresh("/pools");
    location.hash = `#/pool/${part(form.name)}`;
  }
  return (
    <FormDialog title="Serve a pool" action="Serve it" save={save} onClose={onClose} wide>
      <TextField label="Name" required hint="Letters, digits, . _ -" {...field("name")} />
      {form.how === "new" && <TextField label="Size" required placeholder="1G" hint="Of its memory; it cannot be changed later" {...field("size")} />}
      <Choice label="The pool" options={[["new", "Create a pool"], ["join", "Join an existing pool"]]} value={form.how} onChange={set("how")} />
      {form.how === "join" && <TextField label="Roll" required wide placeholder="etcd://10.0.0.1:2379/shop" hint="The pool's membership record, the same for all nodes" {...field("roll")} />}
      {form.how === "join" && <TextField label="File of secrets" required wide placeholder="/etc/stag/secrets" hint="A copy of that of the other nodes" {...field("secrets")} />}
      <More>
        <TextField label="Node" hint={`Name of this node in the pool; ${status?.name ?? "the daemon's"}, if empty`} {...field("node")} />
        <TextField label="Address" hint={form.how === "new" ? "127.0.0.1, if empty" : "All addresses of this machine, if empty"} {...field("address")} />
        <TextField label="Port" inputMode="numeric" hint={`${freePort("pool", status)}, if empty`} {...field("port")} />
        <TextField label="Heartbeat" placeholder="2ms" hint={times} {...field("beat")} />
        <TextField label="Lease" placeholder="20ms" hint={times} {...field("lease")} />
        <TextField label="Promote" placeholder="24ms" hint="At least the lease" {...field("promote")} />
        {form.how === "new" && <TextField label="Memory address" wide hint={`${nextMemory(status) || "0x200000000000"}, if empty; each pool of this daemon has another`} {...field("memory")} />}
      </More>
    </FormDialog>
  );
}

export function StopPool({ pool, onClose }) {
  const served = pool.kind === "served";
  const word = served ? "serving" : "watching";
  const [force, setForce] = useState(false);
  async function save() {
    await remove(`/pools/${part(pool.name)}${force ? "?force=1" : ""}`);
    say(`Pool ${pool.name} is not ${served ? "served" : "watched"} here any more`);
    refresh("/pools");
  }
  return (
    <FormDialog title={`Stop ${word} pool ${pool.name}?`} action={`Stop ${word} it`} kind="danger" save={save} onClose={onClose} confirm={pool.name}>
      <p>{served ? "A primary hands over first." : "The pool continues to run; it is only not shown here any more."}</p>
      {served && <Check label="Even if this is the only copy of its values: they are lost" checked={force} onChange={setForce} />}
    </FormDialog>
  );
}
