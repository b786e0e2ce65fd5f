// Parses queries to Loki with the grammar that Grafana's editor uses, and prints those that are not LogQL.
//
//     node tests/acceptance/logql.mjs NODE_MODULES < QUERIES      (a JSON list of texts)

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import path from "node:path";

const require = createRequire(path.resolve(process.argv[2], "node_modules", "x.js"));
const { parser } = require("@grafana/lezer-logql");

/** The text at which the parser found no rule of the grammar; none if there is no such place. */
function mistake(query) {
  let found;
  parser.parse(query).iterate({
    enter(node) {
      if (node.type.isError) found ??= query.slice(node.from, node.to + 20) || "its end";
    },
  });
  return found;
}

for (const query of JSON.parse(readFileSync(0, "utf8"))) {
  const at = mistake(query);
  if (at !== undefined) console.log(`not LogQL at ${at}: ${query}`);
}
