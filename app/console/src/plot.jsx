// SPDX-License-Identifier: BSD-2-Clause
/*
 * plot.jsx - live time series (uPlot), with a summary in words and a table as alternatives.
 */
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { bytesRate, clock, DASH } from "./units.js";

const TABLE_ROWS = 10;
const MAX_GAP_S = 3; /* seconds; a longer gap between samples breaks the line */

const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300];
const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i); /* grid lines at 4 MiB, not at 3.81 */

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(series, format, width, height, onHover) {
  const grid = { stroke: css("--line"), width: 1 };
  const axis = { stroke: css("--text-3"), font: "12px system-ui, sans-serif", ticks: { show: false }, gap: 6 };
  return {
    width,
    height,
    padding: [8, 22, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    hooks: { setCursor: [(u) => onHover(u.cursor.idx ?? null)] },
    scales: { x: { time: true }, y: { range: (_, min, max) => [0, max > 0 ? max * 1.15 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, space: 76, incrs: SECONDS, values: (_, at) => at.map((t) => clock(t * 1000)), size: 26 },
      { ...axis, grid, space: 36, size: 74, ...(format === bytesRate ? { incrs: BINARY } : {}), values: (_, at) => at.map((v) => format(v)) },
    ],
    series: [{}, ...series.map((s) => {
      const color = css(s.color ?? "--accent");
      return { stroke: color, width: 1.75, fill: s.area ? `${color}1c` : undefined, spanGaps: false, points: { show: false } };
    })],
  };
}

/* Breaks the line where samples are missing for long. */
function withGaps(time, columns) {
  const t = [];
  const out = columns.map(() => []);
  time.forEach((at, i) => {
    if (i > 0 && at - time[i - 1] > MAX_GAP_S) {
      t.push(time[i - 1] + 1);
      out.forEach((c) => c.push(null));
    }
    t.push(at);
    out.forEach((c, k) => c.push(columns[k][i] ?? null));
  });
  return [t, ...out];
}

function clip(time, columns, span) {
  const from = time.findIndex((t) => t >= time.at(-1) - span);
  return { time: time.slice(from), columns: columns.map((c) => c.slice(from)) };
}

const numbers = (values) => values.filter((v) => typeof v === "number");
const mean = (list) => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : null);

function inWords(title, series, columns, format, span) {
  const said = series.map((s, i) => {
    const known = numbers(columns[i]);
    if (!known.length) return `${s.label}: no samples`;
    return `${s.label}: now ${format(known.at(-1))}, from ${format(Math.min(...known))} to ${format(Math.max(...known))}`;
  });
  return `${title}, the last ${Math.round(span / 60) || 1} min. ${said.join(". ")}.`;
}

function tableRows(time, columns) {
  const step = Math.max(1, Math.ceil(time.length / TABLE_ROWS));
  const rows = [];
  for (let i = 0; i < time.length; i += step) {
    rows.push({ time: time[i], means: columns.map((c) => mean(numbers(c.slice(i, i + step)))) });
  }
  return rows.reverse();
}

function Numbers({ title, series, time, columns, format }) {
  return (
    <table class="numbers">
      <caption class="sr">{title}: means over time, newest first</caption>
      <thead>
        <tr>
          <th scope="col">From</th>
          {series.map((s) => <th scope="col" class="number" key={s.label}>{s.label}</th>)}
        </tr>
      </thead>
      <tbody>
        {tableRows(time, columns).map((r) => (
          <tr key={r.time}>
            <th scope="row">{clock(r.time * 1000)}</th>
            {r.means.map((m, i) => <td class="number" key={i}>{format(m)}</td>)}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Canvas({ series, time, columns, format, height, theme, onHover }) {
  const frame = useRef();
  const plot = useRef(null);
  const shape = series.map((s) => s.label).join();

  useEffect(() => {
    const box = frame.current;
    const made = new uPlot(options(series, format, box.clientWidth || 300, height, onHover), withGaps(time, columns), box);
    plot.current = made;
    const watch = new ResizeObserver(() => box.clientWidth && made.setSize({ width: box.clientWidth, height }));
    watch.observe(box);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, theme, height]);

  useEffect(() => plot.current?.setData(withGaps(time, columns)), [time, columns]);
  return <div ref={frame} class="plot-canvas" style={{ height: `${height}px` }} />;
}

/* series: [{label, color, area, values}]; values are as long as time. */
export function Plot({ title, note, time, series, format, span = 300, height = 168, theme }) {
  const id = useId();
  const [hover, setHover] = useState(null);
  const [asTable, setAsTable] = useState(false);
  const cut = useMemo(() => clip(time, series.map((s) => s.values), span), [time, series, span]);
  const at = hover !== null && hover < cut.time.length ? hover : null;
  const shown = (i) => (at !== null ? cut.columns[i][at] : numbers(cut.columns[i].slice(-MAX_GAP_S)).at(-1));

  return (
    <figure class="card plot" aria-labelledby={id}>
      <figcaption class="card-head">
        <div>
          <h3 id={id}>{title}</h3>
          <p class="muted small">{at !== null ? clock(cut.time[at] * 1000) : note}</p>
        </div>
        <button type="button" class="link-button small" aria-pressed={asTable} aria-label={`${title} as a table`} onClick={() => setAsTable(!asTable)}>
          {asTable ? "Plot" : "Table"}
        </button>
      </figcaption>
      <ul class="legend">
        {series.map((s, i) => (
          <li key={s.label}>
            <i class="swatch" style={{ background: `var(${s.color ?? "--accent"})` }} aria-hidden="true" />
            <span class="muted">{s.label}</span> <b>{cut.time.length ? format(shown(i)) : DASH}</b>
          </li>
        ))}
      </ul>
      {asTable ? (
        <div class="plot-table" style={{ height: `${height}px` }} tabIndex={0} role="region" aria-label={`${title}, numbers`}>
          <Numbers title={title} series={series} time={cut.time} columns={cut.columns} format={format} />
        </div>
      ) : (
        <div class="plot-frame" role="img" aria-label={inWords(title, series, cut.columns, format, span)}>
          {!cut.columns.some((c) => numbers(c).length) && <p class="plot-empty muted">No samples yet</p>}
          <Canvas series={series} time={cut.time} columns={cut.columns} format={format} height={height} theme={theme} onHover={setHover} />
        </div>
      )}
    </figure>
  );
}

/* A line without labels, for a tile that shows the number. */
export function Spark({ values }) {
  const list = values.slice(-60);
  const known = numbers(list);
  if (known.length < 2) return <svg class="spark" aria-hidden="true" />;
  const max = Math.max(...known, 1e-9);
  const points = list.map((v, i) => (typeof v === "number" ? `${(i / (list.length - 1)) * 100},${27 - (v / max) * 24}` : null)).filter(Boolean);
  return (
    <svg class="spark" viewBox="0 0 100 28" preserveAspectRatio="none" aria-hidden="true" focusable="false">
      <polygon points={`${points[0].split(",")[0]},28 ${points.join(" ")} ${points.at(-1).split(",")[0]},28`} class="spark-area" />
      <polyline points={points.join(" ")} class="spark-line" />
    </svg>
  );
}
