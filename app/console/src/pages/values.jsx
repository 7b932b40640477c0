// SPDX-License-Identifier: BSD-2-Clause
/*
 * values.jsx - the named values of a pool: a paged list, and dialogs to show, put and remove one.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { get, getValue, listOf, part, putValue, removeValue } from "../api.js";
import { Badge, Button, Card, Dialog, Empty, Field, FormDialog, IconButton, LinkButton, Mono, Problem, SearchBox, say, Skeleton, Table, TextField } from "../ui.jsx";
import { bytes, whole } from "../units.js";

/* A name may be any bytes; one that is not UTF-8 is shown percent-encoded. */
const nameOf = (v) => v.name ?? v.path;

const PAGE = 50;
const MOST = 1000; /* values that stagd returns in one response */
const REFRESH_MS = 3000;
const SHOWN_BYTES = 4096;

/* ---- display of bytes ------------------------------------------------------------ */

/* Decodes UTF-8; null: not a text. */
function textOf(raw) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(raw);
    return /[\u0000-\u0008\u000e-\u001f\u007f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

export function hexOf(raw) {
  const lines = [];
  for (let i = 0; i < Math.min(raw.length, SHOWN_BYTES); i += 16) {
    const row = [...raw.slice(i, i + 16)];
    const hex = row.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    lines.push(`${i.toString(16).padStart(6, "0")}  ${hex}  ${row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
  }
  return lines.join("\n");
}

function save(name, raw) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(new Blob([raw]));
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

/* ---- one value --------------------------------------------------------------------------------------- */

function Look({ pool, name, path, onClose, onChanged }) {
  const [value, setValue] = useState(null);
  const [error, setError] = useState(null);
  const [editing, setEditing] = useState(false);
  useEffect(() => {
    getValue(pool.name, path).then(setValue, setError);
  }, []);
  if (editing) return <Put pool={pool} name={name} path={path} text={textOf(value.bytes)} etag={value.etag} onClose={onClose} onChanged={onChanged} />;
  const text = value && textOf(value.bytes);
  return (
    <Dialog title={name} onClose={onClose} wide>
      <div class="dialog-body">
        <Problem error={error} />
        {!value && !error && <Skeleton lines={4} />}
        {value && (
          <>
            <p class="row"><Badge>{bytes(value.bytes.length)}</Badge> {value.etag && <Badge>version {value.etag.replaceAll('"', "")}</Badge>} <Badge>{text === null ? "bytes" : "text"}</Badge></p>
            <pre class="value" tabIndex={0} aria-label={`Value of ${name}`}>{text === null ? hexOf(value.bytes) : text.slice(0, SHOWN_BYTES) || "(empty)"}</pre>
            {value.bytes.length > SHOWN_BYTES && <p class="muted small">Only the first {bytes(SHOWN_BYTES)} are shown.</p>}
          </>
        )}
      </div>
      <footer class="dialog-foot">
        {value && <Button local onClick={() => save(name, value.bytes)}>Save to a file</Button>}
        {value && text !== null && value.bytes.length <= SHOWN_BYTES && <Button icon="edit" onClick={() => setEditing(true)}>Edit</Button>}
        <Button local onClick={onClose}>Close</Button>
      </footer>
    </Dialog>
  );
}

/* etag: of the edited value; null: a new value. If another client has changed it meanwhile, stagd rejects the request. */
function Put({ pool, name = "", path, text = "", etag = null, onClose, onChanged }) {
  const [key, setKey] = useState(name);
  const [value, setValue] = useState(text);
  const [file, setFile] = useState(null);
  async function store() {
    await putValue(pool.name, path ?? part(key), file ? new Uint8Array(await file.arrayBuffer()) : new TextEncoder().encode(value), etag);
    say(`${key} was stored`);
    onChanged();
  }
  return (
    <FormDialog title={etag ? `Edit ${name}` : "Put a value"} action="Store it" save={store} onClose={onClose} wide>
      {!etag && <TextField label="Name" value={key} onInput={setKey} required maxLength={255} wide hint="Up to 255 bytes" />}
      <Field label="Value" wide>
        {(ids) => <textarea rows={6} spellcheck={false} {...ids} value={value} disabled={file !== null} onInput={(e) => setValue(e.currentTarget.value)} />}
      </Field>
      <Field label="Or a file" wide>
        {(ids) => <input type="file" {...ids} onChange={(e) => setFile(e.currentTarget.files[0] ?? null)} />}
      </Field>
    </FormDialog>
  );
}

function Remove({ pool, name, path, onClose, onChanged }) {
  async function go() {
    await removeValue(pool.name, path);
    say(`${name} was removed`);
    onChanged();
  }
  return (
    <FormDialog title="Remove this value?" action="Remove it" kind="danger" save={go} onClose={onClose}>
      <p><b class="break">{name}</b> is removed from the primary and from every standby. This cannot be undone.</p>
    </FormDialog>
  );
}

/* ---- the list ------------------------------------------------------------------------------------------- */

/* Refreshes the list at intervals, since there may be thousands of changes a second. */
function useWhenChanged(number, fn) {
  const now = useRef({ number, fn });
  now.current = { number, fn };
  useEffect(() => {
    let shown = number;
    const timer = setInterval(() => {
      if (now.current.number === shown || document.hidden) return;
      shown = now.current.number;
      now.current.fn();
    }, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
}

const SETTLE_MS = 250; /* after the last key, before the search begins */

/* The search as a pattern of the API: a text is found anywhere in a name. "": no search. */
function patternOf(search) {
  if (!search) return "";
  return /[*?]/.test(search) ? search : `*${search}*`;
}

function useSettled(value) {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/* Fetches up to limit values. stagd looks at so many names a request: if few of them match, several are needed. */
async function fetchValues(pool, pattern, from, limit, isStale) {
  const list = [];
  let next = from;
  do {
    const after = next === null ? "" : `&after=${next}`;
    const match = pattern ? `&match=${part(pattern)}` : "";
    const answer = await get(`/pools/${part(pool)}/values?limit=${limit - list.length}${after}${match}`);
    list.push(...listOf(answer, "values"));
    next = answer.next;
  } while (next !== null && list.length < limit && !isStale());
  return { list, next };
}

/* Pages are appended; null: the first is loading. after: start of the next page; null: there is none. */
function useValues(pool, pattern) {
  const [list, setList] = useState(null);
  const [after, setAfter] = useState(null);
  const [error, setError] = useState(null);

  const turn = useRef(0); /* number of the request: a response that a newer one overtook is dropped, */
  const wanted = useRef(PAGE); /* and the newer one fetches as many values */

  async function load(from, limit) {
    const ours = ++turn.current;
    const isStale = () => ours !== turn.current;
    try {
      const page = await fetchValues(pool.name, pattern, from, limit, isStale);
      if (isStale()) return;
      setList((before) => (from === null ? page.list : [...before, ...page.list]));
      setAfter(page.next);
      setError(null);
    } catch (cause) {
      if (!isStale()) setError(cause);
    }
  }
  const more = () => {
    wanted.current = list.length + PAGE;
    load(after, PAGE);
  };
  const again = () => load(null, Math.min(MOST, Math.max(wanted.current, list?.length ?? 0)));
  useEffect(() => {
    again();
  }, [pool.name, pool.names, pool.primary]);
  useEffect(() => {
    wanted.current = PAGE;
    load(null, PAGE);
  }, [pattern]);
  useWhenChanged(pool.number, again);
  return { list, after, error, more, again };
}

/* How many values are shown, of how many. */
function Shown({ values, pool, pattern }) {
  if (values.after !== null)
    return <p class="more"><Button onClick={values.more}>Show more</Button> <span class="muted small">{values.list.length} of {pattern ? "those that match" : whole(pool.names)}</span></p>;
  return pattern ? <p class="more muted small" role="status">{whole(values.list.length)} of {whole(pool.names)} match</p> : null;
}

export function Values({ pool }) {
  const [search, setSearch] = useState("");
  const pattern = patternOf(useSettled(search.trim()));
  const values = useValues(pool, pattern);
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const openAs = (kind, v) => setOpen({ kind, name: nameOf(v), path: v.path });
  const columns = [
    { head: "Name", sort: nameOf, cell: (v) => <LinkButton onClick={() => openAs("look", v)}>{nameOf(v)}</LinkButton> },
    { head: "Size", number: true, sort: (v) => v.length, cell: (v) => bytes(v.length) },
    { head: "Version", number: true, sort: (v) => v.version, cell: (v) => <Mono>{v.version}</Mono> },
    { head: "", class: "actions", cell: (v) => <IconButton icon="trash" label={`Remove ${nameOf(v)}`} onClick={() => openAs("remove", v)} /> },
  ];
  return (
    <Card title="Values" flush note={`${pool.names} with a name`} actions={<Button icon="plus" onClick={() => setOpen({ kind: "put" })}>Put a value</Button>}>
      <Problem error={values.error?.status > 0 ? values.error : null} />
      {values.list === null && !values.error && <Skeleton lines={4} />}
      {(values.list?.length > 0 || search) && <div class="bar inside"><SearchBox label="Filter all values by name" value={search} onInput={setSearch} /></div>}
      {values.list?.length > 0 && (
        <>
          <Table caption={`Values of pool ${pool.name}`} columns={columns} rows={values.list} keyOf={(v) => v.path} />
          <Shown values={values} pool={pool} pattern={pattern} />
        </>
      )}
      {values.list?.length === 0 && (pattern ? <Empty icon="pool" title="No value matches"><p>All {whole(pool.names)} names were searched. <code>*</code> stands for any text, <code>?</code> for one character.</p></Empty>
        : <Empty icon="pool" title="No named values yet"><p>Put one here, or with <code>stag pool put</code>.</p></Empty>)}
      {open?.kind === "look" && <Look pool={pool} name={open.name} path={open.path} onClose={close} onChanged={values.again} />}
      {open?.kind === "put" && <Put pool={pool} onClose={close} onChanged={values.again} />}
      {open?.kind === "remove" && <Remove pool={pool} name={open.name} path={open.path} onClose={close} onChanged={values.again} />}
    </Card>
  );
}
