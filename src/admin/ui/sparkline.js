// Small bars of the counts of the last hour. The number beside them says how many there were.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, GAP] = [60, 16, 1];

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** Creates the bars; `show(counts)` draws them, the oldest count first. Without any count they are hidden. */
export function sparkline() {
  // One path for all bars: a table has hundreds of them.
  const bars = svg("path", {});
  const element = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true", hidden: "" });
  element.append(bars);
  let said = "";
  const show = (counts) => {
    if (said === String(counts)) return;
    said = String(counts);
    const most = Math.max(0, ...(counts ?? []));
    element.toggleAttribute("hidden", most === 0);
    bars.setAttribute("d", most ? outline(counts, most) : "");
  };
  return { element, show };
}

/** Returns the outline of the bars, in the notation of SVG paths. */
function outline(counts, most) {
  const width = WIDTH / counts.length;
  const bar = (value, at) => {
    const height = value ? Math.max(1, (HEIGHT * value) / most) : 0.5;
    return `M${at * width} ${HEIGHT}v${-height}h${width - GAP}v${height}z`;
  };
  return counts.map(bar).join("");
}
