"""
``python -m contrib.monitoring.dashboard``: writes dashboard.json, the Grafana dashboard, from the rows below.

A panel is one entry: its title, its kind, its unit, and for each curve an expression and a legend. `$instance`,
`$topic` and `$channel` are the variables at the top of the dashboard. Import the file in Grafana (10 or newer), and
choose the Prometheus that scrapes the cluster.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

FILE = Path(__file__).with_name("dashboard.json")
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _STAT_HEIGHT = 24, 8, 4
_NODE = 'instance=~"$instance"'
_TOPIC = f'{_NODE},topic=~"$topic"'
_CHANNEL = f'{_TOPIC},channel=~"$channel"'
_STANDBY = 'nsq_replica_role{role="standby"} == 1'
_OWNER = f'nsq_replica_role{{role="owner",{_NODE}}} == 1'
_SPARK = 'topic=~"$topic"'
_QUERY_OF_TOPIC = "{{query}} {{topic}} {{channel}}"
_GREEN, _YELLOW, _RED = "green", "yellow", "red"


@frozen
class Panel:
    """A panel. `curves` are expressions with their legends; `limits` the values at which it turns yellow and red."""

    title: str
    curves: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    about: str = ""
    limits: tuple[float, float] | None = None
    is_stacked: bool = False


def _stat(title: str, expression: str, unit: str = "short", **more: Any) -> Panel:
    return Panel(title, ((expression, ""),), unit, "stat", 3, **more)


def _quantiles(name: str, labels: str, by: str = "", legend: str = "") -> tuple[tuple[str, str], ...]:
    """Return the median and the high percentiles of a histogram."""
    grouped = f"le, {by}" if by else "le"
    rate = f"sum by ({grouped}) (rate({name}_bucket{{{labels}}}[$__rate_interval]))"
    return tuple(
        (f"histogram_quantile({quantile}, {rate})", f"{legend}{shown}")
        for quantile, shown in ((0.5, "median"), (0.99, "99 %"))
    )


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Overview",
        (
            _stat("Nodes", f"count(nsq_build_info{{{_NODE}}})"),
            _stat(
                "Checks that fail",
                f"count(nsq_ready{{{_NODE}}} == 0 unless on (instance) {_STANDBY}) or vector(0)",
                limits=(1, 1),
            ),
            _stat("Published", f"sum(rate(nsq_topic_messages_total{{{_TOPIC}}}[$__rate_interval]))", "cps"),
            _stat("Finished", f"sum(rate(nsq_channel_finished_total{{{_CHANNEL}}}[$__rate_interval]))", "cps"),
            _stat("Waiting", f"sum(nsq_channel_depth{{{_CHANNEL}}})"),
            _stat(
                "Oldest waiting message",
                f"max(nsq_channel_oldest_message_age_seconds{{{_CHANNEL}}})",
                "s",
                limits=(60, 300),
            ),
            _stat(
                "Channels that nobody consumes",
                f"count(nsq_channel_depth{{{_CHANNEL}}} > 0 and nsq_channel_clients{{{_CHANNEL}}} == 0) or vector(0)",
                limits=(1, 10),
            ),
            _stat(
                "Disk used",
                f"max(1 - nsq_store_free_bytes{{{_NODE}}} / nsq_store_capacity_bytes{{{_NODE}}})",
                "percentunit",
                limits=(0.75, 0.9),
            ),
            Panel(
                "Messages in and out",
                (
                    (f"sum(rate(nsq_topic_messages_total{{{_TOPIC}}}[$__rate_interval]))", "published"),
                    (f"sum(rate(nsq_channel_finished_total{{{_CHANNEL}}}[$__rate_interval]))", "finished"),
                    (f"sum(rate(nsq_channel_requeued_total{{{_CHANNEL}}}[$__rate_interval]))", "requeued"),
                    (f"sum(rate(nsq_channel_timed_out_total{{{_CHANNEL}}}[$__rate_interval]))", "timed out"),
                ),
                "cps",
                width=12,
                about="Every channel of a topic finishes each message, so more may be finished than published.",
            ),
            Panel(
                "Messages that wait",
                (
                    (f"sum(nsq_channel_depth{{{_CHANNEL}}})", "waiting"),
                    (f"sum(nsq_channel_in_flight{{{_CHANNEL}}})", "in flight"),
                    (f"sum(nsq_channel_deferred{{{_CHANNEL}}})", "deferred"),
                    (f"sum(nsq_topic_depth{{{_TOPIC}}})", "without a channel"),
                ),
                width=12,
                is_stacked=True,
            ),
        ),
    ),
    (
        "Topics",
        (
            Panel(
                "Published messages",
                ((f"sum by (topic) (rate(nsq_topic_messages_total{{{_TOPIC}}}[$__rate_interval]))", "{{topic}}"),),
                "cps",
            ),
            Panel(
                "Published bytes",
                ((f"sum by (topic) (rate(nsq_topic_bytes_total{{{_TOPIC}}}[$__rate_interval]))", "{{topic}}"),),
                "Bps",
            ),
            Panel(
                "Messages that no channel was given",
                ((f"sum by (topic) (nsq_topic_depth{{{_TOPIC}}})", "{{topic}}"),),
                about="The topic has no channel, or is paused.",
            ),
        ),
    ),
    (
        "Channels",
        (
            Panel(
                "Age of the oldest waiting message",
                (
                    (
                        f"max by (topic, channel) (nsq_channel_oldest_message_age_seconds{{{_CHANNEL}}})",
                        "{{topic}}/{{channel}}",
                    ),
                ),
                "s",
                about="How far the consumers are behind, whatever the rate is.",
            ),
            Panel(
                "Waiting messages",
                ((f"sum by (topic, channel) (nsq_channel_depth{{{_CHANNEL}}})", "{{topic}}/{{channel}}"),),
            ),
            Panel(
                "Finished messages",
                (
                    (
                        f"sum by (topic, channel) (rate(nsq_channel_finished_total{{{_CHANNEL}}}[$__rate_interval]))",
                        "{{topic}}/{{channel}}",
                    ),
                ),
                "cps",
            ),
            Panel(
                "Requeued and timed out",
                (
                    (
                        "sum by (topic, channel) "
                        f"(rate(nsq_channel_requeued_total{{{_CHANNEL}}}[$__rate_interval])) > 0",
                        "{{topic}}/{{channel}} requeued",
                    ),
                    (
                        "sum by (topic, channel) "
                        f"(rate(nsq_channel_timed_out_total{{{_CHANNEL}}}[$__rate_interval])) > 0",
                        "{{topic}}/{{channel}} timed out",
                    ),
                ),
                "cps",
            ),
            Panel(
                "In flight and deferred",
                (
                    (
                        f"sum by (topic, channel) (nsq_channel_in_flight{{{_CHANNEL}}})",
                        "{{topic}}/{{channel}} in flight",
                    ),
                    *(
                        (
                            f"sum by (topic, channel) (nsq_channel_{name}{{{_CHANNEL}}}) > 0",
                            f"{{{{topic}}}}/{{{{channel}}}} {legend}",
                        )
                        for name, legend in (
                            ("deferred", "deferred"),
                            ("set_aside", "waiting for their key"),
                            ("redrive_left", "left of a redrive"),
                        )
                    ),
                ),
            ),
            Panel(
                "Waiting messages by priority",
                (
                    (
                        f"sum by (topic, channel, class) (nsq_channel_class_depth{{{_CHANNEL}}})",
                        "{{topic}}/{{channel}} {{class}}",
                    ),
                ),
            ),
            Panel(
                "Share of time at max_rate",
                (
                    (
                        "max by (topic, channel) "
                        f"(rate(nsq_channel_rate_limited_seconds_total{{{_CHANNEL}}}[$__rate_interval]))",
                        "{{topic}}/{{channel}}",
                    ),
                ),
                "percentunit",
                width=12,
            ),
            Panel(
                "Consumers",
                ((f"sum by (topic, channel) (nsq_channel_clients{{{_CHANNEL}}})", "{{topic}}/{{channel}}"),),
                width=12,
            ),
            Panel(
                "Dropped, dead and expired messages, refused publishes",
                (
                    (
                        f"sum by (topic) (rate(nsq_topic_rejected_total{{{_TOPIC}}}[$__rate_interval])) > 0",
                        "{{topic}} refused",
                    ),
                    (
                        f"sum by (topic) (rate(nsq_topic_deduplicated_total{{{_TOPIC}}}[$__rate_interval])) > 0",
                        "{{topic}} repeated",
                    ),
                    (
                        f"sum by (topic) (rate(nsq_topic_cancelled_total{{{_TOPIC}}}[$__rate_interval])) > 0",
                        "{{topic}} cancelled",
                    ),
                    *(
                        (
                            "sum by (topic, channel) "
                            f"(rate(nsq_channel_{name}_total{{{_CHANNEL}}}[$__rate_interval])) > 0",
                            f"{{{{topic}}}}/{{{{channel}}}} {legend}",
                        )
                        for name, legend in (
                            ("dropped", "dropped"),
                            ("dead_lettered", "dead"),
                            ("expired", "expired"),
                        )
                    ),
                ),
                "cps",
                width=12,
            ),
            Panel(
                "Paused channels",
                ((f"nsq_channel_paused{{{_CHANNEL}}} == 1", "{{instance}} {{topic}}/{{channel}}"),),
                width=12,
            ),
        ),
    ),
    (
        "Spark",
        (
            Panel(
                "Lag of streaming queries",
                ((f"max by (query, topic, channel) (nsq_spark_lag_seconds{{{_SPARK}}})", _QUERY_OF_TOPIC),),
                "s",
                about="Age of the oldest message that the last micro-batch has not read.",
            ),
            Panel(
                "Messages not read",
                ((f"sum by (query, topic, channel) (nsq_spark_lag_messages{{{_SPARK}}})", _QUERY_OF_TOPIC),),
            ),
            Panel(
                "Rows",
                (
                    ("sum by (query) (rate(nsq_spark_input_rows_total[$__rate_interval]))", "{{query}} read"),
                    ("sum by (query) (rate(nsq_spark_sink_rows_total[$__rate_interval]))", "{{query}} published"),
                ),
                "cps",
            ),
            Panel(
                "Duration of a micro-batch",
                (
                    (
                        "sum by (query) (rate(nsq_spark_batch_duration_seconds_sum[$__rate_interval])) / "
                        "sum by (query) (rate(nsq_spark_batch_duration_seconds_count[$__rate_interval]))",
                        "{{query}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Repeats and retries",
                (
                    ("sum by (query) (rate(nsq_spark_repeats_dropped_total[$__rate_interval]))", "{{query}} repeats"),
                    ("sum by (query) (rate(nsq_spark_read_retries_total[$__rate_interval]))", "{{query}} reads"),
                    ("sum by (query) (rate(nsq_spark_sink_retries_total[$__rate_interval]))", "{{query}} publishes"),
                ),
                "cps",
            ),
            Panel(
                "Queries",
                (("min by (query) (nsq_spark_query_active)", "{{query}}"),),
                kind="state-timeline",
                about="No: the query has ended, with or without an error.",
            ),
        ),
    ),
    (
        "Latency",
        (
            Panel(
                "Acknowledgement of a publish",
                _quantiles("nsq_publish_ack_seconds", _NODE, "instance", "{{instance}} "),
                "s",
                about="From the end of the turn that read it to its OK.",
            ),
            Panel(
                "Commit to stable storage",
                _quantiles("nsq_fsync_seconds", _NODE, "instance", "{{instance}} "),
                "s",
                about="Class fsync waits for these; classes os and memory do not.",
            ),
            Panel(
                "From publish to finish",
                _quantiles("nsq_e2e_latency_seconds", _TOPIC, "topic", "{{topic}} "),
                "s",
                about="Needs --e2e-processing-latency-percentile.",
            ),
            Panel(
                "Publish acknowledgements",
                (
                    (
                        f"sum by (le) (increase(nsq_publish_ack_seconds_bucket{{{_NODE}}}[$__rate_interval]))",
                        "{{le}}",
                    ),
                ),
                "s",
                "heatmap",
                width=12,
            ),
            Panel(
                "Reactor lag",
                ((f"nsq_reactor_lag_seconds{{{_NODE}}}", "{{instance}}"),),
                "s",
                width=12,
                about="The worst stall of the event loop in the last 15 to 30 seconds.",
                limits=(0.1, 0.5),
            ),
        ),
    ),
    (
        "Storage",
        (
            Panel(
                "Stored messages",
                ((f"nsq_store_bytes{{{_NODE}}}", "{{instance}}"),),
                "bytes",
            ),
            Panel(
                "Free space, and in four hours",
                (
                    (f"nsq_store_free_bytes{{{_NODE}}}", "{{instance}}"),
                    (
                        f"clamp_min(predict_linear(nsq_store_free_bytes{{{_NODE}}}[1h], 4 * 3600), 0)",
                        "{{instance}} in 4 h",
                    ),
                ),
                "bytes",
            ),
            Panel(
                "Failures and losses",
                (
                    (f"increase(nsq_store_errors_total{{{_NODE}}}[$__rate_interval])", "{{instance}} failed stores"),
                    (
                        f"increase(nsq_store_lost_messages_total{{{_NODE}}}[$__rate_interval])",
                        "{{instance}} lost messages",
                    ),
                ),
            ),
        ),
    ),
    (
        "Replica store",
        (
            Panel(
                "Owners",
                ((f'nsq_replica_role{{role="owner",{_NODE}}}', "{{instance}} owns {{data_set}}"),),
                kind="state-timeline",
                about="Empty without --replicate.",
            ),
            Panel(
                "The store answers",
                ((f"nsq_replica_store_up{{{_NODE}}}", "{{instance}}"),),
                kind="state-timeline",
            ),
            Panel(
                "Standbys that run",
                ((f"nsq_replica_standbys{{{_NODE}}} and on (instance) {_OWNER}", "{{instance}}"),),
                about="As the owner sees them.",
            ),
            Panel(
                "Time since a standby had a complete copy",
                ((f"nsq_replica_behind_seconds{{{_NODE}}} unless on (instance) {_OWNER}", "{{instance}}"),),
                "s",
                limits=(10, 60),
            ),
            Panel(
                "Messages that a standby has not copied",
                ((f"nsq_replica_behind_messages{{{_NODE}}} unless on (instance) {_OWNER}", "{{instance}}"),),
            ),
            Panel(
                "Bytes that a standby has not copied",
                ((f"nsq_replica_behind_bytes{{{_NODE}}} unless on (instance) {_OWNER}", "{{instance}}"),),
                "bytes",
            ),
            Panel(
                "Lease of the owner",
                ((f"nsq_replica_lease_seconds{{{_NODE}}} and on (instance) {_OWNER}", "{{instance}}"),),
                "s",
                width=12,
                about="At 0 the owner pauses: another broker may be the owner.",
            ),
            Panel(
                "Epoch",
                (
                    (
                        "max by (data_set) "
                        f"(nsq_replica_epoch{{{_NODE}}} * on (instance) group_left (data_set) ({_OWNER}))",
                        "{{data_set}}",
                    ),
                ),
                width=12,
                about="Each takeover raises it.",
            ),
        ),
    ),
    (
        "Nodes",
        (
            Panel(
                "Nodes",
                ((f"nsq_build_info{{{_NODE}}}", ""),),
                kind="table",
                width=12,
            ),
            Panel(
                "Readiness",
                ((f"min by (instance, check) (nsq_ready{{{_NODE}}})", "{{instance}} {{check}}"),),
                kind="state-timeline",
                width=12,
            ),
            Panel("Connections", ((f"nsq_connections{{{_NODE}}}", "{{instance}} {{listener}}"),)),
            Panel(
                "Consumers over HTTP",
                (
                    (f"nsq_http_subscribers{{{_NODE}}} > 0", "{{instance}} {{kind}}"),
                    (
                        f"rate(nsq_http_delivered_total{{{_NODE}}}[$__rate_interval]) > 0",
                        "{{instance}} {{kind}}: messages a second",
                    ),
                ),
                about="Empty without --http-subscribe.",
            ),
            Panel(
                "Refused connections and commands",
                (
                    (
                        f"rate(nsq_connections_rejected_total{{{_NODE}}}[$__rate_interval]) > 0",
                        "{{instance}} {{reason}}",
                    ),
                    (f"rate(nsq_protocol_errors_total{{{_NODE}}}[$__rate_interval]) > 0", "{{instance}} {{reason}}"),
                ),
                "cps",
            ),
            Panel(
                "Registrations at nsqlookupds",
                ((f"min by (instance, peer) (nsq_lookupd_up{{{_NODE}}})", "{{instance}} at {{peer}}"),),
                kind="state-timeline",
            ),
            Panel(
                "CPU",
                ((f'rate(process_cpu_seconds_total{{job=~"nsq.*",{_NODE}}}[$__rate_interval])', "{{instance}}"),),
                "percentunit",
                about="One event loop uses one core at most.",
            ),
            Panel(
                "Memory",
                ((f'process_resident_memory_bytes{{job=~"nsq.*",{_NODE}}}', "{{instance}}"),),
                "bytes",
            ),
            Panel(
                "Open files",
                (
                    (f'process_open_fds{{job=~"nsq.*",{_NODE}}}', "{{instance}}"),
                    (f'process_max_fds{{job=~"nsq.*",{_NODE}}}', "{{instance}} limit"),
                ),
            ),
            Panel(
                "Days until a certificate expires",
                ((f"(nsq_cert_expiry_timestamp_seconds{{{_NODE}}} - time()) / 86400", "{{instance}} {{file}}"),),
                "d",
                width=12,
            ),
            Panel(
                "Topics and channels without metrics",
                ((f"nsq_metrics_omitted{{{_NODE}}} > 0", "{{instance}} {{kind}}s"),),
                width=12,
                about="Beyond --metrics-max-series.",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "title": "nsqtw",
        "uid": "nsqtw",
        "description": "nsqd, nsqlookupd and nsqadmin of nsqtw.",
        "tags": ["nsq"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    queries = {
        "instance": "label_values(nsq_build_info, instance)",
        "topic": f"label_values(nsq_topic_messages_total{{{_NODE}}}, topic)",
        "channel": f"label_values(nsq_channel_depth{{{_TOPIC}}}, channel)",
    }
    for name, query in queries.items():
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    """Place the panels of each row from left to right, and a new line when one is full."""
    number = top = 0
    for title, panels in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        left = height = 0
        for panel in panels:
            if left + panel.width > _WIDTH:
                left, top = 0, top + height
            height = _STAT_HEIGHT if panel.kind == "stat" else _HEIGHT
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": height}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left += panel.width
        top += height


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _DATASOURCE,
            "expr": expression,
            "legendFormat": legend or "__auto",
            **({"instant": True, "format": "table"} if panel.kind == "table" else {}),
            **({"format": "heatmap"} if panel.kind == "heatmap" else {}),
        }
        for index, (expression, legend) in enumerate(panel.curves)
    ]
    made: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
    }
    if panel.kind == "table":
        hidden = {name: True for name in ("Time", "Value", "__name__", "job")}
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return made


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": _GREEN, "value": None}]
    if panel.limits is not None:
        steps += [{"color": color, "value": value} for color, value in zip((_YELLOW, _RED), panel.limits, strict=True)]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 25 if panel.is_stacked else 8,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.is_stacked else "none"},
            "thresholdsStyle": {"mode": "line" if panel.limits is not None else "off"},
        }
    if panel.kind == "state-timeline":
        defaults["mappings"] = [
            {
                "type": "value",
                "options": {"0": {"text": "no", "color": _RED}, "1": {"text": "yes", "color": _GREEN}},
            }
        ]
    return defaults


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "textMode": "value",
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
    "heatmap": {"calculate": False, "yAxis": {"unit": "s"}, "color": {"scheme": "Turbo", "mode": "scheme"}},
    "state-timeline": {"mergeValues": True, "showValue": "never", "rowHeight": 0.8},
}


def text() -> str:
    """Return the text of dashboard.json."""
    return json.dumps(dashboard(), indent=2) + "\n"


def main() -> None:
    """Write dashboard.json, and name it if it changed."""
    if not FILE.exists() or FILE.read_text("utf-8") != text():
        FILE.write_text(text(), "utf-8")
        sys.stdout.write(f"{FILE}\n")


if __name__ == "__main__":
    main()
