package canaltcp

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalwire"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/server/canalview"
)

// Upstream is what is served: the subscribers' calls of [server.Server].
type Upstream interface {
	Subscribe(ctx context.Context, id server.Identity, filter string, opts ...server.SubscribeOption) error
	Unsubscribe(ctx context.Context, id server.Identity) error
	Disconnect(ctx context.Context, id server.Identity) error
	GetWithoutAck(ctx context.Context, id server.Identity, size server.Size, wait server.Wait) (*server.Batch, error)
	Ack(ctx context.Context, id server.Identity, batchID int64, state []byte) error
	Rollback(ctx context.Context, id server.Identity) error
	RollbackTo(ctx context.Context, id server.Identity, batchID int64) error
	Subscription(ctx context.Context, id server.Identity) (server.SubscriptionInfo, error)
}

// Encoder writes events as Canal's entries. It must be safe for concurrent use.
type Encoder interface {
	// AppendEntry appends the serialised Entry message of the event.
	AppendEntry(dst []byte, e *event.Event) ([]byte, error)
	// EntrySize is about how many bytes that will be.
	canalview.Entries
}

// Defaults and limits of Options.
const (
	DefaultMaxConnections = 1000
	DefaultMemory         = 256 << 20
	DefaultIdleTimeout    = time.Hour // Canal's
	DefaultMemoryUnit     = 1024      // Canal's

	// MaxBatchBytes is the most that one get takes of entries, whatever the client asks for; a single one may be
	// larger. Larger batches are slower: their packets leave the processor's caches.
	MaxBatchBytes = 8 << 20

	loginTimeout = 30 * time.Second
	writeTimeout = 30 * time.Second // and a second for each 256 KiB
	leaveTimeout = 10 * time.Second
)

// Options of a Server. Upstream and Encoder must be given; the zero value of another field gives its default.
type Options struct {
	Upstream Upstream
	Encoder  Encoder
	Logger   *slog.Logger
	TLS      *tls.Config // nil: plain TCP

	// User and Password are what clients log in with; without User anybody is let in, as with
	// Canal. Password is the clear text or, as in Canal's configuration, its hash: see [canalwire.HashPassword].
	User     string
	Password string
	// AllowClearText lets clients in that send the password as it is: Python's and Node's do.
	AllowClearText bool

	// Unfiltered, if not nil, gives what a client of a destination sees that names no filter; nil for all that is captured.
	Unfiltered func(destination string) canalview.Tables

	// MaxConnections is how many clients are let in: further ones are closed at once. Of those a quarter may not have logged in
	// yet; the one that has taken longest makes room for the next.
	MaxConnections int
	Memory         int64         // bytes that the packets being written to all clients may take
	IdleTimeout    time.Duration // of a connection without a request, when its client names none
	MemoryUnit     int64         // a get's size counts this many bytes; below zero: it counts events

	patience time.Duration // writeTimeout, but in tests
}

// Server serves clients. Its methods may be called from any goroutine.
type Server struct {
	o      Options
	hash   [sha1.Size]byte
	memory *semaphore.Weighted
	most   int64 // of memory
	// buffers are for packets of entries. Only who holds a part of memory has one, and an eighth of Options.Memory may lie idle (I9).
	buffers buffers

	mu   sync.Mutex
	uses map[server.Identity]*use

	strangers strangers

	connections, refused, requests, bytes atomic.Int64
}

// New returns a server, or an error that says which option is wrong.
func New(o Options) (*Server, error) {
	if o.Upstream == nil || o.Encoder == nil {
		return nil, errors.New("canal: upstream or encoder missing")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = DefaultMaxConnections
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = DefaultIdleTimeout
	}
	if o.patience == 0 {
		o.patience = writeTimeout
	}
	if o.MemoryUnit == 0 {
		o.MemoryUnit = DefaultMemoryUnit
	}
	s := &Server{o: o, strangers: strangers{most: max(1, o.MaxConnections/4)}, most: o.Memory - o.Memory/8, uses: map[server.Identity]*use{}, buffers: buffers{most: int(o.Memory / 8)}}
	s.memory = semaphore.NewWeighted(s.most)
	switch {
	case o.User == "" && o.Password != "":
		return nil, errors.New("canal: a password without a user lets everybody in: set canal.user too, or neither")
	case o.User != "" && o.Password == "":
		return nil, errors.New("canal: user without a password: set canal.password too, or neither")
	case o.User != "":
		text := o.Password
		if _, err := hex.DecodeString(text); err != nil || len(text) != 2*sha1.Size {
			text = canalwire.HashPassword(text)
		}
		_, _ = hex.Decode(s.hash[:], []byte(text))
	}
	return s, nil
}

// Status is what metrics show.
type Status struct {
	Connections int64 // open now
	Refused     int64 // logins refused and connections over the limit, since start
	Requests    int64 // since start
	Bytes       int64 // sent since start
}

// Status returns a snapshot.
func (s *Server) Status() Status {
	return Status{Connections: s.connections.Load(), Refused: s.refused.Load(), Requests: s.requests.Load(), Bytes: s.bytes.Load()}
}

// Serve accepts connections from l, which it closes, until ctx ends; then it closes them all and
// returns nil when their goroutines have ended. An error is that of the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.o.TLS != nil {
		l = tls.NewListener(l, s.o.TLS)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for delay := time.Duration(0); ; {
		n, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = n.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("canal: %w", err)
		case err != nil: // too many open files, or the peer has gone already
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			s.o.Logger.Warn("canal: cannot accept a connection", "error", err)
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
			continue
		}
		delay = 0
		if s.connections.Add(1) > int64(s.o.MaxConnections) {
			s.connections.Add(-1)
			s.refused.Add(1)
			_ = n.Close()
			continue
		}
		if s.strangers.add(n) {
			s.refused.Add(1)
		}
		wg.Go(func() {
			defer s.connections.Add(-1)
			defer s.strangers.welcome(n)
			s.serve(ctx, n)
		})
	}
}

// serve handles one connection until it ends.
func (s *Server) serve(ctx context.Context, n net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = n.Close() }) // wakes a read or write
	ctx, cancel := context.WithCancelCause(ctx)
	c := &conn{s: s, n: n, log: s.o.Logger.With("client", n.RemoteAddr().String()), used: map[server.Identity]bool{}, idle: s.o.IdleTimeout, room: semaphore.NewWeighted(maxWaitingBytes)}
	packets := make(chan packet, maxWaiting)
	var wg sync.WaitGroup
	wg.Go(func() { c.read(ctx, packets, cancel) })
	err := c.handle(ctx, packets)
	cause := context.Cause(ctx)
	c.leave() // before the end, by which a client knows that all is done
	cancel(nil)
	stop()
	_ = n.Close()
	wg.Wait()
	switch {
	case cause != nil && !errors.Is(cause, errReadEnded):
		return // we are told to stop
	case errors.Is(err, context.Canceled):
		c.log.Debug("canal: connection closed", "reason", cause)
	default:
		c.log.Warn("canal: connection closed", "error", err)
	}
}

// use is a subscription that connections use.
type use struct {
	connections int        // guarded by Server.mu
	gate        sync.Mutex // held while the subscription is being disconnected
}

// attach notes that the connection uses the subscription. It waits while that is being disconnected.
func (s *Server) attach(id server.Identity) {
	s.mu.Lock()
	u := s.uses[id]
	if u == nil {
		u = &use{}
		s.uses[id] = u
	}
	u.connections++
	s.mu.Unlock()
	u.settle()
}

// settle returns when nobody disconnects the subscription.
func (u *use) settle() {
	u.gate.Lock()
	defer u.gate.Unlock()
}

// detach ends that; the last connection that used the subscription disconnects it, so that the ring does not wait for it.
func (s *Server) detach(id server.Identity) error {
	s.mu.Lock()
	u := s.uses[id]
	u.connections--
	s.mu.Unlock()
	u.gate.Lock()
	defer u.gate.Unlock()
	if !s.unused(id, u, false) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	err := s.o.Upstream.Disconnect(ctx, id)
	s.unused(id, u, true)
	if errors.Is(err, server.ErrNotSubscribed) || errors.Is(err, server.ErrUnknownDestination) || errors.Is(err, server.ErrStopped) {
		return nil
	}
	return err
}

// unused tells whether no connection uses the subscription, and forgets it then if asked to.
func (s *Server) unused(id server.Identity, u *use, forget bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.connections > 0 || s.uses[id] != u {
		return false
	}
	if forget {
		delete(s.uses, id)
	}
	return true
}

// newSeed returns the bytes that a login is mixed with.
func newSeed() []byte {
	seed := make([]byte, seedSize)
	_, _ = rand.Read(seed) // never fails
	return seed
}
