// SPDX-License-Identifier: BSD-2-Clause
/*
 * shell.jsx - the frame of every page: navigation, theme, shortcuts, connection state, announcements of primaries.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { listOf, setToken, takeToken } from "./api.js";
import { startJournal } from "./events.js";
import { Icon, Mark } from "./icons.jsx";
import { refreshAll, useFeed, useLink } from "./live.js";
import { About } from "./pages/about.jsx";
import { Audit } from "./pages/audit.jsx";
import { Connections } from "./pages/connections.jsx";
import { Events } from "./pages/events.jsx";
import { Memory } from "./pages/memory.jsx";
import { Overview } from "./pages/overview.jsx";
import { Pool } from "./pages/pool.jsx";
import { Storage } from "./pages/storage.jsx";
import { Button, Dialog, Dot, Field, IconButton, Problem, Toasts, useMedia, useTick } from "./ui.jsx";
import { seconds } from "./units.js";

const pages = [
  { path: "overview", name: "Overview", key: "o", page: Overview },
  { path: "pool", name: "Pool", key: "p", page: Pool },
  { path: "storage", name: "Storage", key: "s", page: Storage },
  { path: "connections", name: "Connections", key: "c", page: Connections },
  { path: "memory", name: "Memory", key: "m", page: Memory },
  { path: "events", name: "Events", key: "e", page: Events },
  { path: "audit", name: "Audit", key: "u", page: Audit },
  { path: "about", name: "About", key: "a", page: About },
];

/* ---- the address: #/pool/shop ------------------------------------------------------------------ */

function placeOf(hash) {
  const [path, ...rest] = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { page: pages.find((p) => p.path === path) ?? pages[0], rest };
}

function usePlace() {
  const [place, set] = useState(placeOf(location.hash));
  useEffect(() => {
    const moved = () => {
      takeToken();
      set(placeOf(location.hash));
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return place;
}

/* ---- light and dark -------------------------------------------------------------------------------- */

const themes = [["auto", "System"], ["light", "Light"], ["dark", "Dark"]];
const themeIcons = { auto: "auto", light: "sun", dark: "moon" };
const system = matchMedia("(prefers-color-scheme: dark)");

function useTheme() {
  const [wish, setWish] = useState(localStorage.getItem("stag-theme") ?? "auto");
  const dark = useMedia(system);
  const theme = wish === "auto" ? (dark ? "dark" : "light") : wish;
  document.documentElement.dataset.theme = theme;
  const turn = () => {
    const next = themes[(themes.findIndex(([t]) => t === wish) + 1) % themes.length][0];
    localStorage.setItem("stag-theme", next);
    setWish(next);
  };
  return { theme, wish, turn };
}

/* ---- shortcuts ------------------------------------------------------------------------------------------ */

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable], dialog");

function useShortcuts(actions) {
  const last = useRef({ key: "", at: 0 });
  useEffect(() => {
    const pressed = (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || isTyping(e.target)) return;
      const after = Date.now() - last.current.at < 1500 ? last.current.key : "";
      const action = actions[`${after} ${e.key}`] ?? actions[e.key];
      last.current = { key: e.key, at: Date.now() };
      if (action) {
        e.preventDefault();
        action();
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
}

function Help({ onClose }) {
  const rows = [...pages.map((p) => [`g ${p.key}`, p.name]), ["/", "Filter or search"], ["t", "Light, dark, system"], ["?", "This help"], ["Esc", "Close a dialog"]];
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="keys dialog-body">
        {rows.map(([keys, what]) => (
          <div key={keys}>
            <dt>{keys.split(" ").map((k) => <kbd key={k}>{k}</kbd>)}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

/* ---- stagd is unreachable, or requires a token ---------------------------------------------------------------------- */

/* Returns the command that starts the daemon again: ./up for its own system (scripts/up/state.sh), else what the daemon has said. */
function startOf(status) {
  if (/\/stag\/up\/[^/]+\.ini$/.test(status?.config ?? "")) return "./up";
  return status?.start ?? "stagd --config FILE";
}

function Gone({ since, status }) {
  const now = useTick();
  return (
    <div class="banner bad" role="alert">
      <Icon name="bad" />
      <div>
        <p>
          <strong>stagd does not respond.</strong> <span aria-hidden="true">For {seconds((now - since) / 1000)}; </span>retrying
          every second. The data shown is from before, and cannot be changed.
        </p>
        <p>Start {status?.name ?? "it"} on its machine: <code>{startOf(status)}</code>. <code>stag doctor</code> finds out why it does not run.</p>
      </div>
    </div>
  );
}

function TokenPrompt() {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  async function submit(e) {
    e.preventDefault();
    setToken(text);
    const answer = await fetch("/api/v1/status", { headers: { Authorization: `Bearer ${text.trim()}` } }).catch(() => null);
    if (answer?.status === 401) {
      setToken("");
      setError({ message: "The token is wrong.", next: "It is in the file whose path stagd prints when it starts; 'stag token create' makes another." });
      return;
    }
    refreshAll();
    startJournal();
  }
  return (
    <main class="gate" id="main">
      <form class="card" onSubmit={submit}>
        <Mark size={40} />
        <h1>stagd requires a token</h1>
        <p class="muted">It is in the file whose path stagd prints when it starts (<code>token-file</code> in <code>[api]</code> of stag.ini); <code>stag token create</code> makes another. The console keeps it for this tab only.</p>
        <Field label="Token" wide>
          {(ids) => <input type="password" autoComplete="off" autoFocus {...ids} value={text} onInput={(e) => setText(e.currentTarget.value)} />}
        </Field>
        <Problem error={error} />
        <Button local kind="primary" type="submit" icon="key" disabled={!text.trim()}>Open the console</Button>
      </form>
    </main>
  );
}

/* ---- changes of a primary, for screen readers -------------------------------------------------------------- */

function Announcer() {
  const { data } = useFeed("/pools", 1000);
  const before = useRef(new Map());
  const [text, setText] = useState("");
  useEffect(() => {
    for (const pool of listOf(data, "pools")) {
      const old = before.current.get(pool.name);
      if (old !== undefined && old !== pool.primary)
        setText(pool.primary ? `${pool.primary} is now primary of pool ${pool.name}, epoch ${pool.epoch}.` : `Pool ${pool.name} has no primary.`);
      before.current.set(pool.name, pool.primary);
    }
  }, [data]);
  return <p class="sr" role="status" aria-live="assertive" id="announcer">{text}</p>;
}

/* ---- the shell ---------------------------------------------------------------------------------------------------- */

function linkWord(link) {
  return { connecting: ["Connecting", "wait"], live: ["Live", "good"], gone: ["Not connected", "bad"], locked: ["Locked", "warn"] }[link.state];
}

function Sidebar({ place, link, status, theme, onHelp, open, onMove }) {
  const [word, kind] = linkWord(link);
  return (
    <div class={open ? "sidebar open" : "sidebar"} id="sidebar">
      <a class="brand" href="#/overview" onClick={onMove}><Mark /><span>stag</span></a>
      <nav aria-label="Pages">
        <ul>
          {pages.map((p) => (
            <li key={p.path}>
              <a href={`#/${p.path}`} aria-current={p === place.page ? "page" : undefined} onClick={onMove}>
                <Icon name={p.path} /> <span>{p.name}</span>
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <div class="sidebar-foot">
        <p class="link-state"><Dot kind={kind} /> <span>{word}</span>{status?.name && <span class="muted">{status.name}</span>}</p>
        <div class="row">
          <IconButton local icon={themeIcons[theme.wish]} label={`Colours: ${themes.find(([t]) => t === theme.wish)[1].toLowerCase()}`} onClick={theme.turn} data-test="theme" />
          <IconButton local icon="help" label="Keyboard help" onClick={onHelp} />
        </div>
      </div>
    </div>
  );
}

function go(path) {
  location.hash = `#/${path}`;
}

/* Scrolls a new page to its top and focuses its title, so that a screen reader reads it; not on the first page. */
function useArrival(key) {
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) {
      scrollTo(0, 0);
      document.getElementById("page-title")?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [key]);
}

export function Shell() {
  const place = usePlace();
  const theme = useTheme();
  const link = useLink();
  const { data: status } = useFeed(link.state === "locked" ? null : "/status", 5000);
  const [help, setHelp] = useState(false);
  const [open, setOpen] = useState(false);
  const Page = place.page.page;

  useArrival(place.page.path);
  useShortcuts({
    ...Object.fromEntries(pages.map((p) => [`g ${p.key}`, () => go(p.path)])),
    "/": () => document.querySelector("main input[type=search]")?.focus(),
    t: theme.turn,
    "?": () => setHelp(true),
  });

  if (link.state === "locked") return <TokenPrompt />;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("page-title")?.focus(); }}>Skip to content</a>
      <header class="topbar">
        <a class="brand" href="#/overview"><Mark size={24} /><span>stag</span></a>
        <span class="topbar-place">{place.page.name}</span>
        <IconButton local icon={open ? "close" : "menu"} label={open ? "Close the menu" : "Open the menu"} aria-expanded={open} aria-controls="sidebar" onClick={() => setOpen(!open)} />
      </header>
      <Sidebar place={place} link={link} status={status} theme={theme} open={open} onHelp={() => setHelp(true)} onMove={() => setOpen(false)} />
      <main id="main" class={link.state === "gone" ? "stale" : ""}>
        {link.state === "gone" && <Gone since={link.since} status={status} />}
        <Page rest={place.rest} theme={theme.theme} />
      </main>
      <Announcer />
      <Toasts />
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}
