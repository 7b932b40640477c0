// SPDX-License-Identifier: BSD-2-Clause
/*
 * page.jsx - the page that `stag bench page` and --html write: tables and plots of one result.
 *
 * The result is in the page, as JSON. Everything in it is shown as text: it may come from anyone.
 */
import { render } from "preact";
import { BandwidthPlot, LatencyPlot, RatioPlot } from "./plots.jsx";
import { bandwidthCase, casesOf, figure, hasLatency, list, number, short, string, typicalRatio, yardstickOf, yardsticks } from "./result.js";

const NOUNS = [
  ["verbs", "Verbs", "The software adapter, as any program of libibverbs and librdmacm sees it, beside plain sockets in the same loop."],
  ["xfer", "Transfer manager", "Requests of many pieces, beside work requests posted by hand in the fastest way."],
  ["heap", "Registered heap", "Allocations in shared, registered memory, beside allocators that share nothing, one that does, and registering each time."],
  ["store", "Store", "Partitions of a store, in the same process (near) and served by another (far), beside other programs that read and write the same file."],
  ["block", "Block target", "Logical units in memory, served to stag's initiator, beside tgt and nbdkit serving the same file."],
  ["pool", "Pool", "Values in memory that two nodes keep, beside redis and memcached. A change is acknowledged when both nodes have it."],
];

const YARDSTICKS = ["tcp", "libfabric", "each", "alone", "malloc", "mimalloc", "boost", "registered", "plain", "fio", "nbdkit", "tgt", "redis", "memcached", "adapter"];

/* ---- at a glance ---------------------------------------------------------------------------------- */

function Tile({ result, noun, title }) {
  const ratios = YARDSTICKS.map((y) => [y, typicalRatio(result, noun, y)]).filter(([, ratio]) => ratio !== null);

  return (
    <div class="tile">
      <a href={`#${noun}`}><b>{title}</b></a>
      <dl>{ratios.flatMap(([name, ratio]) => [<dt key={name}>{name}</dt>, <dd key={`${name} ratio`}>{figure(ratio)} ×</dd>])}</dl>
    </div>
  );
}

function Tiles({ result, nouns }) {
  return (
    <>
      <div class="tiles">{nouns.map(([noun, title]) => <Tile key={noun} result={result} noun={noun} title={title} />)}</div>
      <p class="soft">
        How many times as good as each yardstick: the median over the cases. Above 1, stag is better, whether more is better in a case or less.
      </p>
    </>
  );
}

function Missing({ one }) {
  const install = string(one, "install");

  return <li>{string(one, "noun")}: {string(one, "yardstick")} — {string(one, "why")}{install && <> (<code>{install}</code>)</>}</li>;
}

function Note({ title, items }) {
  if (items.length === 0) return null;
  return (
    <div class="note" role="note">
      <strong>{title}</strong>
      <ul>{items.map((one, i) => (typeof one === "string" ? <li key={i}>{one}</li> : <Missing key={i} one={one} />))}</ul>
    </div>
  );
}

/* ---- a noun ------------------------------------------------------------------------------------------ */

const Figure = ({ value }) => <td>{figure(value)}</td>;

function Yardstick({ y }) {
  const spread = number(y, "ratio_spread_percent");
  const verdict = number(y, "ratio_low") > 1 ? "good" : number(y, "ratio_high") < 1 ? "bad" : "";

  return (
    <>
      <td class="l" title={string(y, "what")}>{string(y, "name")}</td>
      {y.missing ? <td class="l" colSpan={5}>not measured</td> : (
        <>
          <Figure value={number(y, "value")} />
          <Figure value={number(y, "cpu_us")} />
          <Figure value={number(y, "server_cpu_us")} />
          <td class={`r ${verdict}`}>{figure(number(y, "ratio"))}</td>
          <td>{Number.isFinite(spread) && `±${spread.toFixed(0)} %`}</td>
        </>
      )}
    </>
  );
}

function CaseRows({ c }) {
  const [first, ...others] = yardsticks(c);
  const span = others.length + 1;

  return (
    <>
      <tr>
        <th scope="row" rowSpan={span}>{string(c, "case")}</th>
        <td class="l what" rowSpan={span}>{string(c, "error") || string(c, "what")}</td>
        <td rowSpan={span}>{figure(number(c, "value"))} {string(c, "unit")}</td>
        <td rowSpan={span}>{figure(number(c, "cpu_us"))}</td>
        <td rowSpan={span}>{figure(number(c, "server_cpu_us"))}</td>
        {first ? <Yardstick y={first} /> : <td class="l" colSpan={6}>no yardstick</td>}
      </tr>
      {others.map((y, i) => <tr key={i}><Yardstick y={y} /></tr>)}
    </>
  );
}

function Cases({ cases, title }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={`${title}, figures`}>
      <table>
        <caption>
          Medians over the passes. CPU: microseconds of processor time per operation, of the client and of the server; a process that polls uses
          its whole CPU. ±: half the distance between the least and the greatest ratio of the passes.
        </caption>
        <thead>
          <tr>
            {["case", "what is measured"].map((name) => <th key={name} class="l" scope="col">{name}</th>)}
            {["stag", "CPU", "server"].map((name) => <th key={name} scope="col">{name}</th>)}
            <th class="l" scope="col">yardstick</th>
            {["measured", "CPU", "server", "ratio", "±"].map((name) => <th key={name} scope="col">{name}</th>)}
          </tr>
        </thead>
        <tbody>{cases.map((c, i) => <CaseRows key={i} c={c} />)}</tbody>
      </table>
    </div>
  );
}

/* Describes each yardstick. */
function Yardsticks({ cases }) {
  const seen = new Map(cases.flatMap(yardsticks).map((y) => [string(y, "what"), string(y, "name")]));

  return (
    <p class="soft">
      Yardsticks: {[...seen].map(([what, name], i) => <span key={what}>{i > 0 && "; "}<b>{name}</b> {what}</span>)}{seen.size ? "." : "none."}
    </p>
  );
}

const PERCENTILES = ["p50", "p90", "p99", "p99.9", "max"];

function LatencyRow({ name, latency }) {
  if (latency === null || typeof latency !== "object") return null;
  return <tr><th scope="row">{name}</th>{PERCENTILES.map((p) => <Figure key={p} value={number(latency, p)} />)}</tr>;
}

function Latency({ c }) {
  return (
    <figure>
      <figcaption><b>{string(c, "case")}</b> — {string(c, "what")}</figcaption>
      <LatencyPlot one={c} />
      <table>
        <thead><tr><th class="l" scope="col">us</th>{PERCENTILES.map((p) => <th key={p} scope="col">{p}</th>)}</tr></thead>
        <tbody>
          <LatencyRow name="stag" latency={c.latency_us} />
          {yardsticks(c).map((y, i) => <LatencyRow key={i} name={string(y, "name")} latency={y.latency_us} />)}
        </tbody>
      </table>
    </figure>
  );
}

function Latencies({ cases }) {
  const shown = cases.filter(hasLatency);

  if (shown.length === 0) return null;
  return <><h3>Latency</h3><div class="pair">{shown.map((c, i) => <Latency key={i} c={c} />)}</div></>;
}

const SIZES = Array.from({ length: 9 }, (_, i) => 4096 << i);

function BandwidthRow({ result, size }) {
  const write = bandwidthCase(result, "write_bw_", size);
  const read = bandwidthCase(result, "read_bw_", size);

  if (!write && !read) return null;
  return (
    <tr>
      <th scope="row">{size}</th>
      <Figure value={number(write, "value")} />
      <Figure value={number(read, "value")} />
      <Figure value={number(yardstickOf(write ?? read, "tcp"), "value")} />
      <Figure value={number(yardstickOf(write, "libfabric"), "value")} />
    </tr>
  );
}

function Bandwidth({ result }) {
  if (!bandwidthCase(result, "write_bw_", 4096) && !bandwidthCase(result, "write_bw_", 65536)) return null;
  return (
    <>
      <h3>Bandwidth over size</h3>
      <figure class="whole" tabIndex={0}>
        <figcaption>RDMA Writes and Reads, and raw TCP in the same loop; bars from the least to the greatest of the passes</figcaption>
        <BandwidthPlot result={result} />
        <table>
          <thead>
            <tr>
              <th class="l" scope="col">bytes</th>
              {["stag RDMA Write, GB/s", "stag RDMA Read", "raw TCP", "libfabric write"].map((name) => <th key={name} scope="col">{name}</th>)}
            </tr>
          </thead>
          <tbody>{SIZES.map((size) => <BandwidthRow key={size} result={result} size={size} />)}</tbody>
        </table>
      </figure>
    </>
  );
}

function Noun({ result, noun, title, what }) {
  const cases = casesOf(result, noun);

  return (
    <section id={noun}>
      <h2>{title}</h2>
      <p>{what}</p>
      <figure class="whole" tabIndex={0}>
        <figcaption>How many times as good as each yardstick; whiskers from the least to the greatest of the passes</figcaption>
        <RatioPlot result={result} noun={noun} />
      </figure>
      <Cases cases={cases} title={title} />
      <Yardsticks cases={cases} />
      {noun === "verbs" && <Bandwidth result={result} />}
      <Latencies cases={cases} />
    </section>
  );
}

/* ---- the machine, and how to measure again ------------------------------------------------------------- */

function facts(result) {
  const { machine, settings } = result;

  return [
    ["processor", `${string(machine, "cpu")}, ${number(machine, "cpus")} CPUs${machine?.virtual === true ? ", virtual machine" : ""}`],
    ["memory", `${(number(machine, "memory_bytes") / 2 ** 30).toFixed(1)} GiB`],
    ["system", `${string(machine, "system")}, Linux ${string(machine, "kernel")} (${string(machine, "architecture")})`],
    ["frequency governor", string(machine, "governor")],
    ["network", `loopback, ${machine?.private_network === true ? "in a network namespace of its own" : "the machine's own"}, congestion control ${string(machine, "congestion")}`],
    ["passes", `${number(settings, "passes")} of ${short(number(settings, "secs"))} s each${settings?.quick === true ? ", short form" : ""}`],
    ["load before", number(machine, "load_before").toFixed(2)],
    ["time taken by the host", `${number(machine, "steal_percent").toFixed(1)} %`],
    ["stag", string(result, "stag")],
    ...Object.entries(result.programs ?? {}).map(([name, version]) => [name, String(version)]),
  ];
}

function Machine({ result }) {
  return (
    <section id="machine">
      <h2>The machine and the settings</h2>
      <table><tbody>{facts(result).map(([name, value]) => <tr key={name}><th scope="row">{name}</th><td class="l fact">{value}</td></tr>)}</tbody></table>
    </section>
  );
}

/* The command that measures the same cases. */
function command({ settings }) {
  return [
    "stag bench",
    ...list(settings, "nouns"),
    ...(settings?.quick === true ? ["--quick"] : []),
    `--passes ${number(settings, "passes")} --secs ${short(number(settings, "secs"))}`,
    ...list(settings, "cases").map((pattern) => `--case '${pattern}'`),
    `--congestion ${string(settings, "congestion")} --html report.html --output result.json`,
  ].join(" ");
}

function Method({ result }) {
  return (
    <section id="method">
      <h2>How it was measured, and how to do it again</h2>
      <p>
        Servers run on the first CPU, clients on the second. In each pass stag and the yardsticks are measured one after the other, in the next
        pass in reverse order. A figure is the median of the passes; a ratio is the median of the ratios of the passes, since what one pass
        compares ran within seconds. The adapter's CRC is off, since no yardstick has one. stag-bench(1) says what each case does.
      </p>
      <pre tabIndex={0}>{command(result)}</pre>
      <p><code>stag bench compare OLD.json NEW.json</code> compares two results and says which differences are noise.</p>
    </section>
  );
}

/* ---- the page -------------------------------------------------------------------------------------------- */

function Page({ result }) {
  const nouns = NOUNS.filter(([noun]) => casesOf(result, noun).length > 0);
  const time = string(result, "time");

  return (
    <>
      <header>
        <h1>stag {string(result, "stag")} beside its yardsticks</h1>
        <p class="soft">
          {string(result.machine, "cpu")}, {number(result.machine, "cpus")} CPUs, Linux {string(result.machine, "kernel")} — measured
          on {time.slice(0, 10)} at {time.slice(11, 16)} UTC, in {number(result, "seconds").toFixed(0)} s
        </p>
      </header>
      <Tiles result={result} nouns={nouns} />
      <Note title="This machine was not quiet" items={list(result, "noise")} />
      <Note title="Yardsticks that were not measured" items={list(result, "missing")} />
      {nouns.map(([noun, title, what]) => <Noun key={noun} result={result} noun={noun} title={title} what={what} />)}
      <Machine result={result} />
      <Method result={result} />
    </>
  );
}

const result = JSON.parse(document.getElementById("result").textContent);
document.title = `stag ${string(result, "stag")}: measurements`;
render(<Page result={result} />, document.getElementById("page"));
