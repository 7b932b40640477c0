// SPDX-License-Identifier: BSD-2-Clause
/*
 * events.jsx - the events of stagd, live.
 */
import { useState } from "preact/hooks";
import { useJournal } from "../events.js";
import { Badge, Button, Card, Choice, Empty, PageHead, SearchBox, useTick } from "../ui.jsx";
import { ago, clock } from "../units.js";

const levels = [["debug", "All"], ["info", "Info"], ["warning", "Warnings"], ["error", "Errors"]];
const weights = { debug: 0, info: 1, notice: 1, warn: 2, warning: 2, err: 3, error: 3, crit: 3 };
const kinds = ["plain", "plain", "warn", "bad"];
const weightOf = (level) => weights[level] ?? 1;

export function EventList({ events }) {
  const now = useTick(2000);
  return (
    <ol class="events">
      {events.map((e) => (
        <li key={`${e.id} ${e.time}`} class={kinds[weightOf(e.level)]}>
          <time dateTime={e.time} title={e.time}>{clock(e.time)}</time>
          <Badge kind={kinds[weightOf(e.level)]}>{e.level}</Badge>
          <span class="event-object mono">{e.object}</span>
          <span class="event-text">{e.text}</span>
          <span class="muted small event-ago">{ago(e.time, now)}</span>
        </li>
      ))}
    </ol>
  );
}

function fits(event, words, level) {
  if (weightOf(event.level) < weights[level]) return false;
  const text = `${event.object} ${event.text} ${event.level}`.toLowerCase();
  return words.every((w) => text.includes(w));
}

export function Events() {
  const journal = useJournal();
  const [search, setSearch] = useState("");
  const [level, setLevel] = useState("debug");
  const [held, setHeld] = useState(null);
  const all = held ?? journal.events;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter((e) => fits(e, words, level)).reverse();
  const missed = held ? journal.events.length - held.length : 0;

  return (
    <>
      <PageHead title="Events" note={journal.mode === "polling" ? "Polled every second: the event stream is blocked." : "Live, newest first"}>
        <Button local icon={held ? "play" : "pause"} onClick={() => setHeld(held ? null : [...journal.events])}>
          {held ? `Resume${missed > 0 ? ` (${missed} new)` : ""}` : "Pause"}
        </Button>
      </PageHead>
      <div class="bar">
        <SearchBox label="Search events" value={search} onInput={setSearch} />
        <Choice label="Level" hidden options={levels} value={level} onChange={setLevel} />
      </div>
      <Card flush>
        {shown.length ? <EventList events={shown} /> : <Empty icon="events" title={all.length ? "No matching event" : "No events yet"}>{all.length > 0 && <p>{all.length} events do not match; try another level or fewer words.</p>}</Empty>}
      </Card>
      <p class="sr" role="status">{shown.length} events shown</p>
    </>
  );
}
