package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/meta"
)

// idBlock is how many batch ids are reserved beyond the last one with each
// save. After a crash numbering goes on behind what was reserved.
const idBlock = 1 << 20

// Back-off between attempts to save what could not be saved.
const (
	minSaveBackoff = 100 * time.Millisecond
	maxSaveBackoff = 10 * time.Second
)

// dirty notes that the subscription has something to save. mu is held.
func (d *destination) dirty(s *sub) {
	s.run.moves++
	d.s.pokeSaver()
}

func (s *Server) pokeSaver() {
	select {
	case s.saveWake <- struct{}{}:
	default:
	}
}

// lockSave takes the right to write the subscription's record.
func (s *sub) lockSave(ctx context.Context) error {
	select {
	case <-s.run.saving:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sub) unlockSave() { s.run.saving <- struct{}{} }

// save writes the subscription's record, unless its moves up to need are saved already. With last, it is the
// last time: the subscription is no longer connected, and no batch ids are reserved beyond those handed out. mu is not held.
func (d *destination) save(ctx context.Context, s *sub, need int64, last bool) error {
	if err := s.lockSave(ctx); err != nil {
		return err
	}
	defer s.unlockSave()
	d.mu.Lock()
	if s.run.saved >= need && !last || s.run.forgotten {
		d.mu.Unlock()
		return nil
	}
	if d.fatal != nil {
		defer d.mu.Unlock()
		return d.fatal // I8
	}
	r := &meta.Record{Filter: s.filter, BatchFloor: s.nextID - 1, SavedAt: d.s.clock.Now(), Skips: s.skips}
	if !last {
		r.BatchFloor += idBlock
	}
	moves := s.run.moves
	var err error
	// I2: one moment for position and state.
	r.Cursor, err = s.whole()
	d.mu.Unlock()
	if err == nil {
		killpoint.Hit("server.save")
		err = d.s.store.Save(ctx, s.id, r)
		killpoint.Hit("server.saved")
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if s.run.saveErr == nil {
			d.s.log.Error("cursor cannot be saved; trying on", "destination", d.name, "client", s.id.Client, "error", err)
		}
		s.run.saveErr = err
		if errors.Is(err, meta.ErrFenced) {
			d.fence(err)
		}
		return err
	}
	if s.run.saveErr != nil {
		d.s.log.Info("cursor is saved again", "destination", d.name, "client", s.id.Client)
	}
	s.run.saveErr = nil
	s.floor = r.BatchFloor
	s.run.forgotten = last
	s.run.saved, s.run.savedLast, s.run.savedAt = moves, r.Cursor.Last(), r.SavedAt
	if s.run.savedCh != nil {
		close(s.run.savedCh)
		s.run.savedCh = nil
	}
	return nil
}

// notSaved says whose cursor it is, unless the store has.
func notSaved(id Identity, err error) error {
	if strings.Contains(err.Error(), id.String()) {
		return err
	}
	return fmt.Errorf("%s: cursor not saved: %w", id, err)
}

// saveFirst saves a subscription that is not connected yet. With repeat it goes on while the store refuses, until ctx ends.
func (d *destination) saveFirst(ctx context.Context, s *sub, repeat bool) error {
	for wait := minSaveBackoff; ; wait = min(2*wait, maxSaveBackoff) {
		err := d.save(ctx, s, 1<<62, false)
		if err == nil || !repeat || errors.Is(err, meta.ErrFenced) || ctx.Err() != nil { // I8
			return err
		}
		t := d.s.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C():
		}
	}
}

// saveBefore saves the subscription's moves up to need before it returns, however long
// the store refuses, until ctx ends.
func (d *destination) saveBefore(ctx context.Context, s *sub, need int64) error {
	for {
		err := d.save(ctx, s, need, false)
		d.mu.Lock()
		if s.run.saved >= need {
			d.mu.Unlock()
			return nil
		}
		if err != nil && d.fatal != nil {
			d.mu.Unlock()
			return d.fatal
		}
		if s.run.savedCh == nil {
			s.run.savedCh = make(chan struct{})
		}
		saved := s.run.savedCh
		d.mu.Unlock()
		d.s.pokeSaver()
		select {
		case <-saved:
		case <-ctx.Done():
			return &SaveError{Identity: s.id, Err: errors.Join(ctx.Err(), err)}
		case <-d.s.ctx.Done():
			return &SaveError{Identity: s.id, Err: errors.Join(ErrStopped, err)}
		}
	}
}

// reserve saves the record to have more batch ids. mu is held, and given up meanwhile.
func (d *destination) reserve(ctx context.Context, s *sub) error {
	d.mu.Unlock()
	defer d.mu.Lock()
	if err := d.save(ctx, s, 1<<62, false); err != nil {
		return fmt.Errorf("%s: %w: %w", s.id, ErrBatchIDs, err)
	}
	return nil
}

// saver saves moving cursors until the server stops.
func (s *Server) saver() {
	defer s.wg.Done()
	var backoff time.Duration
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.saveWake:
		}
		if pause := max(s.opts.SaveInterval, backoff); pause > 0 {
			t := s.clock.NewTimer(pause)
			select {
			case <-s.ctx.Done():
				t.Stop()
				return
			case <-t.C():
			}
		}
		if s.saveDirty(s.ctx) {
			backoff = 0
			continue
		}
		backoff = min(max(2*backoff, minSaveBackoff), maxSaveBackoff)
		s.pokeSaver()
	}
}

// saveDirty saves every cursor that has moved. It returns whether all are saved.
func (s *Server) saveDirty(ctx context.Context) bool {
	ok := true
	for _, d := range s.all() {
		d.mu.Lock()
		var subs []*sub
		if d.fatal == nil {
			for _, x := range sortedSubs(d.subs) {
				if x.run.moves != x.run.saved {
					subs = append(subs, x)
				}
			}
		}
		d.mu.Unlock()
		for _, x := range subs {
			d.mu.Lock()
			need, last := x.run.moves, !x.run.connected
			d.mu.Unlock()
			if d.save(ctx, x, need, last) != nil {
				ok = false
				continue
			}
			d.mu.Lock()
			d.forgetSaved(x)
			d.mu.Unlock()
		}
	}
	return ok
}

// forgetSaved drops what is in memory of a disconnected subscription whose cursor is saved.
func (d *destination) forgetSaved(s *sub) {
	if !s.run.connected && s.run.moves == s.run.saved && d.subs[s.id.Client] == s {
		delete(d.subs, s.id.Client)
	}
}
