// SPDX-License-Identifier: BSD-2-Clause
/*
 * ui.jsx - general components of pages. They know nothing of stag.
 */
import { Fragment } from "preact";
import { useEffect, useId, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { Icon } from "./icons.jsx";
import { subject, useLink, useSubject } from "./live.js";
import { whole } from "./units.js";

const joined = (...names) => names.filter(Boolean).join(" ");

/* ---- frames -------------------------------------------------------------------------- */

export function PageHead({ title, note, children }) {
  useEffect(() => {
    document.title = `${title} · stag`;
  }, [title]);
  return (
    <header class="page-head">
      <div>
        <h1 tabIndex={-1} id="page-title">{title}</h1>
        {note && <p class="muted">{note}</p>}
      </div>
      {children && <div class="row">{children}</div>}
    </header>
  );
}

export function Card({ title, note, actions, children, class: name, level = 2, flush }) {
  const id = useId();
  const H = `h${level}`;
  return (
    <section class={joined("card", flush && "flush", name)} aria-labelledby={title ? id : undefined}>
      {title && (
        <header class="card-head">
          <div>
            <H id={id}>{title}</H>
            {note && <p class="muted small">{note}</p>}
          </div>
          {actions && <div class="row">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

export function Badge({ kind = "plain", children }) {
  return <span class={`badge ${kind}`}>{children}</span>;
}

export function Dot({ kind }) {
  return <span class={`dot ${kind}`} aria-hidden="true" />;
}

/* A list of terms and values; [term, value, true] takes a line of its own. */
export function Facts({ items }) {
  return (
    <dl class="facts">
      {items.filter(Boolean).map(([word, what, wide]) => (
        <div key={word} class={wide ? "wide" : ""}>
          <dt>{word}</dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Meter({ value, of, label, kind = "" }) {
  const share = of > 0 ? Math.min(1, value / of) : 0;
  return (
    <div class={`meter ${kind}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)}>
      <i style={{ width: `${(share * 100).toFixed(2)}%` }} />
    </div>
  );
}

/* ---- empty, loading, error --------------------------------------------------------- */

export function Empty({ icon = "about", title, children }) {
  return (
    <div class="empty">
      <span class="empty-icon"><Icon name={icon} size={22} /></span>
      <p class="empty-title">{title}</p>
      {children && <div class="muted">{children}</div>}
    </div>
  );
}

export function Skeleton({ lines = 3 }) {
  return (
    <div class="skeleton" role="status">
      <span class="sr">Loading…</span>
      {Array.from({ length: lines }, (_, i) => <i key={i} />)}
    </div>
  );
}

export function Problem({ error, children }) {
  if (!error) return null;
  return (
    <div class="problem" role="alert">
      <Icon name="warn" />
      <div>
        <p class="strong">{error.message}</p>
        {error.next && <p class="muted">{error.next}</p>}
        {children}
      </div>
    </div>
  );
}

/* Renders a feed's data, or its error. Data from before an error stays visible. */
export function Fed({ feed, lines, children }) {
  if (feed.data !== undefined) return children(feed.data);
  if (feed.error && feed.error.status !== 0 && feed.error.status !== 401) return <Problem error={feed.error} />;
  return <Skeleton lines={lines} />;
}

/* ---- buttons ------------------------------------------------------------------------------- */

/* Returns the attributes of a button that needs the daemon: off while it does not respond. */
function useOff(local, disabled, title) {
  const gone = useLink().state === "gone" && !local;
  return { disabled: gone || disabled, title: gone ? "stagd does not respond" : title };
}

/* local: it works without the daemon. */
export function Button({ icon, kind = "", busy, local, children, ...rest }) {
  const off = useOff(local, rest.disabled, rest.title);
  return (
    <button type="button" class={joined("button", kind)} aria-disabled={busy || undefined} {...rest} {...off}
      onClick={busy ? undefined : rest.onClick}>
      {busy ? <span class="spinner" aria-hidden="true" /> : icon && <Icon name={icon} size={16} />}
      {children && <span>{children}</span>}
    </button>
  );
}

/* A button with an icon only; the label is for screen readers, and the tooltip. */
export function IconButton({ icon, label, kind = "", local, ...rest }) {
  const off = useOff(local, rest.disabled, label);
  return (
    <button type="button" class={joined("icon-button", kind)} aria-label={label} {...rest} {...off}>
      <Icon name={icon} size={16} />
    </button>
  );
}

/* A button that looks like a link, in a text or a table. */
export function LinkButton({ local, children, ...rest }) {
  const off = useOff(local, rest.disabled, rest.title);
  return <button type="button" class="link-button break" {...rest} {...off}>{children}</button>;
}

/* A choice of a few. options: [[value, label], …] */
export function Choice({ label, options, value, onChange, hidden }) {
  const name = useId();
  return (
    <fieldset class="choice">
      <legend class={hidden ? "sr" : ""}>{label}</legend>
      <div class="choice-row">
        {options.map(([v, words]) => (
          <label key={v} class={v === value ? "on" : ""}>
            <input type="radio" name={name} value={v} checked={v === value} onChange={() => onChange(v)} />
            <span>{words}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

/* ---- forms ------------------------------------------------------------------------------------ */

export function Field({ label, hint, error, children, wide }) {
  const id = useId();
  const about = joined(hint && `${id}-hint`, error && `${id}-error`);
  return (
    <div class={joined("field", wide && "wide")}>
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": about || undefined, "aria-invalid": error ? true : undefined })}
      {hint && <p class="hint" id={`${id}-hint`}>{hint}</p>}
      {error && <p class="field-error" id={`${id}-error`}>{error}</p>}
    </div>
  );
}

export function TextField({ label, hint, error, wide, onInput, ...rest }) {
  return (
    <Field label={label} hint={hint} error={error} wide={wide}>
      {(ids) => <input type="text" autoComplete="off" spellcheck={false} {...ids} {...rest} onInput={(e) => onInput(e.currentTarget.value)} />}
    </Field>
  );
}

export function SelectField({ label, hint, options, value, onChange, wide }) {
  return (
    <Field label={label} hint={hint} wide={wide}>
      {(ids) => (
        <select {...ids} value={value} onChange={(e) => onChange(e.currentTarget.value)}>
          {options.map(([v, words]) => <option key={v} value={v}>{words}</option>)}
        </select>
      )}
    </Field>
  );
}

export function Check({ label, checked, onChange }) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(e) => onChange(e.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

/* The fields of a form that most people leave as they are. */
export function More({ children }) {
  return (
    <details class="more-fields">
      <summary>More options</summary>
      <div class="fields">{children}</div>
    </details>
  );
}

export function SearchBox({ label, value, onInput }) {
  return (
    <div class="search">
      <Icon name="search" size={16} />
      <input type="search" aria-label={label} placeholder={label} value={value} spellcheck={false} onInput={(e) => onInput(e.currentTarget.value)} />
    </div>
  );
}

/* ---- dialogs ------------------------------------------------------------------------------------- */

/* The browser's dialog element: it traps the focus, and Escape closes it. */
export function Dialog({ title, onClose, children, wide }) {
  const ref = useRef();
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  return (
    <dialog ref={ref} class={wide ? "wide" : ""} aria-labelledby={id} onClose={onClose} onCancel={onClose}>
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <IconButton icon="close" label="Close" local onClick={onClose} />
      </header>
      {children}
    </dialog>
  );
}

/*
 * A form in a dialog: save() does it, or throws what stagd said, which is shown, and the form stays as it was filled in. confirm: what has to be typed
 * first.
 */
export function FormDialog({ title, action, kind = "primary", save, onClose, children, confirm, wide, ready = true }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [typed, setTyped] = useState("");
  const allowed = ready && (confirm === undefined || typed === confirm);

  async function submit(e) {
    e.preventDefault();
    if (busy || !allowed) return;
    setBusy(true);
    setError(null);
    try {
      await save();
      onClose();
    } catch (cause) {
      setError(cause);
      setBusy(false);
    }
  }

  return (
    <Dialog title={title} onClose={onClose} wide={wide}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          {children}
          {confirm !== undefined && <TextField label={`Type ${confirm} to confirm`} value={typed} onInput={setTyped} wide />}
          <Problem error={error} />
        </div>
        <footer class="dialog-foot">
          <Button local onClick={onClose}>Cancel</Button>
          <Button kind={kind} type="submit" busy={busy} disabled={!allowed}>{action}</Button>
        </footer>
      </form>
    </Dialog>
  );
}

/* Whether a media query matches. Each render reads it: on a busy machine Chromium was seen to change it without an event. */
export function useMedia(query) {
  const [, again] = useReducer((n) => n + 1, 0);
  useLayoutEffect(() => {
    query.addEventListener("change", again);
    return () => query.removeEventListener("change", again);
  }, [query]);
  return query.matches;
}

/* ---- tables ----------------------------------------------------------------------------------------- */

const NARROW = 760; /* px: a narrower screen has no room for a table */
const NARROW_DENSE = 1240;

/* Whether the screen is at most this wide. */
function useNarrow(px) {
  return useMedia(useMemo(() => matchMedia(`(max-width: ${px}px)`), [px]));
}

/* Whether a table once needed more room than its frame has, whatever the width of the screen: values of other processes can be long. */
function useTight(frame) {
  const needed = useRef(0);
  const [tight, set] = useState(false);
  const measure = () => {
    if (!frame.current) return; /* the observer may report once more while the page is left */
    const { scrollWidth, clientWidth, classList } = frame.current;
    if (!classList.contains("blocks") && scrollWidth > clientWidth) needed.current = Math.max(needed.current, scrollWidth);
    set(needed.current > clientWidth);
  };
  useLayoutEffect(measure);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  return tight;
}

/*
 * dense: for many columns. columns: [{head, cell(row), number, sort(row), class}]. On a narrow screen each row is a block, and each cell says its
 * head. Sorted by a click on a head that can be. shown: renders only so many rows, the first ones in the order, with a button for more.
 */
export function Table({ caption, columns, rows, keyOf, rowClass, dense, shown = Infinity }) {
  const [order, setOrder] = useState(null);
  const [most, setMost] = useState(shown);
  const frame = useRef(null);
  const small = useNarrow(dense ? NARROW_DENSE : NARROW);
  const tight = useTight(frame);
  const narrow = small || tight;
  const sorted = order ? [...rows].sort((a, b) => order.way * compare(columns[order.at].sort(a), columns[order.at].sort(b))) : rows;

  function turn(at) {
    setOrder((now) => (now?.at !== at ? { at, way: columns[at].number ? -1 : 1 } : now.way === (columns[at].number ? -1 : 1) ? { at, way: -now.way } : null));
  }

  const table = (
    <div ref={frame} class={joined("table-frame", dense && "dense", narrow && "blocks")}>
      <table>
        <caption class="sr">{caption}</caption>
        <thead>
          <tr>
            {columns.map((c, i) => (
              <th key={i} scope="col" class={joined(c.number && "number", c.class)}
                aria-sort={order?.at === i ? (order.way > 0 ? "ascending" : "descending") : undefined}>
                {c.sort ? (
                  <button type="button" class="sort" onClick={() => turn(i)}>
                    {c.head}
                    <span class="sort-mark" aria-hidden="true">{order?.at === i ? (order.way > 0 ? "↑" : "↓") : ""}</span>
                  </button>
                ) : c.head || <span class="sr">Actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted.slice(0, most).map((row) => (
            <tr key={keyOf(row)} class={rowClass?.(row)}>
              {columns.map((c, i) =>
                i === 0 ? (
                  <th key={i} scope="row" class={c.class} data-head={c.head}>{c.cell(row)}</th>
                ) : (
                  <td key={i} class={joined(c.number && "number", c.class)} data-head={c.head}>{c.cell(row)}</td>
                ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
  return (
    <>
      {table}
      {rows.length > most && (
        <p class="more"><Button local onClick={() => setMost(most * 2)}>Show more</Button> <span class="muted small">{whole(most)} of {whole(rows.length)}</span></p>
      )}
    </>
  );
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : (a ?? -Infinity) - (b ?? -Infinity);
}

/* ---- toasts -------------------------------------------------------------------------- */

const TOAST_MS = 5000;
const toasts = { list: [], subject: subject() };
let nextToast = 1;

function setToasts(list) {
  toasts.list = list;
  toasts.subject.tell();
}

export function say(text, kind = "good") {
  const id = nextToast++;
  setToasts([...toasts.list, { id, text, kind }]);
  setTimeout(() => setToasts(toasts.list.filter((t) => t.id !== id)), TOAST_MS);
}

export function Toasts() {
  useSubject(toasts.subject);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.list.map((t) => (
        <p key={t.id} class={`toast ${t.kind}`}><Icon name={t.kind === "good" ? "check" : "warn"} size={16} /> {t.text}</p>
      ))}
    </div>
  );
}

/* A truncated text with the full text as tooltip. */
export function Mono({ children, title }) {
  return <code class="mono" title={title}>{children}</code>;
}

/* An address and port, which breaks at a colon if it must. */
export function Address({ children }) {
  const parts = (children || "–").split(/(?=:)/);
  return <code class="mono address">{parts.map((p, i) => <Fragment key={i}>{i > 0 && <wbr />}{p}</Fragment>)}</code>;
}

const BY_KERNEL = { sends: ", sent by the kernel", receives: ", received by the kernel", both: ", by the kernel" };

/* How a connection is encrypted: its TLS of the API. */
export function Encryption({ tls }) {
  if (!tls) return "off";
  return <span title={`${tls.cipher}${BY_KERNEL[tls.kernel] || ""}`}>{tls.version}</span>;
}

/* Ticks, to update "3 s ago". */
export function useTick(ms = 1000) {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now;
}
