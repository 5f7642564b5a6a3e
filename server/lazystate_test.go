package server

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// counting is a state that counts what is acknowledged.
type counting struct {
	batches int
	asked   int
	err     error
}

func (c *counting) Acknowledged(int64) { c.batches++ }
func (c *counting) State() ([]byte, error) {
	c.asked++
	return []byte(strconv.Itoa(c.batches)), c.err
}

// I2: a lazy state is that of the cursor it is saved with, and is asked for with each save, not with each acknowledgement.
func TestLazyStateIsThatOfItsCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(50)
		st := &counting{}
		saved := func() (int64, string) {
			rec, err := r.m.Load(ctx, id("a"))
			r.must(err)
			return rec.Cursor.Last(), string(rec.Cursor.State)
		}
		for i := 1; i <= 20; i++ {
			b := r.get(a, Size{Events: 3}, WaitFull) // begin, row, end: two ordinals
			r.must(a.AckLazy(ctx, b.ID, st))
			if i%10 == 0 {
				time.Sleep(2 * time.Second)
				if last, state := saved(); last != int64(2*i) || state != strconv.Itoa(i) {
					t.Fatalf("saved %d with state %q after %d batches", last, state, i)
				}
			}
		}
		if st.asked > 6 {
			t.Errorf("asked %d times for 2 saves", st.asked)
		}
		c, err := a.Cursor(ctx)
		r.must(err)
		if string(c.State) != "20" {
			t.Errorf("the cursor has state %q", c.State)
		}

		// A batch that is not acknowledged changes nothing.
		b := r.get(a, Size{Events: 3}, WaitFull)
		if err := a.AckLazy(ctx, b.ID+7, st); !errors.Is(err, ErrUnknownBatch) || st.batches != 20 {
			t.Errorf("unknown batch: %v, %d batches", err, st.batches)
		}
		// Bytes take over.
		r.must(a.Ack(ctx, b.ID, []byte("bytes")))
		r.must(a.SaveState(ctx, []byte("more bytes")))
		if _, state := saved(); state != "more bytes" {
			t.Errorf("saved %q", state)
		}
		// A state that cannot be written keeps the cursor from being saved.
		b = r.get(a, Size{Events: 3}, WaitFull)
		st.err = errors.New("broken")
		r.must(a.AckLazy(ctx, b.ID, st))
		time.Sleep(2 * time.Second)
		if last, _ := saved(); last != 42 || r.sub("a").SaveErr == nil {
			t.Errorf("saved %d, error %v", last, r.sub("a").SaveErr)
		}
		st.err = nil
		r.must(a.Disconnect(ctx))
		if last, state := saved(); last != 44 || state != "21" {
			t.Errorf("saved %d with %q at the end", last, state)
		}
	})
}
