{{- define "crawlgate.selector" -}}
app.kubernetes.io/name: crawlgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "crawlgate.labels" -}}
{{ include "crawlgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "crawlgate.name" -}}
{{- if contains "crawlgate" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-crawlgate" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- /* The configuration of the chart; `config` of the values is merged over it. */}}
{{- define "crawlgate.config" -}}
listen: 0.0.0.0:3128
admin:
  listen: 0.0.0.0:3129
  token_file: /run/crawlgate/admin/token
  names:
    [
      localhost, {{ include "crawlgate.name" . }}, {{ include "crawlgate.name" . }}.{{ .Release.Namespace }}, {{ include "crawlgate.name" . }}.{{ .Release.Namespace }}.svc,
      # Those of the pod itself, for clients of single replicas.
      "${HOSTNAME}.{{ include "crawlgate.name" . }}-replicas", "${HOSTNAME}.{{ include "crawlgate.name" . }}-replicas.{{ .Release.Namespace }}",
      "${HOSTNAME}.{{ include "crawlgate.name" . }}-replicas.{{ .Release.Namespace }}.svc",
      "${HOSTNAME}.{{ include "crawlgate.name" . }}-replicas.{{ .Release.Namespace }}.svc.cluster.local"
    ]
policy: { path: /etc/crawlgate/policy/policy.yaml }
anonymous: deny
crawlers:
  - { name: pods, sources: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, "fc00::/7"] }
tls:
  intercept: true
  ca: { cert: /run/crawlgate/authority/ca.pem, key: /run/crawlgate/authority/ca.key, create: false }
  bundle: /run/crawlgate/authority/bundle.pem
logs: { decisions: stdout }
store: { path: /var/lib/crawlgate }
# Services stop sending connections to a pod some seconds after it has begun to end.
timeouts: { drain_delay: 10s, drain: 30s }
{{- end }}

{{- define "crawlgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Merged over it in a fleet. */}}
{{- define "crawlgate.fleet" -}}
store: { kind: postgres, url: "${DATABASE_URL}" }
fleet:
  node: "${HOSTNAME}"
  listen: 0.0.0.0:3130
  advertise: "${POD_IP}:3130"
  tls: { cert: /run/crawlgate/fleet/node.pem, key: /run/crawlgate/fleet/node.key, ca: /run/crawlgate/fleet/fleet.pem }
  lease: {{ .Values.fleet.lease }}
{{- end }}

{{- /* The environment of a node, which its configuration names. HOSTNAME is set by Kubernetes. */}}
{{- define "crawlgate.environment" -}}
- name: POD_IP
  valueFrom: { fieldRef: { fieldPath: status.podIP } }
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ required "fleet.database.existingSecret: a secret with the URL of PostgreSQL (docs/install.md)" .Values.fleet.database.existingSecret }}
      key: url
{{- end }}

{{- define "crawlgate.dns" -}}
- to:
    - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: kube-system } }
      podSelector: { matchLabels: { k8s-app: kube-dns } }
  ports: [{ port: 53, protocol: UDP }, { port: 53, protocol: TCP }]
{{- end }}
