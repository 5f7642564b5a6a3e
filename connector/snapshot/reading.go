package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrPassed: another reader may have handed on what stands in the log behind the place of a chunk, with the numbers that the chunk's rows would have. Nothing was
// saved; there is a place further on.
var ErrPassed = errors.New("another reader has passed the place")

// ErrMissed: the stream has no transaction end where a chunk stands.
var ErrMissed = errors.New("the stream does not count as it did when the snapshot was read")

// Reading is one reader of the stream. All readers of a destination, whatever they read for, give rows the same numbers (I5): so what one
// has passed is no place for a new chunk any more. It is used by one goroutine.
type Reading struct {
	l     *Log
	at    int64 // transaction end at which it stands
	reach int64 // up to which ordinal it can have handed on, or one that is higher in the same transaction
}

// readings is what a Log knows of its readers.
type readings struct {
	mu      sync.Mutex
	running map[*Reading]int64
	ended   int64         // up to which ordinal those that have ended can have handed on
	saving  *Reading      // whose chunk is being saved; nil: nobody's
	place   int64         // behind which ordinal
	saved   chan struct{} // closed when that is over
}

// Begin returns a reader that begins at the transaction end with that ordinal. It must be closed.
func (l *Log) Begin(ordinal int64) *Reading {
	r := &Reading{l: l, at: ordinal, reach: ordinal}
	p := &l.readings
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		p.running = map[*Reading]int64{}
	}
	p.running[r] = ordinal
	return r
}

// Close says that the reader hands on nothing any more.
func (r *Reading) Close() {
	p := &r.l.readings
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = max(p.ended, r.reach)
	delete(p.running, r)
}

// Beyond tells that the reader hands on what the log has behind the transaction end at which it stands.
func (r *Reading) Beyond() { r.reach = max(r.reach, r.at+1) }

// At returns the chunk that stands behind the transaction end with that ordinal, to which the reader has come; nil: there is none, and will be none as long
// as the reader is not closed. It is cheap where there is none. The error is ErrMissed if the reader has passed the place of a chunk since the last call.
func (r *Reading) At(ctx context.Context, ordinal int64, counts string) (*Chunk, error) {
	p := &r.l.readings
	p.mu.Lock()
	p.running[r] = max(p.running[r], ordinal)
	for p.saving != nil && p.saving != r && ordinal >= p.place {
		saved := p.saved
		p.mu.Unlock()
		select {
		case <-saved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		p.mu.Lock()
	}
	p.mu.Unlock()
	before := r.at
	r.at, r.reach = ordinal, max(r.reach, ordinal)
	if v := r.l.view.Load(); v != nil && len(v.chunks) > 0 && before < ordinal {
		// The first chunk behind the place where the reader stood.
		if i, _ := v.find(before + 1); i < len(v.chunks) && v.chunks[i].ordinal < ordinal && v.chunks[i].counts == counts {
			return nil, fmt.Errorf("%w: behind ordinal %d stand rows of snapshot %s, and transactions end at %d and %d", ErrMissed, v.chunks[i].ordinal, v.chunks[i].request, before, ordinal)
		}
	}
	return r.l.At(ctx, ordinal, counts)
}

// Free tells whether Append can find a place behind the transaction end with that ordinal, at which the reader stands. It is cheap.
func (r *Reading) Free(ordinal int64) bool {
	p := &r.l.readings
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free(r, ordinal)
}

// free is Free. p.mu is held.
func (p *readings) free(r *Reading, ordinal int64) bool {
	if p.ended > ordinal || r.reach > ordinal || p.saving != nil {
		return false
	}
	for other, at := range p.running {
		if other != r && at >= ordinal { // it may go on at any time
			return false
		}
	}
	return true
}

// Append saves a chunk behind the transaction end at which the reader stands, as Log.Append does, unless the error is ErrPassed.
func (r *Reading) Append(ctx context.Context, c *Chunk) error {
	p := &r.l.readings
	p.mu.Lock()
	if !p.free(r, c.Ordinal) {
		p.mu.Unlock()
		return ErrPassed
	}
	p.saving, p.place, p.saved = r, c.Ordinal, make(chan struct{})
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.saved)
		p.saving, p.saved = nil, nil
	}()
	if err := r.l.Append(ctx, c); err != nil {
		return err
	}
	// It goes on behind the chunk, where the next one may follow with no transaction in between.
	r.at, r.reach = c.End, max(r.reach, c.End)
	return nil
}
