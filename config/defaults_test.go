package config

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// documented is a row of a table of keys whose second column begins with a value.
var documented = regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| `([^`]+)`")

// TestDocumentedDefaults proves that who writes a key with the default that docs/configuration.md names changes nothing.
func TestDocumentedDefaults(t *testing.T) {
	doc, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, doc2, _ := strings.Cut(string(doc), "\n## Top level\n")
	top, rest, _ := strings.Cut(doc2, "\n## A destination")
	destination, rest, _ := strings.Cut(rest, "\n## A sink")
	sink, _, found := strings.Cut(rest, "\n## TLS")
	if !found {
		t.Fatal("docs/configuration.md has lost a section")
	}
	n := 0
	for _, section := range []struct {
		text string
		path []string // from the top to where its keys stand; "0" is the first of a list
	}{{top, nil}, {destination, []string{"destinations", "0"}}, {sink, []string{"destinations", "0", "sinks", "0"}}} {
		for _, row := range documented.FindAllStringSubmatch(section.text, -1) {
			key, text := row[1], row[2]
			if key == "canal.advertise" {
				continue // its default is another key's value
			}
			n++
			base := example(key)
			plain := parsed(t, base)
			var v any
			if err := yaml.Unmarshal([]byte(text), &v); err != nil || strings.HasPrefix(text, "{") {
				v = text // a template, which needs quotes in YAML
			}
			set(base, section.path, key, v)
			if with := parsed(t, base); !reflect.DeepEqual(plain, with) {
				t.Errorf("%s: %s is not the default\nwithout: %s\nwith:    %s", key, text, shown(t, plain), shown(t, with))
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d defaults are found: the test looks at the wrong places", n)
	}
}

// TestDocumentedKeysExist is the other half of TestEveryKeyIsDocumentedAndShown: docs/configuration.md describes no key that is none.
func TestDocumentedKeysExist(t *testing.T) {
	doc, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	keys(reflect.TypeFor[Config](), "", &all)
	known := map[string]bool{}
	for _, k := range all {
		short := strings.NewReplacer("destinations[].sinks[].", "", "destinations[].", "").Replace(k)
		known[short] = true
		if i := strings.Index(short, "tls."); i > 0 {
			known[short[i:]] = true
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| .* \\| ").FindAllStringSubmatch(string(doc), -1)
	for _, row := range rows {
		if !known[row[1]] {
			t.Errorf("docs/configuration.md describes `%s`, which is no key", row[1])
		}
	}
	if len(rows) < 100 {
		t.Errorf("only %d keys are found: the test looks at the wrong places", len(rows))
	}
}

// example is a configuration with little more than is required, in which the key may stand.
func example(key string) map[string]any {
	out := map[string]any{"name": "out"}
	switch kind, _, _ := strings.Cut(key, "."); {
	case kind == "pulsar":
		out["pulsar"] = map[string]any{"url": "pulsar://a:1"}
	case kind == "file":
		out["file"] = map[string]any{"path": "-"}
	case key == "kafka.commit_interval", key == "kafka.transaction_timeout":
		out["kafka"] = map[string]any{"brokers": "a:1", "delivery": "transactional"}
	default:
		out["kafka"] = map[string]any{"brokers": "a:1"}
	}
	c := map[string]any{"destinations": []any{map[string]any{"name": "shop",
		"source": map[string]any{"address": "a:1", "user": "u"}, "sinks": []any{out}}}}
	if !strings.HasPrefix(key, "meta.file") {
		c["meta"] = map[string]any{"zookeeper": map[string]any{"servers": "a:1"}}
		c["canal"] = map[string]any{"listen": "127.0.0.1:1"}
	}
	return c
}

// set puts a key below path.
func set(c map[string]any, path []string, key string, v any) {
	at := c
	for i := 0; i < len(path); i += 2 {
		at = at[path[i]].([]any)[0].(map[string]any)
	}
	names := strings.Split(key, ".")
	if names[0] == "debezium" {
		names = []string{names[0], strings.Join(names[1:], ".")}
	}
	for _, name := range names[:len(names)-1] {
		below, _ := at[name].(map[string]any)
		if below = maps.Clone(below); below == nil {
			below = map[string]any{}
		}
		at[name], at = below, below
	}
	at[names[len(names)-1]] = v
}

func parsed(t *testing.T, c map[string]any) *Config {
	t.Helper()
	out, err := Parse([]byte(shown(t, c)), env(nil))
	if err != nil {
		t.Fatalf("%s: %v", shown(t, c), err)
	}
	return out
}

func shown(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
