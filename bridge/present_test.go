package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/sink"
)

// TestPresentIsExactI7 holds the spans against a plain set.
func TestPresentIsExactI7(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		type id struct {
			g   txnID
			row int64
			sub uint16
		}
		plain := map[id]bool{}
		txns := map[txnID]*txnRows{}
		transaction := func(n int) txnID {
			if n%2 == 0 {
				return idOf(&event.Txn{Snapshot: &event.Snapshot{ID: "s", Chunk: int64(n)}})
			}
			return idOf(&event.Txn{GTID: event.GTID{SID: [16]byte{1}, Seq: uint64(n)}})
		}
		bytes := 0
		for range rng.IntN(300) {
			x := id{transaction(1 + rng.IntN(5)), rng.Int64N(40), uint16(rng.IntN(3))}
			plain[x] = true
			if txns[x.g] == nil {
				txns[x.g] = new(txnRows)
			}
			bytes += txns[x.g].add(x.row, x.sub)
		}
		spans := 0
		for _, x := range txns {
			for _, s := range x.subs {
				spans += len(s.spans)*spanBytes + subBytes
			}
		}
		if spans > bytes {
			t.Fatalf("seed %d: %d bytes counted, %d are used (I9)", seed, bytes, spans)
		}
		p := new(present)
		p.txns.Store(&txns)
		for n := range 7 {
			for row := range int64(42) {
				for sub := range uint16(4) {
					x := id{transaction(n), row, sub}
					if got := p.has(x.g, row, sub); got != plain[x] {
						t.Fatalf("seed %d: %v: %t, want %t", seed, x, got, plain[x])
					}
				}
			}
		}
	}
	var none *present
	if one := (txnID{gtid: event.GTID{Seq: 1}}); none.has(one, 1, 0) || new(present).has(one, 1, 0) {
		t.Error("nothing holds something")
	}
}

func TestParseMark(t *testing.T) {
	const g = "01000000-0000-0000-0000-000000000000:7"
	h := func(pairs ...string) (hs []sink.Header) {
		for i := 0; i < len(pairs); i += 2 {
			hs = append(hs, sink.Header{Name: pairs[i], Value: []byte(pairs[i+1])})
		}
		return hs
	}
	for _, c := range []struct {
		headers []sink.Header
		ddl, ok bool
		row     int64
		sub     uint16
	}{
		{h("gtid", g, "row", "0"), false, true, 1, 0},
		{h("seq", "9", "sub", "2", "gtid", g, "row", "41"), false, true, 42, 2},
		{h("gtid", g), true, true, 0, 0},
		{h("gtid", g), false, false, 0, 0},
		{h("row", "1"), true, false, 0, 0},
		{h("gtid", "x", "row", "1"), false, false, 0, 0},
		{h("gtid", g, "row", "-1"), false, false, 0, 0},
		{h("gtid", g, "row", "1", "sub", "70000"), false, false, 0, 0},
		{nil, true, false, 0, 0},
		{h("gtid", g, "sub", "1", "op", "truncate"), false, true, emptiedRow, 0},
		{h("op", "truncate", "gtid", g), true, true, emptiedRow, 0},
		{h("gtid", g, "op", "insert"), false, false, 0, 0}, // a row's message under headers without row
		{h("gtid", g, "row", "3", "op", "truncate"), false, true, 4, 0},
		{h("op", "truncate"), true, false, 0, 0},
		{h("snapshot", "s/1/7", "row", "0"), false, true, 1, 0},
		{h("snapshot", "s/1/7", "row", "3", "sub", "2", "op", "snapshot"), true, true, 4, 2},
		{h("snapshot", "s/1/7"), true, false, 0, 0},
		{h("snapshot", "s/1/7", "op", "truncate"), true, false, 0, 0},
		{h("snapshot", "s/0", "row", "0"), false, false, 0, 0},
		{h("snapshot", "", "row", "0"), false, false, 0, 0},
		{h("snapshot", "s/7", "gtid", g, "row", "0"), true, false, 0, 0},
	} {
		m, ok := parseMark(c.headers, c.ddl)
		want := txnID{gtid: event.GTID{SID: [16]byte{1}, Seq: 7}}
		if m.id.chunk > 0 {
			want = txnID{snapshot: "s/1", chunk: 7}
		}
		if ok != c.ok || ok && (m.row != c.row || m.sub != c.sub || m.id != want) {
			t.Errorf("%v: %+v, %t", c.headers, m, ok)
		}
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add("gtid", "01000000-0000-0000-0000-000000000000:7", "3", "1")
	f.Add("gtid", "0-1-5", "", "")
	f.Add("snapshot", "s/5", "3", "1")
	f.Fuzz(func(t *testing.T, name, gtid, row, sub string) {
		m, ok := parseMark([]sink.Header{{Name: name, Value: []byte(gtid)}, {Name: "row", Value: []byte(row)}, {Name: "sub", Value: []byte(sub)}}, false)
		if ok && (m.row < 1 || m.id.gtid.IsZero() == (m.id.chunk == 0)) {
			t.Fatalf("%q %q %q %q: %+v", name, gtid, row, sub, m)
		}
	})
}

// readableSink is a faultSink whose broker can be read back.
type readableSink struct {
	*faultSink
	reads []sink.From
}

func (s *readableSink) KeepsReadable() bool { return true }

func (s *readableSink) ReadBack(_ context.Context, topic string, partition int32, from sink.From, visit func(*sink.Stored) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, from)
	for i, r := range s.log {
		if r.topic != topic || r.part != partition || from.After > 0 && r.seq <= from.After {
			continue
		}
		var hs []sink.Header
		for k, v := range r.headers {
			hs = append(hs, sink.Header{Name: k, Value: []byte(v)})
		}
		if err := visit(&sink.Stored{Place: "record " + strconv.Itoa(i), Headers: hs}); err != nil {
			return err
		}
	}
	return nil
}

// TestReconcileI7: whatever of the replay topics hold already, and however often the process is killed while it compares, each change
// is stored once.
func TestReconcileI7(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 3))
		h := randomHistory(t, rng, 60)
		broker := &readableSink{faultSink: newFaultSink(seed, 80)}
		end := event.Position{File: "log.1", Offset: h.offset, ServerUUID: "u"}
		for _, e := range h.events {
			end.GTIDs.Add(e.Txn.GTID)
		}
		first := event.Cursor{Position: event.Position{File: "log.1", Offset: 4, ServerUUID: "u"}}
		first.Position.GTIDs.Add(event.GTID{SID: [16]byte{9}, Seq: 1}) // GTIDs are on
		var mem *meta.Memory
		run := func(k *store) *rig {
			return startRig(t, h, k, func(o *Options) {
				o.Sink, o.BatchEvents, o.WindowBatches, o.Exact, o.Born = broker, 1+rng.IntN(6), 8, true, time.Now()
				o.SourceEnd = func(context.Context) (event.Position, error) { return end, nil }
			})
		}
		last := h.want[len(h.want)-1].ordinal
		for lost := range 3 {
			mem = new(meta.Memory) // the cursors are gone
			c := first
			c.Position.GTIDs = first.Position.GTIDs.Clone()
			if err := mem.Save(context.Background(), testID, &meta.Record{Cursor: c}); err != nil {
				t.Fatal(err)
			}
			for kill := range 3 {
				k := &store{Memory: mem}
				r := run(k)
				if lost == 2 && kill == 2 {
					r.wait(last)
					if err := r.stop(); err != nil {
						t.Fatal(err)
					}
					break
				}
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
				r.kill(k)
				if err := broker.Reset(context.Background()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Millisecond) // Born differs
			}
		}
		// This broker stores what is sent again in one epoch; a real one knows it by its number.
		seen := map[string]number{}
		for _, r := range broker.log {
			id, n := fmt.Sprintf("%s%s %s %s", r.headers["gtid"], r.headers["snapshot"], r.headers["row"], r.headers["sub"]), number{r.seq, r.sub}
			if was, ok := seen[id]; ok && was != n {
				t.Errorf("seed %d: change %s is stored as %v and as %v", seed, id, was, n)
			}
			seen[id] = n
		}
		if len(seen) != len(h.want) {
			t.Errorf("seed %d: %d messages are stored, want %d", seed, len(seen), len(h.want))
		}
		if err := broker.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// chunkReader is a sink whose topics hold rows of so many chunks of a snapshot and one transaction after each.
type chunkReader struct {
	nullSink
	chunks int
}

func (chunkReader) KeepsReadable() bool { return true }

func (s chunkReader) ReadBack(_ context.Context, _ string, _ int32, _ sink.From, visit func(*sink.Stored) error) error {
	row := sink.Header{Name: "row", Value: []byte("0")}
	for i := range s.chunks {
		for _, h := range []sink.Header{
			{Name: "snapshot", Value: fmt.Appendf(nil, "s/%d", i+1)}, {Name: "gtid", Value: fmt.Appendf(nil, "01000000-0000-0000-0000-000000000000:%d", i+1)},
		} {
			if err := visit(&sink.Stored{Headers: []sink.Header{h, row}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestManyChunksI9: rows of snapshots never stop a comparison; of more than may be kept those that were stored first are forgotten, and what is
// known of the log's is whole.
func TestManyChunksI9(t *testing.T) {
	const size = txnBytes + subBytes + spanBytes + 1 // of a chunk of snapshot s with one row
	chunks := maxSnapshots/size + 1000
	b := testBridge(t, func(o *Options) { o.Sink = chunkReader{nullSink{}, chunks} })
	b.reconciling = &reconciliation{topics: map[string]*present{}, asked: true}
	for _, topic := range []string{"a", "b"} {
		p, err := b.find(context.Background(), topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		known := 0
		for i := range chunks {
			if p.has(txnID{snapshot: "s", chunk: int64(i + 1)}, 1, 0) {
				known++
			}
			if !p.has(txnID{gtid: event.GTID{SID: [16]byte{1}, Seq: uint64(i + 1)}}, 1, 0) {
				t.Fatalf("topic %s: transaction %d is forgotten", topic, i+1)
			}
		}
		last := p.has(txnID{snapshot: "s", chunk: int64(chunks)}, 1, 0)
		if !last || known > maxSnapshots/size {
			t.Errorf("topic %s: %d chunks of %d are known, the last one: %t", topic, known, chunks, last)
		}
	}
	if b.reconciling.chunks > maxSnapshots {
		t.Errorf("%d bytes of chunks", b.reconciling.chunks)
	}
}

// TestReconcileRefusedI3: what cannot be compared is said, and nothing is sent.
func TestReconcileRefusedI3(t *testing.T) {
	h := randomHistory(t, rand.New(rand.NewPCG(1, 3)), 10)
	for name, c := range map[string]struct {
		gtids   bool
		headers map[string]string
		want    error
	}{
		"no GTIDs":   {false, nil, nil},
		"no headers": {true, map[string]string{"seq": "1"}, ErrNoHeaders},
	} {
		broker := &readableSink{faultSink: newFaultSink(1, 0)}
		for _, topic := range []string{"shop.a", "shop.b", "shop.c"} {
			for part := range int32(3) {
				broker.log = append(broker.log, &record{topic: topic, part: part, headers: c.headers})
			}
		}
		stored := len(broker.log)
		mem := new(meta.Memory)
		st := NewState(time.Time{})
		st.Reconcile(time.UnixMilli(1))
		text, err := st.Encode()
		if err != nil {
			t.Fatal(err)
		}
		cur := event.Cursor{Position: event.Position{File: "log.1", Offset: 4, ServerUUID: "u"}, State: text}
		if c.gtids {
			cur.Position.GTIDs.Add(event.GTID{SID: [16]byte{9}, Seq: 1})
		}
		if err := mem.Save(context.Background(), testID, &meta.Record{Cursor: cur}); err != nil {
			t.Fatal(err)
		}
		r := startRig(t, h, mem, func(o *Options) {
			o.Sink, o.Exact = broker, true
			o.SourceEnd = func(context.Context) (event.Position, error) {
				return event.Position{File: "log.2", ServerUUID: "u"}, nil
			}
		})
		var stop *StopError
		if err := <-r.result; !errors.As(err, &stop) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		r.result <- nil
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if len(broker.log) != stored {
			t.Errorf("%s: %d messages were sent", name, len(broker.log)-stored)
		}
		if err := broker.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestElsewhereI5: what a sink does on another server follows from what may be stored beyond its cursor.
func TestElsewhereI5(t *testing.T) {
	end := &End{ServerUUID: "a"}
	for name, c := range map[string]struct {
		state        State
		exact, reads bool
		fingerprint  string
		want         *Reconcile
		clean        bool
	}{
		"in order":                 {State{Fingerprint: "f", Clean: true}, true, true, "f", nil, true},
		"nothing sent yet":         {State{Fingerprint: MovedFingerprint}, true, true, MovedFingerprint, nil, false},
		"killed":                   {State{Fingerprint: "f", Offset: 100, Sink: []byte("s")}, true, true, MovedFingerprint, &Reconcile{State: []byte("s"), After: 107, Auto: true}, false},
		"killed, comparing":        {State{Fingerprint: "f", Offset: 100, Sink: []byte("s"), Reconciling: &Reconcile{State: []byte("first"), After: 3, End: end}}, true, true, MovedFingerprint, &Reconcile{State: []byte("first"), After: 3}, false},
		"killed before comparing":  {State{Fingerprint: MovedFingerprint, Reconciling: &Reconcile{Since: 5, End: end}}, true, true, MovedFingerprint, &Reconcile{Since: 5}, false},
		"killed, at least once":    {State{Fingerprint: "f"}, false, false, MovedFingerprint, nil, false},
		"killed, nothing is read":  {State{Fingerprint: "f", Sink: []byte("s")}, true, false, elsewhereFingerprint, nil, false},
		"once more, nothing read":  {State{Fingerprint: elsewhereFingerprint, Sink: []byte("s")}, true, false, elsewhereFingerprint, nil, false},
		"at least once, in order":  {State{Fingerprint: "f", Clean: true}, false, false, "f", nil, true},
		"comparing, at least once": {State{Fingerprint: MovedFingerprint, Reconciling: &Reconcile{Since: 5, End: end}}, false, true, MovedFingerprint, &Reconcile{Since: 5}, false},
	} {
		s := c.state
		s.Elsewhere(7, c.exact, c.reads)
		if s.Fingerprint != c.fingerprint || s.Clean != c.clean || !reflect.DeepEqual(s.Reconciling, c.want) || string(s.Sink) != string(c.state.Sink) || s.Offset != c.state.Offset {
			t.Errorf("%s: %+v, %+v", name, s, s.Reconciling)
		}
	}
}
