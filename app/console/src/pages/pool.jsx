// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool.jsx - a pool: its nodes, its primary, and its values.
 */
import { useMemo, useState } from "preact/hooks";
import { listOf, part, remove } from "../api.js";
import { refresh, useFeed, useHistory } from "../live.js";
import { Plot } from "../plot.jsx";
import { Button, Card, Empty, Facts, Fed, FormDialog, IconButton, Meter, Mono, PageHead, Problem, say, Table } from "../ui.jsx";
import { bytes, count, DASH, micros, percent, rate, whole } from "../units.js";
import { healthOf, RoleBadge } from "./overview.jsx";
import { NewPool, StopPool } from "./newpool.jsx";
import { SwitchOver } from "./switchover.jsx";
import { Values } from "./values.jsx";

/* ---- selection of the pool --------------------------------------------------------------------------- */

function PoolTabs({ pools, name }) {
  if (pools.length < 2) return null;
  return (
    <nav class="tabs" aria-label="Pools">
      {pools.map((p) => (
        <a key={p.name} href={`#/pool/${part(p.name)}`} aria-current={p.name === name ? "page" : undefined}>{p.name}</a>
      ))}
    </nav>
  );
}

/* ---- nodes --------------------------------------------------------------------------------------- */

function Forget({ pool, node, onClose }) {
  async function save() {
    await remove(`/pools/${part(pool.name)}/nodes/${part(node.name)}`);
    say(`${node.name} was removed`);
    refresh("/pools");
  }
  return (
    <FormDialog title={`Remove node ${node.name}?`} action="Remove it" kind="danger" save={save} onClose={onClose} confirm={node.name}>
      <p>For a node that will not return. It is removed from the roll; if it returns, it must join again.</p>
    </FormDialog>
  );
}

function lagOf(node) {
  if (node.role === "primary") return DASH;
  if (node.role === "joining" && node.total > 0)
    return (
      <div class="progress">
        <Meter value={node.done} of={node.total} label={`${node.name} has copied`} />
        <span class="small">{bytes(node.done)} of {bytes(node.total)}, {percent(node.done, node.total)}</span>
      </div>
    );
  return node.lag === undefined || node.lag === null ? DASH : `${whole(node.lag)} ${node.lag === 1 ? "record" : "records"}`;
}

function Nodes({ pool }) {
  const [switching, setSwitching] = useState(null);
  const [forgetting, setForgetting] = useState(null);
  const standbys = pool.nodes.filter((n) => n.role === "standby");
  const columns = [
    { head: "Node", cell: (n) => <b>{n.name}</b> },
    { head: "Role", cell: (n) => <RoleBadge role={n.role} /> },
    { head: "Address", cell: (n) => <Mono>{n.address}</Mono> },
    { head: "Last record", number: true, cell: (n) => whole(n.number) },
    { head: "Lag", number: true, cell: lagOf },
    {
      head: "", class: "actions", cell: (n) =>
        n.role === "standby" ? <Button icon="swap" onClick={() => setSwitching({ to: n.name })}>Make {n.name} primary</Button>
          : n.role === "unreachable" ? <IconButton icon="trash" label={`Remove ${n.name}`} onClick={() => setForgetting(n)} /> : null,
    },
  ];
  return (
    <Card title="Nodes" flush note={healthOf(pool)[2]}
      actions={<Button kind="primary" icon="swap" disabled={!standbys.length} title={standbys.length ? undefined : "No standby is in sync"} onClick={() => setSwitching({ to: standbys[0].name })}>Switch over…</Button>}>
      <Table caption={`Nodes of pool ${pool.name}`} columns={columns} rows={pool.nodes} keyOf={(n) => n.name} rowClass={(n) => n.role} />
      {switching && <SwitchOver pool={pool} to={switching.to} onClose={() => setSwitching(null)} />}
      {forgetting && <Forget pool={pool} node={forgetting} onClose={() => setForgetting(null)} />}
    </Card>
  );
}

/* ---- facts ------------------------------------------------------------------------------------- */

function About({ pool }) {
  return (
    <Card title="Memory">
      <Meter value={pool.used} of={pool.size} label="Memory used" kind={pool.used > 0.9 * pool.size ? "warn" : ""} />
      <Facts items={[
        ["Used", `${bytes(pool.used)} of ${bytes(pool.size)}, ${percent(pool.used, pool.size)}`],
        ["Values", `${whole(pool.objects)}, ${bytes(pool.bytes)}`],
        ["Names", whole(pool.names)],
        ["Epoch", whole(pool.epoch)],
        ["Last record", whole(pool.number)],
        pool.lease_us !== undefined && ["Lease", pool.lease_us === null ? "not needed" : micros(pool.lease_us)],
        pool.tls && ["TLS", pool.tls],
        ["UUID", <Mono>{pool.uuid}</Mono>, true],
      ]} />
    </Card>
  );
}

function Unreachable({ pool }) {
  const [, title, note] = healthOf(pool);
  return (
    <Card>
      <Problem error={{ message: title, next: note }} />
      {pool.where && <p class="muted">Its nodes are expected at <Mono>{pool.where}</Mono>.</p>}
    </Card>
  );
}

/* ---- activity ---------------------------------------------------------------------------------------- */

function linesOf(history, name) {
  const values = (key) => history.series[`pool/${name}/${key}`] ?? history.time.map(() => null);
  return {
    changes: [{ label: "changes", values: values("changes_per_s"), area: true }],
    times: [{ label: "p99", values: values("change_p99_us") }, { label: "p50", values: values("change_p50_us"), color: "--series-2" }],
    lag: [{ label: "records behind", values: values("lag"), area: true }],
  };
}

function Activity({ pool, theme }) {
  const { data: history } = useHistory();
  const lines = useMemo(() => (history ? linesOf(history, pool.name) : null), [history, pool.name]);
  if (!lines) return null;
  const common = { time: history.time, span: 120, height: 120, theme };
  return (
    <div class="plots three">
      <Plot title="Changes" note="Per second" series={lines.changes} format={rate} {...common} />
      <Plot title="Change time" note="Until it is acknowledged" series={lines.times} format={micros} {...common} />
      <Plot title="Replication lag" note="Slowest standby" series={lines.lag} format={count} {...common} />
    </div>
  );
}

function One({ pool, theme }) {
  if (!pool.nodes) return <Unreachable pool={pool} />;
  return (
    <>
      <Nodes pool={pool} />
      <Activity pool={pool} theme={theme} />
      <div class="split">
        <Values pool={pool} />
        <About pool={pool} />
      </div>
    </>
  );
}

export function Pool({ rest, theme }) {
  const feed = useFeed("/pools", 1000);
  const [adding, setAdding] = useState(false);
  const [stopping, setStopping] = useState(null);
  const pools = listOf(feed.data, "pools");
  const pool = pools.find((p) => p.name === rest[0]) ?? pools[0];
  return (
    <>
      <PageHead title={pool ? `Pool ${pool.name}` : "Pool"} note={pool?.primary ? <>The primary is <b>{pool.primary}</b>, epoch {count(pool.epoch)}</> : undefined}>
        <Button icon="plus" onClick={() => setAdding(true)}>Serve a pool</Button>
        {pool && <IconButton icon="trash" label={`Stop ${pool.kind === "served" ? "serving" : "watching"} pool ${pool.name}`} onClick={() => setStopping(pool)} />}
      </PageHead>
      <PoolTabs pools={pools} name={pool?.name} />
      <Fed feed={feed} lines={6}>
        {() => pool ? <One key={pool.name} pool={pool} theme={theme} /> : (
          <Card>
            <Empty icon="pool" title="No pool is served or watched here">
              <p>A pool is memory that is replicated on several machines, one of which is the primary. A section <code>[watch NAME]</code> in stag.ini shows a pool that runs elsewhere.</p>
            </Empty>
          </Card>
        )}
      </Fed>
      {adding && <NewPool onClose={() => setAdding(false)} />}
      {stopping && <StopPool pool={stopping} onClose={() => setStopping(null)} />}
    </>
  );
}
