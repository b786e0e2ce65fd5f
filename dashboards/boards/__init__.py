"""The dashboards, one module each; `grafana` has the JSON that Grafana expects."""
