// SPDX-License-Identifier: BSD-2-Clause
/*
 * audit.jsx - the last records of the audit log: who did what, from where, also what was refused. For administrators.
 */
import { useState } from "preact/hooks";
import { listOf } from "../api.js";
import { useFeed } from "../live.js";
import { Badge, Card, Choice, Empty, Fed, Mono, PageHead, SearchBox, Table } from "../ui.jsx";
import { DASH, clock, count } from "../units.js";

const outcomes = [["", "All"], ["allowed", "Allowed"], ["refused", "Refused"], ["failed", "Failed"]];
const kinds = { allowed: "plain", refused: "bad", failed: "warn" };
const SHOWN = 300;

const columns = [
  { head: "Time", sort: (r) => r.time, cell: (r) => <time dateTime={r.time} title={r.time}>{clock(r.time)}</time> },
  { head: "Outcome", sort: (r) => r.outcome, cell: (r) => <Badge kind={kinds[r.outcome]}>{r.outcome}</Badge> },
  { head: "User", sort: (r) => r.user ?? "", cell: (r) => r.user ?? DASH },
  { head: "From", sort: (r) => r.from ?? "", cell: (r) => <Mono>{r.from ?? DASH}</Mono> },
  { head: "Action", sort: (r) => r.action ?? "", cell: (r) => r.action ?? DASH },
  { head: "Object", sort: (r) => r.object ?? "", cell: (r) => <Mono>{r.object ?? DASH}</Mono> },
  { head: "Reason", cell: (r) => <>{r.reason ?? DASH}{r.suppressed && <span class="muted"> (and {count(r.suppressed)} more before it)</span>}</> },
];

function fits(r, words, outcome) {
  if (outcome && r.outcome !== outcome) return false;
  const text = `${r.outcome} ${r.room} ${r.user ?? ""} ${r.from ?? ""} ${r.action ?? ""} ${r.object ?? ""} ${r.reason ?? ""}`.toLowerCase();
  return words.every((w) => text.includes(w));
}

function noteOf(log) {
  if (!log) return "Changes, logins and refusals";
  const lost = log.lost ? `; ${count(log.lost)} could not be written` : "";
  return `Newest first; ${log.file ? `all are in ${log.file}${lost}` : "in memory only: audit-file in stag.ini keeps all of them"}`;
}

export function Audit() {
  const feed = useFeed("/audit", 2000);
  const [search, setSearch] = useState("");
  const [outcome, setOutcome] = useState("");
  const all = listOf(feed.data, "records");
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((r) => fits(r, words, outcome)).reverse();
  const shown = found.slice(0, SHOWN);
  return (
    <>
      <PageHead title="Audit" note={noteOf(feed.data?.log)} />
      <Fed feed={feed} lines={6}>
        {() => (
          <>
            <div class="bar">
              <SearchBox label="Search the audit log" value={search} onInput={setSearch} />
              <Choice label="Outcome" hidden options={outcomes} value={outcome} onChange={setOutcome} />
            </div>
            <Card flush>
              {shown.length ? <Table caption="Records of the audit log" columns={columns} rows={shown} keyOf={(r) => r.id} /> : <Empty icon="audit" title={all.length ? "No match" : "No records yet"} />}
            </Card>
            <p class="sr" role="status">{shown.length} of {all.length} records shown</p>
          </>
        )}
      </Fed>
    </>
  );
}
