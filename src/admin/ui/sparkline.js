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
  const element = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  let said = "";
  const show = (counts) => {
    if (said === String(counts)) return;
    said = String(counts);
    const most = Math.max(0, ...(counts ?? []));
    element.toggleAttribute("hidden", most === 0);
    const width = WIDTH / (counts?.length || 1);
    const bars = (counts ?? []).map((value, at) => {
      const height = most && value ? Math.max(1, (HEIGHT * value) / most) : 0.5;
      return svg("rect", { x: at * width, y: HEIGHT - height, width: width - GAP, height });
    });
    element.replaceChildren(...bars);
  };
  return { element, show };
}
