package bridge

import (
	"fmt"
	"strings"
	"sync"

	"github.com/binlogmq/binlogmq/internal/topicname"
)

// Names says which characters a broker allows in a topic's name.
type Names uint8

// The rules for topic names.
const (
	AnyNames    Names = iota // no rule: any non-empty name
	KafkaNames               // 1 to 249 of A-Z a-z 0-9 . _ -, neither "." nor ".."
	PulsarNames              // [persistent://tenant/namespace/]topic; no character that breaks a URL
)

// check returns an error that says what is wrong with a topic's name.
func (n Names) check(topic string) error {
	switch n {
	case KafkaNames:
		return checkKafka(topic)
	case PulsarNames:
		return checkPulsar(topic)
	default:
		if topic == "" {
			return fmt.Errorf("the topic name is empty")
		}
	}
	return nil
}

// checkKafka follows org.apache.kafka.common.internals.Topic.
func checkKafka(topic string) error {
	if topic == "" || topic == "." || topic == ".." {
		return fmt.Errorf("topic name %q is one that Kafka does not take", topic)
	}
	if len(topic) > 249 {
		return fmt.Errorf("topic name %q has %d characters, Kafka takes 249", topic, len(topic))
	}
	for _, c := range []byte(topic) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("topic name %q contains %q, Kafka takes A-Z a-z 0-9 . _ - only", topic, c)
		}
	}
	return nil
}

// checkPulsar follows org.apache.pulsar.common.naming: tenant and namespace
// are of [-=:.\w]; the local name is free but travels in URLs, and its suffix
// "-partition-N" names a partition.
func checkPulsar(topic string) error {
	rest, local := topic, topic
	if i := strings.Index(rest, "://"); i >= 0 {
		if d := rest[:i]; d != "persistent" {
			return fmt.Errorf("topic name %q: domain %q is not \"persistent\"", topic, d)
		}
		parts := strings.Split(rest[i+3:], "/")
		if len(parts) != 3 {
			return fmt.Errorf("topic name %q is not persistent://tenant/namespace/topic", topic)
		}
		for _, p := range parts[:2] {
			if p == "" || strings.IndexFunc(p, func(r rune) bool { return !namespaceRune(r) }) >= 0 {
				return fmt.Errorf("topic name %q: %q is no name of a tenant or namespace", topic, p)
			}
		}
		local = parts[2]
	} else if parts := strings.Split(rest, "/"); len(parts) == 3 {
		return checkPulsar("persistent://" + topic)
	} else if len(parts) != 1 {
		return fmt.Errorf("topic name %q is neither topic nor tenant/namespace/topic", topic)
	}
	if local == "" {
		return fmt.Errorf("topic name %q: the topic's own name is empty", topic)
	}
	for _, c := range []byte(local) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`/\%?#"<>^{}|`+"`", c) >= 0 {
			return fmt.Errorf("topic name %q contains %q, which Pulsar's URLs cannot carry", topic, c)
		}
	}
	if i := strings.LastIndex(local, "-partition-"); i >= 0 && digits(local[i+len("-partition-"):]) {
		return fmt.Errorf("topic name %q ends as the name of a partition does", topic)
	}
	return nil
}

func namespaceRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-=:.", r)
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// router makes topic names from a template. It is safe for concurrent use.
type router struct {
	text  string
	parts []piece
	names Names

	mu    sync.Mutex
	taken map[string]tableOf // whose topic it is, where another table's name may come to the same
}

type tableOf struct{ schema, table string }

// maxTaken bounds the topics remembered (I9).
const maxTaken = 1 << 16

// piece is literal text, or a field when field is set.
type piece struct {
	text  string
	field string
}

// newRouter parses a template: text with {destination}, {schema} and {table}.
// Only the fields given are allowed. A template that no table could satisfy is an error.
func newRouter(template, destination string, names Names, fields []string) (*router, error) {
	pieces, err := topicname.Parse(template, fields)
	if err != nil {
		return nil, err
	}
	r := &router{text: template, names: names}
	for _, p := range pieces {
		switch p.Field {
		case "":
			r.literal(p.Text)
		case "destination":
			r.literal(destination)
		default:
			r.parts = append(r.parts, piece{field: p.Field})
		}
	}
	if _, err := r.expand("x", "x"); err != nil {
		return nil, fmt.Errorf("topic template %q: %w", template, err)
	}
	return r, nil
}

// Topics returns what names the topic of each table under a template as [Options.Topic] has it, for who
// looks at topics before a bridge uses them. The names function is safe for concurrent use; its error says why a table can have no topic:
// its name breaks the broker's rules, or runs together with that of a table asked for before.
func Topics(template, destination string, names Names) (topic func(schema, table string) (string, error), err error) {
	r, err := newRouter(template, destination, names, topicname.OfTable)
	if err != nil {
		return nil, err
	}
	return r.topic, nil
}

func (r *router) literal(s string) {
	if s == "" {
		return
	}
	if n := len(r.parts); n > 0 && r.parts[n-1].field == "" {
		r.parts[n-1].text += s
		return
	}
	r.parts = append(r.parts, piece{text: s})
}

// topic returns the topic of a table. A template that names schema and table gives each table a topic of its own; where
// the names of two run together ("a.b"."c" and "a"."b.c"), the second is an error: consumers could not tell them apart.
func (r *router) topic(schema, table string) (string, error) {
	topic, err := r.expand(schema, table)
	if err != nil || !r.ambiguous(schema, table) {
		return topic, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := tableOf{schema, table}
	if other, ok := r.taken[topic]; ok && other != t {
		return "", fmt.Errorf("topic %q is that of table %q of schema %q already: the names run together in the template %q", topic, other.table, other.schema, r.text)
	}
	if r.taken == nil || len(r.taken) >= maxTaken {
		r.taken = map[string]tableOf{}
	}
	r.taken[topic] = t
	return topic, nil
}

// ambiguous reports whether another table may have the same topic although the template names both schema and table.
func (r *router) ambiguous(schema, table string) bool {
	var fields []int
	schemas := 0
	for i, p := range r.parts {
		if p.field != "" {
			fields = append(fields, i)
		}
		if p.field == "schema" {
			schemas++
		}
	}
	if schemas == 0 || schemas == len(fields) {
		return false // tables share topics by the user's own choice
	}
	if len(fields) != 2 || fields[1] != fields[0]+2 {
		return true
	}
	// It takes a second place at which what stands between the names could stand.
	between := r.parts[fields[0]+1].text
	first, second := schema, table
	if r.parts[fields[0]].field == "table" {
		first, second = table, schema
	}
	joined := first + between + second
	return strings.Index(joined, between) != strings.LastIndex(joined, between)
}

func (r *router) expand(schema, table string) (string, error) {
	var b strings.Builder
	for _, p := range r.parts {
		switch p.field {
		case "schema":
			b.WriteString(schema)
		case "table":
			b.WriteString(table)
		default:
			b.WriteString(p.text)
		}
	}
	topic := b.String()
	if err := r.names.check(topic); err != nil {
		return "", err
	}
	return topic, nil
}
