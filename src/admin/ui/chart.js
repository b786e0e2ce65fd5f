// Line charts of the last hour, drawn by uPlot (vendor/). The tiles and tables show the same in text.

const LONGEST_S = 3600;
const SHORTEST_S = 60;
const HEIGHT = 150;

/** Returns a colour of base.css in the form that canvas needs. The box's `color` is set for a moment to compute it. */
function colour(box, name, share = 1) {
  box.style.color = `var(${name})`;
  const numbers = getComputedStyle(box)
    .color.match(/[\d.]+/g)
    .slice(0, 3);
  box.style.color = "";
  return `rgba(${numbers.join(",")},${share})`;
}

function times(_, marks, __, ___, step) {
  const options = { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined };
  return marks.map((mark) => new Date(mark * 1000).toLocaleTimeString("en-GB", options));
}

/** Returns these marks of an axis, with null for those that are no powers of ten. */
function onlyDecades(_, marks) {
  return marks.map((mark) => (Math.abs(Math.log10(mark) - Math.round(Math.log10(mark))) < 1e-6 ? mark : null));
}

/** Returns the powers of ten around the values, so that a short time is visible beside a long one. */
function decades(_, min, max) {
  const low = min > 0 ? 10 ** Math.floor(Math.log10(min)) : 1;
  const high = max > 0 ? 10 ** Math.ceil(Math.log10(max)) : 10;
  return [low, Math.max(high, low * 10)];
}

/**
 * A chart in `box`. `series` are `{ label, colour: "--name", show: value => text, fill, dash }`; `fill` fills the area,
 * and `dash` has the lengths of strokes and gaps. With `logarithmic`, values of 0 are not drawn.
 */
export class Chart {
  constructor(box, series, { logarithmic = false } = {}) {
    this.box = box;
    this.series = series;
    this.logarithmic = logarithmic;
    this.data = [[], ...series.map(() => [])];
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(box);
    this.draw();
  }

  draw() {
    this.plot?.destroy();
    const axis = { stroke: colour(this.box, "--quiet"), font: "11px system-ui", ticks: { show: false } };
    const grid = { stroke: colour(this.box, "--line"), width: 1 };
    const line = (one) => ({
      label: one.label,
      stroke: colour(this.box, one.colour),
      fill: one.fill ? colour(this.box, one.colour, 0.13) : undefined,
      width: one.dash ? 2 : 1.5,
      dash: one.dash,
      points: { show: false },
      value: (_, value) => (value === null || value === undefined ? "–" : one.show(value)),
    });
    const options = {
      width: Math.max(120, this.box.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      padding: [8, 8, 0, 0],
      scales: {
        x: { time: true },
        y: this.logarithmic
          ? { distr: 3, range: decades }
          : { range: (_, __, max) => [0, Math.max(max * 1.15, 1)] },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 22, space: 70, values: times },
        {
          ...axis,
          grid: this.logarithmic ? { ...grid, filter: onlyDecades } : grid,
          ...(this.logarithmic ? { filter: onlyDecades } : {}),
          size: 46,
          space: 34,
          values: (_, marks) =>
            marks.map((mark) => (mark === null ? "" : (this.series[0].mark ?? this.series[0].show)(mark))),
        },
      ],
      series: [{}, ...this.series.map(line)],
    };
    this.plot = new globalThis.uPlot(options, this.data, this.box);
    this.show(this.data);
  }

  /** Shows columns: the times in seconds, then one for each series. */
  show(data) {
    this.data = data;
    const last = data[0].at(-1) ?? Date.now() / 1000;
    const span = Math.min(LONGEST_S, Math.max(SHORTEST_S, last - (data[0][0] ?? last)));
    this.plot.batch(() => {
      this.plot.setData(data, false);
      this.plot.setScale("x", { min: last - span, max: last });
    });
  }

  fit() {
    const width = Math.max(120, this.box.clientWidth);
    if (width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  close() {
    this.watch.disconnect();
    this.plot.destroy();
  }
}
