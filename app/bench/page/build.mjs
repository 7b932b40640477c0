// SPDX-License-Identifier: BSD-2-Clause
/*
 * build.mjs - builds the page of `stag bench`: one HTML file without its result, as two arrays in C.
 *
 * meson calls it: node build.mjs CONSOLE_WORK OUT.c. The packages (esbuild, Preact, uPlot) are the console's, in CONSOLE_WORK/node_modules.
 */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const [work, out] = process.argv.slice(2).map((path) => resolve(path));
const here = dirname(fileURLToPath(import.meta.url));
const modules = createRequire(join(work, "package.json"));
const esbuild = modules("esbuild");

const read = (name) => readFileSync(join(here, name), "utf8");

function script() {
  const made = esbuild.buildSync({
    entryPoints: [join(here, "page.jsx")],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2022",
    charset: "ascii",
    legalComments: "inline",
    jsx: "automatic",
    jsxImportSource: "preact",
    nodePaths: [join(work, "node_modules")],
  });
  return made.outputFiles[0].text.trim();
}

function style() {
  const text = readFileSync(modules.resolve("uplot/dist/uPlot.min.css"), "utf8") + read("style.css");
  return esbuild.transformSync(text, { loader: "css", minify: true }).code.trim();
}

/* A template's parts before and behind the result. */
function page() {
  const js = script();
  if (js.includes("</script")) throw new Error("the script would end its own element");
  const fields = { "@SCRIPT@": js, "@STYLE@": style(), "@SCRIPT_HASH@": `sha256-${createHash("sha256").update(js).digest("base64")}` };
  const parts = read("template.html").split("@RESULT@");
  if (parts.length !== 2) throw new Error("template.html has to have one @RESULT@");
  return parts.map((part) => part.replace(/@(SCRIPT|STYLE|SCRIPT_HASH)@/g, (name) => fields[name]));
}

function array(name, text) {
  const bytes = Buffer.from(text);
  const lines = [];
  for (let i = 0; i < bytes.length; i += 24) lines.push("\t" + [...bytes.subarray(i, i + 24)].join(",") + ",");
  return `static const unsigned char ${name}[] = {\n${lines.join("\n")}\n};\n`;
}

const [before, behind] = page();
writeFileSync(out, `/* Made by app/bench/page/build.mjs. */
#include "page.h"

${array("before", before)}
${array("behind", behind)}
const struct page_template page_template = {before, sizeof(before), behind, sizeof(behind)};
`);
