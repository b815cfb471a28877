"""What all dashboards share: kinds of panels with one look, their order on the page, variables and links.

A panel is a dict as Grafana has it (schema 39, Grafana 10 and later), with its size; `dashboard` gives it its
place.  An expression is a pair (PromQL, legend).
"""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # columns of a dashboard
BLUE, GREEN, YELLOW, ORANGE, RED, GRAY = "blue", "green", "yellow", "orange", "red", "#6e7078"


def steps(*pairs):
    """Thresholds: a colour, and each further one from a value on."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for value, color in pairs]}


NEUTRAL = steps((None, BLUE))


def override(matcher, option, **properties):
    return {
        "matcher": {"id": matcher, "options": option},
        "properties": [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()],
    }


def colour_of(ref, colour):
    """All series of the target `ref` ("A" is the first) in one colour."""
    return override("byFrameRefID", ref, color={"mode": "fixed", "fixedColor": colour})


def dashed(ref):
    """A target that is a limit, not a measurement."""
    return override("byFrameRefID", ref, custom__lineStyle={"fill": "dash", "dash": [8, 6]}, custom__fillOpacity=0,
                    custom__stacking={"mode": "none"})


def target(number, expression, instant=False, form="time_series"):
    expr, legend = expression
    return {
        "refId": chr(ord("A") + number),
        "datasource": DATASOURCE,
        "expr": expr,
        "legendFormat": legend,
        "instant": instant,
        "range": not instant,
        "format": form,
        "editorMode": "code",
    }


def panel(kind, title, description, unit, expressions, *, width, height, instant=False, form="time_series",
          thresholds=NEUTRAL, overrides=(), options=None, custom=None, color=None, low=None, high=None,
          decimals=None, mappings=(), empty=None):
    defaults = {"unit": unit, "thresholds": thresholds, "mappings": list(mappings),
                "color": {"mode": color or "thresholds"}, "custom": custom or {}}
    defaults |= {name: value for name, value in (("min", low), ("max", high), ("decimals", decimals),
                                                       ("noValue", empty)) if value is not None}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": [target(i, e, instant, form) for i, e in enumerate(expressions)],
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options or {},
        "gridPos": {"w": width, "h": height},
    }


def graph(title, description, unit, expressions, *, width=8, height=8, stacked=False, low=0, repeat=None, **more):
    """Lines over time, with the last value and the highest in the legend."""
    made = panel(
        "timeseries", title, description, unit, expressions, width=width, height=height, low=low,
        color="palette-classic-by-name",
        custom={
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 40 if stacked else 8, "showPoints": "never",
            "spanNulls": False, "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if "thresholds" in more else "off"},
        },
        options={
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                       "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }, **more)
    if repeat:
        made |= {"repeat": repeat, "repeatDirection": "h", "maxPerRow": WIDTH // width}
    return made


def stat(title, description, unit, expressions, *, width=4, height=4, text="auto", graph_mode="area", **more):
    """The value now, large."""
    return panel(
        "stat", title, description, unit, expressions, width=width, height=height,
        instant=graph_mode == "none",
        options={
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value", "graphMode": graph_mode, "textMode": text, "justifyMode": "auto",
            "orientation": "auto",
        }, **more)


def bars(title, description, unit, expressions, *, width=8, height=8, **more):
    """A horizontal bar for each series, as it is now."""
    return panel(
        "bargauge", title, description, unit, expressions, width=width, height=height, instant=True,
        options={
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "orientation": "horizontal", "displayMode": "basic", "valueMode": "color", "showUnfilled": True,
            "minVizHeight": 24, "namePlacement": "left",
        }, **more)


def heatmap(title, description, unit, metric, *, width=12, height=9):
    """How a histogram's observations are spread, over time."""
    expr = f'sum by (le) (increase({metric}_bucket{{cluster="$cluster"}}[$__rate_interval]))'
    return panel(
        "heatmap", title, description, "short", [(expr, "{{le}}")], width=width, height=height, form="heatmap",
        options={
            "calculate": False, "yAxis": {"unit": unit, "axisPlacement": "left"}, "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange",
                      "reverse": False},
            "filterValues": {"le": 1e-9}, "tooltip": {"mode": "single", "yHistogram": False, "show": True},
            "legend": {"show": True}, "rowsFrame": {"layout": "auto"}, "showValue": "never",
        })


def table(title, description, expression, columns, *, width=12, height=7):
    """The labels of an instant vector as columns: {label: heading}, in their order; all others are left out."""
    order = {label: place for place, label in enumerate(columns)}
    made = panel(
        "table", title, description, "none", [(expression, "")], width=width, height=height, instant=True,
        form="table", options={"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": []}})
    made["transformations"] = [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}},
        {"id": "organize", "options": {"indexByName": order, "renameByName": columns, "excludeByName": {}}},
    ]
    return made


def quantiles(metric, *, by="", legend=""):
    """p50, p95 and p99 of a histogram as expressions."""
    group = f"le, {by}" if by else "le"
    return [
        (f'histogram_quantile({q}, sum by ({group}) (rate({metric}_bucket{{cluster="$cluster"}}[$__rate_interval])))',
         f"p{round(q * 100)}{legend}") for q in (0.5, 0.95, 0.99)
    ]


def variable(name, label, query, *, several=False):
    made = {
        "name": name, "label": label, "type": "query", "datasource": DATASOURCE,
        "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "multi": several, "includeAll": several,
        "hide": 0,
    }
    if several:
        made |= {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return made


def annotation(name, colour, expression, title, text):
    """A mark on every graph for each moment at which the expression has a value."""
    return {
        "name": name, "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": colour,
        "expr": expression, "step": "15s", "titleFormat": title, "textFormat": text, "tagKeys": "",
        "useValueForTime": False,
    }


# The window is longer than the step, so that nothing falls between two windows.
ANNOTATIONS = [
    annotation("Recoveries", "red", 'sum by (cluster) (increase(tandem_recoveries_total{cluster="$cluster"}[30s])) > 0',
               "Recovery", "The gateway of {{cluster}} lost a worker, or got one back, and loaded its plan again."),
    annotation("Restarts", "orange",
               'sum by (service) (increase(tandem_service_restarts_total{cluster="$cluster"}[30s])) > 0',
               "Restart", "tandem serve started {{service}} again."),
]

VARIABLES = [
    {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
     "hide": 0},
    variable("cluster", "Cluster", 'label_values(up{job=~"tandem-.+"}, cluster)'),
    variable("worker", "Worker", 'label_values(tandem_worker_info{cluster="$cluster"}, worker)', several=True),
]


def dashboard(uid, title, description, sections, *, refresh="5s", span="now-15m"):
    """`sections`: (heading or None, members).  A member is a panel, or a list of panels, one below the other;
    members fill lines from the left, and a line is as high as its highest."""
    panels = []

    def place(item, left, top, width, height):
        panels.append({"id": len(panels) + 1} | item | {"gridPos": {"x": left, "y": top, "w": width, "h": height}})

    top = 0
    for heading, members in sections:
        if heading:
            place({"type": "row", "title": heading, "collapsed": False, "panels": []}, 0, top, WIDTH, 1)
            top += 1
        left = line = 0
        for member in members:
            column = member if isinstance(member, list) else [member]
            width = column[0]["gridPos"]["w"]
            if left + width > WIDTH:
                top, left, line = top + line, 0, 0
            below = top
            for item in column:
                place(item, left, below, width, item["gridPos"]["h"])
                below += item["gridPos"]["h"]
            left, line = left + width, max(line, below - top)
        top += line
    return {
        "uid": uid, "title": f"Tandem / {title}", "description": description, "tags": ["tandem"],
        "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1, "timezone": "browser",
        "refresh": refresh, "time": {"from": span, "to": "now"}, "templating": {"list": VARIABLES},
        "annotations": {"list": ANNOTATIONS},
        "links": [{"type": "dashboards", "title": "Tandem", "tooltip": "", "tags": ["tandem"], "asDropdown": False,
                   "includeVars": True, "keepTime": True, "targetBlank": False, "icon": "external link"}],
        "panels": panels,
    }
