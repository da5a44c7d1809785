// Builds the files that ship in the Python package. The same sources give the same bytes: no dates, no paths, no hashes of the
// machine; versions of the tools are pinned by package-lock.json.
import { build } from "esbuild";
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import path from "node:path";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? path.join(here, "..", "src", "hulk", "page_files");

await mkdir(out, { recursive: true });

await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.ts", "page-style": "src/style/page.css" },
  outdir: out,
  // The style gets the name page.css; esbuild would otherwise see two entries of one name.
  entryNames: "[name]",
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022", "chrome110", "firefox110", "safari16"],
  charset: "ascii",
  legalComments: "none",
  banner: { js: "/* Hulk, Apache-2.0. Contains d3 (ISC), topojson-client (ISC) and uPlot (MIT). */" },
  logLevel: "warning",
});

const style = path.join(out, "page-style.css");
await writeFile(path.join(out, "page.css"), await readFile(style));
await rm(style);

// Land outlines at 1:110 million: Natural Earth (public domain) in the TopoJSON of world-atlas (ISC).
const atlas = JSON.parse(await readFile(path.join(here, "node_modules/world-atlas/land-110m.json"), "utf8"));
await writeFile(path.join(out, "land.json"), JSON.stringify(atlas) + "\n");

await copyFile(path.join(here, "src", "index.html"), path.join(out, "index.html"));

for (const name of ["page.js", "page.css", "land.json", "index.html"]) {
  const bytes = await readFile(path.join(out, name));
  const kb = (n) => (n / 1000).toFixed(1).padStart(7);
  console.log(`${name.padEnd(12)}${kb(bytes.length)} KB ${kb(gzipSync(bytes, { level: 9 }).length)} KB gz`);
}
