package snapshot

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/internal/killpoint"
)

// Keeper saves what belongs to one destination, beside its cursors. It is safe for concurrent use; saves are made one at a time.
type Keeper interface {
	// Destination names the destination, for errors.
	Destination() string

	// Load returns a document; nil when there is none. The error of one that cannot be read is ErrDamaged.
	Load(ctx context.Context, name string) ([]byte, error)

	// Save replaces a document, which is JSON; nil deletes it. When it returns nil that survives a crash; after an error the old document or
	// the new one is there, whole.
	Save(ctx context.Context, name string, data []byte) error

	// Cursors returns the ordinals of the transaction ends at which the saved cursors stand, by client id.
	Cursors(ctx context.Context) (map[string]int64, error)
}

var (
	// ErrDamaged: a saved document cannot be used.
	ErrDamaged = errors.New("damaged")

	// ErrEnded: the request that a progress is of is not being carried out any more. Nothing was saved.
	ErrEnded = errors.New("the snapshot is not ordered any more")
)

const (
	// keepEnded is how many requests are remembered that have ended.
	keepEnded = 8

	// grace is how long all cursors must have passed a chunk before it is deleted. A new subscription begins where the last cursor stands; until
	// its own is saved it does not count.
	grace = 5 * time.Second

	// sweepAtOnce is of how many chunks a Release deletes documents at most.
	sweepAtOnce = 32
)

// Log is what is known of the snapshots of a destination: what is ordered, how far it is carried out, and the chunks that stand in the
// stream and that not all cursors have passed. Everything is saved before it counts (I7). It is safe for concurrent use.
//
// The document "snapshot" holds the requests and the number of the first chunk that counts; those that follow it are found by their heads,
// "snapshot-N", each of which is written when the pieces of its chunk, "snapshot-N-0" and so on, are there already. So whatever is left by
// writes that were cut short is not seen, and is overwritten or deleted later.
type Log struct {
	keeper Keeper
	view   atomic.Pointer[view] // what is saved; nil: not loaded yet

	readings readings

	mu     sync.Mutex // held by whoever changes what is saved
	clean  bool       // what earlier processes left undone is done
	unsure int64      // number of a chunk whose head may have been written, though the keeper did not say so; 0: none
	undo   bool       // a move was not begun, though the keeper may have saved that it was
	passed mark
	grace  time.Duration

	held  atomic.Bool            // nothing is added before Recount
	waits atomic.Pointer[string] // the client for whom chunks are kept; nil: none is known
}

// mark is where the last cursor stood at a time.
type mark struct {
	ordinal int64
	at      time.Time
}

// view is what readers look at. It is immutable.
type view struct {
	state
	chunks  []entry // those that count, in order; the first has the number state.First
	bytes   int64   // that they take as they are saved
	settled bool    // no change was cut short
}

// entry is what is kept in memory of a chunk.
type entry struct {
	ordinal, end int64
	counts       string
	request      string
	bytes        int64
}

func (v *view) next() int64 { return v.First + int64(len(v.chunks)) }

func (v *view) last() int64 {
	if len(v.chunks) == 0 {
		return 0
	}
	return v.chunks[len(v.chunks)-1].end
}

// Ended is a request that is not in the queue any more.
type Ended struct {
	Request   Request   `json:"request"`
	Cancelled bool      `json:"cancelled,omitempty"`
	At        time.Time `json:"at"`
	Rows      int64     `json:"rows"`   // rows handed on
	Tables    int       `json:"tables"` // tables read to their end
}

// Status shows a Log.
type Status struct {
	Queue    []Request `json:"queue,omitempty"`    // the first is being carried out
	Progress *Progress `json:"progress,omitempty"` // of the first one
	Ended    []Ended   `json:"ended,omitempty"`    // the latest ones, the latest last
	Chunks   int       `json:"chunks"`             // that stand in the stream and that not all cursors have passed
	Bytes    int64     `json:"bytes"`              // that they take as they are saved
	Waits    string    `json:"waits,omitempty"`    // client id of the subscription that has passed the fewest of them; none: all have passed them, and they are kept for a while
}

// NewLog returns a Log that is loaded from k when it is first used. With nil everything is kept in memory only.
func NewLog(k Keeper) *Log {
	if k == nil {
		k = &memory{}
	}
	return &Log{keeper: k, grace: grace}
}

// Load reads what is saved, once. It changes nothing of it.
func (l *Log) Load(ctx context.Context) error {
	if l.view.Load() != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.load(ctx)
	return err
}

// load is Load. l.mu is held.
func (l *Log) load(ctx context.Context) (*view, error) {
	if v := l.view.Load(); v != nil {
		return v, nil
	}
	v := &view{}
	data, err := l.keeper.Load(ctx, logDocument)
	if err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	if data == nil {
		v.state = newState()
		v.settled, l.clean = true, true
		l.view.Store(v)
		return v, nil
	}
	if err := decodeState(data, &v.state); err != nil {
		return nil, l.damaged(logDocument, err)
	}
	for {
		h, err := l.head(ctx, v.Life, v.next())
		if err != nil {
			return nil, err
		}
		if h == nil {
			break
		}
		if h.Ordinal < v.last() {
			return nil, l.damaged(headName(v.next()), fmt.Errorf("it stands at ordinal %d, the chunk before it ends at %d", h.Ordinal, v.last()))
		}
		v.chunks = append(v.chunks, h.entry())
		v.bytes += h.bytes()
	}
	if n := len(v.chunks); n > 0 {
		c, err := l.chunk(ctx, v.Life, v.next()-1, &v.chunks[n-1])
		if err != nil {
			return nil, err
		}
		if c.After.Step > v.Progress.Step {
			v.Progress = c.After
		}
	}
	l.view.Store(v)
	return v, nil
}

// open returns what is saved, after what was cut short is settled.
func (l *Log) open(ctx context.Context) (*view, error) {
	if v := l.view.Load(); v != nil && v.settled {
		return v, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settle(ctx)
}

// settle completes or undoes what was cut short. l.mu is held.
func (l *Log) settle(ctx context.Context) (*view, error) {
	v, err := l.load(ctx)
	if err != nil || v.settled {
		return v, err
	}
	if l.unsure != 0 { // nobody has gone on behind its place
		if err := l.discard(ctx, l.unsure); err != nil {
			return nil, err
		}
		l.unsure = 0
	}
	if v.Moving != nil {
		_, _, highest, err := l.cursors(ctx, 0)
		if err != nil {
			return nil, err
		}
		if highest >= v.Moving.Above && !l.undo {
			v, err = l.rewound(ctx, v)
		} else { // no cursor was moved
			s := v.state
			s.Moving = nil
			v, err = l.save(ctx, v, s, v.chunks)
		}
		if err != nil {
			return nil, err
		}
		l.undo = false
	}
	if !l.clean {
		if len(v.chunks) > 0 || v.Progress.Request != "" || len(v.Ended) > 0 {
			client, _, _, err := l.cursors(ctx, 0)
			if err != nil {
				return nil, err
			}
			if client == "" { // they were deleted: the destination begins anew, and so does what is ordered
				s := v.state
				s.First, s.Base, s.Passed, s.Ended = v.next(), 0, 0, nil
				s.Progress = Progress{Step: s.Progress.Step + 1}
				if v, err = l.save(ctx, v, s, nil); err != nil {
					return nil, err
				}
			}
		}
		if err := l.discard(ctx, v.next()); err != nil { // pieces without a head
			return nil, err
		}
		l.clean = true
	}
	settled := *v
	settled.settled = true
	l.view.Store(&settled)
	return &settled, nil
}

// save saves and shows a new state. l.mu is held.
func (l *Log) save(ctx context.Context, v *view, s state, chunks []entry) (*view, error) {
	data, err := encodeState(&s)
	if err == nil {
		killpoint.Hit("snapshot.save")
		err = l.keeper.Save(ctx, logDocument, data)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	killpoint.Hit("snapshot.saved")
	next := &view{state: s, chunks: chunks, settled: v.settled}
	for i := range chunks {
		next.bytes += chunks[i].bytes
	}
	l.view.Store(next)
	return next, nil
}

// sweep deletes documents of chunks that do not count any more: some at a time, as others wait for l.mu, which is held.
func (l *Log) sweep(ctx context.Context, v *view) error {
	swept := *v
	for n := 0; n < sweepAtOnce && swept.From < swept.First; n++ {
		if err := l.discard(ctx, swept.From); err != nil {
			return err
		}
		swept.From++
	}
	l.view.Store(&swept) // saved with what changes next; until then a start looks for them in vain
	return nil
}

// Order puts a request at the end of the queue. One whose id is known already changes nothing.
func (l *Log) Order(ctx context.Context, r Request) error {
	if r.ID == "" {
		return errors.New("snapshots: the request has no id")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil {
		return err
	}
	if v.queued(r.ID) || slices.ContainsFunc(v.Ended, func(e Ended) bool { return e.Request.ID == r.ID }) {
		return nil
	}
	s := v.state
	s.Queue = append(slices.Clone(s.Queue), r)
	_, err = l.save(ctx, v, s, v.chunks)
	return err
}

func (s *state) queued(id string) bool {
	return slices.ContainsFunc(s.Queue, func(r Request) bool { return r.ID == id })
}

// Cancel takes a request off the queue, or all if id is empty. Chunks that stand in the stream stay there.
func (l *Log) Cancel(ctx context.Context, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil {
		return err
	}
	if id != "" && !v.queued(id) {
		return fmt.Errorf("destination %s: no snapshot %q is ordered; those that are: %v", l.keeper.Destination(), id, v.ids())
	}
	return l.end(ctx, v, func(r *Request) bool { return id == "" || r.ID == id }, true)
}

func (s *state) ids() []string {
	ids := make([]string, len(s.Queue))
	for i := range s.Queue {
		ids[i] = s.Queue[i].ID
	}
	return ids
}

// Finish takes a request that is carried out off the queue.
func (l *Log) Finish(ctx context.Context, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil {
		return err
	}
	return l.end(ctx, v, func(r *Request) bool { return r.ID == id }, false)
}

// end moves requests from the queue to those that have ended. l.mu is held.
func (l *Log) end(ctx context.Context, v *view, which func(*Request) bool, cancelled bool) error {
	s := v.state
	s.Queue, s.Ended = nil, slices.Clone(s.Ended)
	for i := range v.Queue {
		r := &v.Queue[i]
		if !which(r) {
			s.Queue = append(s.Queue, *r)
			continue
		}
		e := Ended{Request: *r, Cancelled: cancelled, At: time.Now().UTC()}
		if r.ID == v.Progress.Request {
			e.Rows, e.Tables = v.Progress.Rows, int(v.Progress.Done)
			s.Progress = Progress{Step: v.Progress.Step + 1}
		}
		s.Ended = append(s.Ended, e)
	}
	if len(s.Queue) == len(v.Queue) {
		return nil
	}
	s.forget(v.chunks)
	_, err := l.save(ctx, v, s, v.chunks)
	return err
}

// forget drops old requests that have ended and of which no chunk is left.
func (s *state) forget(chunks []entry) {
	left := len(s.Ended) - keepEnded
	s.Ended = slices.DeleteFunc(slices.Clone(s.Ended), func(e Ended) bool {
		left--
		return left >= 0 && !slices.ContainsFunc(chunks, func(c entry) bool { return c.request == e.Request.ID })
	})
}

// Current returns the request that is to be carried out, and how far it is; false: there is none now. The Log must be in use: any method with
// a context but Load brings it into use.
func (l *Log) Current() (Request, Progress, bool) {
	v := l.view.Load()
	if v == nil || !v.settled || len(v.Queue) == 0 || l.held.Load() {
		return Request{}, Progress{}, false
	}
	return v.Queue[0], v.progress(), true
}

// progress returns that of the first request.
func (s *state) progress() Progress {
	if s.Progress.Request == s.Queue[0].ID {
		return s.Progress
	}
	return Progress{Step: s.Progress.Step, Request: s.Queue[0].ID}
}

// current tells whether a progress is one of the first request, and knows of all tables that must be read again.
func (s *state) current(p *Progress) bool {
	return len(s.Queue) > 0 && s.Queue[0].ID == p.Request && s.progress().Noted == p.Noted
}

// Ordered returns the request that is to be carried out first, also while it cannot be; false: there is none.
func (l *Log) Ordered(ctx context.Context) (Request, bool, error) {
	v, err := l.open(ctx)
	if err != nil || len(v.Queue) == 0 {
		return Request{}, false, err
	}
	return v.Queue[0], true, nil
}

const (
	// maxAgain bounds Progress.Again.
	maxAgain = 1000

	// ofNothing is a Progress.Of that nothing is: all is to be read again.
	ofNothing = "-"
)

// Again has the first request, whose id is given, read tables that have got rows which the stream has not shown as theirs, also where it has read
// them; or all tables. They are remembered when it returns (I7). After ErrEnded there is another first request, or none.
func (l *Log) Again(ctx context.Context, id string, tables []Table, all bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil {
		return err
	}
	if len(v.Queue) == 0 || v.Queue[0].ID != id {
		return ErrEnded
	}
	s := v.state
	p := v.progress()
	p.add(tables)
	if all || len(p.Again) > maxAgain {
		p.Of, p.Again = ofNothing, nil
	}
	p.Step++
	p.Noted++
	s.Progress = p
	_, err = l.save(ctx, v, s, v.chunks)
	return err
}

// add has tables read again.
func (p *Progress) add(tables []Table) {
	p.Again = slices.Clone(p.Again)
	for _, t := range tables {
		if !slices.Contains(p.Again, t) {
			p.Again = append(p.Again, t)
		}
		if p.Table != nil && strings.EqualFold(p.Table.Schema, t.Schema) && strings.EqualFold(p.Table.Name, t.Name) {
			p.Table, p.Key, p.Last, p.Most = nil, nil, nil, nil
		}
	}
}

// Advance saves how far the current request is carried out. Step is set here. After ErrEnded there is another current request, or none, or tables must be read
// again.
func (l *Log) Advance(ctx context.Context, p Progress) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil {
		return err
	}
	if !v.current(&p) {
		return ErrEnded
	}
	s := v.state
	p.Step = s.Progress.Step + 1
	s.Progress = p
	_, err = l.save(ctx, v, s, v.chunks)
	return err
}

// At returns the chunk that stands behind the transaction end with that ordinal; nil: there is none. It is cheap where there is none.
func (l *Log) At(ctx context.Context, ordinal int64, counts string) (*Chunk, error) {
	v, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	i, ok := v.find(ordinal)
	if !ok || v.chunks[i].counts != counts {
		return nil, nil
	}
	c, err := l.chunk(ctx, v.Life, v.First+int64(i), &v.chunks[i])
	if err != nil {
		if _, there := l.view.Load().find(ordinal); !there { // all cursors have passed it meanwhile
			return nil, nil
		}
		return nil, err
	}
	return c, nil
}

// Holds tells whether a chunk stands behind the transaction end with that ordinal, in whatever numbering; or may have stood there, as a move of the
// cursors was cut short that has left one there.
func (l *Log) Holds(ctx context.Context, ordinal int64) (bool, error) {
	v, err := l.open(ctx)
	if err != nil {
		return false, err
	}
	_, ok := v.find(ordinal)
	return ok || ordinal < v.Base, nil
}

func (v *view) find(ordinal int64) (int, bool) {
	return slices.BinarySearchFunc(v.chunks, ordinal, func(e entry, o int64) int { return cmp.Compare(e.ordinal, o) })
}

// Last returns the End of the last chunk that not all cursors have passed; 0: there is none.
func (l *Log) Last() int64 {
	if v := l.view.Load(); v != nil {
		return v.last()
	}
	return 0
}

// Pending returns how many chunks stand in the stream that not all cursors have passed, and how many bytes they take as they are saved.
func (l *Log) Pending() (chunks int, bytes int64) {
	if v := l.view.Load(); v != nil {
		return len(v.chunks), v.bytes
	}
	return 0, 0
}

// Append saves a chunk, and with it After as the progress of the current request. It sets the steps of the progress and replaces Snapshot by
// a copy with the chunk's number.
//
// After ErrEnded nothing was saved, and Current tells how to go on. After any other error the chunk may be there or not: whoever reads hands nothing on behind c.Ordinal
// before At of that ordinal has answered.
func (l *Log) Append(ctx context.Context, c *Chunk) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil {
		return err
	}
	if !v.current(&c.After) {
		return ErrEnded
	}
	if v.otherwise(c.Counts) { // some cursors are brought on in the numbering of before still
		l.held.Store(true)
		return ErrEnded
	}
	if err := c.check(v.last()); err != nil {
		return fmt.Errorf("destination %s: snapshot %s: %w", l.keeper.Destination(), c.After.Request, err)
	}
	n := v.next()
	snap := *c.Snapshot
	snap.Chunk = n
	c.Snapshot = &snap
	c.Before.Step, c.After.Step = v.Progress.Step, v.Progress.Step+1
	h, err := l.write(ctx, v.Life, n, c)
	if err != nil {
		if l.unsure != 0 {
			unsettled := *v
			unsettled.settled = false
			l.view.Store(&unsettled)
			_, _ = l.settle(ctx) // or later
		}
		return fmt.Errorf("snapshots: %w", err)
	}
	next := *v
	next.chunks = append(v.chunks, h.entry()) // what is behind the end of older views is theirs to overlook
	next.bytes += h.bytes()
	next.Progress = c.After
	l.view.Store(&next)
	return nil
}

// Release deletes the chunks that all cursors have passed for a while, and what is left of those that moves have dropped: some at a time, so it is
// to be called again and again.
func (l *Log) Release(ctx context.Context) error {
	if v := l.view.Load(); v != nil && v.settled && len(v.chunks) == 0 && v.From == v.First {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil {
		return err
	}
	if v.From < v.First {
		return l.sweep(ctx, v)
	}
	if len(v.chunks) == 0 {
		return nil
	}
	client, oldest, _, err := l.cursors(ctx, v.Base)
	if err != nil || client == "" {
		return err
	}
	if v.passed(oldest) == len(v.chunks) {
		client = "" // they are kept for a while
	}
	l.waits.Store(&client)
	since := l.passed
	if since.at.IsZero() || oldest < since.ordinal {
		since = mark{oldest, time.Now()}
		l.passed = since
	}
	if time.Since(since.at) < l.grace {
		return nil
	}
	l.passed = mark{oldest, time.Now()}
	k := v.passed(since.ordinal)
	if k == 0 {
		return nil
	}
	s := v.state
	s.First += int64(k)
	s.Passed = v.chunks[k-1].end
	left := slices.Clone(v.chunks[k:])
	s.forget(left)
	if v, err = l.save(ctx, v, s, left); err != nil {
		return err
	}
	return l.sweep(ctx, v)
}

// cursors returns whose cursor stands lowest and where, and where the highest stands. Those below base stand in another numbering and are left
// out; no client: there are none.
func (l *Log) cursors(ctx context.Context, base int64) (client string, lowest, highest int64, err error) {
	all, err := l.keeper.Cursors(ctx)
	if err != nil {
		return "", 0, 0, fmt.Errorf("snapshots: %w", err)
	}
	for c, o := range all {
		if o < base {
			continue
		}
		if client == "" || o < lowest || o == lowest && c < client {
			client, lowest = c, o
		}
		highest = max(highest, o)
	}
	return client, lowest, highest, nil
}

// passed counts the chunks that end at or before an ordinal.
func (v *view) passed(ordinal int64) int {
	i := slices.IndexFunc(v.chunks, func(e entry) bool { return e.end > ordinal })
	if i < 0 {
		return len(v.chunks)
	}
	return i
}

// Rewind begins a move of the destination's cursors to another place, where the chunks that not all of them have passed have no place any
// more. It must be called before the first cursor is saved there, and their new ordinals must be at least above; 0 demands nothing. When all are saved, Rewound
// ends the move. If the process ends before, the next one goes by whether a cursor was moved. Nobody may be reading.
func (l *Log) Rewind(ctx context.Context) (above int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil || len(v.chunks) == 0 && v.Passed == 0 {
		return 0, err
	}
	_, lowest, highest, err := l.cursors(ctx, 0)
	if err != nil {
		return 0, err
	}
	m := &moving{Oldest: lowest, Above: max(v.floor(), highest) + 1}
	s := v.state
	s.Moving = m
	unsettled := *v
	unsettled.state, unsettled.settled = s, false
	l.view.Store(&unsettled)
	if _, err := l.save(ctx, &unsettled, s, v.chunks); err != nil {
		l.undo = true // as it may be saved all the same
		return 0, err
	}
	return m.Above, nil
}

// Rewound ends what Rewind began: no chunk is left, and what the cursors had not passed is read again, for which requests that were
// carried out come back to the queue.
func (l *Log) Rewound(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.settle(ctx)
	return err
}

// rewound drops all chunks. l.mu is held.
func (l *Log) rewound(ctx context.Context, v *view) (*view, error) {
	s := v.state
	dropped := v.chunks[v.passed(v.Moving.Oldest):]
	begun := false
	var again []Request
	for i := range dropped {
		id := dropped[i].request
		e := slices.IndexFunc(s.Ended, func(e Ended) bool { return e.Request.ID == id })
		if e >= 0 && s.Ended[e].Cancelled {
			continue
		}
		if !begun {
			begun = true
			c, err := l.chunk(ctx, v.Life, v.next()-int64(len(dropped)-i), &dropped[i])
			if err != nil {
				return nil, err
			}
			s.Progress = c.Before
			s.Progress.Step = v.Progress.Step
			if p := &v.Progress; p.Request == c.Before.Request { // what was learnt since
				s.Progress.add(p.Again)
				s.Progress.Of, s.Progress.Noted = p.Of, p.Noted
			}
		}
		if e >= 0 {
			again = append(again, s.Ended[e].Request)
			s.Ended = slices.Delete(slices.Clone(s.Ended), e, e+1)
		}
	}
	s.Progress.Step++
	s.Queue = append(again, s.Queue...)
	s.First, s.Base, s.Passed, s.Moving = v.next(), v.Moving.Above, 0, nil
	s.forget(nil)
	return l.save(ctx, v, s, nil)
}

// Recount drops the chunks if they have their places in another numbering, in which nobody may be reading any more; what not all cursors had passed
// is read again.
func (l *Log) Recount(ctx context.Context, counts string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.settle(ctx)
	if err != nil || !v.otherwise(counts) {
		return err
	}
	_, lowest, _, err := l.cursors(ctx, v.Base)
	if err != nil {
		return err
	}
	u := *v
	u.Moving = &moving{Oldest: lowest, Above: v.Base}
	if _, err = l.rewound(ctx, &u); err != nil {
		return err
	}
	l.held.Store(false)
	return nil
}

// otherwise tells whether a chunk has its place in another numbering.
func (v *view) otherwise(counts string) bool {
	return len(v.chunks) > 0 && v.chunks[len(v.chunks)-1].counts != counts // as all before it
}

// Floor returns from which ordinal on a numbering must begin that knows nothing of the one of before: that of a destination all of whose
// cursors have been deleted.
func (l *Log) Floor(ctx context.Context) (int64, error) {
	v, err := l.open(ctx)
	if err != nil {
		return 0, err
	}
	return v.floor(), nil
}

func (v *view) floor() int64 { return max(v.last(), v.Passed, v.Base) }

// Lacks tells whether a chunk behind a transaction end with that ordinal is deleted already: who stands there cannot come to the numbers that others
// have.
func (l *Log) Lacks(ordinal int64) bool {
	v := l.view.Load()
	return v != nil && ordinal >= v.Base && ordinal < v.Passed
}

// Reset begins anew, with nothing ordered, whatever is saved. No cursor may stay where it is.
func (l *Log) Reset(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, first := int64(1), int64(1)
	if data, err := l.keeper.Load(ctx, logDocument); err == nil && data != nil {
		var s state
		if decodeState(data, &s) == nil {
			from, first = s.From, s.First
		}
	}
	v, err := l.save(ctx, &view{}, newState(), nil)
	if err != nil {
		return err
	}
	for n := from; ; n++ { // of another life, they would not count; but nobody can tell of damaged ones
		data, err := l.keeper.Load(ctx, headName(n))
		if err != nil && !errors.Is(err, ErrDamaged) {
			return fmt.Errorf("snapshots: %w", err)
		}
		if data == nil && err == nil && n > first {
			break
		}
		if err := l.discard(ctx, n); err != nil {
			return err
		}
	}
	fresh := *v
	fresh.settled = true
	l.clean, l.unsure = true, 0
	l.view.Store(&fresh)
	return nil
}

// Status shows what is ordered and how far it is. Before Load it is empty.
func (l *Log) Status() Status {
	v := l.view.Load()
	if v == nil {
		return Status{}
	}
	s := Status{Queue: v.Queue, Ended: v.Ended, Chunks: len(v.chunks), Bytes: v.bytes}
	if len(v.Queue) > 0 {
		p := v.progress()
		s.Progress = &p
	}
	if w := l.waits.Load(); w != nil && len(v.chunks) > 0 {
		s.Waits = *w
	}
	return s
}

// newLife tells what is saved from what was saved before a Reset.
func newLife() string { return rand.Text() }

// memory is a Keeper that forgets everything with the process, and knows no cursors.
type memory struct {
	mu   sync.Mutex
	docs map[string][]byte
}

func (m *memory) Destination() string { return "" }

func (m *memory) Load(_ context.Context, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.docs[name], nil
}

func (m *memory) Save(_ context.Context, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.docs == nil {
		m.docs = map[string][]byte{}
	}
	if m.docs[name] = data; data == nil {
		delete(m.docs, name)
	}
	return nil
}

func (m *memory) Cursors(context.Context) (map[string]int64, error) { return nil, nil }
