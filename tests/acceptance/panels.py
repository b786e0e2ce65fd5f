"""Checks of a dashboard's JSON, as far as possible without a Grafana server.

The rules are those of Grafana's dashboard linter (datasource, job and instance variables; titles, descriptions and
units; `$__rate_interval`; no dashboard that is edited by accident) and the shape that Grafana's own JSON Schema wants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Panels that Grafana has without a plug-in, and the options that each must have.
KINDS = {
    "timeseries": {"legend", "tooltip"},
    "stat": {"reduceOptions", "colorMode", "graphMode", "textMode", "orientation", "justifyMode"},
    "table": {"showHeader", "footer", "cellHeight", "sortBy"},
    "heatmap": {"color", "yAxis", "legend", "tooltip", "exemplars", "showValue", "calculate"},
    "logs": {"showTime", "sortOrder", "wrapLogMessage", "enableLogDetails", "dedupStrategy"},
    "bargauge": {"displayMode", "orientation", "reduceOptions", "showUnfilled", "valueMode"},
}
# Units of Grafana that are in use here; another one is most likely a typing mistake.
UNITS = {"short", "percentunit", "s", "ms", "bytes", "Bps", "reqps", "cps", "dateTimeFromNow"}
KEYS = {
    "id", "uid", "title", "description", "tags", "schemaVersion", "version", "editable", "graphTooltip",
    "fiscalYearStartMonth", "liveNow", "timezone", "weekStart", "refresh", "time", "timepicker", "links", "annotations",
    "templating", "panels",
}  # fmt: skip
PANEL_KEYS = {
    "id", "type", "title", "description", "datasource", "targets", "fieldConfig", "options", "transformations", "gridPos", "links",
}  # fmt: skip
TARGET_KEYS = {"refId", "datasource", "editorMode", "expr", "format", "instant", "range", "legendFormat"}
# Of a query to Loki.
LOG_TARGET_KEYS = {"refId", "datasource", "editorMode", "expr", "queryType", "legendFormat"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
LOKI = {"type": "loki", "uid": "${loki}"}
SCHEMA = 42
VARIABLES = re.compile(r"\$(?:\{(\w+)[^}]*\}|(\w+))")
LINK = re.compile(r"/d/crawlgate-(overview|policy|politeness|ledger|log|tls|fleet)\?\$\{__url_time_range\}&")
# The filters of the admin page's decisions; a value is fixed, or a label of the panel's series.
FILTERS = {"url", "verdict", "reason", "rule", "crawler", "host", "stage", "method", "status", "held"}
DECISIONS = re.compile(r"\$\{page\}/ui#/decisions\?((?:\w+=[^&]+&?)+)")
LABEL = re.compile(r"\$\{__field\.labels\.(\w+):percentencode\}")
GIVEN = {"__rate_interval", "__range", "__auto"}
# Panels of all instances: one that is down for longer than the time range is missing from the variable's values.
BY_JOB = {"Instances down"}


def queried(board: dict) -> Iterator[dict]:
    """The panels that ask for data."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


def asks_log(panel: dict) -> bool:
    """Whether a panel's data are lines of the decision log, not metrics."""
    return panel["datasource"] == LOKI


def is_of_fleet(panel: dict) -> bool:
    """Whether a panel has data only for nodes of a fleet."""
    texts = " ".join(target["expr"] for target in panel["targets"])
    return bool(re.search(r'crawlgate_(fleet|store)_|reason="owner_unavailable"', texts))


def problems(board: dict) -> list[str]:
    """Everything that is wrong with a dashboard's JSON."""
    found = list(_board(board))
    for panel in queried(board):
        found += [f"{panel.get('title')}: {problem}" for problem in _panel(panel, _names(board))]
    return [f"{board.get('uid')}: {problem}" for problem in found]


def _names(board: dict) -> set[str]:
    return {variable["name"] for variable in board["templating"]["list"]}


def _board(board: dict) -> Iterator[str]:
    if odd := board.keys() ^ KEYS:
        yield f"keys that are missing or not known: {sorted(odd)}"
    fixed = {"id": None, "schemaVersion": SCHEMA, "editable": False, "tags": ["crawlgate"]}
    yield from (f"{key} is {board.get(key)!r}" for key, value in fixed.items() if board.get(key) != value)
    if not re.fullmatch(r"crawlgate-[a-z]+", board["uid"]):
        yield "its uid is not crawlgate-NAME"
    if not board["description"]:
        yield "it has no description"
    if board["links"][0]["tags"] != ["crawlgate"] or not board["links"][0]["includeVars"]:
        yield "it has no links to the others that keep the variables"
    yield from _variables({variable["name"]: variable for variable in board["templating"]["list"]})
    ids = [panel["id"] for panel in board["panels"]]
    if len(set(ids)) != len(ids):
        yield "two panels have one id"
    titles = [panel["title"] for panel in queried(board)]
    yield from (f"two panels are called {title}" for title in {title for title in titles if titles.count(title) > 1})
    yield from _places(board["panels"])


def _variables(variables: dict[str, dict]) -> Iterator[str]:
    if variables.get("datasource", {}).get("type") != "datasource" or variables["datasource"]["query"] != "prometheus":
        yield "it has no variable for the datasource"
    for name in ("job", "instance", "crawler"):
        variable = variables.get(name, {})
        wanted = {"type": "query", "multi": True, "includeAll": True, "refresh": 2, "datasource": DATASOURCE}
        yield from (f"variable {name}: {key} is not {value}" for key, value in wanted.items() if variable.get(key) != value)
        if not re.match(rf"label_values\(.+, {name}\)$", variable.get("query", "")):
            yield f"variable {name}: its query is not label_values"


def _decisions(panel: dict, names: set[str]) -> Iterator[str]:
    """The links of its series to the admin page."""
    for link in panel["fieldConfig"]["defaults"].get("links", []):
        found = DECISIONS.fullmatch(link["url"])
        if not found or "page" not in names or not link["targetBlank"]:
            yield f"a link to {link['url']}, or no variable for the admin page"
            continue
        for part in found[1].split("&"):
            name, value = part.split("=", 1)
            label = LABEL.fullmatch(value)
            if name not in FILTERS or (not label and not value.isalnum()):
                yield f"a filter that the admin page does not have: {part}"
            if label and any(f"{{{{{label[1]}}}}}" not in target["legendFormat"] for target in panel["targets"]):
                yield f"its series have no label {label[1]}"


def _places(panels: list[dict]) -> Iterator[str]:
    """Each inside the 24 columns, none over another."""
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] < 0 or place["w"] < 1 or place["h"] < 1 or place["x"] + place["w"] > 24:
            yield f"{panel['title']}: outside the grid"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if (x, y) in taken:
                    yield f"{panel['title']}: lies over {taken[x, y]}"
                    return
                taken[x, y] = panel["title"]


def _panel(panel: dict, names: set[str]) -> Iterator[str]:
    if odd := panel.keys() - PANEL_KEYS:
        yield f"keys that are not known: {sorted(odd)}"
    if panel["type"] not in KINDS:
        yield f"{panel['type']} is no panel that Grafana brings along"
        return
    if missing := KINDS[panel["type"]] - panel["options"].keys():
        yield f"options without {sorted(missing)}"
    if not panel["title"] or len(panel.get("description", "")) < 8:
        yield "no title, or no description"
    yield from (f"a link to {link['url']}" for link in panel.get("links", []) if not LINK.match(link["url"]))
    yield from _decisions(panel, names)
    if panel["datasource"] != DATASOURCE and not asks_log(panel):
        yield "its data come from elsewhere than ${datasource} and ${loki}"
    defaults = panel["fieldConfig"]["defaults"]
    items = [item for override in panel["fieldConfig"]["overrides"] for item in override["properties"]]
    units = [defaults.get("unit"), *(item["value"] for item in items if item["id"] == "unit")]
    yield from (f"unit {unit}" for unit in units if unit not in UNITS)
    if "thresholds" in defaults:
        yield from _thresholds(defaults["thresholds"]["steps"])
    elif panel["type"] != "heatmap":
        yield "no thresholds"
    letters = [target["refId"] for target in panel["targets"]]
    if not letters or len(set(letters)) != len(letters):
        yield "no query, or two with one refId"
    check = _log_target if asks_log(panel) else _target
    for target in panel["targets"]:
        yield from check(panel, target, names)


def _thresholds(steps: list[dict]) -> Iterator[str]:
    values = [step["value"] for step in steps]
    if values[0] is not None or values[1:] != sorted(set(values[1:])):
        yield f"thresholds {values}"


def _log_target(panel: dict, target: dict, names: set[str]) -> Iterator[str]:
    if odd := target.keys() ^ LOG_TARGET_KEYS:
        yield f"query keys that are missing or not known: {sorted(odd)}"
    if target["datasource"] != LOKI or "loki" not in names:
        yield "a query from elsewhere, or no variable for Loki"
    if target["queryType"] != ("instant" if panel["type"] == "bargauge" else "range"):
        yield f"a {target['queryType']} query in a {panel['type']}"
    expression = target["expr"]
    if '{job="crawlgate"} | json ' not in expression or '| crawler=~"$crawler"' not in expression:
        yield f"not the decision log of the selected crawlers: {expression}"
    used = {a or b for a, b in VARIABLES.findall(expression)}
    yield from (f"variable ${name} does not exist" for name in sorted(used - names - GIVEN))


def _target(panel: dict, target: dict, names: set[str]) -> Iterator[str]:
    expression = target["expr"]
    if odd := target.keys() ^ TARGET_KEYS:
        yield f"query keys that are missing or not known: {sorted(odd)}"
    if target["datasource"] != DATASOURCE or target["instant"] == target["range"]:
        yield "a query from elsewhere, or that is neither instant nor range"
    formats = {"table": "table", "heatmap": "heatmap"}
    if target["format"] != formats.get(panel["type"], "time_series"):
        yield f"format {target['format']} in a {panel['type']}"
    used = {a or b for a, b in VARIABLES.findall(expression)}
    yield from (f"variable ${name} does not exist" for name in sorted(used - names - GIVEN))
    selectors = re.findall(r"(\w+)\{([^}]*)\}", expression)
    chosen = 'job=~"$job"' if panel["title"] in BY_JOB else 'job=~"$job",instance=~"$instance"'
    yield from (f"{family} is not that of job and instance" for family, inside in selectors if chosen not in inside)
    if len(selectors) != len(re.findall(r"\b(?:crawlgate|process)_\w+|\bup\b", expression)):
        yield f"a metric without selector: {expression}"
    for function, window in re.findall(r"(rate|increase)\([^\[]*\[([^\]]*)\]", expression):
        allowed = ("$__rate_interval",) if function == "rate" else ("$__rate_interval", "$__range", "$compare")
        if window not in allowed:
            yield f"{function} over [{window}]"
