// SPDX-License-Identifier: BSD-2-Clause
/*
 * overview.jsx - the first page: health, primaries, activity.
 */
import { useMemo, useRef, useState } from "preact/hooks";
import { listOf } from "../api.js";
import { useJournal } from "../events.js";
import { Icon } from "../icons.jsx";
import { useFeed, useHistory } from "../live.js";
import { Plot, Spark } from "../plot.jsx";
import { Badge, Button, Card, Choice, Empty, Fed, Meter, PageHead, Problem, Skeleton } from "../ui.jsx";
import { bytes, bytesRate, count, micros, rate } from "../units.js";
import { EventList } from "./events.jsx";

/* ---- health of a pool ------------------------------------------------------------------------- */

export const roles = {
  primary: ["accent", "Primary"],
  standby: ["good", "Standby"],
  joining: ["warn", "Joining"],
  waiting: ["warn", "Waiting"],
  refused: ["bad", "Refused"],
  unreachable: ["bad", "Unreachable"],
};

export function RoleBadge({ role }) {
  const [kind, word] = roles[role] ?? ["plain", role];
  return <Badge kind={kind}>{word}</Badge>;
}

export function healthOf(pool) {
  if (!pool.nodes) return ["bad", `Pool ${pool.name} is unreachable`, pool.error ?? pool.why ?? ""];
  if (!pool.primary) return ["bad", `Pool ${pool.name} has no primary`, "A standby promotes itself; if none does, see Events."];
  const standbys = pool.nodes.filter((n) => n.role === "standby").length;
  const joining = pool.nodes.find((n) => n.role === "joining");
  if (joining) return ["warn", `${joining.name} is catching up in pool ${pool.name}`, standbys ? "Another standby is in sync." : "Until then there is one copy."];
  if (standbys === 0) return ["warn", `Pool ${pool.name} has no standby in sync`, "Its data is lost if the primary fails. Start a stopped node, or add one with stag pool join."];
  return ["good", `${pool.primary} is primary of ${pool.name}`, `${standbys} ${standbys === 1 ? "standby is" : "standbys are"} in sync.`];
}

function Health({ pools }) {
  const worst = pools.map(healthOf).sort((a, b) => "bad warn good".indexOf(a[0]) - "bad warn good".indexOf(b[0]))[0];
  if (!worst) return null;
  const [kind, title, note] = worst;
  return (
    <div class={`health ${kind}`}>
      <Icon name={{ good: "check", warn: "warn", bad: "bad" }[kind]} size={20} />
      <p><strong>{title}.</strong> <span class="muted">{note}</span></p>
    </div>
  );
}

/* ---- picture of a pool --------------------------------------------------------------------- */

function Node({ node, pool }) {
  return (
    <li class={`node ${node.role}`}>
      <p class="node-name"><span>{node.name}</span> <RoleBadge role={node.role} /></p>
      <p class="muted small mono">{node.address}</p>
      {node.role === "joining" && node.total > 0 ? (
        <p class="small"><Meter value={node.done} of={node.total} label={`${node.name} has copied`} /> {bytes(node.done)} of {bytes(node.total)}</p>
      ) : (
        <p class="small">{node.role === "primary" ? `epoch ${pool.epoch}` : node.lag === undefined ? "no response" : node.lag === 0 ? "up to date" : `${count(node.lag)} ${node.lag === 1 ? "record" : "records"} behind`}</p>
      )}
    </li>
  );
}

/* Shows the primary first: changes flow from there to the standbys. */
export function Picture({ pool, flowing }) {
  const nodes = [...(pool.nodes ?? [])].sort((a, b) => (b.role === "primary") - (a.role === "primary") || a.name.localeCompare(b.name));
  return (
    <ul class={flowing ? "picture flowing" : "picture"} aria-label={`Nodes of pool ${pool.name}`}>
      {nodes.map((n) => <Node key={n.name} node={n} pool={pool} />)}
    </ul>
  );
}

/* ---- figures -------------------------------------------------------------------------------------- */

const lastOf = (values) => values?.slice(-3).filter((v) => typeof v === "number").at(-1);

function Tile({ label, value, values, unit }) {
  return (
    <div class="tile">
      <p class="muted small">{label}</p>
      <p class="figure">{value}</p>
      <p class="muted small">{unit}</p>
      <Spark values={values ?? []} />
    </div>
  );
}

/* Adds the series with matching names, sample by sample. */
function sumOf(history, pattern) {
  const fit = Object.keys(history.series).filter((name) => pattern.test(name));
  return history.time.map((_, i) => {
    const known = fit.map((name) => history.series[name][i]).filter((v) => typeof v === "number");
    return known.length ? known.reduce((a, b) => a + b, 0) : null;
  });
}

function worstOf(history, pattern) {
  const fit = Object.keys(history.series).filter((name) => pattern.test(name));
  return history.time.map((_, i) => {
    const known = fit.map((name) => history.series[name][i]).filter((v) => typeof v === "number");
    return known.length ? Math.max(...known) : null;
  });
}

function seriesOf(history) {
  return {
    changes: sumOf(history, /^pool\/[^/]+\/changes_per_s$/),
    reads: sumOf(history, /^pool\/[^/]+\/reads_per_s$/),
    p50: worstOf(history, /^pool\/[^/]+\/change_p50_us$/),
    p99: worstOf(history, /^pool\/[^/]+\/change_p99_us$/),
    lag: worstOf(history, /^pool\/[^/]+\/lag$/),
    tx: sumOf(history, /^adapter\/tx_bytes_per_s$/),
    rx: sumOf(history, /^adapter\/rx_bytes_per_s$/),
    storeRead: sumOf(history, /^store\/[^/]+\/read_bytes_per_s$/),
    storeWrite: sumOf(history, /^store\/[^/]+\/(written|write)_bytes_per_s$/),
    blockRead: sumOf(history, /^target\/.+\/read_bytes_per_s$/),
    blockWrite: sumOf(history, /^target\/.+\/(written|write)_bytes_per_s$/),
  };
}

function Tiles({ s }) {
  return (
    <div class="tiles">
      <Tile label="Changes" value={rate(lastOf(s.changes))} unit="of all pools" values={s.changes} />
      <Tile label="Change time, p99" value={micros(lastOf(s.p99))} unit={`p50 ${micros(lastOf(s.p50))}`} values={s.p99} />
      <Tile label="Replication lag" value={count(lastOf(s.lag))} unit="records, slowest standby" values={s.lag} />
      <Tile label="Adapters" value={bytesRate(lastOf(s.tx) === undefined ? undefined : lastOf(s.tx) + (lastOf(s.rx) ?? 0))} unit="sent and received"
        values={s.tx.map((v, i) => (v === null ? null : v + (s.rx[i] ?? 0)))} />
    </div>
  );
}

function Plots({ history, s, span, theme }) {
  const line = (label, values, color, area) => ({ label, values, color, area });
  const lists = useMemo(() => ({
    changes: [line("changes", s.changes, "--accent", true)],
    times: [line("p99", s.p99, "--accent"), line("p50", s.p50, "--series-2")],
    lag: [line("records behind", s.lag, "--accent", true)],
    adapter: [line("sent", s.tx, "--accent"), line("received", s.rx, "--series-2")],
    stores: [line("read", s.storeRead, "--accent"), line("written", s.storeWrite, "--series-2")],
    blocks: [line("read", s.blockRead, "--accent"), line("written", s.blockWrite, "--series-2")],
  }), [s]);
  const common = { time: history.time, span, theme };
  return (
    <div class="plots">
      <Plot title="Pool changes" note="Per second, each on every standby in sync" series={lists.changes} format={rate} {...common} />
      <Plot title="Change time" note="Until it is acknowledged" series={lists.times} format={micros} {...common} />
      <Plot title="Replication lag" note="Slowest standby" series={lists.lag} format={count} {...common} />
      <Plot title="Adapters" note="All processes with stag0 on this machine" series={lists.adapter} format={bytesRate} {...common} />
      <Plot title="Stores" note="Through RDMA and locally" series={lists.stores} format={bytesRate} {...common} />
      <Plot title="Block targets" note="iSCSI, iSER and one-shot" series={lists.blocks} format={bytesRate} {...common} />
    </div>
  );
}

/* ---- the page ------------------------------------------------------------------------------------------ */

const spans = [[60, "1 min"], [300, "5 min"], [600, "10 min"]];

/* Keeps the data of the moment when it was paused. */
function usePaused(live, paused) {
  const held = useRef(live);
  if (!paused) held.current = live;
  return held.current;
}

function Activity({ theme }) {
  const feed = useHistory();
  const [span, setSpan] = useState(300);
  const [paused, setPaused] = useState(false);
  const history = usePaused(feed.data, paused);
  const s = useMemo(() => (history ? seriesOf(history) : null), [history]);
  return (
    <>
      <div class="bar">
        <h2>Activity</h2>
        <div class="row">
          <Choice label="Time shown" hidden options={spans} value={span} onChange={setSpan} />
          <Button local icon={paused ? "play" : "pause"} onClick={() => setPaused(!paused)}>{paused ? "Resume" : "Pause"}</Button>
        </div>
      </div>
      {history ? (
        <>
          <Tiles s={s} />
          <Plots history={history} s={s} span={span} theme={theme} />
        </>
      ) : feed.error?.status > 0 ? <Problem error={feed.error} /> : <div class="plots">{[1, 2, 3, 4].map((i) => <div class="card plot-wait" key={i}><Skeleton lines={5} /></div>)}</div>}
    </>
  );
}

function Pools({ pools }) {
  const { data: history } = useHistory();
  if (!pools.length)
    return (
      <Card>
        <Empty icon="pool" title="No pool is served or watched here">
          <p>Create one with <code>stag pool create</code>, or show one that runs elsewhere with a section <code>[watch NAME]</code> in stag.ini.</p>
        </Empty>
      </Card>
    );
  return pools.map((p) => (
    <Card key={p.name} title={`Pool ${p.name}`} note={!p.nodes ? p.error : `${count(p.objects)} values, ${bytes(p.bytes)}; ${bytes(p.used)} of ${bytes(p.size)} used`}
      actions={<a class="button" href={`#/pool/${encodeURIComponent(p.name)}`}>Open</a>}>
      <Picture pool={p} flowing={lastOf(history?.series[`pool/${p.name}/changes_per_s`]) > 0} />
    </Card>
  ));
}

export function Overview({ theme }) {
  const pools = useFeed("/pools", 1000);
  const { events } = useJournal();
  return (
    <>
      <PageHead title="Overview" note="Pools and their primaries, and activity on this machine" />
      <Fed feed={pools} lines={2}>{(d) => <Health pools={listOf(d, "pools")} />}</Fed>
      <Fed feed={pools} lines={4}>{(d) => <Pools pools={listOf(d, "pools")} />}</Fed>
      <Activity theme={theme} />
      <Card title="Latest events" actions={<a class="button" href="#/events">All events</a>} flush>
        {events.length ? <EventList events={events.slice(-6).reverse()} /> : <Empty icon="events" title="No events yet" />}
      </Card>
    </>
  );
}

