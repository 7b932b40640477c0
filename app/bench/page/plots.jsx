// SPDX-License-Identifier: BSD-2-Clause
/*
 * plots.jsx - the plots of a result, drawn by uPlot: ratios to the yardsticks, bandwidth over size, latency by percentile.
 *
 * Each plot has a description for screen readers; the page has its figures in a table beside it.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { casesOf, figure, hasRatio, number, short, string, yardsticks } from "./result.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (i) => css(`--s${Math.min(i, 5)}`);
const font = (px) => `${px}px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif`;

/* ---- scales ---------------------------------------------------------------------------------- */

/* The next of 1, 2 and 5 times a power of ten. */
function nextStep(v) {
  const power = 10 ** Math.floor(Math.log10(v) + 1e-9);
  const digit = v / power;
  return digit < 1.5 ? 2 * power : digit < 3.5 ? 5 * power : 10 * power;
}

/* The greatest step that is not above v. */
function stepBelow(v) {
  let at = 10 ** Math.floor(Math.log10(v));
  while (nextStep(at) <= v * 1.0000001) at = nextStep(at);
  return at;
}

function stepsWithin(low, high) {
  const steps = [];
  for (let v = stepBelow(low); v <= high * 1.0000001; v = nextStep(v)) if (v >= low * 0.9999999) steps.push(v);
  return steps;
}

const isDecade = (v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6;

/* ---- uPlot in the page ------------------------------------------------------------------------ */

/* Redraws when the width or the colours change: light, dark, or on paper. make(width) gives uPlot's options and data. */
function Canvas({ make, label }) {
  const frame = useRef();

  useEffect(() => {
    const box = frame.current;
    let plot = null;
    let width = 0;
    const draw = () => {
      plot?.destroy();
      width = box.clientWidth || 460;
      const [options, data] = make(width);
      plot = new uPlot(options, data, box);
    };
    const watch = new ResizeObserver(() => box.clientWidth && box.clientWidth !== width && draw());
    const media = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query));
    draw();
    watch.observe(box);
    media.forEach((m) => m.addEventListener("change", draw));
    return () => {
      watch.disconnect();
      media.forEach((m) => m.removeEventListener("change", draw));
      plot.destroy();
    };
  }, [make]);
  return <div class="plot" ref={frame} role="img" aria-label={label} />;
}

const axis = (more) => ({ stroke: css("--soft"), font: font(11), ticks: { show: false }, gap: 6, filter: (_, splits) => splits, ...more });
const grid = () => ({ stroke: css("--rule"), width: 1 });

/* A line on the canvas between two points of the scales x and y. */
function stroke(u, x1, y1, x2, y2, dy = 0) {
  const px = (v) => u.valToPos(v, "x", true);
  const py = (v) => u.valToPos(v, "y", true);
  u.ctx.moveTo(px(x1), py(y1) - dy * uPlot.pxRatio);
  u.ctx.lineTo(px(x2), py(y2) + dy * uPlot.pxRatio);
}

/* ---- ratios to the yardsticks ------------------------------------------------------------------ */

const ROW = 20; /* pixels */

function ratioRows(result, noun) {
  return casesOf(result, noun).flatMap((c) =>
    yardsticks(c).filter(hasRatio).map((y, i) => ({
      name: i === 0 ? string(c, "case") : "",
      yardstick: string(y, "name"),
      ratio: y.ratio,
      low: number(y, "ratio_low"),
      high: number(y, "ratio_high"),
    })));
}

function drawBars(u, rows) {
  const { ctx } = u;
  const scale = uPlot.pxRatio;
  const one = u.valToPos(1, "x", true);

  ctx.save();
  ctx.textBaseline = "middle";
  ctx.font = font(12 * scale);
  ctx.beginPath();
  ctx.strokeStyle = css("--soft");
  ctx.lineWidth = scale;
  stroke(u, 1, -0.5, 1, rows.length - 0.5);
  ctx.stroke();
  rows.forEach((r, i) => {
    const x = u.valToPos(r.ratio, "x", true);
    const y = u.valToPos(i, "y", true);
    ctx.fillStyle = css("--fg");
    ctx.fillText(r.name, 4 * scale, y);
    ctx.fillStyle = css(r.low > 1 ? "--better" : r.high < 1 ? "--worse" : "--even");
    ctx.fillRect(Math.min(x, one), y - 6 * scale, Math.max(Math.abs(x - one), 1.5 * scale), 12 * scale);
    if (!(r.high > r.low)) return;
    ctx.beginPath();
    ctx.strokeStyle = css("--fg");
    ctx.lineWidth = 1.3 * scale;
    stroke(u, r.low, i, r.high, i);
    stroke(u, r.low, i, r.low, i, 4);
    stroke(u, r.high, i, r.high, i, 4);
    ctx.stroke();
  });
  ctx.restore();
}

function ratioPlot(rows, width) {
  const low = Math.min(0.7, ...rows.map((r) => r.low / 1.1));
  const high = Math.max(1.4, ...rows.map((r) => r.high * 1.1));
  const indices = rows.map((_, i) => i);
  const labelled = (v) => high / low < 60 || isDecade(v);
  const options = {
    width,
    height: rows.length * ROW + 36,
    padding: [4, 0, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, distr: 3, range: () => [low, high] }, y: { dir: -1, range: () => [-0.5, rows.length - 0.5] } },
    axes: [
      axis({ grid: grid(), size: 26, splits: () => stepsWithin(low, high), values: (_, splits) => splits.map((v) => (labelled(v) ? short(v) : "")) }),
      axis({ grid: { show: false }, size: 226, splits: () => indices, values: () => rows.map((r) => r.yardstick) }),
      axis({ grid: { show: false }, size: 60, side: 1, scale: "y", stroke: css("--fg"), font: font(12), splits: () => indices, values: () => rows.map((r) => figure(r.ratio)) }),
    ],
    series: [{}, { scale: "y", show: false }],
    hooks: { draw: [(u) => drawBars(u, rows)] },
  };
  return [options, [[low, high], [null, null]]];
}

export function RatioPlot({ result, noun }) {
  const rows = ratioRows(result, noun);
  const [make] = useState(() => (width) => ratioPlot(rows, width));

  if (rows.length === 0) return null;
  return (
    <>
      <div class="sides" aria-hidden="true"><span>← the yardstick is better</span><span>stag is better →</span></div>
      <Canvas make={make} label={`How many times as good as each yardstick. Bars on a logarithmic scale: right of 1 stag is better. Whiskers: the least and the greatest of the passes. ` +
        rows.map((r) => `${r.name} ${r.yardstick} ${figure(r.ratio)}`).join(", ")} />
    </>
  );
}

/* ---- lines -------------------------------------------------------------------------------------- */

function addPoint(lines, name, point) {
  if (!(Number.isFinite(point.y) && point.y > 0)) return;
  const line = lines.find((l) => l.name === name);
  if (line) line.points.push(point);
  else lines.push({ name, points: [point] });
}

function drawErrors(u, lines) {
  u.ctx.save();
  u.ctx.lineWidth = 1.3 * uPlot.pxRatio;
  lines.forEach((line, i) => {
    u.ctx.beginPath();
    u.ctx.strokeStyle = colour(i);
    for (const p of line.points) if (p.high > p.low) stroke(u, p.x, p.low, p.x, p.high);
    u.ctx.stroke();
  });
  u.ctx.restore();
}

/* x: {range, splits, text}; the lines are drawn last to first, so that stag's are on top. */
function linePlot(lines, x, log, height, width, onHover) {
  const low = Math.min(...lines.flatMap((l) => l.points.map((p) => p.low ?? p.y)));
  const high = Math.max(...lines.flatMap((l) => l.points.map((p) => p.high ?? p.y)));
  const range = log ? [stepBelow(low), nextStep(stepBelow(high))] : [0, high * 1.05];
  const at = xValues(lines);
  const drawn = lines.map((line, i) => ({ line, stroke: colour(i) })).reverse();
  const options = {
    width,
    height,
    padding: [8, 26, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 8 } },
    hooks: { setCursor: [(u) => onHover(u.cursor.idx ?? null)], draw: [(u) => drawErrors(u, lines)] },
    scales: { x: { time: false, range: () => x.range }, y: { distr: log ? 3 : 1, range: () => range } },
    axes: [
      axis({ grid: x.grid ? grid() : { show: false }, size: 24, splits: () => x.splits, values: (_, splits) => splits.map(x.text) }),
      axis({ grid: grid(), size: 48, space: 30, values: (_, splits) => splits.map(short), ...(log ? { splits: () => stepsWithin(...range) } : {}) }),
    ],
    series: [{}, ...drawn.map((d) => ({ stroke: d.stroke, width: 2, spanGaps: true, points: { show: true, size: 6, fill: d.stroke, stroke: d.stroke } }))],
  };
  return [options, [at, ...drawn.map((d) => at.map((v) => d.line.points.find((p) => p.x === v)?.y ?? null))]];
}

const xValues = (lines) => [...new Set(lines.flatMap((l) => l.points.map((p) => p.x)))].sort((a, b) => a - b);

/* The legend says the values under the pointer. */
function LinePlot({ lines, x, log, height, unit, below, label }) {
  const [hover, setHover] = useState(null);
  const [make] = useState(() => (width) => linePlot(lines, x, log, height, width, setHover));
  const at = hover === null ? undefined : xValues(lines)[hover];

  return (
    <>
      <ul class="legend" aria-hidden="true">
        {lines.map((line, i) => (
          <li key={line.name}>
            <i class="swatch" style={{ background: `var(--s${Math.min(i, 5)})` }} />
            {line.name} {at !== undefined && <b>{figure(line.points.find((p) => p.x === at)?.y ?? NaN)}</b>}
          </li>
        ))}
      </ul>
      <p class="axis-name" aria-hidden="true">{unit}{at !== undefined && `, ${x.text(at)}`}</p>
      <Canvas make={make} label={label} />
      <p class="axis-name below" aria-hidden="true">{below}</p>
    </>
  );
}

/* ---- bandwidth over the size of an operation ---------------------------------------------------- */

const sizeText = (log2) => (log2 >= 20 ? `${2 ** (log2 - 20)} MiB` : `${2 ** (log2 - 10)} KiB`);

/* A yardstick that both directions have is drawn once, from the writes. */
function bandwidthLines(result) {
  const lines = [];
  const of = (kind) => casesOf(result, "verbs").filter((c) => string(c, "case").startsWith(kind));
  const add = (name, c, o) =>
    addPoint(lines, name, { x: Math.log2(number(c, "size")), y: number(o, "value"), low: number(o, "low"), high: number(o, "high") });

  of("write_bw_").forEach((c) => add("stag RDMA Write", c, c));
  of("read_bw_").forEach((c) => add("stag RDMA Read", c, c));
  of("write_bw_").forEach((c) => yardsticks(c).forEach((y) => add(string(y, "name") === "tcp" ? "raw TCP" : "libfabric write", c, y)));
  return lines;
}

export function BandwidthPlot({ result }) {
  const [lines] = useState(() => bandwidthLines(result));

  if (lines.length === 0 || lines[0].points.length < 2) return null;
  return (
    <LinePlot lines={lines} x={{ range: [11.8, 20.2], splits: [12, 14, 16, 18, 20], text: sizeText }} height={290} unit="GB/s" below="bytes of an operation"
      label="Bandwidth over the size of an operation: gigabytes a second of RDMA Writes and Reads by the software adapter, and of raw TCP in the same loop. Bars: the least and the greatest of the passes." />
  );
}

/* ---- latency by percentile -------------------------------------------------------------------------- */

const PERCENTS = [10, 25, 50, 75, 90, 95, 99, 99.9, 99.99];
const NAMED = [50, 90, 99, 99.9, 99.99];
const nines = (percent) => -Math.log10(1 - percent / 100); /* each further nine is one unit to the right */
const percentText = (x) => `${short(100 * (1 - 10 ** -x))} %`;

function latencyLines(c) {
  const lines = [];
  const add = (name, latency) => PERCENTS.forEach((p) => addPoint(lines, name, { x: nines(p), y: number(latency, `p${p}`) }));

  add("stag", c.latency_us);
  yardsticks(c).forEach((y) => add(string(y, "name"), y.latency_us));
  return lines;
}

export function LatencyPlot({ one }) {
  const [lines] = useState(() => latencyLines(one));

  if (lines.length === 0 || lines[0].name !== "stag" || lines[0].points.length < 3) return null;
  return (
    <LinePlot lines={lines} x={{ range: [0, 4.15], splits: NAMED.map(nines), text: percentText, grid: true }} log height={250} unit="us"
      below="share of the operations that took no longer"
      label={`Latency of ${string(one, "noun")}/${string(one, "case")} by percentile: microseconds on a logarithmic scale, over the share of operations that took no longer. Each further nine is equally far to the right.`} />
  );
}
