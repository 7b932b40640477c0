// SPDX-License-Identifier: BSD-2-Clause
/*
 * switchover.jsx - the dialog of a switchover: confirmation, then its steps as they happen.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { get, part, post } from "../api.js";
import { useJournal } from "../events.js";
import { Icon } from "../icons.jsx";
import { refresh } from "../live.js";
import { Button, Dialog, Problem, SelectField } from "../ui.jsx";
import { clock } from "../units.js";

const LOOK_MS = 100;
const PATIENCE_MS = 60000;

/* When each step was observed, in ms after the request; null: not yet. Polls are some time apart; stagd reports the exact duration. */
const nothingSeen = { asked: 0, taken: null, back: null, synced: null };

/* Adds the observations of one poll. */
export function seenIn(seen, pool, plan, ms) {
  const next = { ...seen };
  const old = pool.nodes?.find((n) => n.name === plan.from);
  if (next.taken === null && pool.primary === plan.to && pool.epoch > plan.epoch) next.taken = ms;
  if (next.taken === null || !old) return next;
  if (next.back === null && ["joining", "standby"].includes(old.role)) next.back = ms;
  if (next.synced === null && old.role === "standby") next.synced = ms;
  return next;
}

/* took: the duration that stagd reported. Other steps may have happened a little before they were observed. */
function stepsOf(plan, seen, took, joining) {
  return [
    ["asked", `${plan.from} hands over to ${plan.to}`, "It accepts no new changes, and sends the last records."],
    ["taken", `${plan.to} is primary`, `A new epoch fences ${plan.from}. Clients reconnect to ${plan.to}, which completes their operations.`],
    ["back", `${plan.from} returns as a standby`, joining ?? "It receives the records that it missed."],
    ["synced", `${plan.from} is in sync`, "It can be promoted again."],
  ].map(([key, title, note]) => ({ key, title, note, at: seen[key], exact: key === "asked" || (key === "taken" && took !== null) }));
}

function Step({ step, active, failed }) {
  const state = step.at !== null ? "done" : failed ? "failed" : active ? "active" : "waiting";
  return (
    <li class={`step ${state}`} aria-current={active && !failed ? "step" : undefined}>
      <span class="step-mark" aria-hidden="true">{state === "done" ? <Icon name="check" size={14} /> : state === "active" ? <span class="spinner" /> : null}</span>
      <div>
        <p class="strong">{step.title}</p>
        <p class="muted small">{step.note}</p>
      </div>
      <span class="step-time number small">{step.at === null ? "" : `${step.exact ? "" : "≤ "}${Math.round(step.at)} ms`}<span class="sr">{state}</span></span>
    </li>
  );
}

function Account({ plan, seen, took, joining, events, error, onClose }) {
  const steps = stepsOf(plan, seen, took, joining);
  const active = steps.findIndex((s) => s.at === null);
  const done = active < 0;
  const said = done ? `${plan.to} is primary; ${plan.from} is in sync.` : error ? "" : steps[Math.max(0, active - 1)].title;
  return (
    <>
      <div class="dialog-body">
        <ol class="steps">{steps.map((s, i) => <Step key={s.key} step={s} active={i === active} failed={Boolean(error)} />)}</ol>
        <p class="sr" role="status" aria-live="polite">{said}</p>
        <Problem error={error} />
        <p class={done ? "done-line good" : "done-line"}>
          {done ? <><Icon name="check" size={16} /> Done. {plan.to} was primary {Math.round(seen.taken)} ms after the request.</> : error ? "It failed." : "In progress…"}
        </p>
        <h3>Events meanwhile</h3>
        <ol class="said" tabIndex={0} aria-label="Events meanwhile">
          {events.length ? events.map((e) => <li key={`${e.id} ${e.time}`}><time class="muted">{clock(e.time)}</time> <span class="mono">{e.object}</span> {e.text}</li>) : <li class="muted">Nothing yet.</li>}
        </ol>
      </div>
      <footer class="dialog-foot">
        <Button local kind={done ? "primary" : ""} onClick={onClose}>{done ? "Close" : "Close; it continues"}</Button>
      </footer>
    </>
  );
}

/* Polls the pool until all steps are done. */
async function watch(plan, onLook, signal) {
  const began = performance.now();
  let seen = nothingSeen;
  while (!signal.aborted && performance.now() - began < PATIENCE_MS) {
    const pool = await get(`/pools/${part(plan.pool)}`).catch(() => null);
    if (signal.aborted) return;
    if (pool) {
      seen = seenIn(seen, pool, plan, performance.now() - began);
      onLook(seen, pool);
    }
    if (seen.synced !== null) return;
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
  if (!signal.aborted) throw { message: `Not finished after ${PATIENCE_MS / 1000} s.`, next: "The table of nodes shows the state; Events show the cause." };
}

function joiningWord(pool, plan) {
  const old = pool.nodes?.find((n) => n.name === plan.from);
  return old?.role === "joining" && old.total > 0 ? `It has ${Math.round((100 * old.done) / old.total)} % of the records that it missed.` : undefined;
}

export function SwitchOver({ pool, to, onClose }) {
  const [target, setTarget] = useState(to);
  const [plan, setPlan] = useState(null);
  const [seen, setSeen] = useState(nothingSeen);
  const [took, setTook] = useState(null);
  const [joining, setJoining] = useState();
  const { events } = useJournal();
  const [error, setError] = useState(null);
  const stop = useRef(new AbortController());
  const standbys = pool.nodes.filter((n) => n.role === "standby").map((n) => n.name);

  useEffect(() => () => stop.current.abort(), []);

  async function start(e) {
    e.preventDefault();
    const made = { pool: pool.name, from: pool.primary, to: target, epoch: pool.epoch, before: events.at(-1) };
    setPlan(made);
    const asked = post(`/pools/${part(pool.name)}/switchover`, { to: target }).then(
      (answer) => setTook(answer.seconds * 1000),
      (cause) => {
        stop.current.abort();
        setError(cause);
      });
    try {
      await watch(made, (now, look) => {
        setSeen(now);
        setJoining(joiningWord(look, made));
      }, stop.current.signal);
    } catch (cause) {
      setError(cause);
    }
    await asked;
    refresh("/pools");
  }

  if (plan)
    return (
      <Dialog title={`Switchover of pool ${pool.name}`} onClose={onClose} wide>
        <Account plan={plan} seen={took === null ? seen : { ...seen, taken: took }} took={took} joining={joining} events={events.slice(events.indexOf(plan.before) + 1)} error={error} onClose={onClose} />
      </Dialog>
    );
  return (
    <Dialog title={`Switch over pool ${pool.name}?`} onClose={onClose}>
      <form onSubmit={start}>
        <div class="dialog-body">
          <p>The primary is <b>{pool.primary}</b>. No value is lost and no operation fails; changes are delayed by some milliseconds.</p>
          <SelectField label="New primary" wide options={[...new Set([target, ...standbys])].map((n) => [n, n])} value={target} onChange={setTarget} />
        </div>
        <footer class="dialog-foot">
          <Button local onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" icon="swap">Switch over</Button>
        </footer>
      </form>
    </Dialog>
  );
}
