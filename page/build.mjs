// Bundles src/ into the one file that report.html has in it, with the digest of the sources in its first line.

import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { build } from "esbuild";

const digest = createHash("sha256");
for (const name of readdirSync("src").sort()) digest.update(`${name}\n`).update(readFileSync(`src/${name}`));

await build({
  entryPoints: ["src/main.ts"],
  bundle: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  banner: { js: `// Made of page/src by \`nox -s page\`; sources ${digest.digest("hex")}` },
  outfile: "../batch_export/report/templates/report.js",
});
