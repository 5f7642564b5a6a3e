package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// TestStatementsOfCapturedTables: a statement is published if it is about a table that the sink takes, whatever else it is about.
func TestStatementsOfCapturedTables(t *testing.T) {
	for sql, want := range map[string]string{ // "captured": published with both choices; "all": with that one only
		"CREATE TABLE a (id INT)":                               "captured",
		"create table other.a (id int)":                         "all",
		"DROP TABLE other.x, b":                                 "captured", // b is taken
		"DROP TABLE other.x, other.y":                           "all",
		"ALTER TABLE secret ADD c INT":                          "all", // excluded by the destination
		"ALTER TABLE tmp ADD c INT":                             "all", // excluded by the sink
		"RENAME TABLE other.x TO a":                             "captured",
		"RENAME TABLE a TO other.x":                             "captured",
		"RENAME TABLE secret TO other.x":                        "all",
		"ALTER TABLE a RENAME other.x":                          "captured",
		"CREATE TABLE a LIKE secret":                            "captured",
		"CREATE TABLE other.a LIKE a":                           "all",
		"TRUNCATE a":                                            "captured",
		"TRUNCATE secret":                                       "all",
		"ALTER TABLE other.a EXCHANGE PARTITION p WITH TABLE a": "captured",
		"CREATE VIEW v AS SELECT 1":                             "captured",
		"CREATE VIEW other.v AS SELECT 1":                       "all",
		"CREATE DATABASE shop":                                  "captured",
		"DROP DATABASE other":                                   "all",
		"CREATE PROCEDURE p() SELECT 1":                         "captured",
		"CREATE PROCEDURE other.p() SELECT 1":                   "all",
		"DROP TEMPORARY TABLE a":                                "all",
		"ANALYZE TABLE other.a":                                 "captured", // names nothing that it changes
		"DROP TABLE other.x, 'y'":                               "captured", // not understood
		"what nobody has ever called it":                        "captured",
		"":                                                      "", // withheld
	} {
		for _, choice := range []DDL{CapturedDDL, AllDDL} {
			h := &history{offset: 4}
			h.begin()
			h.ddl(sql, "ddl")
			h.end()
			got, err := encodeAll(t, testBridge(t, func(o *Options) {
				o.DDL, o.Tables, o.Filter = choice, []string{"shop.*", "!shop.secret", "third.*"}, "shop.*, !shop.tmp"
			}), h.events)
			if err != nil {
				t.Fatal(err)
			}
			if published := want == "captured" || want == "all" && choice == AllDDL; (len(got) == 1) != published {
				t.Errorf("%s: %d messages with %s, want it with %q", sql, len(got), choice, want)
			}
		}
	}
}

// truncating is a codec of a format in which TRUNCATE is a message of its table.
type truncating struct {
	textCodec
	padding int
}

func (*truncating) Truncates() bool { return true }

func (c *truncating) AppendTruncate(dst []byte, e *event.Event, schema, table string) []byte {
	return fmt.Appendf(dst, "empty %s.%s%s", schema, table, strings.Repeat(".", c.padding))
}

// TestTruncateI4I5: the emptying of a table is a message in the table's topic, in the partition of rows without key, under the
// number of its statement; whether the statement itself is published decides nothing but its place behind it.
func TestTruncateI4I5(t *testing.T) {
	for _, c := range []struct {
		sql, topic string
		want       []string
	}{
		{"TRUNCATE a", "ddl", []string{"ddl/0 1001.0 map[op:ddl seq:1001] ddl TRUNCATE a", "shop.a/HOME 1001.1 map[op:truncate seq:1001 sub:1 table:a] empty shop.a"}},
		{"TRUNCATE TABLE `third`.`b`", "", []string{"third.b/HOME 1001.0 map[op:truncate seq:1001 table:b] empty third.b"}},
		{"DELETE FROM `shop`.`a`", "", []string{"shop.a/HOME 1001.0 map[op:truncate seq:1001 table:a] empty shop.a"}},
		{"TRUNCATE secret", "ddl", nil},
		{"TRUNCATE other.a", "", nil},
		{"ALTER TABLE a TRUNCATE PARTITION p", "", nil},
		{"", "ddl", nil},
	} {
		h := &history{offset: 4}
		h.begin()
		h.ddl(c.sql, "ddl")
		h.end()
		var got []string
		records, err := encodeAll(t, testBridge(t, func(o *Options) {
			o.Codec, o.DDLTopic, o.Tables, o.Headers = new(truncating), c.topic, []string{"shop.*", "!shop.secret", "third.*"}, []string{"seq", "row", "table", "op"}
			o.KeyColumns = []KeyColumns{{[]string{"*.*"}, []string{"id"}}} // which a statement does not have
		}), h.events)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.key != nil {
				t.Errorf("%s: key %q", c.sql, r.key)
			}
			part := fmt.Sprint(r.part)
			if r.part == partition([]byte(r.topic), 3) {
				part = "HOME"
			}
			got = append(got, fmt.Sprintf("%s/%s %d.%d %v %s", r.topic, part, r.seq, r.sub, r.headers, r.value))
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s\n got %q\nwant %q", c.sql, got, c.want)
		}
	}
}

// TestTruncateSaysSo: whatever headers are chosen, it shows that a message in a table's topic is no row.
func TestTruncateSaysSo(t *testing.T) {
	h := &history{offset: 4}
	h.begin()
	h.ddl("TRUNCATE a", "ddl")
	h.end()
	for _, headers := range [][]string{nil, {}, {"gtid"}, {"op"}} {
		got, err := encodeAll(t, testBridge(t, func(o *Options) { o.Codec, o.DDLTopic, o.Headers = new(truncating), "", headers }), h.events)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].headers["op"] != "truncate" {
			t.Errorf("headers %q: %v", headers, got)
		}
	}
}

// TestTruncateTooLargeI3: what cannot be sent of a change stops before all of it.
func TestTruncateTooLargeI3(t *testing.T) {
	h := &history{offset: 4}
	h.begin()
	h.ddl("TRUNCATE a", "ddl")
	h.end()
	for _, oversize := range []Oversize{StopOversize, SplitOversize} {
		got, err := encodeAll(t, testBridge(t, func(o *Options) {
			o.Codec, o.MaxMessageBytes, o.Oversize, o.Headers = &truncating{padding: 100}, 150, oversize, []string{}
		}), h.events)
		var stop *StopError
		if !errors.As(err, &stop) || len(got) != 0 {
			t.Errorf("%s: %d messages, %v", oversize, len(got), err)
		}
	}
}

// TestReconcileTruncateI7: where the cursor is lost, topics are asked for messages of statements among their rows, too, whatever the
// configuration says by now of statements.
func TestReconcileTruncateI7(t *testing.T) {
	h := &history{offset: 4}
	table := testTable(t, "a", true)
	for i := range int64(4) {
		h.begin()
		h.rows(table, change{nil, &testRow{i, "x", 0}})
		h.end()
		h.begin()
		h.ddl("TRUNCATE a", "ddl")
		h.end()
	}
	broker := &readableSink{faultSink: newFaultSink(1, 1<<30)}
	end := event.Position{File: "log.1", Offset: h.offset, ServerUUID: "u"}
	for _, e := range h.events {
		end.GTIDs.Add(e.Txn.GTID)
	}
	for life := range 4 {
		c := event.Cursor{Position: event.Position{File: "log.1", Offset: 4, ServerUUID: "u"}}
		c.Position.GTIDs.Add(event.GTID{SID: [16]byte{9}, Seq: 1})
		k := &store{Memory: new(meta.Memory)} // the cursors are gone
		if life > 1 {                         // or the comparison is asked for
			st := NewState(time.Now())
			st.Reconcile(time.UnixMilli(1))
			var err error
			if c.State, err = st.Encode(); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Save(context.Background(), testID, &meta.Record{Cursor: c}); err != nil {
			t.Fatal(err)
		}
		r := startRig(t, h, k, func(o *Options) {
			o.Sink, o.Codec, o.Exact, o.Born = broker, new(truncating), true, time.Now()
			switch life {
			case 1, 2:
				o.DDLTopic = "" // which numbers the message otherwise
			case 3:
				o.Codec = new(textCodec) // which writes none
			}
			o.SourceEnd = func(context.Context) (event.Position, error) { return end, nil }
		})
		r.wait(h.want[len(h.want)-1].ordinal)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // Born differs
	}
	seen := map[string]int{}
	for _, r := range broker.log {
		seen[fmt.Sprintf("%s %s %s %s", r.topic, r.headers["gtid"], r.headers["row"], r.headers["sub"])]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d messages are stored, want 12: %v", len(seen), seen)
	}
	if err := broker.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// definingCodec is a codec.Definer.
type definingCodec struct{ stubCodec }

func (c *definingCodec) AppendDDL(dst []byte, e *event.Event) ([]byte, error) {
	dst = c.AppendBareDDL(dst, e)
	for _, d := range e.Stmt.Defined {
		dst = append(append(dst, " defined "...), d.After.Charset...)
	}
	return dst, nil
}

func (c *definingCodec) AppendBareDDL(dst []byte, e *event.Event) []byte {
	return append(append(dst, "ddl "...), e.Raw...)
}

func (c *definingCodec) AppendDDLKey(dst []byte, e *event.Event) []byte {
	return append(append(dst, "key of "...), e.Schema...)
}

// TestDefinitionsDecideNothingI5: how many messages a statement yields, and which of them there are, does not depend on what was known of tables: definitions are
// left out where there is no room for them.
func TestDefinitionsDecideNothingI5(t *testing.T) {
	const limit = 500
	cut := 0
	for _, how := range []Oversize{StopOversize, StubOversize, SplitOversize, DeadLetterOversize} {
		for text := 0; text < 900; text += 30 {
			if how == StopOversize && text > 200 {
				break
			}
			for known := 0; known < 600; known += 100 {
				messages := func(defined bool) []*record {
					h := &history{offset: 4}
					h.begin()
					h.ddl("alter table a "+strings.Repeat("y", text), "ddl")
					if defined {
						h.events[1].Stmt.Defined = []event.Defined{{Schema: "shop", Name: "a", After: &event.Definition{Charset: strings.Repeat("k", known)}}}
					}
					h.end()
					rs, err := encodeAll(t, testBridge(t, func(o *Options) { oversize(how, limit)(o); o.Codec = &definingCodec{} }), h.events)
					if err != nil {
						t.Fatal(err)
					}
					return rs
				}
				bare, full := messages(false), messages(true)
				if len(bare) != len(full) {
					t.Fatalf("%s, %d bytes of text, %d of definitions: %q, without %q", how, text, known, lines(full), lines(bare))
				}
				for i, r := range full {
					if with := strings.Contains(string(r.value), " defined "); len(full) > 1 && with || !with && !bytes.Equal(r.value, bare[i].value) || string(r.key) != "key of shop" {
						t.Errorf("%s: %v, without definitions %v", how, r, bare[i])
					} else if !with {
						cut++
					}
				}
			}
		}
	}
	if cut < 100 {
		t.Errorf("definitions were left out %d times", cut)
	}
}
