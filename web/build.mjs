// Builds the files that ship in the Python package. The same sources give the same bytes: no dates, no paths, nothing of the
// machine; versions of the tools are pinned by package-lock.json.
import { build } from "esbuild";
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import path from "node:path";

const here = path.dirname(fileURLToPath(import.meta.url));
const modules = path.join(here, "node_modules");
// Parts of d3 that others of its parts ask for and the page never reaches; they would be a sixth of it.
const lean = { "d3-transition": "./src/lean/transition.ts", "d3-interpolate": "./src/lean/interpolate.ts", "d3-format": "./src/lean/format.ts" };
const out = process.argv[2] ?? path.join(here, "..", "src", "hulk", "page_files");

async function bundle(entry) {
  const made = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    outdir: out,
    write: false,
    bundle: true,
    minify: true,
    metafile: true,
    format: "iife",
    target: ["es2022", "chrome110", "firefox110", "safari16"],
    alias: lean,
    charset: "ascii",
    legalComments: "none",
    logLevel: "warning",
  });
  return { text: made.outputFiles[0].text, inputs: Object.keys(made.metafile.inputs) };
}

/** What others wrote and this page contains: name, licence and its text, in the order of names. */
async function notices(inputs) {
  const names = [...new Set(inputs.map((input) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1]).filter(Boolean)), "world-atlas"].sort();
  return await Promise.all(names.map(async (name) => {
    const folder = path.join(modules, name);
    const { version, license } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((one) => /^licen[cs]e/i.test(one));
    return { name, version, license, text: file ? (await readFile(path.join(folder, file), "utf8")).trim() : "" };
  }));
}

/** A page inside a page ends at the first end tag: neither script nor style may contain theirs. */
function withoutEndTag(text, tag) {
  if (text.toLowerCase().includes(`</${tag}`)) throw new Error(`the built ${tag} contains its own end tag`);
  return text;
}

await mkdir(out, { recursive: true });
const script = await bundle("src/main.ts");
const style = await bundle("src/style/page.css");
const others = await notices([...script.inputs, ...style.inputs]);
const banner = `/* Hulk, Apache-2.0. Contains ${others.map(({ name, license }) => `${name} (${license})`).join(", ")}; notices: LICENSES.txt. */\n`;

await writeFile(path.join(out, "page.js"), withoutEndTag(banner + script.text, "script"));
await writeFile(path.join(out, "page.css"), withoutEndTag(style.text, "style"));
await writeFile(path.join(out, "LICENSES.txt"), "The page contains work of others, under these licences. Coasts: Natural Earth, public domain.\n"
  + others.map(({ name, version, license, text }) => `\n--- ${name} ${version}, ${license} ---\n\n${text}\n`).join(""));

// Land outlines at 1:110 million: Natural Earth (public domain) in the TopoJSON of world-atlas (ISC).
const atlas = JSON.parse(await readFile(path.join(modules, "world-atlas", "land-110m.json"), "utf8"));
await writeFile(path.join(out, "land.json"), `${JSON.stringify(atlas)}\n`);
await copyFile(path.join(here, "src", "index.html"), path.join(out, "index.html"));

for (const name of ["page.js", "page.css", "land.json", "index.html"]) {
  const bytes = await readFile(path.join(out, name));
  const kb = (n) => (n / 1000).toFixed(1).padStart(7);
  console.log(`${name.padEnd(12)}${kb(bytes.length)} KB ${kb(gzipSync(bytes, { level: 9 }).length)} KB gz`);
}
