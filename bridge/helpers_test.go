package bridge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// testTable returns a compiled table of BIGINT id, VARCHAR v, BIGINT n; keyed by id if asked for.
func testTable(t testing.TB, name string, keyed bool) *event.Table {
	tab := &event.Table{Schema: "shop", Name: name, Columns: []event.Column{
		{Name: "id", Type: 8}, {Name: "v", Type: 15, Meta: 200, Charset: "utf8mb4"}, {Name: "n", Type: 8},
	}}
	if keyed {
		tab.Key = []int{0}
	}
	if err := tab.Compile(); err != nil {
		t.Fatal(err)
	}
	return tab
}

// testRow is one row of a testTable.
type testRow struct {
	id int64
	v  string
	n  int64
}

func (r *testRow) String() string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%d,%s,%d", r.id, r.v, r.n)
}

func (r *testRow) image(dst []byte) []byte {
	dst = append(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.id))
	dst = append(dst, byte(len(r.v)))
	dst = append(dst, r.v...)
	return binary.LittleEndian.AppendUint64(dst, uint64(r.n))
}

// change is one row change.
type change struct{ before, after *testRow }

func (c change) op() event.Op {
	switch {
	case c.before == nil:
		return event.Insert
	case c.after == nil:
		return event.Delete
	}
	return event.Update
}

// textCodec writes rows as plain text. The key of a table without key differs from row to row, as Maxwell's does.
type textCodec struct {
	fail func(r *event.Row) error
}

func appendImage(dst []byte, vs []event.Value) ([]byte, error) {
	if vs == nil {
		return append(dst, '-'), nil
	}
	var err error
	for i, v := range vs {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v.IsAbsent() {
			dst = append(dst, '?')
			continue
		}
		if dst, err = v.AppendText(dst); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (c *textCodec) AppendKey(dst []byte, r *event.Row, key []int) ([]byte, error) {
	if len(key) == 0 {
		return fmt.Appendf(dst, "uuid-%d", r.Ordinal), nil
	}
	dst = append(dst, r.Table.Name...)
	var err error
	for _, k := range key {
		v := r.Values()[k]
		if v.IsAbsent() && r.Op == event.Update {
			v = r.Before[k]
		}
		dst = append(dst, '/')
		if dst, err = v.AppendText(dst); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (c *textCodec) AppendRow(dst []byte, r *event.Row) ([]byte, error) {
	if c.fail != nil {
		if err := c.fail(r); err != nil {
			return nil, err
		}
	}
	dst = append(append(append(dst, r.Op.String()...), ' '), r.Table.Name...)
	dst = append(dst, ' ')
	var err error
	if dst, err = appendImage(dst, r.Before); err != nil {
		return nil, err
	}
	dst = append(dst, '>')
	if dst, err = appendImage(dst, r.After); err != nil {
		return nil, err
	}
	if r.Last {
		dst = append(dst, '!')
	}
	return dst, nil
}

func (c *textCodec) AppendDDL(dst []byte, e *event.Event) ([]byte, error) {
	return append(append(dst, "ddl "...), e.Raw...), nil
}

// history builds the events of a stream and, beside it and without the code
// under test, the messages that must come of it.
type history struct {
	events []*event.Event
	ends   []int // index in events behind each transaction
	want   []want
	ord    int64
	offset uint64
	txn    *event.Txn
	txns   uint64 // of the log
	chunks int64
	index  int64
}

// want is a message to expect.
type want struct {
	topic      string
	part       string // what the partition is computed from
	ordinal    int64
	sub        uint16
	key, value string
	null       bool
}

func (h *history) add(e event.Event) *event.Event {
	e.Txn = h.txn
	e.File = "log.1"
	e.Start = h.offset
	if h.txn.Snapshot == nil {
		h.offset += 100
	}
	e.Next = h.offset
	e.Size = len(e.Raw) + 200
	h.events = append(h.events, &e)
	return &e
}

func (h *history) begin() {
	h.txns++
	n := h.txns
	h.txn = &event.Txn{GTID: event.GTID{SID: [16]byte{1}, Seq: n}, File: "log.1", Start: h.offset, ServerUUID: "u", Time: int64(n) * 1_000_000}
	h.index = 0
	h.add(event.Event{Kind: event.Begin})
}

// chunk adds rows of a snapshot, in one event or in two.
func (h *history) chunk(t *event.Table, rows ...*testRow) {
	h.chunks++
	h.txn = &event.Txn{File: "log.1", Start: h.offset, ServerUUID: "u", Time: int64(h.chunks) * 1_000_000, Snapshot: &event.Snapshot{ID: "first", Chunk: h.chunks}}
	h.index = 0
	h.add(event.Event{Kind: event.Begin})
	for half := range slices.Chunk(rows, (len(rows)+1)/2) {
		var cs []change
		for _, r := range half {
			cs = append(cs, change{nil, r})
		}
		h.rows(t, cs...)
	}
	h.end()
}

func (h *history) end() {
	for i := len(h.events) - 1; h.events[i].Kind == event.Rows; i-- {
		if e := h.events[i]; e.Index+int64(e.Rows) == h.index {
			e.Last = true
			for j := len(h.want) - 1; j >= 0 && h.want[j].ordinal == h.ord; j-- {
				if w := &h.want[j]; !w.null && !(strings.HasPrefix(w.value, "delete") && j+1 < len(h.want)) {
					w.value += "!"
				}
			}
			break
		}
	}
	h.ord++
	h.add(event.Event{Kind: event.End, Ordinal: h.ord, Index: h.index})
	h.ends = append(h.ends, len(h.events))
}

func (h *history) ddl(text, topic string) {
	h.ord++
	e := event.Event{Kind: event.DDL, Ordinal: h.ord, Raw: []byte(text), Schema: "shop"}
	if text != "" {
		e.Stmt = ddl.Describe(&ddl.Statement{Text: text, Schema: "shop"}, ddl.Server{Version: 90700})
	}
	h.add(e)
	if topic != "" && text != "" {
		h.want = append(h.want, want{topic: topic, ordinal: h.ord, value: "ddl " + text})
	}
}

// rows adds one rows event and the messages that a sink with the defaults sends for it.
func (h *history) rows(t *event.Table, changes ...change) *event.Event {
	e := event.Event{Kind: event.Rows, Op: changes[0].op(), Rows: uint32(len(changes)), Ordinal: h.ord + 1, Index: h.index, Table: t}
	all := []byte{7}
	for _, c := range changes {
		if c.before != nil {
			e.Raw, e.Images.Before = c.before.image(e.Raw), all
		}
		if c.after != nil {
			e.Raw, e.Images.After = c.after.image(e.Raw), all
		}
		h.ord++
		h.index++
		key := func(r *testRow) string { return fmt.Sprintf("%s/%d", t.Name, r.id) }
		w := want{topic: "shop." + t.Name, ordinal: h.ord}
		full := fmt.Sprintf("%s %s %v>%v", c.op(), t.Name, c.before, c.after)
		switch {
		case t.Key == nil:
			w.key, w.part, w.value = fmt.Sprintf("uuid-%d", h.ord), "shop."+t.Name, full
		case c.op() == event.Delete:
			w.key, w.value = key(c.before), full
		case c.op() == event.Update && c.before.id != c.after.id:
			w.key, w.value = key(c.before), fmt.Sprintf("delete %s %v>-", t.Name, c.before)
			w.part = w.key
			h.want = append(h.want, w)
			w.sub, w.key, w.part, w.value = 1, key(c.after), "", fmt.Sprintf("insert %s ->%v", t.Name, c.after)
		default:
			w.key, w.value = key(c.after), full
		}
		if w.part == "" {
			w.part = w.key
		}
		h.want = append(h.want, w)
	}
	return h.add(e)
}

// randomHistory makes n transactions over keyed and keyless tables.
func randomHistory(t testing.TB, rng *rand.Rand, n int) *history {
	h := &history{offset: 4}
	tables := []*event.Table{testTable(t, "a", true), testTable(t, "b", false), testTable(t, "c", true)}
	serial := int64(0)
	row := func(id int64) *testRow {
		serial++
		return &testRow{id, strings.Repeat("x", rng.IntN(60)), serial}
	}
	for range n {
		if rng.IntN(8) == 0 {
			var rows []*testRow
			for range 1 + rng.IntN(6) {
				rows = append(rows, row(rng.Int64N(20)))
			}
			h.chunk(tables[rng.IntN(len(tables))], rows...)
		}
		h.begin()
		if rng.IntN(20) == 0 {
			h.ddl("alter table a", "ddl")
		}
		events := rng.IntN(4)
		if rng.IntN(15) == 0 {
			events = 60
		}
		for range events {
			tab := tables[rng.IntN(len(tables))]
			if rng.IntN(5) == 0 { // another definition of the same table
				tab = testTable(t, tab.Name, tab.Key != nil)
			}
			op := rng.IntN(4)
			var cs []change
			for range 1 + rng.IntN(5) {
				id := rng.Int64N(20)
				switch op {
				case 0:
					cs = append(cs, change{nil, row(id)})
				case 1:
					cs = append(cs, change{row(id), nil})
				case 2:
					cs = append(cs, change{row(id), row(id)})
				default:
					cs = append(cs, change{row(id), row(rng.Int64N(20))})
				}
			}
			h.rows(tab, cs...)
		}
		h.end()
	}
	return h
}

// Start and Read make a history a server.Source.
func (h *history) Start(context.Context) (event.Cursor, error) {
	return event.Cursor{Position: event.Position{File: "log.1", Offset: 4, ServerUUID: "u"}}, nil
}

func (h *history) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	at := -1
	if from.Ordinal == 0 {
		at = 0
	}
	for _, end := range h.ends {
		if e := h.events[end-1]; e.Ordinal == from.Ordinal {
			if e.Next != from.Position.Offset {
				return fmt.Errorf("read from ordinal %d at offset %d, which is at %d", from.Ordinal, from.Position.Offset, e.Next)
			}
			at = end
		}
	}
	if at < 0 {
		return fmt.Errorf("no transaction ends with %d", from.Ordinal)
	}
	for rest := h.events[at:]; len(rest) > 0; {
		n := min(len(rest), 1+rand.IntN(20))
		if err := put(ctx, slices.Clone(rest[:n])); err != nil {
			return err
		}
		rest = rest[n:]
	}
	<-ctx.Done()
	return ctx.Err()
}

// record is a message as the broker has it.
type record struct {
	topic   string
	part    int32
	seq     int64
	sub     uint16
	key     []byte
	value   []byte
	headers map[string]string
	time    int64
}

type lane struct {
	topic string
	part  int32
}

type number struct {
	seq int64
	sub uint16
}

// faultSink is a sink on a broker in memory that fails in every way that the contract
// allows. With faults zero it is a quick, correct one.
type faultSink struct {
	mu        sync.Mutex
	cond      *sync.Cond
	rng       *rand.Rand
	faults    int // one step of this many fails the session; 0 = none
	topicErr  int // one question of this many for a topic's partitions fails; 0 = none
	parts     map[string]int32
	stalled   bool // confirms nothing
	halt      int  // stores nothing more when so many messages are stored; 0 = no such bound
	limit     int
	log       []*record // in the order of storing
	confirmed map[number]int
	queue     []*sink.Message
	stored    []stored
	failed    error
	busy      int
	closed    bool
	resets    int
	inline    bool // confirm inside Publish
	worker    sync.WaitGroup
}

type stored struct {
	m *sink.Message
	r *record
}

func newFaultSink(seed uint64, faults int) *faultSink {
	s := &faultSink{rng: rand.New(rand.NewPCG(seed, 2)), faults: faults, limit: 50, confirmed: map[number]int{}, parts: map[string]int32{}}
	s.cond = sync.NewCond(&s.mu)
	s.worker.Go(s.work)
	return s
}

func (s *faultSink) Partitions(ctx context.Context, topic string) (int32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topicErr > 0 && s.rng.IntN(s.topicErr) == 0 {
		return 0, errors.New("topic is not there yet")
	}
	if n, ok := s.parts[topic]; ok {
		return n, nil
	}
	return 3, nil
}

func (s *faultSink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	stop := context.AfterFunc(ctx, func() { s.mu.Lock(); s.cond.Broadcast(); s.mu.Unlock() })
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range msgs {
		for len(s.queue)+len(s.stored) >= s.limit && s.failed == nil && ctx.Err() == nil {
			s.cond.Wait()
		}
		if s.failed != nil {
			return i, s.failed
		}
		if ctx.Err() != nil {
			return i, ctx.Err()
		}
		s.queue = append(s.queue, &msgs[i])
		s.cond.Broadcast()
		if s.inline && s.rng.IntN(3) == 0 {
			for len(s.queue) > 0 {
				s.store(0)
			}
			for len(s.stored) > 0 {
				s.confirm(len(s.stored) - 1)
			}
			if s.failed != nil {
				return i + 1, s.failed
			}
		}
	}
	return len(msgs), nil
}

// store moves the queue's message i, the first of its lane, to the broker.
func (s *faultSink) store(i int) {
	m := s.queue[i]
	s.queue = slices.Delete(s.queue, i, i+1)
	r := &record{topic: m.Topic, part: m.Partition, seq: m.Sequence, sub: m.SubIndex, key: bytes.Clone(m.Key), value: bytes.Clone(m.Value), time: m.Time, headers: map[string]string{}}
	for _, h := range m.Headers {
		r.headers[h.Name] = string(h.Value)
	}
	s.log = append(s.log, r)
	s.stored = append(s.stored, stored{m, r})
}

// confirm reports stored message i done.
func (s *faultSink) confirm(i int) {
	st := s.stored[i]
	s.stored = slices.Delete(s.stored, i, i+1)
	if !bytes.Equal(st.m.Key, st.r.key) || !bytes.Equal(st.m.Value, st.r.value) || st.m.Sequence != st.r.seq {
		panic(fmt.Sprintf("message %d.%d changed before it was done", st.r.seq, st.r.sub))
	}
	s.confirmed[number{st.r.seq, st.r.sub}]++
	s.done(st.m, nil)
}

// done tells the owner, without the lock.
func (s *faultSink) done(m *sink.Message, err error) {
	s.busy++
	s.mu.Unlock()
	m.Done(err)
	s.mu.Lock()
	s.busy--
}

// first picks the first message of a random lane.
func (s *faultSink) first() int {
	i := s.rng.IntN(len(s.queue))
	for j, m := range s.queue[:i] {
		if m.Topic == s.queue[i].Topic && m.Partition == s.queue[i].Partition {
			return j
		}
	}
	return i
}

// abort ends the session: any part of what is on its way may still be stored.
func (s *faultSink) abort(err error) {
	s.failed = err
	for len(s.queue) > 0 && s.rng.IntN(4) > 0 {
		s.store(s.first())
	}
	rest := s.queue
	s.queue = nil
	for _, st := range s.stored {
		rest = append(rest, st.m)
	}
	s.stored = nil
	s.rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	for _, m := range rest {
		s.done(m, err)
	}
}

func (s *faultSink) work() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		halted := s.halt > 0 && len(s.log) >= s.halt
		if s.stalled || halted || s.failed != nil || len(s.queue)+len(s.stored) == 0 {
			s.cond.Wait()
			continue
		}
		switch r := s.rng.IntN(10); {
		case s.faults > 0 && s.rng.IntN(s.faults) == 0:
			s.abort(errors.New("link lost"))
		case len(s.queue) > 0 && r < 5:
			s.store(s.first())
		case len(s.stored) > 0:
			s.confirm(s.rng.IntN(len(s.stored)))
		}
		s.cond.Broadcast()
	}
}

func (s *faultSink) Flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.mu.Lock(); s.cond.Broadcast(); s.mu.Unlock() })
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue)+len(s.stored)+s.busy > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.cond.Wait()
	}
	return s.failed
}

func (s *faultSink) Reset(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets++
	if s.failed == nil {
		s.abort(sink.ErrReset)
	}
	for s.busy > 0 || len(s.queue)+len(s.stored) > 0 {
		s.mu.Unlock()
		s.mu.Lock()
	}
	s.failed = nil
	s.cond.Broadcast()
	return nil
}

func (s *faultSink) Close(ctx context.Context) error {
	err := s.Reset(ctx)
	s.mu.Lock()
	s.closed = true
	s.failed = errors.New("closed")
	s.cond.Broadcast()
	s.mu.Unlock()
	s.worker.Wait()
	return err
}

func (s *faultSink) Status() sink.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sink.Status{InFlight: int64(len(s.queue) + len(s.stored))}
}

// set changes something under the lock.
func (s *faultSink) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.cond.Broadcast()
}

// fakeClient serves nothing; for tests that need no server.
type fakeClient struct{}

func (fakeClient) GetWithoutAck(ctx context.Context, _ server.Size, _ server.Wait) (*server.Batch, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (fakeClient) Ack(context.Context, int64, []byte) error               { return nil }
func (fakeClient) AckLazy(context.Context, int64, server.LazyState) error { return nil }
func (fakeClient) AckUpTo(context.Context, int64, server.LazyState) error { return nil }
func (fakeClient) SaveState(context.Context, []byte) error                { return nil }
func (fakeClient) Rollback(context.Context) error                         { return nil }
func (fakeClient) Cursor(context.Context) (event.Cursor, error)           { return event.Cursor{}, nil }
func (fakeClient) Disconnect(context.Context) error                       { return nil }

// nullSink confirms at once.
type nullSink struct{ parts int32 }

func (n nullSink) Partitions(context.Context, string) (int32, error) { return n.parts, nil }
func (nullSink) Publish(_ context.Context, msgs []sink.Message) (int, error) {
	n := len(msgs)
	for i := range msgs[:n] {
		msgs[i].Done(nil)
	}
	return n, nil
}
func (nullSink) Flush(context.Context) error { return nil }
func (nullSink) Reset(context.Context) error { return nil }
func (nullSink) Close(context.Context) error { return nil }
func (nullSink) Status() sink.Status         { return sink.Status{} }

func testOptions(change func(*Options)) Options {
	o := Options{Destination: "d", Name: "s", Client: fakeClient{}, Sink: nullSink{3}, Codec: &textCodec{}, CodecID: "text",
		Topic: "{schema}.{table}", DDLTopic: "ddl", Names: KafkaNames, Workers: 2,
		BackoffMin: 1, BackoffMax: 1, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	return o
}

func testBridge(t testing.TB, change func(*Options)) *Bridge {
	b, err := New(testOptions(change))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
