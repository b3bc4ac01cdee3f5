// What the tests in JavaScript share. Run with the checkout as the current folder.
import { deepStrictEqual } from "node:assert";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export function same(what, expected, actual) {
  deepStrictEqual(actual, expected, `${what}: expected ${JSON.stringify(expected)}, got ${JSON.stringify(actual)}`);
}

export async function packageOrSkip(name) {
  try {
    return (await import(name)).default;
  } catch (error) {
    console.log(`the npm package ${name} is not to be had: ${error.message}`);
    process.exit(77);
  }
}

// The one fenced block of a language in README.md, as a module beside the test, where its packages are found.
export async function readmeModule(language, file) {
  const found = [...readFileSync("README.md", "utf8").matchAll(new RegExp("^```" + language + "\\n(.*?)^```$", "gms"))];
  if (found.length !== 1) throw new Error(`README.md has ${found.length} blocks of ${language}, not one`);
  const path = join(dirname(process.argv[1]), file);
  writeFileSync(path, found[0][1]);
  return import(path);
}
