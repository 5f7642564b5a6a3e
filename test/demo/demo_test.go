package main

import (
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/config"
)

func TestConfigurationIsValid(t *testing.T) {
	s := settings{MySQL: "127.0.0.1:1", Kafka: "127.0.0.1:2", PulsarURL: "pulsar://127.0.0.1:3", PulsarAdmin: "http://127.0.0.1:4", Admin: "127.0.0.1:5", Dir: "/x"}
	text, err := s.config()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Parse(text, func(string) (string, bool) { return "", false }); err != nil {
		t.Error(err)
	}
}

// What the demo calls success must not hide a lost, repeated or reordered message.
func TestCompareSeesEveryFault(t *testing.T) {
	h := newHistory()
	h.steps[rowID{"orders", "7"}] = []step{{"insert", 1}, {"update", 2}, {"delete", 2}}
	message := func(op, version string) []byte {
		return []byte(`{"database":"shop","table":"orders","type":"` + op + `","data":[{"id":"7","version":"` + version + `"}],"old":null}`)
	}
	insert, update, remove := message("INSERT", "1"), message("UPDATE", "2"), message("DELETE", "2")
	for name, c := range map[string]struct {
		messages [][]byte
		fault    string
	}{
		"all in order": {[][]byte{insert, update, remove}, ""},
		"lost":         {[][]byte{insert, remove}, "key 7"},
		"repeated":     {[][]byte{insert, update, update, remove}, "key 7"},
		"reordered":    {[][]byte{update, insert, remove}, "key 7"},
		"invented":     {[][]byte{insert, update, remove, []byte(`{"database":"shop","table":"orders","type":"INSERT","data":[{"id":"8","version":"1"}]}`)}, "key 8"},
		"not JSON":     {[][]byte{insert, update, remove, []byte("{")}, "shop.orders"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newInbox("kafka", "canal-json")
			for _, m := range c.messages {
				b.take("shop.orders", 0, nil, m, map[string]string{})
			}
			err := b.compare(h)
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("want a fault about %q, got: %v", c.fault, err)
			}
		})
	}
}
