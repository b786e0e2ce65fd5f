"""Grafana's JSON for a dashboard (schema 42, Grafana 12 and later): panels, queries, variables.

The other modules describe the dashboards. In their queries, `@` inside a selector is the job and instance selected above
the panels, and the crawler, if the metric has this label; `[~]` is the range for rates that Grafana derives from the
scrape interval: `rate(crawlgate_panics_total{@}[~])`. In queries to Loki, `{@}` is the decision log of the selected
crawlers.
"""

from __future__ import annotations

import dataclasses
import re
import string

SCHEMA = 42
# The admin page of a proxy on the same machine.
PAGE = "http://127.0.0.1:3129"
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
LOKI = {"type": "loki", "uid": "${loki}"}
CHOSEN = 'job=~"$job",instance=~"$instance"'
CHOSEN_CRAWLER = 'crawler=~"$crawler"'
# The metrics with the label `crawler`.
BY_CRAWLER = {
    "crawlgate_client_tls_failures_total",
    "crawlgate_decisions_total",
    "crawlgate_held_disconnects_total",
    "crawlgate_repeat_rejections_total",
    "crawlgate_requests_total",
}

# A threshold: a value, and the colour from that value on.
Step = tuple[float, str]
# The legend, and the query; in the legend, labels are in double braces.
Query = tuple[str, str]


def expression(text: str) -> str:
    """A query as it is sent to Prometheus, before Grafana fills in its variables."""

    def chosen(found: re.Match) -> str:
        metric = found[1]
        return metric + "{" + CHOSEN + ("," + CHOSEN_CRAWLER if metric in BY_CRAWLER else "")

    return re.sub(r"(\w+)\{@", chosen, text).replace("[~]", "[$__rate_interval]")


def share(part: str, whole: str) -> str:
    """Part of a whole, 0 to 1; no value while the whole is 0."""
    return f"{part} / ({whole} > 0)"


def quantiles(family: str, more: str = "") -> list[Query]:
    """p50, p95 and p99 of a histogram."""
    return [(f"p{percent}", _quantile(percent / 100, family, more)) for percent in (50, 95, 99)]


def p95(family: str, more: str = "") -> str:
    """The query for p95 of a histogram."""
    return _quantile(0.95, family, more)


def _quantile(share_: float, family: str, more: str) -> str:
    return f"histogram_quantile({share_:.2f}, sum by (le) (rate({family}_bucket{{@{more}}}[~])))"


@dataclasses.dataclass
class Panel:
    """One panel, or the heading of those after it; [`Board`] computes its position."""

    width: int
    height: int
    body: dict

    def model(self, number: int, x: int, y: int) -> dict:
        """Its JSON at a position of the grid."""
        place = {"h": self.height, "w": self.width, "x": x, "y": y}
        return {"id": number, **self.body, "gridPos": place}

    def leading_to(self, name: str, title: str) -> Panel:
        """The same panel, with a link to a more detailed dashboard for the same time and instances."""
        chosen = "&".join(f"${{{variable}:queryparam}}" for variable in ("datasource", "job", "instance", "crawler"))
        url = f"/d/crawlgate-{name}?${{__url_time_range}}&{chosen}"
        self.body["links"] = [_link(title, "link", title) | {"tags": [], "url": url, "includeVars": False, "keepTime": False}]
        return self


    def opening_decisions(self, **filters: str) -> Panel:
        """The same panel, with a link from each of its series to the decisions on the admin page.

        In a filter, `{label}` is the value of this label of the series.
        """
        labelled = {name: re.sub(r"\{(\w+)\}", r"${__field.labels.\1:percentencode}", text) for name, text in filters.items()}
        query = "&".join(f"{name}={text}" for name, text in labelled.items())
        link = {"title": "Decisions on the admin page", "url": f"${{page}}/ui#/decisions?{query}", "targetBlank": True}
        self.body["fieldConfig"]["defaults"]["links"] = [link]
        return self

    def opens_decisions(self) -> bool:
        """Whether the panel needs the variable `$page`."""
        return "links" in self.body.get("fieldConfig", {}).get("defaults", {})


def heading(title: str) -> Panel:
    return Panel(COLUMNS, 1, {"type": "row", "title": title, "collapsed": False, "panels": []})


def lines(
    title: str,
    about: str,
    unit: str,
    queries: list[Query],
    *,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    least: float | None = 0,
    most: float | None = None,
    steps: list[Step] | None = None,
) -> Panel:
    """Values over time; stacked if their sum is meaningful. `steps` draws lines at these values."""
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 25 if stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "line" if steps else "off"},
    }
    defaults = _defaults(unit, steps, {"mode": "palette-classic"}) | {"custom": custom}
    defaults |= {name: bound for name, bound in (("min", least), ("max", most)) if bound is not None}
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["mean", "lastNotNull"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    targets = [_target(n, text, legend) for n, (legend, text) in enumerate(queries)]
    return _panel("timeseries", title, about, width, height, targets, defaults, options)


def number(
    title: str,
    about: str,
    unit: str,
    query: str,
    *,
    width: int = 3,
    steps: list[Step] | None = None,
    base: str = "green",
    trend: bool = True,
) -> Panel:
    """The latest value, large, in the colour of the last step that it reaches, `base` below the first.

    `trend` draws the recent values in the background.
    """
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area" if trend else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    defaults = _defaults(unit, steps, {"mode": "thresholds"}, base) | {"noValue": "–"}
    return _panel("stat", title, about, width, 4, [_target(0, query, "")], defaults, options)


def ranking(title: str, about: str, unit: str, query: str, legend: str, *, width: int = 12, height: int = 10) -> Panel:
    """Bars, for a query over the whole time range."""
    options = {
        "displayMode": "gradient",
        "orientation": "horizontal",
        "valueMode": "color",
        "namePlacement": "auto",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 300,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    defaults = _defaults(unit, None, {"mode": "continuous-BlYlRd"}) | {"min": 0, "decimals": 0, "noValue": "–"}
    return _panel("bargauge", title, about, width, height, [_target(0, query, legend, "instant")], defaults, options)


def heat(title: str, about: str, query: str, *, width: int = 12, height: int = 8) -> Panel:
    """A histogram of seconds over time; the query returns its buckets."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "fill": "dark-orange",
            "exponent": 0.5,
            "steps": 64,
            "reverse": False,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": "s"},
    }
    custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}, "scaleDistribution": {"type": "linear"}}
    defaults = {"unit": "s", "custom": custom}
    targets = [_target(0, query, "{{le}}", "heatmap")]
    return _panel("heatmap", title, about, width, height, targets, defaults, options)


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of values: one query. `words` replaces values; a column without a name is hidden."""

    name: str
    query: str
    unit: str = "short"
    words: dict[int, tuple[str, str]] = dataclasses.field(default_factory=dict)
    decimals: int | None = None


def table(
    title: str,
    about: str,
    labels: list[str],
    columns: list[Column],
    *,
    width: int = 12,
    height: int = 10,
    sort: str | None = None,
) -> Panel:
    """Labels, then one column for each query; rows with the same labels are merged."""
    values = [f"Value #{_letter(n)}" if len(columns) > 1 else "Value" for n in range(len(columns))]
    names = dict(zip(values, (column.name for column in columns)))
    renamed = {label: label.capitalize() for label in labels} | {value: name for value, name in names.items() if name}
    hidden = {"Time": True} | {value: True for value, name in names.items() if not name}
    organize = {
        "excludeByName": hidden,
        "indexByName": {name: place for place, name in enumerate([*labels, *values])},
        "renameByName": renamed,
    }
    options = {
        "frameIndex": 0,
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False},
        "sortBy": [{"displayName": sort, "desc": True}] if sort else [],
    }
    custom = {"align": "auto", "inspect": False, "filterable": True}
    defaults = _defaults("short", None, {"mode": "thresholds"}) | {"custom": custom, "noValue": "–"}
    targets = [_target(n, column.query, "", "table") for n, column in enumerate(columns)]
    made = _panel("table", title, about, width, height, targets, defaults, options)
    made.body["fieldConfig"]["overrides"] = [_override(column) for column in columns if column.name]
    made.body["transformations"] = [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]
    return made


def log_lines(title: str, about: str, query: str, *, width: int = COLUMNS, height: int = 12) -> Panel:
    """Lines of the decision log, the latest first."""
    options = {
        "showTime": True,
        "showLabels": False,
        "showCommonLabels": False,
        "wrapLogMessage": True,
        "prettifyLogMessage": False,
        "enableLogDetails": True,
        "dedupStrategy": "none",
        "sortOrder": "Descending",
    }
    defaults = _defaults("short", None, {"mode": "thresholds"})
    return from_log(_panel("logs", title, about, width, height, [_target(0, query, "")], defaults, options))


def from_log(panel: Panel) -> Panel:
    """The same panel with its queries sent to Loki."""
    panel.body["datasource"] = LOKI
    panel.body["targets"] = [
        {
            "refId": target["refId"],
            "datasource": LOKI,
            "editorMode": "code",
            "expr": target["expr"].replace("{@}", '{job="crawlgate"}'),
            "queryType": "instant" if target["instant"] else "range",
            "legendFormat": target["legendFormat"],
        }
        for target in panel.body["targets"]
    ]
    return panel


def _override(column: Column) -> dict:
    properties: list[dict] = [{"id": "unit", "value": column.unit}]
    if column.decimals is not None:
        properties.append({"id": "decimals", "value": column.decimals})
    if column.words:
        options = {
            str(value): {"text": text, "color": color, "index": place}
            for place, (value, (text, color)) in enumerate(column.words.items())
        }
        properties += [
            {"id": "mappings", "value": [{"type": "value", "options": options}]},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ]
    return {"matcher": {"id": "byName", "options": column.name}, "properties": properties}


def _panel(
    kind: str, title: str, about: str, width: int, height: int, targets: list[dict], defaults: dict, options: dict
) -> Panel:
    body = {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }
    return Panel(width, height, body)


def _defaults(unit: str, steps: list[Step] | None, color: dict, base: str = "green") -> dict:
    """Without steps there is a single neutral colour."""
    first = {"color": base if steps else "blue", "value": None}
    others = [{"color": color_, "value": value} for value, color_ in steps or []]
    return {"unit": unit, "color": color, "thresholds": {"mode": "absolute", "steps": [first, *others]}}


def _letter(place: int) -> str:
    return string.ascii_uppercase[place]


def _target(place: int, text: str, legend: str, kind: str = "range") -> dict:
    """`kind`: `range` and `heatmap` are queries over time, `instant` and `table` at the current time."""
    instant = kind in ("instant", "table")
    return {
        "refId": _letter(place),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expression(text),
        "format": kind if kind in ("table", "heatmap") else "time_series",
        "instant": instant,
        "range": not instant,
        "legendFormat": legend or "__auto",
    }


@dataclasses.dataclass
class Board:
    """A dashboard. `compares` adds the variable `$compare`: how long ago the compared time is; `reads_log` one for Loki."""

    uid: str
    title: str
    about: str
    panels: list[Panel]
    compares: bool = False
    reads_log: bool = False

    def model(self) -> dict:
        """Its JSON."""
        others = "The other crawlgate dashboards, for the same time and instances"
        return {
            "id": None,
            "uid": self.uid,
            "title": self.title,
            "description": self.about,
            "tags": ["crawlgate"],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "fiscalYearStartMonth": 0,
            "liveNow": False,
            "timezone": "browser",
            "weekStart": "",
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timepicker": {},
            "links": [_link("crawlgate", "dashboards", others) | {"tags": ["crawlgate"]}],
            "annotations": {"list": [_own_annotations(), _reloads()]},
            "templating": {"list": self._variables()},
            "panels": self._placed(),
        }

    def _variables(self) -> list[dict]:
        found = [
            _datasource("datasource", "Data source", "prometheus"),
            _labels("job", "Job", "label_values(crawlgate_build_info, job)"),
            _labels("instance", "Instance", 'label_values(crawlgate_build_info{job=~"$job"}, instance)'),
            _labels("crawler", "Crawler", f"label_values(crawlgate_decisions_total{{{CHOSEN}}}, crawler)"),
        ]
        found += [_compare()] if self.compares else []
        found += [_datasource("loki", "Decision log", "loki")] if self.reads_log else []
        return found + [_page()] if any(panel.opens_decisions() for panel in self.panels) else found

    def _placed(self) -> list[dict]:
        """Places panels from left to right; a panel that does not fit into its row begins the next."""
        placed, x, y, tallest = [], 0, 0, 0
        for number_, panel in enumerate(self.panels, 1):
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            placed.append(panel.model(number_, x, y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        return placed


def _labels(name: str, label: str, query: str) -> dict:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": query,
        "regex": "",
        "hide": 0,
        # Refreshed when the time range changes.
        "refresh": 2,
        "sort": 1,
        "multi": True,
        # "All" means all values of this query, not everything that Prometheus scrapes.
        "includeAll": True,
        "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _datasource(name: str, label: str, kind: str) -> dict:
    return {
        "name": name,
        "label": label,
        "type": "datasource",
        "query": kind,
        "regex": "",
        "hide": 0,
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "options": [],
        "current": {"selected": False, "text": "default", "value": "default"},
    }


def _page() -> dict:
    given = {"selected": True, "text": PAGE, "value": PAGE}
    return {
        "name": "page",
        "label": "Admin page",
        "description": "Where the links of panels lead: admin.public_url of the configuration",
        "type": "textbox",
        "query": PAGE,
        "hide": 0,
        "options": [given],
        "current": given,
    }


def _compare() -> dict:
    choices = ["15m", "1h", "6h", "1d", "7d"]
    options = [{"selected": choice == "1h", "text": choice, "value": choice} for choice in choices]
    return {
        "name": "compare",
        "label": "Compare with",
        "description": "How long ago the time is with which the panels 'now and before' compare",
        "type": "custom",
        "query": ",".join(choices),
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "options": options,
        "current": options[1],
    }


def _link(title: str, kind: str, tooltip: str) -> dict:
    return {
        "title": title,
        "type": kind,
        "icon": "external link",
        "tooltip": tooltip,
        "asDropdown": False,
        "targetBlank": False,
        "includeVars": True,
        "keepTime": True,
    }


def _own_annotations() -> dict:
    return {
        "name": "Annotations & Alerts",
        "type": "dashboard",
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
    }


def _reloads() -> dict:
    """A mark where a policy took effect that no instance had a minute before."""
    now = "count by (policy, revision) (crawlgate_policy_info{@})"
    before = "count by (policy, revision) (crawlgate_policy_info{@} offset 1m)"
    return {
        "name": "Policy took effect",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "purple",
        "expr": expression(f"{now} unless {before}"),
        "step": "60s",
        "titleFormat": "Policy {{policy}}",
        "textFormat": "revision {{revision}}",
        "tagKeys": "policy,revision",
        "useValueForTime": False,
    }
