// Fleet: the nodes as this one sees them, who owns how many hosts, and what keeps them apart.

import { api } from "../api.js";
import { fill, h, write } from "../dom.js";
import { poll } from "../feed.js";
import { count, duration, plural, visible } from "../format.js";
import { KeptTable } from "../table.js";
import { showError } from "./verdict.js";

const EVERY_MS = 2000;

const COLUMNS = [
  { name: "Node" },
  { name: "State" },
  { name: "Partitions", kind: "number" },
  { name: "Last renewal" },
  { name: "Policy" },
  { name: "Version" },
  { name: "Address" },
  { name: "Link from here" },
];

const STATES = {
  active: ["good", "active"],
  draining: ["warn", "draining"],
  silent: ["bad", "silent"],
};

/** Creates the view. */
export function fleet(main) {
  return new Fleet(main);
}

class Fleet {
  constructor(main) {
    this.summary = h("span.quiet", "loading");
    this.trouble = h("div");
    this.problems = h("div");
    this.facts = Object.fromEntries(
      ["lease", "own", "of_others", "unowned", "policies", "links"].map((name) => [name, h("dd")]),
    );
    this.table = new KeptTable("Nodes", COLUMNS, { key: (row) => row.node, make: nodeRow });
    const fact = (title, name) => [h("dt", title), this.facts[name]];
    fill(
      main,
      h(
        "section.panel",
        { "aria-labelledby": "fleet-title" },
        h("div.panel-head", h("h1", { id: "fleet-title" }, "Fleet"), this.summary),
        this.trouble,
        this.problems,
        h(
          "dl.facts",
          fact("Lease of this node", "lease"),
          fact("Partitions of this node", "own"),
          fact("Of other nodes", "of_others"),
          fact("Without an owner", "unowned"),
          fact("Policies of members", "policies"),
          fact("Failing links from here", "links"),
        ),
        this.table.element,
        h(
          "p.quiet",
          "All hosts fall into partitions, each of which one node owns. This is what this node sees; ",
          h("code", "crawlgate fleet status"),
          " reads the database.",
        ),
      ),
    );
    this.end = poll(() => this.load(), EVERY_MS);
  }

  async load() {
    const what = "The fleet cannot be shown";
    try {
      this.show(await api.fleet());
      showError(this.trouble, what, null);
    } catch (error) {
      showError(this.trouble, what, error);
    }
  }

  show(found) {
    const { facts } = this;
    const own = found.members.find((member) => member.node === found.node);
    const failing = found.members.filter((member) => member.link_error !== null);
    write(this.summary, `${plural(found.members.length, "member")}, seen by ${visible(found.node)}`);
    const lease = duration(1000 * found.lease_left);
    write(facts.lease, found.lease_left > 0 ? `${lease} of ${duration(1000 * found.lease)} left` : "none: it owns nothing");
    for (const name of ["own", "of_others", "unowned"]) write(facts[name], count(found.partitions[name]));
    write(facts.policies, count(found.policy_revisions));
    write(facts.links, count(failing.length));
    this.showProblems(found, failing);
    const policy = own?.policy;
    this.table.show(found.members.map((member) => ({ ...member, isThis: member === own, drifts: differs(member, policy) })));
  }

  /** One block for each problem. The blocks are rebuilt only if their texts change. */
  showProblems(found, failing) {
    const problems = [
      found.error && ["bad", `The database: ${found.error}`],
      !found.member && ["bad", "This node is not a member of the fleet."],
      found.member && found.lease_left === 0 && ["bad", "This node has no lease, and owns nothing."],
      found.partitions.unowned > 0 &&
        found.lease_left > 0 && [
          "warn",
          `${plural(found.partitions.unowned, "partition")} without an owner: requests for their hosts wait.`,
        ],
      found.policy_revisions > 1 && [
        "warn",
        `Members have ${found.policy_revisions} policies: what is refused depends on the owner of the host.`,
      ],
      ...failing.map((member) => ["warn", `${member.node} cannot be reached from here: ${member.link_error}`]),
    ].filter(Boolean);
    const said = JSON.stringify(problems);
    if (this.said === said) return;
    this.said = said;
    fill(
      this.problems,
      problems.map(([kind, text]) => h("div", { class: `notice ${kind}` }, visible(text))),
    );
  }

  close() {
    this.end();
  }
}

function renewed(seconds) {
  if (seconds === null) return "–";
  return seconds < 1 ? "just now" : `${duration(1000 * Math.floor(seconds))} ago`;
}

function differs(member, policy) {
  return policy !== undefined && member.state !== "silent" && member.policy !== policy;
}

function nodeRow(row) {
  const names = ["state", "partitions", "renewed", "policy", "version", "address", "link"];
  const cells = Object.fromEntries(names.map((name) => [name, h("td")]));
  cells.partitions.className = "number";
  cells.renewed.className = "quiet";
  const about = h("span.about");
  const name = h("th.rule-name", { scope: "row" }, h("span.id", visible(row.node)), about);
  const element = h("tr", { data: { node: row.node } }, name, Object.values(cells));
  const mark = (cell, kind, words) => {
    const next = `${kind} ${words}`;
    if (cell.dataset.said === next) return;
    cell.dataset.said = next;
    fill(cell, kind ? h("span", { class: `mark ${kind}` }, words) : words);
  };
  const update = (now) => {
    write(about, now.isThis ? "this node" : "");
    mark(cells.state, ...(STATES[now.state] ?? ["other", visible(now.state)]));
    write(cells.partitions, count(now.partitions));
    write(cells.renewed, renewed(now.renewed));
    mark(cells.policy, now.drifts ? "warn" : "", visible(now.policy || "–"));
    write(cells.version, visible(now.version || "–"));
    write(cells.address, visible(now.address));
    const failing = now.link_error !== null;
    mark(cells.link, failing ? "bad" : "", now.isThis ? "–" : failing ? "fails" : "no failure");
  };
  return { element, update };
}
