package bridge

import (
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/topicname"
)

func TestRouter(t *testing.T) {
	long := strings.Repeat("x", 249)
	for _, c := range []struct {
		template string
		names    Names
		schema   string
		table    string
		want     string // topic
		err      string // part of New's or topic's error
	}{
		{"{schema}.{table}", KafkaNames, "shop", "orders", "shop.orders", ""},
		{"{destination}.{schema}.{table}", KafkaNames, "shop", "orders", "dest.shop.orders", ""},
		{"cdc-{destination}", KafkaNames, "shop", "orders", "cdc-dest", ""},
		{"all", KafkaNames, "shop", "orders", "all", ""},
		{"{schema}{table}{table}", AnyNames, "a", "b", "abb", ""},
		{"persistent://public/default/{schema}.{table}", PulsarNames, "shop", "orders", "persistent://public/default/shop.orders", ""},
		{"public/default/{table}", PulsarNames, "shop", "orders", "public/default/orders", ""},
		{"{table}", PulsarNames, "shop", "orders", "orders", ""},
		{"{table}", AnyNames, "shop", "dürfen/alles", "dürfen/alles", ""},
		{"{schema}.{table}", KafkaNames, "shop", "or ders", "", `contains ' '`},
		{"{schema}.{table}", KafkaNames, "shop", "order$", "", `contains '$'`},
		{"{table}", KafkaNames, "shop", long, long, ""},
		{"{table}", KafkaNames, "shop", long + "x", "", "250 characters"},
		{"{table}", KafkaNames, "shop", "..", "", `topic name ".." is one that Kafka does not take`},
		{"{table}", PulsarNames, "shop", "a/b", "", "neither topic nor"},
		{"{table}", PulsarNames, "shop", "a#b", "", "URLs"},
		{"{table}", PulsarNames, "shop", "a-partition-3", "", "partition"},
		{"{table}", PulsarNames, "shop", "a-partition-x", "a-partition-x", ""},
		{"non-persistent://public/default/{table}", PulsarNames, "", "", "", `domain "non-persistent"`},
		{"persistent://public/{table}", PulsarNames, "", "", "", "persistent://tenant/namespace/topic"},
		{"persistent:///default/{table}", PulsarNames, "", "", "", "tenant"},
		{"", KafkaNames, "", "", "", "is one that Kafka does not take"},
		{"", AnyNames, "", "", "", "empty"},
		{"a b {table}", KafkaNames, "", "", "", "contains ' '"},
		{"{schema", AnyNames, "", "", "", "unbalanced"},
		{"schema}", AnyNames, "", "", "", "unbalanced"},
		{"{op}", AnyNames, "", "", "", "unknown field {op}"},
		{"{}", AnyNames, "", "", "", "unknown field {}"},
	} {
		var got string
		r, err := newRouter(c.template, "dest", c.names, topicname.OfTable)
		if err == nil {
			got, err = r.topic(c.schema, c.table)
		}
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%q: %v", c.template, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: error %v, want one with %q", c.template, err, c.err)
		case got != c.want:
			t.Errorf("%q: topic %q, want %q", c.template, got, c.want)
		}
	}
}

// Two tables never share a topic that the template would keep apart (I3).
func TestRouterCollision(t *testing.T) {
	type table struct{ schema, name string }
	for _, c := range []struct {
		template string
		first    table
		second   table
		collide  bool
	}{
		{"{schema}.{table}", table{"a.b", "c"}, table{"a", "b.c"}, true},
		{"x.{schema}.{table}.y", table{"a.b", "c"}, table{"a", "b.c"}, true},
		{"{table}_{schema}", table{"a", "b_c"}, table{"c_a", "b"}, true},
		{"{schema}{table}", table{"a", "bc"}, table{"ab", "c"}, true},
		{"{schema}--{table}", table{"a-", "b"}, table{"a", "-b"}, true},
		{"{schema}.{table}.{schema}", table{"a", "a.x.a"}, table{"a.a", "x"}, true},
		{"{schema}.{table}", table{"a", "b"}, table{"a", "c"}, false},
		{"{schema}.{table}", table{"a.b", "c"}, table{"a.b", "c"}, false},
		{"{table}", table{"a", "b"}, table{"c", "b"}, false}, // asked for
		{"all", table{"a", "b"}, table{"c", "d"}, false},
	} {
		r, err := newRouter(c.template, "dest", AnyNames, topicname.OfTable)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.topic(c.first.schema, c.first.name); err != nil {
			t.Error(err)
		}
		_, err = r.topic(c.second.schema, c.second.name)
		if got := err != nil && strings.Contains(err.Error(), "run together"); got != c.collide {
			t.Errorf("%s: %v and %v: %v", c.template, c.first, c.second, err)
		}
		if _, err := r.topic(c.first.schema, c.first.name); err != nil {
			t.Error(err)
		}
	}
}

func FuzzRouter(f *testing.F) {
	f.Add("{destination}.{schema}.{table}", "d", "s", "t")
	f.Add("persistent://a/b/{table}", "d", "s", "t-partition-1")
	f.Fuzz(func(t *testing.T, template, destination, schema, table string) {
		for _, n := range []Names{AnyNames, KafkaNames, PulsarNames} {
			r, err := newRouter(template, destination, n, topicname.OfTable)
			if err != nil {
				continue
			}
			topic, err := r.topic(schema, table)
			if err == nil && n.check(topic) != nil {
				t.Errorf("topic %q passed and is illegal", topic)
			}
		}
	})
}
