// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_bench_page.mjs STAG - the page that `stag bench page` writes, opened from a file: tables, plots, light and dark, and a hostile result.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { assert, beAccessible, beAccessibleInDark, launch, notScrollSideways, open } from "./stage.mjs";

const stag = resolve(process.argv[2]);
const dir = mkdtempSync(join(tmpdir(), "stag-bench-page-"));

/* ---- a result ---------------------------------------------------------------------------------- */

const latency = (us) => Object.fromEntries([10, 25, 50, 75, 90, 95, 99, 99.9, 99.99].map((p, i) => [`p${p}`, us * (1 + i)]).concat([["max", us * 20]]));
const measured = (value, us) => ({ value, low: value * 0.9, high: value * 1.1, spread_percent: 10, cpu_us: 1.5, server_cpu_us: 2.5, latency_us: us ? latency(us) : null });
const yardstick = (name, ratio, us) => ({ name, what: `what ${name} does`, ...measured(2, us), ratio, ratio_low: ratio * 0.95, ratio_high: ratio * 1.05, ratio_spread_percent: 5 });
const one = (noun, name, size, us, yardsticks) => ({ noun, case: name, what: `measures ${name}`, unit: us ? "us" : "GB/s", better: us ? "less" : "more", size, error: null, ...measured(3, us), yardsticks });

const result = {
  version: 1, stag: "1.2.3", time: "2026-01-02T03:04:05Z", seconds: 61.2,
  machine: { cpu: "Some CPU", cpus: 4, kernel: "6.1.0", system: "Debian", architecture: "x86_64", governor: "performance", memory_bytes: 8 * 2 ** 30, congestion: "reno", private_network: true, load_before: 0.1, steal_percent: 0 },
  programs: { redis: "7.0" },
  settings: { passes: 5, secs: 0.5, quick: false, congestion: "reno", nouns: ["all"], cases: ["write*"] },
  noise: ["the fan was loud"],
  missing: [{ noun: "pool", yardstick: "memcached", why: "not installed", install: "apt install memcached" }],
  cases: [
    one("verbs", "write_bw_4k", 4096, 0, [yardstick("tcp", 0.8), yardstick("libfabric", 1.6)]),
    one("verbs", "write_bw_1m", 1 << 20, 0, [yardstick("tcp", 0.9)]),
    one("verbs", "read_bw_4k", 4096, 0, [yardstick("tcp", 0.5)]),
    one("verbs", "write_lat", 8, 5, [yardstick("tcp", 1.0, 6)]),
    one("pool", "update_64_1", 64, 20, [yardstick("redis", 12, 90), { name: "memcached", what: "missing", missing: "not installed", install: null }]),
    one("heap", "keys", 0, 0, []),
  ],
};

let pages = 0;
function pageOf(content) {
  const json = join(dir, `${++pages}.json`);
  const html = join(dir, `${pages}.html`);
  writeFileSync(json, JSON.stringify(content));
  execFileSync(stag, ["bench", "page", json, html], { stdio: ["ignore", "inherit", "inherit"] });
  return pathToFileURL(html).href;
}

/* ---- claims -------------------------------------------------------------------------------------- */

/* Of each canvas: how many colours it has. */
const coloursDrawn = (page) => page.locator(".plot canvas").evaluateAll((all) => all.map((canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}));

const PLOTS = 5; /* ratios of verbs and of pool, bandwidth, and two latencies */

const claims = {
  async tables_have_every_case_and_yardstick(page) {
    assert.equal(await page.title(), "stag 1.2.3: measurements");
    for (const text of ["Some CPU, 4 CPUs, Linux 6.1.0", "2026-01-02 at 03:04 UTC, in 61 s", "the fan was loud", "apt install memcached", "not measured", "no yardstick",
      "stag bench all --passes 5 --secs 0.5 --case 'write*' --congestion reno"])
      assert.ok((await page.locator("main").innerText()).includes(text), text);
    for (const c of result.cases) assert.equal(await page.locator(`#${c.noun} .wide tbody th`, { hasText: c.case }).count(), 1, c.case);
    assert.deepEqual(await page.locator("#verbs .wide tbody tr").first().locator("td").allInnerTexts(),
      ["measures write_bw_4k", "3.00 GB/s", "1.50", "2.50", "tcp", "2.00", "1.50", "2.50", "0.80", "±5 %"]);
    assert.deepEqual(await page.locator(".tile").allInnerTexts(), ["VERBS\ntcp\n0.85 ×\nlibfabric\n1.60 ×", "REGISTERED HEAP", "POOL\nredis\n12.0 ×"]);
  },

  async plots_are_drawn_and_described(page) {
    const drawn = await coloursDrawn(page);
    assert.equal(drawn.length, PLOTS);
    assert.ok(drawn.every((n) => n > 3), `colours: ${drawn}`);
    const described = await page.getByRole("img").evaluateAll((all) => all.map((e) => e.getAttribute("aria-label")));
    assert.equal(described.filter((text) => /^(How many times|Bandwidth over|Latency of)/.test(text)).length, PLOTS);
  },

  async the_legend_says_the_values_under_the_pointer(page) {
    await page.locator("#pool .pair .plot").hover({ position: { x: 200, y: 100 } });
    await page.locator("#pool .pair .legend b").first().waitFor();
  },

  async it_is_accessible_in_light_and_dark(page) {
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await paper();
    await beAccessible(page, "the page of a result");
    await page.emulateMedia({ colorScheme: "dark" });
    assert.notEqual(await paper(), light);
    await beAccessibleInDark(page, "the page of a result");
    assert.equal((await coloursDrawn(page)).length, PLOTS);
    await page.emulateMedia({ colorScheme: "light" });
  },

  async it_fits_every_screen(page) {
    for (const width of [360, 768, 1920, 1280]) {
      await page.setViewportSize({ width, height: 900 });
      await notScrollSideways(page, `at ${width}`);
    }
  },

  async it_loads_nothing_else(_, browser) {
    const page = await open(browser, "about:blank");
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.goto(pageOf(result));
    await page.locator("h1").waitFor();
    assert.equal(asked.length, 1, asked.join());
    assert.deepEqual(page.wrongs, []);
  },

  async strings_of_a_result_are_text(_, browser) {
    const evil = `</script><script>globalThis.hacked=1</script><img src=x onerror="globalThis.hacked=1"><!--<script>&"'`;
    const bad = JSON.parse(JSON.stringify(result), (_, v) => (v === "verbs" || v === "pool" || v === "heap" ? v : typeof v === "string" ? evil : v));
    bad.cases[0].case = `write_bw_${evil}`;
    bad.cases[1].yardsticks = [evil, null, { name: evil, what: evil, ratio: evil }];
    bad.programs = { [evil]: evil };
    bad.cases.push(null, evil, 7);
    const page = await open(browser, pageOf(bad));
    await page.locator("h1", { hasText: "</script>" }).waitFor();
    assert.ok((await page.locator("#verbs tbody th").first().innerText()).includes(evil));
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.equal(await page.locator("img").count(), 0);
    assert.deepEqual(page.wrongs, []);
  },

  async a_script_that_is_not_the_pages_own_does_not_run(page) {
    await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "globalThis.hacked = 1";
      document.body.append(script);
    });
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    page.wrongs.splice(0); /* the policy complains */
  },
};

/* ---- all of them ----------------------------------------------------------------------------------- */

let failed = 0;
let n = 0;
let browser;
console.log(`1..${Object.keys(claims).length}`);
try {
  browser = await launch();
  const page = await open(browser, pageOf(result));
  await page.locator("h1").waitFor();
  for (const [name, claim] of Object.entries(claims)) {
    try {
      await claim(page, browser);
      assert.deepEqual(page.wrongs.splice(0), [], "errors in the page");
      console.log(`ok ${++n} - ${name}`);
    } catch (error) {
      failed++;
      console.log(`not ok ${++n} - ${name}\n${String(error.stack ?? error).replace(/^/gm, "# ")}`);
    }
  }
} catch (error) {
  failed++;
  console.log(`Bail out! ${String(error.stack ?? error).split("\n")[0]}`);
}
await browser?.close();
rmSync(dir, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
