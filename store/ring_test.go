package store

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/leak"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { leak.Main(m) }

// start is the transaction end before a ring's first event.
func start(ordinal int64) *event.Event { return &event.Event{Kind: event.End, Ordinal: ordinal} }

// maker makes a well-formed stream of events.
type maker struct {
	last int64
	txn  *event.Txn
	n    int
}

func (m *maker) begin() *event.Event {
	m.n++
	m.txn = &event.Txn{File: "b", Start: uint64(m.n)}
	return &event.Event{Kind: event.Begin, Txn: m.txn, Size: 10}
}

func (m *maker) rows(n, size int) *event.Event {
	e := &event.Event{Kind: event.Rows, Txn: m.txn, Rows: uint32(n), Ordinal: m.last + 1, Size: size}
	m.last += int64(n)
	return e
}

func (m *maker) ddl() *event.Event {
	m.last++
	return &event.Event{Kind: event.DDL, Txn: m.txn, Ordinal: m.last, Size: 10}
}

func (m *maker) end() *event.Event {
	m.last++
	return &event.Event{Kind: event.End, Txn: m.txn, Ordinal: m.last, Size: 10}
}

func name(e *event.Event) string {
	switch e.Kind {
	case event.Begin:
		return "begin"
	case event.Rows:
		return fmt.Sprintf("rows %d-%d", e.Ordinal, LastOrdinal(e))
	}
	return fmt.Sprintf("%s %d", e.Kind, e.Ordinal)
}

// TestScripts plays testdata/*.txt: after each step, a line that says what came of it.
func TestScripts(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) == 0 {
		t.Fatal("no scripts")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(string(data))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(data) {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

func play(script string) string {
	var out strings.Builder
	m := &maker{}
	rings := map[string]*Ring{}
	readers := map[string]*Reader{}
	at := map[string]*Ring{}
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line + "\n")
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		num := func(i int) int64 {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				panic(line)
			}
			return n
		}
		say := func(format string, a ...any) { fmt.Fprintf(&out, "  "+format+"\n", a...) }
		show := func(r *Ring) {
			var held []string
			for i := r.Low(); i < r.Next(); i++ {
				held = append(held, name(r.Event(i)))
			}
			say("[%d, %d) %d bytes, base %d, last %d: %s", r.Low(), r.Next(), r.Bytes(), r.OrdinalBefore(r.Low()), r.Last(), strings.Join(held, ", "))
		}
		switch f[0] {
		case "new": // new RING EVENTS BYTES ORDINAL
			rings[f[1]] = New(int(num(2)), num(3), start(num(4)))
			m.last = num(4)
			show(rings[f[1]])
		case "put": // put RING b r3 r3:500 d e
			var events []*event.Event
			save := *m
			for _, w := range f[2:] {
				switch w[0] {
				case 'b':
					events = append(events, m.begin())
				case 'd':
					events = append(events, m.ddl())
				case 'e':
					events = append(events, m.end())
				case 'r':
					n, size, ok := strings.Cut(w[1:], ":")
					s := 100
					if ok {
						s, _ = strconv.Atoi(size)
					}
					k, _ := strconv.Atoi(n)
					events = append(events, m.rows(k, s))
				case 'x': // an ordinal is missing
					m.last++
					events = append(events, m.rows(1, 100))
				}
			}
			r := rings[f[1]]
			n, err := r.Put(events)
			if n < len(events) {
				*m = save
				for _, e := range events[:n] {
					m.last = max(m.last, LastOrdinal(e))
					m.txn = e.Txn
				}
			}
			say("took %d of %d, error %v", n, len(events), err)
			show(r)
		case "attach": // attach RING READER INDEX
			r := rings[f[1]]
			readers[f[2]], at[f[2]] = r.Attach(num(3)), r
		case "detach":
			at[f[1]].Detach(readers[f[1]])
			show(at[f[1]])
		case "take":
			at[f[1]].Take(readers[f[1]], num(2))
		case "ack":
			say("freed: %t", at[f[1]].Ack(readers[f[1]], num(2)))
			show(at[f[1]])
		case "after":
			i, ok := rings[f[1]].After(num(2))
			say("%d, %t", i, ok)
		case "fork": // fork READER RING NEWREADER
			r, rd := at[f[1]].Fork(readers[f[1]])
			rings[f[2]], readers[f[3]], at[f[3]] = r, rd, r
			show(r)
		case "join": // join RING READER
			r, rd := rings[f[1]], readers[f[2]]
			if j := r.Join(at[f[2]], rd); j != nil {
				readers[f[2]], at[f[2]] = j, r
				say("acked %d, taken %d", j.Acked(), j.Taken())
			} else {
				say("no")
			}
			show(r)
		default:
			say("unknown step")
		}
	}
	return out.String()
}

func TestOrdinals(t *testing.T) {
	m := &maker{last: 7}
	r := New(100, 1000, start(7))
	r.Attach(0)
	good := []*event.Event{m.begin(), m.rows(3, 1)}
	bad := m.rows(1, 1)
	bad.Ordinal++
	n, err := r.Put(append(good, bad))
	var oe *OrdinalError
	if n != 2 || !errors.As(err, &oe) || oe.Want != 11 || oe.Got != 12 {
		t.Errorf("%d, %v", n, err)
	}
	bad.Ordinal--
	bad.Skip = 1 // nothing of it is left
	if n, err := r.Put([]*event.Event{bad}); n != 0 || err == nil {
		t.Errorf("an event without rows: %d, %v", n, err)
	}
	if n, err := r.Put([]*event.Event{{}}); n != 0 || err == nil {
		t.Errorf("an event without kind: %d, %v", n, err)
	}
	part := &event.Event{Kind: event.Rows, Ordinal: 9, Rows: 4, Skip: 2}
	if n, err := r.Put([]*event.Event{part}); n != 1 || err != nil || r.Last() != 12 {
		t.Errorf("a partly done event: %d, %v, last %d", n, err, r.Last())
	}
}

// naive is a ring that keeps everything.
type naive struct {
	events  []*event.Event
	lasts   []int64
	readers map[*Reader]*place
	low     int64
}

type place struct{ ack, get int64 }

func (n *naive) bytes() (b int64) {
	for _, e := range n.events[n.low:] {
		b += int64(e.Size)
	}
	return b
}

func (n *naive) free() {
	if len(n.readers) == 0 {
		return
	}
	low := int64(len(n.events))
	for _, p := range n.readers {
		low = min(low, p.ack)
	}
	n.low = max(n.low, low)
}

// The ring against a naive one, by random operations; I9: bounds are kept.
func TestRandom(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		maxEvents, maxBytes := 1+rng.IntN(60), int64(1+rng.IntN(3000))
		r := New(maxEvents, maxBytes, start(0))
		m := &maker{}
		n := &naive{readers: map[*Reader]*place{}}
		var pending []*event.Event
		open := false
		pick := func() *Reader {
			for rd := range n.readers {
				return rd
			}
			return nil
		}
		for op := range 4000 {
			switch rng.IntN(8) {
			case 0, 1, 2:
				for range rng.IntN(8) {
					switch {
					case !open:
						pending = append(pending, m.begin())
						open = true
					case rng.IntN(4) == 0:
						pending = append(pending, m.end())
						open = false
					default:
						size := rng.IntN(200)
						if rng.IntN(50) == 0 {
							size = 5000
						}
						pending = append(pending, m.rows(1+rng.IntN(5), size))
					}
				}
				want := 0
				for _, e := range pending {
					held := int64(len(n.events)) - n.low
					if held > 0 && (held >= int64(maxEvents) || n.bytes()+int64(e.Size) > maxBytes) {
						break
					}
					last := r.OrdinalBefore(r.Low())
					if len(n.lasts) > 0 {
						last = n.lasts[len(n.lasts)-1]
					}
					n.events = append(n.events, e)
					n.lasts = append(n.lasts, max(last, LastOrdinal(e)))
					want++
				}
				got, err := r.Put(pending)
				if err != nil || got != want {
					t.Fatalf("seed %d op %d: took %d, want %d, %v", seed, op, got, want, err)
				}
				pending = pending[got:]
			case 3:
				if len(n.readers) < 4 {
					i := r.Low() + rng.Int64N(r.Next()-r.Low()+1)
					n.readers[r.Attach(i)] = &place{i, i}
				}
			case 4:
				if rd := pick(); rd != nil && rng.IntN(10) == 0 {
					r.Detach(rd)
					delete(n.readers, rd)
					n.free()
				}
			case 5, 6:
				if rd := pick(); rd != nil {
					p := n.readers[rd]
					p.get = p.ack + rng.Int64N(r.Next()-p.ack+1)
					r.Take(rd, p.get)
				}
			case 7:
				if rd := pick(); rd != nil {
					p := n.readers[rd]
					p.ack += rng.Int64N(p.get - p.ack + 1)
					r.Ack(rd, p.ack)
					n.free()
				}
			}
			if r.Low() != n.low || r.Next() != int64(len(n.events)) || r.Bytes() != n.bytes() {
				t.Fatalf("seed %d op %d: [%d,%d) %d bytes, want [%d,%d) %d", seed, op, r.Low(), r.Next(), r.Bytes(), n.low, len(n.events), n.bytes())
			}
			if r.Len() > 1 && (r.Len() > maxEvents || r.Bytes() > maxBytes) {
				t.Fatalf("seed %d op %d: %d events, %d bytes: beyond the bounds", seed, op, r.Len(), r.Bytes())
			}
			for i := r.Low(); i < r.Next(); i++ {
				if r.Event(i) != n.events[i] || r.Ordinal(i) != n.lasts[i] {
					t.Fatalf("seed %d op %d: event %d differs", seed, op, i)
				}
			}
			for i := range r.slots { // freed events are let go
				held := 0
				for j := r.Low(); j < r.Next(); j++ {
					if r.at(j) == &r.slots[i] {
						held++
					}
				}
				if r.Len() < 20 && held == 0 && r.slots[i].e != nil {
					t.Fatalf("seed %d op %d: slot %d holds a freed event", seed, op, i)
				}
				if r.Len() >= 20 {
					break
				}
			}
			if o := rng.Int64N(m.last + 2); true {
				wantI, wantOK := int64(0), false
				for i := int64(0); i <= int64(len(n.events)); i++ {
					before := int64(0)
					if i > 0 {
						before = n.lasts[i-1]
					}
					if before == o && i >= n.low && (i == 0 || n.events[i-1].Kind != event.Begin) {
						wantI, wantOK = i, true
						break
					}
				}
				if i, ok := r.After(o); ok != wantOK || ok && i != wantI {
					t.Fatalf("seed %d op %d: After(%d) = %d, %t, want %d, %t; ring [%d,%d) base %d", seed, op, o, i, ok, wantI, wantOK, r.Low(), r.Next(), r.base)
				}
			}
		}
	}
}

// Two rings over one stream: whoever joins finds every event where it was, once and in order.
func TestRandomJoin(t *testing.T) {
	joins := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := &maker{}
		var stream []*event.Event
		for range 10 {
			stream = append(stream, m.begin())
			for range rng.IntN(4) {
				stream = append(stream, m.rows(1+rng.IntN(3), 10))
			}
			stream = append(stream, m.end())
		}
		main := New(1000, 1<<20, start(0))
		other := main.Attach(0)
		mainAt := rng.IntN(len(stream) + 1)
		main.Put(stream[:mainAt])
		a := rng.Int64N(int64(mainAt) + 1)
		main.Take(other, a)
		main.Ack(other, rng.Int64N(a+1))

		// The other ring begins at some transaction end and has its own indexes.
		ends := []int{0}
		for i, e := range stream {
			if e.Kind == event.End {
				ends = append(ends, i+1)
			}
		}
		from := rng.IntN(len(ends))
		to := from + rng.IntN(len(ends)-from)
		base := int64(0)
		if from > 0 {
			base = stream[ends[from]-1].Ordinal
		}
		own := New(1000, 1<<20, start(base))
		rd := own.Attach(0)
		part := stream[ends[from]:ends[to]]
		own.Put(part)
		get := rng.Int64N(int64(len(part)) + 1)
		own.Take(rd, get)
		ack := rng.Int64N(get + 1)
		own.Ack(rd, ack)

		j := main.Join(own, rd)
		if j == nil {
			if reach := ends[to]; int64(reach) > main.low && reach <= mainAt {
				t.Fatalf("seed %d: no join although the main ring [%d,%d) holds what follows %d", seed, main.low, main.next, reach)
			}
			continue
		}
		joins++
		main.Put(stream[mainAt:])
		if want := int64(ends[from]) + ack; j.Acked() != want || j.Taken() != int64(ends[from])+get {
			t.Fatalf("seed %d: joined at %d/%d, want %d", seed, j.Acked(), j.Taken(), want)
		}
		for i := j.Acked(); i < main.Next(); i++ {
			if main.Event(i) != stream[i] {
				t.Fatalf("seed %d: event %d is %s, want %s", seed, i, name(main.Event(i)), name(stream[i]))
			}
		}
		var bytes int64
		for i := main.Low(); i < main.Next(); i++ {
			bytes += int64(main.Event(i).Size)
		}
		if main.Bytes() != bytes {
			t.Fatalf("seed %d: %d bytes, want %d", seed, main.Bytes(), bytes)
		}
		main.Take(j, main.Next())
		main.Ack(j, main.Next())
		main.Take(other, main.Next())
		main.Ack(other, main.Next())
		if main.Len() != 0 || main.Bytes() != 0 || main.Last() != m.last {
			t.Fatalf("seed %d: %d events, %d bytes left", seed, main.Len(), main.Bytes())
		}
	}
	if joins < 500 {
		t.Errorf("only %d joins", joins)
	}
}

func BenchmarkRing(b *testing.B) {
	for _, readers := range []int{1, 2} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			const batch = 256
			r := New(16384, 64<<20, start(0))
			rds := make([]*Reader, readers)
			for i := range rds {
				rds[i] = r.Attach(0)
			}
			events := make([]*event.Event, batch)
			for i := range events {
				events[i] = &event.Event{Kind: event.Rows, Rows: 1, Size: 300}
			}
			b.ReportAllocs()
			last := int64(0)
			for n := 0; n < b.N; n += batch {
				for _, e := range events {
					last++
					e.Ordinal = last
				}
				if k, err := r.Put(events); k != batch || err != nil {
					b.Fatal(k, err)
				}
				for _, rd := range rds {
					r.Take(rd, r.Next())
					r.Ack(rd, r.Next())
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
