package canaljson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCodec(t testing.TB, o Options) *Codec {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// read takes a message apart as strictly as it can.
func read(value []byte) (codectest.Message, error) {
	var m struct {
		Data      []map[string]json.RawMessage
		Database  *string
		ES        int64
		GTID      *string
		ID        int64
		IsDDL     *bool `json:"isDdl"`
		MysqlType map[string]string
		Old       []map[string]json.RawMessage
		PkNames   []string
		SQL       *string
		SQLType   map[string]int `json:"sqlType"`
		Table     *string
		TS        int64
		Type      string
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return codectest.Message{}, err
	}
	out := codectest.Message{Op: strings.ToLower(m.Type)}
	switch {
	case m.Database == nil || m.Table == nil || m.GTID == nil || m.SQL == nil || *m.SQL != "" || m.IsDDL == nil || *m.IsDDL:
		return out, fmt.Errorf("a key is missing or wrong")
	case len(m.Data) != 1:
		return out, fmt.Errorf("%d rows", len(m.Data))
	case (m.Type == "UPDATE") != (len(m.Old) == 1):
		return out, fmt.Errorf("%s with %d old rows", m.Type, len(m.Old))
	case m.ES != 1700000000000 || m.TS != 1700000000123 || m.ID != 812:
		return out, fmt.Errorf("es %d, ts %d, id %d", m.ES, m.TS, m.ID)
	}
	// Canal's keys stand in alphabetical order.
	if keys, err := codectest.Keys(value); err != nil || len(keys) != 14 || !slices.IsSorted(keys) {
		return out, fmt.Errorf("keys %v (%v)", keys, err)
	}
	out.Schema, out.Table, out.Data = *m.Database, *m.Table, m.Data[0]
	if len(m.Old) > 0 {
		out.Old = m.Old[0]
	}
	for name, v := range out.Data {
		if m.MysqlType[name] == "" || m.SQLType[name] == 0 {
			return out, fmt.Errorf("column %s has no type", name)
		}
		if v[0] != '"' && string(v) != "null" {
			return out, fmt.Errorf("column %s is neither a string nor null: %s", name, v)
		}
	}
	return out, nil
}

// textOf undoes the encodings that docs/formats.md describes.
func textOf(o Options) func(col *event.Column, v json.RawMessage) (string, error) {
	return func(col *event.Column, v json.RawMessage) (string, error) {
		var s string
		if err := json.Unmarshal(v, &s); err != nil {
			return "", err
		}
		switch col.Class {
		case event.ClassBinary, event.ClassVarbinary, event.ClassBlob, event.ClassGeometry:
			if o.Binary == "base64" {
				b, err := base64.StdEncoding.DecodeString(s)
				return string(b), err
			}
			var b []byte
			for _, r := range s {
				if r > 0xff {
					return "", fmt.Errorf("%U in a byte string", r)
				}
				b = append(b, byte(r))
			}
			return string(b), nil
		case event.ClassEnum:
			if o.Enum == "label" {
				return s, nil
			}
			n, err := strconv.Atoi(s)
			if err != nil || n == 0 {
				return "", err
			}
			return col.Members[n-1], nil
		case event.ClassSet:
			if o.Enum == "label" {
				return s, nil
			}
			mask, err := strconv.ParseUint(s, 10, 64)
			var labels []string
			for i, m := range col.Members {
				if mask>>i&1 != 0 {
					labels = append(labels, m)
				}
			}
			return strings.Join(labels, ","), err
		}
		return s, nil
	}
}

func TestConformance(t *testing.T) {
	for _, o := range []Options{{}, {Binary: "base64", Enum: "label"}} {
		t.Run(fmt.Sprintf("%s%s", o.Binary, o.Enum), func(t *testing.T) {
			codectest.Run(t, codectest.Format{
				New:      func() codec.Codec { return newCodec(t, o) },
				Read:     read,
				Text:     textOf(o),
				TableKey: true,
			})
		})
	}
}

func TestGolden(t *testing.T) {
	for name, o := range map[string]Options{"default": {}, "readable": {Binary: "base64", Enum: "label", Location: time.FixedZone("", 8*3600)}} {
		codectest.Golden(t, "testdata/"+name+".golden", newCodec(t, o))
		codectest.GoldenStubs(t, "testdata/"+name+"_stub.golden", newCodec(t, o))
	}
}

func FuzzRow(f *testing.F) { codectest.Fuzz(f, newCodec(f, Options{}), nil) }

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Binary: "hex"}, {Enum: "number"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestKey(t *testing.T) {
	c := newCodec(t, Options{})
	tab := codectest.Shop(t)
	r := codectest.Row(t, tab, nil, []codectest.Cell{
		codectest.V(codectest.Le(7, 4)), codectest.V([]byte(`a"b`)), codectest.Null, codectest.Null})
	for want, key := range map[string][]int{
		`{"id":"7"}`:               {0},
		`{"name":"a\"b","id":"7"}`: {1, 0},
		`{"qty":null}`:             {2},
		`shop.item`:                nil,
		`{"id":"7","name":"a\"b"}`: {0, 1},
	} {
		got, err := c.AppendKey(nil, r, key)
		if err != nil || string(got) != want {
			t.Errorf("key %v: %s, %v; want %s", key, got, err, want)
		}
	}
}

func TestDDL(t *testing.T) {
	c := newCodec(t, Options{})
	for _, x := range []struct{ sql, typ, database, table string }{
		{"CREATE TABLE nums (id INT)", "CREATE", "shop", "nums"},
		{"ALTER TABLE x.pairs ADD w INT", "ALTER", "x", "pairs"},
		{"DROP TABLE `nokey` /* generated by server */", "ERASE", "shop", "nokey"},
		{"DROP TABLE a, b", "ERASE", "shop", ""},
		{"RENAME TABLE docs TO docs2", "RENAME", "shop", "docs2"},
		{"RENAME TABLE docs TO x.docs2", "RENAME", "x", "docs2"},
		{"RENAME TABLE a TO b, c TO a", "RENAME", "shop", ""},
		{"TRUNCATE TABLE nokey", "TRUNCATE", "shop", "nokey"},
		{"CREATE INDEX i ON t (c)", "CINDEX", "shop", "t"},
		{"DROP INDEX i ON t", "DINDEX", "shop", "t"},
		{"CREATE DATABASE y", "QUERY", "y", ""},
		{"CREATE VIEW v AS SELECT 1", "QUERY", "shop", ""},
	} {
		out, err := c.AppendDDL(nil, codectest.DDL("shop", x.sql))
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"data":null,"database":%q,"es":1700000000000,"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23","id":813,`+
			`"isDdl":true,"mysqlType":null,"old":null,"pkNames":null,"sql":%q,"sqlType":null,"table":%q,"ts":1700000000123,"type":%q}`,
			x.database, x.sql, x.table, x.typ)
		if string(out) != want {
			t.Errorf("%s\n got %s\nwant %s", x.sql, out, want)
		}
	}
}

// TestZone: TIMESTAMP is shown in the zone chosen, DATETIME has none.
func TestZone(t *testing.T) {
	c := newCodec(t, Options{Location: time.FixedZone("", -5*3600)})
	for _, cs := range codectest.Cases() {
		tab := codectest.Table(t, cs)
		got := func(e codectest.Edge) string {
			r := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(codectest.Le(1, 8)), codectest.V(nil), codectest.V(e.Raw)})
			out, err := c.AppendRow(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			m, err := read(out)
			if err != nil {
				t.Fatal(err)
			}
			return string(m.Data[cs.Column.Name])
		}
		switch cs.Column.Name {
		case "dt":
			if s := got(cs.Edges[2]); s != `"9999-12-31 23:59:59"` {
				t.Errorf("DATETIME became %s", s)
			}
		case "ts":
			if s := got(cs.Edges[2]); s != `"2038-01-18 22:14:07"` {
				t.Errorf("TIMESTAMP became %s", s)
			}
			if s := got(cs.Edges[0]); s != `"0000-00-00 00:00:00"` {
				t.Errorf("zero TIMESTAMP became %s", s)
			}
		}
	}
}
