package codec_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
)

func TestAppendTables(t *testing.T) {
	for sql, want := range map[string]string{
		"DROP TABLE a, x.b": `[{"action":"drop","kind":"table","database":"shop","name":"a"},{"action":"drop","kind":"table","database":"x","name":"b"}]`,
		"RENAME TABLE a TO t, x.b TO a": `[{"action":"rename","kind":"table","database":"shop","name":"t","old_database":"shop","old_name":"a"},` +
			`{"action":"rename","kind":"table","database":"shop","name":"a","old_database":"x","old_name":"b"}]`,
		"ALTER TABLE a ADD c INT, RENAME b":                            `[{"action":"alter","kind":"table","database":"shop","name":"a"},{"action":"rename","kind":"table","database":"shop","name":"b","old_database":"shop","old_name":"a"}]`,
		"CREATE TABLE a LIKE x.b":                                      `[{"action":"create","kind":"table","database":"shop","name":"a","like_database":"x","like_name":"b"}]`,
		"CREATE TRIGGER g AFTER INSERT ON x.t FOR EACH ROW SET @a = 1": `[{"action":"create","kind":"trigger","database":"shop","name":"g","on_database":"x","on_name":"t"}]`,
		"CREATE DATABASE `a\"b`":                                       `[{"action":"create","kind":"database","database":"a\"b"}]`,
		"ANALYZE TABLE t":                                              `[]`,
		"DROP TABLE a, ???":                                            `[{"action":"drop","kind":"table","database":"shop","name":"a"},{"action":"unknown"}]`,
		"nobody has ever called it":                                    `[{"action":"unknown"}]`,
	} {
		if got := string(codec.AppendTables([]byte("p"), codectest.DDL("shop", sql).Stmt)); got != "p"+want {
			t.Errorf("%s\n got %s\nwant p%s", sql, got, want)
		}
	}
	if got := string(codec.AppendTables(nil, nil)); got != `[{"action":"unknown"}]` {
		t.Errorf("nothing: %s", got)
	}
}

// TestAppendTablesI9: the list is bounded, and says that it is not all.
func TestAppendTablesI9(t *testing.T) {
	s := &event.Statement{Whole: true}
	for i := range 1000 {
		s.Changes = append(s.Changes, event.Change{Action: event.ActionDrop, Object: event.ObjectTable, Schema: "shop", Name: fmt.Sprint(strings.Repeat("t", 40), i)})
	}
	out := codec.AppendTables(nil, s)
	var list []map[string]string
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	if n := len(list); len(out) > 17<<10 || n < 100 || list[n-1]["action"] != "unknown" || list[n-2]["name"] != s.Changes[n-2].Name {
		t.Errorf("%d bytes: %s ... %s", len(out), out[:200], out[len(out)-200:])
	}
}
