package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
)

// TestScripts plays testdata/*.txt: after each step, what came of it.
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

func describe(e *event.Event) string {
	switch e.Kind {
	case event.Begin:
		return "begin"
	case event.Rows:
		first, last := e.Ordinal+int64(e.Skip), e.Ordinal+int64(e.Rows)-1
		return fmt.Sprintf("%s %d-%d", e.Table.Name, first, last)
	}
	return fmt.Sprintf("%s %d", e.Kind, e.Ordinal)
}

func describeCursor(c *event.Cursor) string {
	s := fmt.Sprintf("cursor %d+%d at %d", c.Ordinal, c.Progress, c.Position.Offset)
	if len(c.State) > 0 {
		s += fmt.Sprintf(" state %q", c.State)
	}
	return s
}

// player drives a core as destination does, without its goroutines.
type player struct {
	h    *history
	c    *core
	next map[*feed]int // what each feed's reader reads next
	subs map[string]*sub
}

// read puts up to n events into a feed.
func (p *player) read(f *feed, n int) (took int, joined bool, err error) {
	i, ok := p.next[f]
	if !ok { // a new Read
		i = p.h.after[f.tail.Ordinal]
		f.again = true
	}
	part := p.h.events[i:min(i+n, len(p.h.events))]
	took, err = f.accept(fresh(part))
	p.next[f] = i + took
	if err == nil && f.owner != nil {
		if joined, err = p.c.join(f); !joined && err == nil {
			p.c.near(f)
		}
	}
	return took, joined, err
}

func (p *player) connect(name string, c event.Cursor, whole bool, filter string) error {
	s := newSub(Identity{Destination: "shop", Client: name})
	m, err := parseFilter(filter)
	if err != nil {
		return err
	}
	s.setFilter(filter, m)
	s.cursor, s.cut, s.floor = c, c.Last(), 1000000
	if whole {
		s.cut = c.Ordinal
	}
	s.run.connected = true
	if old := p.subs[name]; old != nil {
		s.nextID = old.nextID
	}
	p.subs[name], p.c.subs[name] = s, s
	return p.c.attach(s)
}

func play(script string) string {
	var out strings.Builder
	say := func(format string, a ...any) { fmt.Fprintf(&out, "  "+format+"\n", a...) }
	p := &player{h: newHistory(true), next: map[*feed]int{}, subs: map[string]*sub{}}
	p.c = newCore("shop", 1000, 1<<20)
	clock := time.Unix(0, 0)
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
			if i >= len(f) {
				return 0
			}
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				panic(line)
			}
			return n
		}
		s := (*sub)(nil)
		if len(f) > 1 {
			s = p.subs[f[1]]
		}
		switch f[0] {
		case "bounds": // bounds EVENTS
			p.c = newCore("shop", int(num(1)), 1<<20)
		case "write": // write b a3 c1 d e
			for _, w := range f[1:] {
				chunk, clients, ok := strings.Cut(w, "=") // a3=NAME,NAME: a chunk of a snapshot
				switch n, _ := strconv.Atoi(chunk[1:]); {
				case ok:
					p.h.chunk(int(w[0]-'a'), n, 100, strings.FieldsFunc(clients, func(r rune) bool { return r == ',' })...)
				case n > 0:
					p.h.rows(int(w[0]-'a'), n, 100)
				case w == "begin":
					p.h.begin()
				case w == "ddl":
					p.h.ddl()
				case w == "end":
					p.h.end()
				}
			}
		case "connect": // connect NAME ORDINAL PROGRESS [filter=F] [whole] [elsewhere]
			c := p.h.cursor(num(2))
			c.Progress = num(3)
			filter, whole := "", false
			for _, w := range f[4:] {
				if x, ok := strings.CutPrefix(w, "filter="); ok {
					filter = x
				}
				whole = whole || w == "whole"
				if w == "elsewhere" {
					c.Position.Offset++
				}
			}
			if err := p.connect(f[1], c, whole, filter); err != nil {
				say("error: %v", err)
			}
			s = p.subs[f[1]]
			switch {
			case s.ahead:
				say("ahead of the main ring")
			case s.feed == nil:
				say("nowhere")
			case s.feed.owner == s:
				say("on a ring of its own")
			default:
				say("on the main ring at %d", s.rd.Acked())
			}
		case "disconnect":
			p.c.release(s)
			delete(p.c.subs, f[1])
		case "read": // read main|NAME COUNT
			fd := p.c.main
			if f[1] != "main" {
				fd = s.feed
			}
			n, joined, err := p.read(fd, int(num(2)))
			say("took %d, joined %t, ring [%d, %d)", n, joined, fd.ring.Low(), fd.ring.Next())
			if err != nil {
				say("error: %v", err)
			}
		case "reread": // the main reader begins anew at the last transaction end
			delete(p.next, p.c.main)
		case "get": // get NAME [events=N] [rows=N] [bytes=N]
			var size Size
			for _, w := range f[2:] {
				k, v, _ := strings.Cut(w, "=")
				n, _ := strconv.Atoi(v)
				switch k {
				case "events":
					size.Events = n
				case "rows":
					size.Rows = n
				case "bytes":
					size.Bytes = int64(n)
				}
			}
			var sc scan
			s.look(&sc, size)
			if _, moved, err := s.swallow(&sc); moved || err != nil {
				say("swallowed, error %v, %s", err, describeCursor(&s.cursor))
			}
			if len(sc.events) == 0 {
				say("nothing")
				break
			}
			b, err := s.take(&sc, clock)
			if err != nil {
				say("error: %v", err)
				break
			}
			var ev []string
			for _, e := range b.Events {
				ev = append(ev, describe(e))
			}
			say("batch %d, full %t: %s", b.ID, sc.full, strings.Join(ev, ", "))
		case "ack": // ack NAME ID [STATE]
			var state []byte
			if len(f) > 3 {
				state = []byte(f[3])
			}
			if _, err := s.ack(num(2), state, nil); err != nil {
				say("error: %v", err)
				break
			}
			say("%s, ring low %d", describeCursor(&s.cursor), s.feed.ring.Low())
		case "rollback": // rollback NAME [ID]
			if len(f) == 2 {
				s.rollbackAll()
			} else if err := s.rollback(num(2)); err != nil {
				say("error: %v", err)
			}
		case "batches":
			var ids []string
			for _, b := range s.batches {
				ids = append(ids, fmt.Sprint(b.id))
			}
			say("%s", strings.Join(ids, " "))
		case "laggards":
			var names []string
			for _, s := range p.c.main.laggards() {
				names = append(names, s.id.Client)
			}
			say("%s", strings.Join(names, " "))
		case "detach":
			p.c.detach(s)
			say("own ring [%d, %d), main ring [%d, %d)", s.feed.ring.Low(), s.feed.ring.Next(), p.c.main.ring.Low(), p.c.main.ring.Next())
		case "filter":
			m, _ := parseFilter(f[2])
			s.setFilter(f[2], m)
		default:
			say("unknown step")
		}
	}
	return out.String()
}

// I2, I7: random operations on the state machine; every subscription sees every visible
// item of the history once and in order, whatever ring it is on.
func TestRandomCore(t *testing.T) {
	var joins, detached, reconnects, restarts, own int
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 3))
		h := newHistory(seed%2 == 0)
		for range 300 {
			h.commit(rng)
		}
		p := &player{h: h, c: newCore("shop", 8+rng.IntN(60), int64(500+rng.IntN(4000))), next: map[*feed]int{}, subs: map[string]*sub{}}
		follow := map[string]*follower{}
		filters := []string{"", "shop.a", "shop.a,shop.b"}
		wants := []func(*event.Table) bool{
			func(*event.Table) bool { return true },
			func(t *event.Table) bool { return t == tables[0] },
			func(t *event.Table) bool { return t != tables[2] },
		}
		names := []string{"a", "b", "c"}
		fatal := func(op int, format string, a ...any) {
			t.Helper()
			t.Fatalf("seed %d op %d: %s", seed, op, fmt.Sprintf(format, a...))
		}
		for i, n := range names {
			if err := p.connect(n, h.cursor(0), false, filters[i]); err != nil {
				fatal(0, "%v", err)
			}
			follow[n] = &follower{h: h, wants: wants[i]}
			follow[n].reconnect(h.cursor(0), false)
		}
		last := map[string]int64{}
		for op := range 4000 {
			i := rng.IntN(len(names))
			n := names[i]
			s, w := p.subs[n], follow[n]
			switch k := rng.IntN(20); {
			case k < 6: // the main reader
				if _, _, err := p.read(p.c.main, 1+rng.IntN(8)); err != nil {
					fatal(op, "%v", err)
				}
				p.c.main.relieve()
				if p.c.main.ring.Used() >= 0.9 {
					p.c.unpin()
				}
			case k < 10: // a catch-up reader
				if s.feed != nil && s.feed.owner == s {
					_, joined, err := p.read(s.feed, 1+rng.IntN(8))
					if err != nil {
						fatal(op, "%v", err)
					}
					own++
					if joined {
						joins++
					}
				}
			case k < 14:
				var sc scan
				size := []Size{{Events: 1 + rng.IntN(10)}, {Rows: 1 + rng.IntN(10)}, {Bytes: 1 + rng.Int64N(600)}}[rng.IntN(3)]
				s.look(&sc, size)
				if _, _, err := s.swallow(&sc); err != nil {
					fatal(op, "%v", err)
				}
				if len(sc.events) > 0 {
					b, err := s.take(&sc, time.Time{})
					if err != nil {
						fatal(op, "%v", err)
					}
					if err := w.took(b); err != nil {
						fatal(op, "%s: %v", n, err)
					}
				}
			case k < 17:
				if len(s.batches) == 0 {
					break
				}
				if wrong := s.batches[len(s.batches)-1].id; len(s.batches) > 1 && rng.IntN(5) == 0 {
					if _, err := s.ack(wrong, nil, nil); !errors.Is(err, ErrBatchOrder) {
						fatal(op, "ack out of order: %v", err)
					}
				}
				if _, err := s.ack(s.nextID, nil, nil); !errors.Is(err, ErrUnknownBatch) {
					fatal(op, "ack of an unknown batch: %v", err)
				}
				if _, err := s.ack(s.batches[0].id, []byte(fmt.Sprint(op)), nil); err != nil {
					fatal(op, "%v", err)
				}
				w.ack()
			case k < 18:
				if len(s.batches) > 0 && rng.IntN(2) == 0 {
					id := s.batches[rng.IntN(len(s.batches))].id
					if err := s.rollback(id); err != nil {
						fatal(op, "%v", err)
					}
					w.rollbackTo(id)
				} else {
					s.rollbackAll()
					w.batches = nil
				}
			case k < 19:
				if !s.ahead && s.feed == p.c.main && rng.IntN(4) == 0 {
					p.c.detach(s)
					detached++
				} else if rng.IntN(20) == 0 { // the main reader fails and begins anew
					delete(p.next, p.c.main)
					restarts++
				}
			default:
				if rng.IntN(10) > 0 {
					break
				}
				reconnects++
				c, whole := s.cursor, rng.IntN(3) == 0
				p.c.release(s)
				c.Position.GTIDs = c.Position.GTIDs.Clone()
				if err := p.connect(n, c, whole, filters[i]); err != nil {
					fatal(op, "%v", err)
				}
				w.reconnect(c, whole)
				s = p.subs[n]
			}
			if err := w.agrees(s.cursor); err != nil {
				fatal(op, "%s: %v", n, err)
			}
			if s.cursor.Last() < last[n] { // I2
				fatal(op, "%s: cursor went back from %d to %d", n, last[n], s.cursor.Last())
			}
			last[n] = s.cursor.Last()
		}
		for n, l := range last {
			if l < 20 {
				t.Errorf("seed %d: %s came to %d only", seed, n, l)
			}
		}
	}
	t.Logf("%d joins, %d detached, %d reconnects, %d restarts, %d own reads", joins, detached, reconnects, restarts, own)
	if joins < 40 || detached < 40 || reconnects < 40 || restarts < 40 {
		t.Error("too few of them to prove anything")
	}
}
