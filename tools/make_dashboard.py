#!/usr/bin/env python3
"""Writes deploy/grafana/braid.json, the dashboard for what `braid serve` tells at /metrics.

  tools/make_dashboard.py           writes the file
  tools/make_dashboard.py --check   fails where the file is another

A dashboard for `--metrics-prefix vllm`: tools/make_dashboard.py --prefix vllm --out FILE.
"""

import argparse
import json
import pathlib
import sys

FILE = pathlib.Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "braid.json"
SERVERS = '{instance=~"$instance", model_name=~"$model"}'
BY = "instance, model_name"
WIDTH, HEIGHT = 8, 8  # of a panel, in Grafana's 24 columns


def value(name):
    return f"sum by ({BY}) (:{name}{SERVERS})"


def rate(name):
    return f"sum by ({BY}) (rate(:{name}{SERVERS}[$__rate_interval]))"


def share(part, whole):
    return f"{rate(part)} / {rate(whole)}"


def quantile(q, name):
    return (f"histogram_quantile({q}, sum by ({BY}, le) "
            f"(rate(:{name}_bucket{SERVERS}[$__rate_interval])))")


def quantiles(name):
    return [(f"P{round(q * 100)}", quantile(q, name)) for q in (0.5, 0.9, 0.99)]


ENDS = f"sum by (finished_reason) (rate(:request_success_total{SERVERS}[$__rate_interval]))"
# Title, unit, lines of legend and expression; ":" stands for the prefix.
PANELS = [
    ("Requests", "short", [("running", value("num_requests_running")),
                           ("waiting", value("num_requests_waiting"))]),
    ("KV cache", "percentunit", [("held by requests", value("kv_cache_usage_perc"))]),
    ("Tokens a second", "short", [("generated", rate("generation_tokens_total")),
                                  ("of prompts", rate("prompt_tokens_total"))]),
    ("Time to first token", "s", quantiles("time_to_first_token_seconds")),
    ("Time between tokens", "s", quantiles("inter_token_latency_seconds")),
    ("Time of a request", "s", quantiles("e2e_request_latency_seconds")),
    ("Time in the queue", "s", [*quantiles("request_queue_time_seconds"),
                                ("oldest now", value("oldest_wait_seconds"))]),
    ("Prompt tokens from the prefix cache", "percentunit",
     [("share", share("prefix_cache_hits_total", "prefix_cache_queries_total"))]),
    ("Short of pages", "short", [("preemptions/s", rate("num_preemptions_total")),
                                 ("cached pages given up/s", rate("kv_cache_evictions_total"))]),
    ("Requests ended a second, by reason", "short",
     [("{{finished_reason}}", ENDS), ("refused", rate("admission_rejections_total"))]),
    ("Time of a step", "s", [("step", share("step_seconds_total", "steps_total")),
                             ("engine thread beside it",
                              share("step_host_seconds_total", "steps_total"))]),
    ("Thrown away and late", "short",
     [("tokens of ended requests/s", rate("dropped_tokens_total")),
      ("late preparations/s", rate("late_preparations_total"))]),
]


def panel(number, title, unit, lines):
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1, "type": "timeseries", "title": title, "datasource": source,
        "gridPos": {"x": number * WIDTH % 24, "y": number * WIDTH // 24 * HEIGHT,
                    "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi"}},
        "targets": [{"refId": chr(ord("A") + i), "datasource": source, "expr": expr,
                     "legendFormat": legend} for i, (legend, expr) in enumerate(lines)],
    }


def dashboard(prefix):
    def variable(name, label):
        query = f"label_values(:num_requests_running, {label})"
        return {"name": name, "type": "query", "query": query, "definition": query,
                "datasource": {"type": "prometheus", "uid": "${source}"}, "refresh": 2,
                "includeAll": True, "multi": True, "current": {"text": "All", "value": "$__all"}}
    board = {
        "title": "Braid", "uid": "braid-serve", "schemaVersion": 39, "version": 1,
        "refresh": "5s", "time": {"from": "now-15m", "to": "now"}, "tags": ["braid"],
        "templating": {"list": [
            {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            variable("instance", "instance"), variable("model", "model_name")]},
        "panels": [panel(i, *described) for i, described in enumerate(PANELS)],
    }
    text = json.dumps(board, indent=1)
    return text.replace("(:", f"({prefix}:") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--prefix", default="braid", help="of the metrics' names")
    parser.add_argument("--out", type=pathlib.Path, default=FILE)
    o = parser.parse_args()
    text = dashboard(o.prefix)
    if not o.check:
        o.out.write_text(text)
    elif not o.out.exists() or o.out.read_text() != text:
        sys.exit(f"{o.out} is not what tools/make_dashboard.py writes")


if __name__ == "__main__":
    main()
