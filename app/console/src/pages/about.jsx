// SPDX-License-Identifier: BSD-2-Clause
/*
 * about.jsx - this daemon and its machine: configuration, and the findings of stag doctor.
 */
import { useState } from "preact/hooks";
import { hasToken, listOf, post, setToken } from "../api.js";
import { refreshAll, useFeed } from "../live.js";
import { Badge, Button, Card, Empty, Facts, Fed, Mono, PageHead, Problem, say, Table, useTick } from "../ui.jsx";
import { ago, seconds } from "../units.js";

const kinds = { good: "good", note: "plain", warning: "warn", fault: "bad" };
const worst = ["fault", "warning", "note", "good"];

/* Sorts faults first. */
function Findings({ doctor }) {
  const list = [...listOf(doctor, "findings")].sort((a, b) => worst.indexOf(a.level) - worst.indexOf(b.level));
  return (
    <ul class="findings">
      {list.map((f) => (
        <li key={`${f.area} ${f.subject}`}>
          <Badge kind={kinds[f.level]}>{f.level}</Badge>
          <div>
            <p><b>{f.subject}</b> {f.found}</p>
            {f.level !== "good" && f.means && <p class="muted small">{f.means}</p>}
            {f.next && <p class="small"><code>{f.next}</code></p>}
          </div>
        </li>
      ))}
    </ul>
  );
}

function Reload() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  async function go() {
    setBusy(true);
    setError(null);
    try {
      await post("/reload");
      say("stagd has reloaded its configuration");
      refreshAll();
    } catch (cause) {
      setError(cause);
    }
    setBusy(false);
  }
  return (
    <>
      <p class="row"><Button icon="reload" busy={busy} onClick={go}>Reload the configuration</Button> <span class="muted small">No connection is dropped.</span></p>
      <Problem error={error} />
    </>
  );
}

function forgetToken() {
  setToken("");
  location.reload();
}

function Daemon({ status }) {
  useTick(1000);
  return (
    <>
      <Facts items={[
        ["Version", status.version],
        ["Name", status.name],
        ["Process", status.pid],
        ["Started", <time dateTime={status.started} title={status.started}>{ago(status.started)}</time>],
        ["Up", seconds((Date.now() - new Date(status.started).getTime()) / 1000)],
        ["Configuration", <Mono>{status.config}</Mono>, true],
        ["Connection", location.protocol === "https:" ? "encrypted, TLS 1.3" : `not encrypted (TLS ${status.api?.tls ?? "off"})`],
        status.state && ["State", <Mono>{status.state}</Mono>, true],
      ]} />
      <Reload />
      <p class="row links">
        <a href="/openapi.json">API description</a>
        {!hasToken() && <a href="/metrics">Metrics</a>}
        {hasToken() && <Button local icon="key" onClick={forgetToken}>Forget the token of this tab</Button>}
      </p>
    </>
  );
}

function Daemons() {
  const feed = useFeed("/daemons", 5000);
  const columns = [
    { head: "Daemon", cell: (d) => <b>{d.name ?? d.pid}</b> },
    { head: "Process", number: true, cell: (d) => d.pid },
    { head: "Version", cell: (d) => d.version ?? "–" },
    { head: "Up", number: true, cell: (d) => seconds(d.uptime_s) },
    { head: "Configuration", cell: (d) => <Mono>{d.config}</Mono> },
  ];
  return (
    <Card title="Daemons on this machine" note="Daemons of the same user" flush>
      <Fed feed={feed} lines={3}>
        {(d) => listOf(d, "daemons").length ? <Table caption="Daemons" columns={columns} rows={listOf(d, "daemons")} keyOf={(x) => x.pid} /> : <Empty title="No other daemon" />}
      </Fed>
    </Card>
  );
}

export function About() {
  const status = useFeed("/status", 5000);
  const doctor = useFeed("/doctor", 60000);
  return (
    <>
      <PageHead title="About" note="This daemon and its machine" />
      <div class="split even">
        <Card title="stagd"><Fed feed={status} lines={6}>{(s) => <Daemon status={s} />}</Fed></Card>
        <Card title="Doctor" note="Checks of this machine, as stag doctor makes them"><Fed feed={doctor} lines={8}>{(d) => <Findings doctor={d} />}</Fed></Card>
      </div>
      <Daemons />
    </>
  );
}
