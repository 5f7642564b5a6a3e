package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/sink"
)

// encodeAll plans and encodes events in one session and returns the messages as text.
func encodeAll(t *testing.T, b *Bridge, events []*event.Event) ([]*record, error) {
	t.Helper()
	b.saved = State{Version: 1, Epoch: 4, Offset: 1000, Partitions: map[string]int32{}}
	s := newSession(b)
	p := b.planner()
	c := s.chunk(s.ledger.begin(1, 1, 1))
	for _, e := range events {
		switch e.Kind {
		case event.Rows:
			pl, err := p.of(context.Background(), e.Table)
			if err != nil {
				return nil, err
			}
			c.parts = append(c.parts, part{e: e, p: pl})
		case event.DDL:
			publish, err := s.statement(context.Background(), p, e)
			if err != nil {
				return nil, err
			}
			pl, err := p.emptied(context.Background(), e)
			if err != nil {
				return nil, err
			}
			if publish || pl != nil {
				c.parts = append(c.parts, part{e, pl, publish})
			}
		}
	}
	var out []*record
	err := s.encoder().encode(c, func(sl *slab) bool {
		for i := range sl.msgs {
			m := &sl.msgs[i]
			r := &record{topic: m.Topic, part: m.Partition, seq: m.Sequence, sub: m.SubIndex, key: m.Key, value: m.Value, time: m.Time, headers: map[string]string{}}
			for _, h := range m.Headers {
				r.headers[h.Name] = string(h.Value)
			}
			out = append(out, r)
		}
		return true
	})
	return out, err
}

func (r *record) String() string {
	text := func(b []byte) string {
		if b == nil {
			return "nil"
		}
		return string(b)
	}
	return fmt.Sprintf("%s/%d %d.%d [%s] %s", r.topic, r.part, r.seq, r.sub, text(r.key), text(r.value))
}

func lines(rs []*record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.String())
	}
	return out
}

// TestMessagesI4I5 shows which messages row changes yield under each choice, their keys, numbers and places.
func TestMessagesI4I5(t *testing.T) {
	keyed, keyless := testTable(t, "a", true), testTable(t, "b", false)
	h := &history{offset: 4}
	h.begin()
	h.rows(keyed, change{nil, &testRow{1, "x", 0}})
	h.rows(keyed, change{&testRow{1, "x", 0}, &testRow{1, "y", 0}}, change{&testRow{1, "y", 0}, &testRow{2, "y", 0}})
	h.rows(keyed, change{&testRow{2, "y", 0}, nil})
	h.rows(keyless, change{nil, &testRow{1, "x", 0}}, change{nil, &testRow{2, "x", 0}})
	h.ddl("create table x", "ddl")
	h.end()

	at := func(key string) int32 { return sink.Partition([]byte(key), 3) }
	row := func(topic string, part int32, seq string, key, value string) string {
		return fmt.Sprintf("%s/%d %s [%s] %s", topic, part, seq, key, value)
	}
	homeA, homeB := at("shop.a"), at("shop.b")
	b1 := row("shop.b", homeB, "1005.0", "uuid-5", "insert b ->1,x,0")
	b2 := row("shop.b", homeB, "1006.0", "uuid-6", "insert b ->2,x,0")
	ddl := row("ddl", 0, "1007.0", "nil", "ddl create table x")
	a := func(seq, key, value string) string { return row("shop.a", at(key), seq, key, value) }
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   []string
	}{
		{"split", nil, []string{
			a("1001.0", "a/1", "insert a ->1,x,0"),
			a("1002.0", "a/1", "update a 1,x,0>1,y,0"),
			a("1003.0", "a/1", "delete a 1,y,0>-"),
			a("1003.1", "a/2", "insert a ->2,y,0"),
			a("1004.0", "a/2", "delete a 2,y,0>-"),
			b1, b2, ddl}},
		{"update", func(o *Options) { o.KeyChange = UpdateKeyChange }, []string{
			a("1001.0", "a/1", "insert a ->1,x,0"),
			a("1002.0", "a/1", "update a 1,x,0>1,y,0"),
			a("1003.0", "a/2", "update a 1,y,0>2,y,0"),
			a("1004.0", "a/2", "delete a 2,y,0>-"),
			b1, b2, ddl}},
		{"tombstones", func(o *Options) { o.Tombstones = true }, []string{
			a("1001.0", "a/1", "insert a ->1,x,0"),
			a("1002.0", "a/1", "update a 1,x,0>1,y,0"),
			a("1003.0", "a/1", "delete a 1,y,0>-"),
			a("1003.1", "a/1", "nil"),
			a("1003.2", "a/2", "insert a ->2,y,0"),
			a("1004.0", "a/2", "delete a 2,y,0>-"),
			a("1004.1", "a/2", "nil"),
			b1, b2, ddl}},
		{"table key", func(o *Options) { o.Key = TableKey; o.Tombstones = true }, []string{
			row("shop.a", homeA, "1001.0", "shop.a", "insert a ->1,x,0"),
			row("shop.a", homeA, "1002.0", "shop.a", "update a 1,x,0>1,y,0"),
			row("shop.a", homeA, "1003.0", "shop.a", "update a 1,y,0>2,y,0"),
			row("shop.a", homeA, "1004.0", "shop.a", "delete a 2,y,0>-"),
			row("shop.b", homeB, "1005.0", "shop.b", "insert b ->1,x,0"),
			row("shop.b", homeB, "1006.0", "shop.b", "insert b ->2,x,0"),
			ddl}},
		{"no key", func(o *Options) { o.Key = NoKey }, []string{
			row("shop.a", homeA, "1001.0", "nil", "insert a ->1,x,0"),
			row("shop.a", homeA, "1002.0", "nil", "update a 1,x,0>1,y,0"),
			row("shop.a", homeA, "1003.0", "nil", "update a 1,y,0>2,y,0"),
			row("shop.a", homeA, "1004.0", "nil", "delete a 2,y,0>-"),
			row("shop.b", homeB, "1005.0", "nil", "insert b ->1,x,0"),
			row("shop.b", homeB, "1006.0", "nil", "insert b ->2,x,0"),
			ddl}},
		{"key columns", func(o *Options) {
			o.Key = NoKey
			o.KeyColumns = []KeyColumns{{[]string{"shop.a"}, []string{"v", "n"}}, {[]string{"shop.*"}, []string{"id"}}}
		}, []string{
			a("1001.0", "a/x/0", "insert a ->1,x,0"),
			a("1002.0", "a/x/0", "delete a 1,x,0>-"),
			a("1002.1", "a/y/0", "insert a ->1,y,0"),
			a("1003.0", "a/y/0", "update a 1,y,0>2,y,0"),
			a("1004.0", "a/y/0", "delete a 2,y,0>-"),
			row("shop.b", at("b/1"), "1005.0", "b/1", "insert b ->1,x,0"),
			row("shop.b", at("b/2"), "1006.0", "b/2", "insert b ->2,x,0"),
			ddl}},
		{"no partitions", func(o *Options) { o.Sink = nullSink{0}; o.Topic = "all"; o.KeyChange = UpdateKeyChange }, []string{
			"all/-1 1001.0 [a/1] insert a ->1,x,0",
			"all/-1 1002.0 [a/1] update a 1,x,0>1,y,0",
			"all/-1 1003.0 [a/2] update a 1,y,0>2,y,0",
			"all/-1 1004.0 [a/2] delete a 2,y,0>-",
			"all/-1 1005.0 [uuid-5] insert b ->1,x,0",
			"all/-1 1006.0 [uuid-6] insert b ->2,x,0",
			"ddl/-1 1007.0 [nil] ddl create table x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := encodeAll(t, testBridge(t, c.change), h.events)
			if err != nil {
				t.Fatal(err)
			}
			if g := lines(got); !slices.Equal(g, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// Names of key columns are written in any case, as in SQL; those of tables where the source takes them so.
func TestKeyColumnsInAnyCase(t *testing.T) {
	for _, c := range []struct {
		caseless bool
		tables   string
		want     string
	}{{false, "shop.*", "a/x"}, {true, "SHOP.A", "a/x"}, {false, "SHOP.A", "a/1"}} {
		h := &history{offset: 4}
		h.begin()
		table := testTable(t, "a", true)
		table.Caseless = c.caseless
		h.rows(table, change{nil, &testRow{1, "x", 0}})
		h.end()
		got, err := encodeAll(t, testBridge(t, func(o *Options) { o.KeyColumns = []KeyColumns{{[]string{c.tables}, []string{"V"}}} }), h.events)
		if err != nil || len(got) != 1 || string(got[0].key) != c.want {
			t.Errorf("%+v: %v, %+v", c, err, got)
		}
	}
}

func TestHeaders(t *testing.T) {
	h := &history{offset: 4}
	h.begin()
	h.rows(testTable(t, "a", true), change{nil, &testRow{1, "x", 0}})
	h.rows(testTable(t, "a", true), change{&testRow{1, "x", 0}, &testRow{2, "x", 0}})
	h.ddl("create table x", "ddl")
	h.end()
	h.chunk(testTable(t, "b", false), &testRow{1, "x", 0})
	gtid := "01000000-0000-0000-0000-000000000000:1"
	for _, c := range []struct {
		names []string
		want  []string
	}{
		{nil, []string{
			"map[gtid:" + gtid + " row:0 seq:1001]",
			"map[gtid:" + gtid + " row:1 seq:1002]",
			"map[gtid:" + gtid + " row:1 seq:1002 sub:1]",
			`map[gtid:` + gtid + ` seq:1003 tables:[{"action":"create","kind":"table","database":"shop","name":"x"}]]`,
			"map[row:0 seq:1005 snapshot:first/1]"}},
		{[]string{}, []string{"map[]", "map[]", "map[]", "map[]", "map[]"}},
		{[]string{"destination", "schema", "table", "op", "position", "commit_time", "epoch"}, []string{
			"map[commit_time:1000000 destination:d epoch:4 op:insert position:log.1:104 schema:shop table:a]",
			"map[commit_time:1000000 destination:d epoch:4 op:delete position:log.1:204 schema:shop table:a]",
			"map[commit_time:1000000 destination:d epoch:4 op:insert position:log.1:204 schema:shop table:a]",
			"map[commit_time:1000000 destination:d epoch:4 op:ddl position:log.1:304 schema:shop]",
			"map[commit_time:1000000 destination:d epoch:4 op:snapshot position:log.1:504 schema:shop table:b]"}},
	} {
		got, err := encodeAll(t, testBridge(t, func(o *Options) { o.Headers = c.names }), h.events)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got {
			if s := fmt.Sprint(r.headers); s != c.want[i] {
				t.Errorf("headers %v, message %d: %s, want %s", c.names, i, s, c.want[i])
			}
			if r.time != 1000 {
				t.Errorf("message %d: time %d", i, r.time)
			}
		}
	}
	h.events[0].Txn.GTID = event.GTID{}
	got, err := encodeAll(t, testBridge(t, nil), h.events[:2])
	if err != nil || fmt.Sprint(got[0].headers) != "map[row:0 seq:1001]" {
		t.Errorf("without GTIDs: %v, %v", got[0].headers, err)
	}
}

// linkingCodec is a codec.KeyLinker and a codec.DDLKeyer.
type linkingCodec struct{ textCodec }

func (*linkingCodec) KeyHeaders() (onDelete, onInsert string) { return "new", "old" }

func (*linkingCodec) AppendDDLKey(dst []byte, e *event.Event) []byte {
	return append(append(dst, "key of "...), e.Schema...)
}

// TestKeyLinksI4: the messages of a change of the key name each other's key, its tombstone too, and a DDL message has the key
// that its codec gives it; whatever the headers chosen are, and in each part of a large message.
func TestKeyLinksI4(t *testing.T) {
	h := &history{offset: 4}
	h.begin()
	h.rows(testTable(t, "a", true), change{nil, &testRow{1, strings.Repeat("x", 250), 0}})
	h.rows(testTable(t, "a", true), change{&testRow{1, strings.Repeat("x", 250), 0}, &testRow{2, "x", 0}})
	h.ddl("create table x", "ddl")
	h.end()
	for _, c := range []struct {
		change func(*Options)
		want   []string
	}{
		{func(*Options) {}, []string{"a/1 map[]", "a/1 map[new:a/2]", "a/1 map[new:a/2]", "a/2 map[old:a/1]", "key of shop map[]"}},
		{func(o *Options) { o.Oversize, o.MaxMessageBytes = SplitOversize, 330 }, []string{
			"a/1 map[part:1/2]", "a/1 map[part:2/2]",
			"a/1 map[new:a/2 part:1/2]", "a/1 map[new:a/2 part:2/2]", "a/1 map[new:a/2]", "a/2 map[old:a/1]", "key of shop map[]"}},
	} {
		got, err := encodeAll(t, testBridge(t, func(o *Options) {
			o.Codec, o.Tombstones, o.Headers = &linkingCodec{}, true, []string{}
			c.change(o)
		}), h.events)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, r := range got {
			texts = append(texts, fmt.Sprintf("%s %v", r.key, r.headers))
		}
		if !slices.Equal(texts, c.want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// partial makes an update whose images hold only the given columns of id, v, n.
func partial(t *testing.T, tab *event.Table, h *history, before, after byte, c change) *event.Event {
	e := h.rows(tab, c)
	e.Raw = nil
	e.Images = event.Images{Before: []byte{before}, After: []byte{after}}
	for _, im := range []struct {
		row  *testRow
		mask byte
	}{{c.before, before}, {c.after, after}} {
		full := im.row.image(nil)
		e.Raw = append(e.Raw, 0)
		if im.mask&1 != 0 {
			e.Raw = append(e.Raw, full[1:9]...)
		}
		if im.mask&2 != 0 {
			e.Raw = append(e.Raw, full[9:len(full)-8]...)
		}
		if im.mask&4 != 0 {
			e.Raw = append(e.Raw, full[len(full)-8:]...)
		}
	}
	return e
}

// TestPartialImagesI3: row images that are not FULL are sent where that is right, and stop the sink where it is not.
func TestPartialImagesI3(t *testing.T) {
	same := change{&testRow{1, "x", 5}, &testRow{1, "y", 5}}
	moved := change{&testRow{1, "x", 5}, &testRow{2, "x", 5}}
	for _, c := range []struct {
		name          string
		before, after byte
		c             change
		opt           func(*Options)
		want          []string // keys and values
		err           string
	}{
		{"minimal", 1, 2, same, nil, []string{"[a/1] update a 1,?,?>?,y,?"}, ""},
		{"noblob moved", 7, 5, moved, nil, []string{"[a/1] delete a 1,x,5>-", "[a/2] insert a ->2,x,5"}, ""},
		{"minimal moved", 1, 1, moved, nil, nil, `does not hold column "v"`},
		{"minimal moved, update", 1, 1, moved, func(o *Options) { o.KeyChange = UpdateKeyChange }, []string{"[a/2] update a 1,?,?>2,?,?"}, ""},
		{"other key", 1, 2, same, func(o *Options) { o.KeyColumns = []KeyColumns{{[]string{"shop.a"}, []string{"v"}}} }, nil, `key column "v" as it was`},
		{"key in no image", 1, 2, same, func(o *Options) { o.KeyColumns = []KeyColumns{{[]string{"shop.a"}, []string{"n"}}} }, nil, "message key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &history{offset: 4}
			h.begin()
			e := partial(t, testTable(t, "a", true), h, c.before, c.after, c.c)
			got, err := encodeAll(t, testBridge(t, c.opt), []*event.Event{e})
			if c.err != "" {
				var stop *StopError
				if !errors.As(err, &stop) || !strings.Contains(err.Error(), c.err) || stop.Table != "shop.a" ||
					!strings.HasPrefix(stop.Position, "log.1:104 (") || stop.Remedy == "" {
					t.Fatalf("error %v (%+v)", err, stop)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range got {
				if s := fmt.Sprintf("[%s] %s", r.key, r.value); i >= len(c.want) || s != c.want[i] {
					t.Errorf("message %d: %s, want %q", i, s, c.want)
				}
			}
		})
	}
}

// TestPlanErrorsI3: what cannot be routed names the table and the remedy.
func TestPlanErrorsI3(t *testing.T) {
	h := &history{offset: 4}
	h.begin()
	h.rows(testTable(t, "gelöscht", true), change{nil, &testRow{1, "x", 0}})
	for want, change := range map[string]func(*Options){
		"Kafka takes A-Z":               nil,
		`"nothing" is not in the table`: func(o *Options) { o.Topic = "all"; o.KeyColumns = []KeyColumns{{[]string{"*.*"}, []string{"nothing"}}} },
	} {
		_, err := encodeAll(t, testBridge(t, change), h.events)
		var stop *StopError
		if !errors.As(err, &stop) || !strings.Contains(err.Error(), want) || stop.Table != "shop.gelöscht" || stop.Remedy == "" {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestBigEventIsCutI9: an event that yields more than a slab comes in several, in order, none much larger than the bound.
func TestBigEventIsCutI9(t *testing.T) {
	h := &history{offset: 4}
	h.begin()
	var cs []change
	for i := range int64(20000) {
		cs = append(cs, change{nil, &testRow{i, strings.Repeat("y", 100), i}})
	}
	h.rows(testTable(t, "a", true), cs...)
	b := testBridge(t, nil)
	b.saved = State{Partitions: map[string]int32{}}
	s := newSession(b)
	p := b.planner()
	pl, err := p.of(context.Background(), h.events[1].Table)
	if err != nil {
		t.Fatal(err)
	}
	c := s.chunk(s.ledger.begin(1, 1, 1))
	c.raw = 1 << 20
	c.parts = append(c.parts, part{e: h.events[1], p: pl})
	slabs, next := 0, int64(1)
	err = s.encoder().encode(c, func(sl *slab) bool {
		slabs++
		if len(sl.buf) > slabBytes+1000 {
			t.Errorf("slab of %d bytes", len(sl.buf))
		}
		for i := range sl.msgs {
			if sl.msgs[i].Sequence != next {
				t.Fatalf("sequence %d, want %d", sl.msgs[i].Sequence, next)
			}
			next++
		}
		return true
	})
	if err != nil || next != 20001 || slabs < 5 {
		t.Errorf("%v, %d slabs, up to %d", err, slabs, next-1)
	}
}
