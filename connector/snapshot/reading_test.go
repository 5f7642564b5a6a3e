package snapshot

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
)

// readingLog is a Log with a request that is being carried out.
func readingLog(t *testing.T) (*Log, func(ordinal int64) *Chunk) {
	t.Helper()
	l := NewLog(nil)
	if err := l.Order(t.Context(), Request{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	tab := &event.Table{Schema: "shop", Name: "item", Columns: []event.Column{{Name: "id", Type: event.TypeLong}}, Key: []int{0}}
	if err := tab.Compile(); err != nil {
		t.Fatal(err)
	}
	return l, func(ordinal int64) *Chunk {
		return &Chunk{
			Ordinal: ordinal, End: ordinal + 2, Counts: "c", Snapshot: &event.Snapshot{ID: "a"}, Table: tab,
			Parts: []Part{{Rows: 1, Raw: []byte{0, 1, 0, 0, 0}}}, Before: Progress{Request: "a"}, After: Progress{Request: "a"},
		}
	}
}

// TestReadings: where another reader may have gone on no chunk gets a place, as its numbers are given (I5).
func TestReadings(t *testing.T) {
	at := func(t *testing.T, r *Reading, ordinals ...int64) {
		t.Helper()
		for _, o := range ordinals {
			if c, err := r.At(t.Context(), o, "c"); c != nil || err != nil {
				t.Fatalf("at %d: %v, %v", o, c, err)
			}
		}
	}
	tests := []struct {
		name  string
		other func(t *testing.T, l *Log, main *Reading)
		want  error
	}{
		{"alone", func(t *testing.T, l *Log, main *Reading) {}, nil},
		{"behind", func(t *testing.T, l *Log, main *Reading) { at(t, l.Begin(3), 3, 5) }, nil},
		{"at the place", func(t *testing.T, l *Log, main *Reading) { at(t, l.Begin(3), 3, 10) }, ErrPassed},
		{"beyond", func(t *testing.T, l *Log, main *Reading) { at(t, l.Begin(3), 3, 10, 12) }, ErrPassed},
		{"begins beyond", func(t *testing.T, l *Log, main *Reading) { l.Begin(12) }, ErrPassed},
		{"ended behind, inside a transaction", func(t *testing.T, l *Log, main *Reading) {
			r := l.Begin(3)
			at(t, r, 3, 5)
			r.Beyond()
			r.Close()
		}, nil},
		{"ended at the place", func(t *testing.T, l *Log, main *Reading) {
			r := l.Begin(3)
			at(t, r, 3, 10)
			r.Close()
		}, nil},
		{"ended in the transaction behind it", func(t *testing.T, l *Log, main *Reading) {
			r := l.Begin(3)
			at(t, r, 3, 10)
			r.Beyond()
			r.Close()
		}, ErrPassed},
		{"ended there, after its link was lost", func(t *testing.T, l *Log, main *Reading) {
			r := l.Begin(3)
			at(t, r, 3, 10)
			r.Beyond()
			at(t, r, 10)
			r.Close()
		}, ErrPassed},
		{"the reader itself, after its link was lost", func(t *testing.T, l *Log, main *Reading) {
			main.Beyond()
			at(t, main, 10)
		}, ErrPassed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, chunk := readingLog(t)
			main := l.Begin(10)
			at(t, main, 10)
			test.other(t, l, main)
			if err := main.Append(t.Context(), chunk(10)); !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			c, err := l.At(t.Context(), 10, "c")
			if err != nil || (c != nil) != (test.want == nil) {
				t.Errorf("saved: %v, %v", c, err)
			}
			if test.want != nil { // further on there is a place
				at(t, main, 20)
				if err := main.Append(t.Context(), chunk(20)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// slowKeeper waits while it saves the head of a chunk.
type slowKeeper struct {
	memory
	saving, release chan struct{}
}

func (k *slowKeeper) Save(ctx context.Context, name string, data []byte) error {
	if name == headName(1) && data != nil {
		k.saving <- struct{}{}
		<-k.release
	}
	return k.memory.Save(ctx, name, data)
}

// TestReadingWaits: a reader that comes to the place of a chunk that is being saved waits until that is over (I5).
func TestReadingWaits(t *testing.T) {
	_, chunk := readingLog(t)
	k := &slowKeeper{saving: make(chan struct{}), release: make(chan struct{})}
	l := NewLog(k)
	if err := l.Order(t.Context(), Request{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	main, other := l.Begin(10), l.Begin(3)
	appended := make(chan error, 1)
	go func() { appended <- main.Append(t.Context(), chunk(10)) }()
	<-k.saving
	if c, err := other.At(t.Context(), 5, "c"); c != nil || err != nil { // is not held up behind it
		t.Fatal(c, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := other.At(short, 10, "c"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a reader did not wait: %v", err)
	}
	close(k.release)
	c, err := other.At(t.Context(), 10, "c")
	if err != nil || c == nil || c.End != 12 {
		t.Errorf("got %v, %v", c, err)
	}
	if err := <-appended; err != nil {
		t.Error(err)
	}
}

// TestMissed: a stream that has no transaction end where a chunk stands is not gone on with (I3, I5).
func TestMissed(t *testing.T) {
	l, chunk := readingLog(t)
	main := l.Begin(10)
	if err := main.Append(t.Context(), chunk(10)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		counts string
		stops  []int64
		missed bool
	}{
		{"behind", "c", []int64{4, 8}, false},
		{"at it", "c", []int64{4, 10, 12, 20}, false},
		{"begins at it", "c", []int64{10, 12, 20}, false},
		{"over it", "c", []int64{4, 11}, true},
		{"over it at once", "c", []int64{4, 20}, true},
		{"begins beyond", "c", []int64{12, 20}, false},
		{"another numbering", "d", []int64{4, 20}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := l.Begin(test.stops[0])
			defer r.Close()
			var err error
			for _, o := range test.stops {
				if _, err = r.At(t.Context(), o, test.counts); err != nil {
					break
				}
			}
			if errors.Is(err, ErrMissed) != test.missed || err != nil && !test.missed {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestReadingGoesOnBehindItsChunks: chunks may follow each other with no transaction in between, as on an idle source; the next transaction misses none of them (I5).
func TestReadingGoesOnBehindItsChunks(t *testing.T) {
	l, chunk := readingLog(t)
	r := l.Begin(10)
	defer r.Close()
	if c, err := r.At(t.Context(), 10, "c"); c != nil || err != nil {
		t.Fatal(c, err)
	}
	for _, ordinal := range []int64{10, 12, 14} {
		if err := r.Append(t.Context(), chunk(ordinal)); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := r.At(t.Context(), 20, "c"); c != nil || err != nil {
		t.Fatalf("at the next transaction end: %v, %v", c, err)
	}
}
