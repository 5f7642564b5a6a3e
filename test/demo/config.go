package main

import (
	"bytes"
	"text/template"
)

// settings is what the generated configuration depends on.
type settings struct {
	MySQL, Kafka, PulsarURL, PulsarAdmin string // addresses
	Admin                                string // where binlogmq answers about its health
	Dir                                  string // of cursors
}

// The example of config.yaml.example, with the demo's addresses.
var configuration = template.Must(template.New("config").Parse(`# written by make demo
deployment: demo
destinations:
  - name: shop
    source:
      address: {{.MySQL}}
      user: repl
      password: repl
    tables: ["shop.*"]
    start: latest
    sinks:
      - name: orders
        kafka: { brokers: ["{{.Kafka}}"], topics: { partitions: 3 } }
        codec: canal-json
        topic: "{schema}.{table}"
        key: primary_key
      - name: audit
        pulsar: { url: "{{.PulsarURL}}", admin_url: "{{.PulsarAdmin}}", topics: { partitions: 2 } }
        codec: maxwell
        topic: "persistent://public/default/{schema}.{table}"
meta: { file: { directory: "{{.Dir}}" } }
admin: { listen: "{{.Admin}}" }
`))

func (s settings) config() ([]byte, error) {
	var b bytes.Buffer
	err := configuration.Execute(&b, s)
	return b.Bytes(), err
}
