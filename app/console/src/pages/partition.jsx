// SPDX-License-Identifier: BSD-2-Clause
/*
 * partition.jsx - dialogs to create, change and remove a partition, and to edit its rights.
 */
import { useState } from "preact/hooks";
import { part, patch, post, remove } from "../api.js";
import { refresh } from "../live.js";
import { Button, Check, Choice, FormDialog, IconButton, More, say, SelectField, TextField } from "../ui.jsx";
import { bytes, exactSize, parseSize } from "../units.js";

/* ---- rights, with the syntax of the command line ------------------------------------------------- */

const whos = [
  ["local", "Any local user"],
  ["user", "A user"],
  ["group", "A group"],
  ["net", "A network"],
  ["remote", "Any peer"],
  ["token", "With a secret"],
];
const details = { user: ["User", "alice"], group: ["Group", "staff"], net: ["Network", "10.0.0.0/8"], token: ["Secret", "16 characters or more"] };
const accesses = [["none", "nothing"], ["read", "read"], ["write", "write"]];

/* Splits "net:10.0.0.0/8:read" at the last colon: an IPv6 address has colons, too. */
export function parseRight(text) {
  const cut = text.lastIndexOf(":");
  const whom = text.slice(0, cut);
  const colon = whom.indexOf(":");
  return { who: colon < 0 ? whom : whom.slice(0, colon), what: colon < 0 ? "" : whom.slice(colon + 1), access: text.slice(cut + 1) };
}

export const rightWords = ({ who, what, access }) => (details[who] ? `${who}:${what}:${access}` : `${who}:${access}`);

function RightRow({ right, at, of, onChange, onMove, onRemove }) {
  const detail = details[right.who];
  const set = (key) => (value) => onChange({ ...right, [key]: value });
  return (
    <li class="right">
      <div class={detail ? "" : "whole"}>
        <SelectField label="Peer or user" options={whos} value={right.who} onChange={(who) => onChange({ ...right, who, what: "" })} />
      </div>
      {detail && <TextField label={detail[0]} placeholder={detail[1]} value={right.what} onInput={set("what")} required />}
      <SelectField label="Access" options={accesses} value={right.access} onChange={set("access")} />
      <span class="row tight">
        <IconButton icon="up" local label={`Move right ${at + 1} up`} disabled={at === 0} onClick={() => onMove(-1)} />
        <IconButton icon="down" local label={`Move right ${at + 1} down`} disabled={at + 1 === of} onClick={() => onMove(1)} />
        <IconButton icon="trash" local label={`Remove right ${at + 1}`} onClick={onRemove} />
      </span>
    </li>
  );
}

function RightsEditor({ rights, onChange }) {
  const replace = (at, ...by) => onChange(rights.toSpliced ? rights.toSpliced(at, 1, ...by) : [...rights.slice(0, at), ...by, ...rights.slice(at + 1)]);
  function move(at, way) {
    const list = [...rights];
    [list[at], list[at + way]] = [list[at + way], list[at]];
    onChange(list);
  }
  return (
    <fieldset class="rights wide">
      <legend>Rights</legend>
      <p class="hint">The first matching right decides. If none matches, only the store's owner has access.</p>
      <ol>
        {rights.map((r, i) => (
          <RightRow key={i} right={r} at={i} of={rights.length} onChange={(n) => replace(i, n)} onMove={(way) => move(i, way)} onRemove={() => replace(i)} />
        ))}
      </ol>
      <Button icon="plus" local onClick={() => onChange([...rights, { who: "local", what: "", access: "write" }])}>Add a right</Button>
    </fieldset>
  );
}

/* ---- the form ---------------------------------------------------------------------------------------- */

const levels = [["visible", "Visible"], ["accepted", "Accepted"], ["durable", "Durable"]];
const levelNotes = {
  visible: "Later reads see a completed write; a crash of the machine may lose it.",
  accepted: "A completed write was taken from the caller's memory; nothing more.",
  durable: "A completed write is on the medium and survives a loss of power.",
};
const orders = [["strict", "Strict: as verbs define it"], ["any", "Any: whatever is ready first"], ["writes", "Writes that overlap: either may win"], ["reads", "Reads may miss earlier writes"], ["completions", "Completions as they are ready"]];

function settingsOf(partition) {
  return {
    name: partition?.name ?? "",
    size: partition ? exactSize(partition.size) : "",
    level: partition?.level ?? "visible",
    order: partition?.order ?? "strict",
    cache: String(partition?.cache_ms ?? 0),
    rights: (partition?.rights ?? []).map(parseRight),
  };
}

/* Returns only the fields that were changed. */
function changesOf(before, now) {
  const out = {};
  if (now.name !== before.name) out.name = now.name;
  if (now.size !== before.size) out.size = parseSize(now.size) ?? now.size;
  if (now.level !== before.level) out.level = now.level;
  if (now.order !== before.order) out.order = now.order;
  if (now.cache !== before.cache) out.cache_ms = Number(now.cache);
  const words = now.rights.map(rightWords);
  if (words.join() !== before.rights.map(rightWords).join()) out.rights = words;
  return out;
}

export function PartitionForm({ store, partition, onClose }) {
  const before = settingsOf(partition);
  const [form, setForm] = useState(before);
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const base = `/stores/${part(store.name)}/partitions`;
  const known = orders.some(([o]) => o === form.order) ? orders : [[form.order, form.order], ...orders];
  const size = parseSize(form.size);

  async function save() {
    const change = changesOf(before, form);
    if (partition) await patch(`${base}/${part(partition.name)}`, change);
    else await post(base, change);
    say(partition ? `Partition ${form.name} was changed` : `Partition ${form.name} was created`);
    refresh("/stores");
  }
  return (
    <FormDialog title={partition ? `Change ${partition.name}` : `New partition of ${store.name}`} action={partition ? "Change it" : "Create it"} save={save} onClose={onClose} wide>
      <TextField label="Name" value={form.name} onInput={set("name")} required hint="Letters, digits, . _ -" />
      <TextField label="Size" value={form.size} onInput={set("size")} required placeholder="64M"
        hint={partition ? `${bytes(size)}; it can grow, never shrink` : `Such as 512M or 10G; ${bytes(store.largest_gap)} at most`} />
      <More>
        <div class="field wide">
          <Choice label="Level: what a completed write has reached" options={levels} value={form.level} onChange={set("level")} />
          <p class="hint">{levelNotes[form.level]}</p>
        </div>
        <SelectField label="Order" options={known} value={form.order} onChange={set("order")} />
        <TextField label="Cache, ms" value={form.cache} onInput={set("cache")} inputMode="numeric" hint="How long data stays in the cache; 0: no cache" />
        <RightsEditor rights={form.rights} onChange={set("rights")} />
      </More>
    </FormDialog>
  );
}

export function RemovePartition({ store, partition, onClose }) {
  const [force, setForce] = useState(false);
  async function save() {
    await remove(`/stores/${part(store.name)}/partitions/${part(partition.name)}${force ? "?force=1" : ""}`);
    say(`Partition ${partition.name} was removed`);
    refresh("/stores");
  }
  return (
    <FormDialog title={`Remove partition ${partition.name}?`} action="Remove it" kind="danger" save={save} onClose={onClose} confirm={partition.name}>
      <p>{bytes(partition.size)} of data go with it. They cannot be had back.</p>
      <Check label="Even if it was written or is in use: its clients are disconnected" checked={force} onChange={setForce} />
    </FormDialog>
  );
}
