package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Document is a saved document of a Log.
type Document struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
}

// Export returns the documents that count, the state first; none if nothing was ever ordered. Beside a process that changes them it may fail, or
// give what did not stand together: two that are alike do.
func Export(ctx context.Context, k Keeper) ([]Document, error) {
	l := NewLog(k)
	data, err := k.Load(ctx, logDocument)
	if err != nil || data == nil {
		return nil, err
	}
	var s state
	if err := decodeState(data, &s); err != nil {
		return nil, l.damaged(logDocument, err)
	}
	docs := []Document{{logDocument, data}}
	for n := s.First; ; n++ {
		h, err := l.head(ctx, s.Life, n)
		if err != nil {
			return nil, err
		}
		if h == nil {
			return docs, nil
		}
		names := []string{headName(n)}
		for i := range h.Pieces {
			names = append(names, pieceName(n, i))
		}
		for _, name := range names {
			if data, err = k.Load(ctx, name); err != nil {
				return nil, err
			}
			if data == nil {
				return nil, l.damaged(name, errors.New("it is not there"))
			}
			docs = append(docs, Document{name, data})
		}
	}
}

// Import takes what Export gave of the same destination, for cursors that were exported with it and none of which stands before oldest. It must be
// called before they are saved; nobody may be reading. It is an error if they cannot come to the numbers that were published here since.
func (l *Log) Import(ctx context.Context, docs []Document, oldest int64) error {
	theirs := &memory{docs: map[string][]byte{}}
	for _, d := range docs {
		var compact bytes.Buffer
		if err := json.Compact(&compact, d.Data); err != nil {
			return l.damaged(d.Name, err)
		}
		theirs.docs[d.Name] = compact.Bytes()
	}
	if len(docs) > 0 && theirs.docs[logDocument] == nil {
		return l.damaged(logDocument, errors.New("it is not there"))
	}
	from := &Log{keeper: labelled{theirs, l.keeper.Destination()}}
	t, err := from.load(ctx)
	if err != nil {
		return err
	}
	var names []string
	for i := range t.chunks {
		n := t.First + int64(i)
		if _, err := from.chunk(ctx, t.Life, n, &t.chunks[i]); err != nil {
			return err
		}
		h, err := from.head(ctx, t.Life, n)
		if err != nil {
			return err
		}
		for p := range h.Pieces {
			names = append(names, pieceName(n, p))
		}
		names = append(names, headName(n))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil {
		return err
	}
	if since := max(v.last(), v.Passed); since > oldest && (v.Life != t.Life || v.next() != t.next() || v.Base != t.Base) {
		return fmt.Errorf("destination %s: chunks of snapshots were read since behind the place of the cursors, up to ordinal %d, so that numbers mean something else now: "+
			"go to that place with new ones: binlogmq cursor set", l.keeper.Destination(), since)
	}
	if len(docs) == 0 {
		if v.Base <= oldest {
			return nil
		}
		s := v.state
		s.Base = 0 // numbers begin again below it
		_, err := l.save(ctx, v, s, v.chunks)
		return err
	}
	next := t.state
	if len(t.chunks) == 0 {
		next.First = max(next.First, v.next()) // no number is given twice
	}
	next.From = min(next.From, v.From) // what is left here of others goes
	if next.First-next.From > maxLeft {
		next.From = next.First
	}
	data, err := encodeState(&next)
	if err != nil {
		return err
	}
	unsettled := *v
	unsettled.settled = false
	l.view.Store(&unsettled)
	for n := max(v.First, t.next()); n < v.next(); n++ {
		if err := l.discard(ctx, n); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := l.keeper.Save(ctx, name, theirs.docs[name]); err != nil {
			return fmt.Errorf("snapshots: %w", err)
		}
	}
	if err := l.keeper.Save(ctx, logDocument, data); err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	l.view.Store(nil)
	l.clean, l.unsure = true, 0 // its cursors come
	return nil
}

// labelled is a Keeper with the name of a destination.
type labelled struct {
	Keeper
	destination string
}

func (n labelled) Destination() string { return n.destination }
