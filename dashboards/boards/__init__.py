"""What the dashboards show, one module each, and in `grafana` how Grafana wants it written."""
