package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/binlogmq/binlogmq/internal/jsontext"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

// Defaults and limits of Options. Sizes are bytes.
const (
	DefaultMaxInFlightMessages = 10_000
	DefaultMaxInFlightBytes    = 16 << 20

	groupBytes = 1 << 20 // written with one call, and synced once
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Options configure a Sink. The zero value of a field means its default.
type Options struct {
	Path       string // "-" is standard output
	ValuesOnly bool   // lines are the bare values
	NoSync     bool   // do not sync: done means written, and a crash of the machine may lose lines

	// Bounds of what is accepted and not done, in payload bytes and messages;
	// Publish blocks at either. One larger message is accepted when nothing else is on its way.
	MaxInFlightMessages int64
	MaxInFlightBytes    int64

	Logger *slog.Logger // slog.Default()
}

func (o Options) normalize() (Options, error) {
	var errs []error
	if o.Path == "" {
		errs = append(errs, errors.New(`file: path: is missing; write a file's name, or "-" for standard output`))
	}
	if o.MaxInFlightMessages < 0 || o.MaxInFlightBytes < 0 {
		errs = append(errs, errors.New("file: bounds must not be negative"))
	}
	if o.MaxInFlightMessages == 0 {
		o.MaxInFlightMessages = DefaultMaxInFlightMessages
	}
	if o.MaxInFlightBytes == 0 {
		o.MaxInFlightBytes = DefaultMaxInFlightBytes
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}

func folder(path string) string { return filepath.Dir(path) }

// errClosed is what calls after Close fail with.
// ErrInUse is in the chain of New's error while another sink, perhaps of
// another process, writes to the file.
var ErrInUse = errors.New("in use by another process of ours")

var errClosed = errors.New("file: the sink is closed")

// item is an accepted message whose line waits.
type item struct {
	m    *sink.Message
	size int64
	end  int // of its line in the buffer
}

// Sink appends lines to one file. It implements sink.Sink.
type Sink struct {
	opt     Options
	retries atomic.Int64

	mu      sync.Mutex
	change  chan struct{} // closed and replaced when something waited for may have come
	lines   []byte        // of items, not yet taken by the writer
	items   []item
	msgs    int64 // accepted and not done
	bytes   int64
	err     error  // why the session takes nothing
	broken  bool   // the output failed, so it must be opened again
	trouble error  // what the writer waits for
	closed  bool   // for good
	half    []byte // rest of a line that is half out, in a pipe, by an older session
	kick    chan struct{}
	stop    context.CancelFunc // ends the writer
	gone    chan struct{}      // closed when the writer has ended

	out *output // the writer's until gone is closed
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink; the file is opened, locked and cut to whole lines here.
func New(o Options) (*Sink, error) {
	o, err := o.normalize()
	if err != nil {
		return nil, err
	}
	s := &Sink{opt: o, change: make(chan struct{})}
	if s.out, err = openOutput(o.Path, o.ValuesOnly, !o.NoSync); err != nil {
		return nil, err
	}
	s.begin()
	return s, nil
}

// begin starts the writer of a new session. Nothing is held.
func (s *Sink) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.trouble, s.broken = nil, nil, false
	s.lines, s.items = nil, nil
	s.kick, s.stop, s.gone = make(chan struct{}, 1), cancel, make(chan struct{})
	go s.write(ctx, s.out, s.kick, s.gone)
}

// notify wakes whoever waits for a change; s.mu is held.
func (s *Sink) notify() {
	close(s.change)
	s.change = make(chan struct{})
}

// await waits for f to become true, looking after each change; f runs with s.mu
// held, which is held on return too.
func (s *Sink) await(ctx context.Context, f func() bool) error {
	for !f() {
		change := s.change
		s.mu.Unlock()
		var err error
		select {
		case <-change:
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Partitions implements sink.Sink: there is one.
func (s *Sink) Partitions(ctx context.Context, topic string) (int32, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errClosed
	}
	return 1, nil
}

// Publish implements sink.Sink.
func (s *Sink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range msgs {
		m := &msgs[i]
		size := int64(m.Size())
		if s.full(size) {
			s.poke()
			if err := s.await(ctx, func() bool { return s.err != nil || !s.full(size) }); err != nil {
				return i, err
			}
		}
		if s.err != nil {
			return i, s.err
		}
		if err := ctx.Err(); err != nil {
			return i, err
		}
		if size > groupBytes {
			s.lines = jsontext.Reserve(s.lines, int(size)+len(m.Topic)) // I9: what is large takes its memory once
		}
		if s.opt.ValuesOnly {
			s.lines = appendValue(s.lines, m)
		} else {
			s.lines = appendLine(s.lines, m)
		}
		s.items = append(s.items, item{m, size, len(s.lines)})
		s.msgs++
		s.bytes += size
	}
	s.poke()
	return len(msgs), nil
}

// full tells whether n more bytes must wait (I9); s.mu is held.
func (s *Sink) full(n int64) bool {
	return s.msgs > 0 && (s.msgs >= s.opt.MaxInFlightMessages || s.bytes+n > s.opt.MaxInFlightBytes)
}

// poke tells the writer that there is work; s.mu is held.
func (s *Sink) poke() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// write is the writing goroutine: it takes what has come, writes it in groups,
// syncs each once, and reports.
func (s *Sink) write(ctx context.Context, out *output, kick <-chan struct{}, gone chan<- struct{}) {
	defer close(gone)
	// A blocked pipe is let go of when the session ends.
	unblocked := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = out.f.SetWriteDeadline(time.Now())
		close(unblocked)
	})
	defer func() {
		if !stop() {
			<-unblocked // or it would hit the next session
		}
	}()
	var lines []byte
	var items []item
	for ctx.Err() == nil {
		if cap(lines) > 2*groupBytes {
			lines = nil // of one huge message
		}
		s.mu.Lock()
		half := s.half
		lines, s.lines = s.lines, lines[:0]
		items, s.items = s.items, items[:0]
		s.mu.Unlock()
		if len(items) == 0 {
			select {
			case <-kick:
			case <-ctx.Done():
			}
			continue
		}
		done, from := 0, 0
		// A line that an older session left half in the pipe is ended first.
		if len(half) == 0 || s.put(ctx, out, half, true) {
			for done < len(items) {
				next := done
				for next < len(items) && (next == done || items[next].end-from <= groupBytes) {
					next++
				}
				if ctx.Err() != nil || !s.put(ctx, out, lines[from:items[next-1].end], false) {
					break
				}
				if err := out.flush(); err != nil {
					s.fail(fmt.Errorf("file: syncing %s: %w; what was not confirmed is written again after a reset", out.name, err))
					break
				}
				s.finish(items[done:next], nil) // I1
				from, done = items[next-1].end, next
			}
		}
		if done < len(items) {
			s.mu.Lock()
			err := s.err
			s.mu.Unlock()
			s.finish(items[done:], err)
		}
	}
}

// put writes lines and waits while the disk is full. It returns false if the
// session ends or fails meanwhile. mid says that lines begin inside a line.
func (s *Sink) put(ctx context.Context, out *output, lines []byte, mid bool) bool {
	defer func() {
		if mid {
			s.keepHalf(lines)
		} else {
			s.keepHalf(nil)
		}
	}()
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		rest, err := out.write(lines)
		if n := len(lines) - len(rest); n > 0 {
			mid = lines[n-1] != '\n'
		}
		lines = rest
		if err == nil {
			s.setTrouble(nil)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if !canWait(err) {
			if errors.Is(err, syscall.EPIPE) {
				err = fmt.Errorf("file: %s: nobody reads it any more; start the reader again, or write to a file: %w", out.name, err)
			} else {
				err = fmt.Errorf("file: writing %s: %w", out.name, err)
			}
			s.fail(err)
			return false
		}
		s.retries.Add(1)
		s.setTrouble(fmt.Errorf("file: %s: %w; waiting for room", out.name, err))
		if retry.Sleep(ctx, wait) != nil {
			return false
		}
	}
}

// keepHalf remembers the end of the line that is half out; rest begins inside
// it. The lines after it are sent again by the owner.
func (s *Sink) keepHalf(rest []byte) {
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i+1]
	}
	s.mu.Lock()
	s.half = append([]byte(nil), rest...)
	s.mu.Unlock()
}

func (s *Sink) setTrouble(err error) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = err
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.opt.Logger.Warn("file: not healthy", "error", err)
	case err == nil && before != nil:
		s.opt.Logger.Info("file: healthy again", "was", before)
	}
}

// fail ends the session and gives up what it holds; the writer does so with
// what it has taken.
func (s *Sink) fail(err error) {
	s.opt.Logger.Error("file: the session has failed", "error", err)
	s.mu.Lock()
	s.broken = true
	s.mu.Unlock()
	s.abandon(err)
}

// abandon ends the session and reports what the writer has not taken as done with err.
func (s *Sink) abandon(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	items := s.items
	s.items, s.lines = nil, nil
	stop := s.stop
	s.notify()
	s.mu.Unlock()
	stop()
	s.finish(items, err)
}

// finish reports items as done.
func (s *Sink) finish(items []item, err error) {
	bytes := int64(0)
	for i := range items {
		bytes += items[i].size
		m := items[i].m
		items[i].m = nil
		m.Done(err)
	}
	s.mu.Lock()
	s.msgs -= int64(len(items))
	s.bytes -= bytes
	s.notify()
	s.mu.Unlock()
}

// Flush implements sink.Sink.
func (s *Sink) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poke()
	return s.await(ctx, func() bool { return s.msgs == 0 })
}

// end ends the session and waits for the writer.
func (s *Sink) end(ctx context.Context, err error) error {
	s.abandon(err)
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("file: %s is still being written to: %w", s.opt.Path, ctx.Err())
	}
}

// Reset implements sink.Sink. It waits for a write under way; if ctx ends first
// the session stays ended, and Reset must be called again.
func (s *Sink) Reset(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errClosed
	}
	if err := s.end(ctx, sink.ErrReset); err != nil {
		return err
	}
	s.retries.Add(1)
	if s.broken && s.out.regular {
		s.out.close(true)
		out, err := openOutput(s.opt.Path, s.opt.ValuesOnly, !s.opt.NoSync)
		if err != nil {
			return err
		}
		s.out = out
	} else {
		_ = s.out.f.SetWriteDeadline(time.Time{}) // a reader of the pipe must see no end
	}
	s.begin()
	return nil
}

// Close implements sink.Sink. If ctx ends before the writer does, another Close
// waits for it again. Standard output that blocks cannot be interrupted.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if err := s.end(ctx, sink.ErrReset); err != nil {
		return err
	}
	s.out.close(s.broken)
	return nil
}

// Status implements sink.Sink.
func (s *Sink) Status() sink.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := sink.Status{Err: s.err, InFlight: s.msgs, Bytes: s.bytes, Retries: s.retries.Load()}
	if st.Err == nil {
		st.Err = s.trouble
	}
	if s.closed {
		st.Err = errClosed
	}
	return st
}

// Check looks at the output before the sink runs. It creates nothing.
func (s *Sink) Check(context.Context) []sink.Finding {
	if st := s.Status(); st.Err != nil {
		return []sink.Finding{{Severity: sink.SeverityError, What: st.Err.Error(), Where: s.opt.Path}}
	}
	return nil
}
