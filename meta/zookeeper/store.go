package zookeeper

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/internal/zkdial"
	"github.com/binlogmq/binlogmq/meta"
)

// Defaults and limits.
const (
	DefaultSessionTimeout = 10 * time.Second
	MinSessionTimeout     = 2 * time.Second
	DefaultRoot           = "/binlogmq/default"

	// plainRecord is up to which size a record is kept as it is, for people to read.
	plainRecord = 64 << 10

	// maxNode is the most bytes of a znode. A server takes packets of 1 MiB by default (jute.maxbuffer),
	// and the transaction around the data needs some of that.
	maxNode = 1<<20 - 8<<10
)

// Options configure a Store. Servers is required.
type Options struct {
	Servers        []string      // host:port of each server
	SessionTimeout time.Duration // 0: DefaultSessionTimeout; the server may grant less or more
	Root           string        // absolute path below which everything lies; "": DefaultRoot
	User, Password string        // digest authentication; then only this user can read and write what is kept
	TLS            *tls.Config   // nil: plain TCP
	Node           string        // how this process names itself to people; "": host name and pid
	Logger         *slog.Logger  // nil: nothing is logged

	// Destinations are those that this process shares with others of the same Root. Without any it takes what it is told to.
	Destinations   []string
	Weight         int           // its share, beside the weights of the others; 0: only what nobody else takes
	RebalanceDelay time.Duration // how long the processes must be the same before a destination is moved; 0: DefaultRebalanceDelay

	Canal *Canal // how Canal's own cluster clients find this process; nil: they do not
}

// Store keeps records in ZooKeeper and hands out leases. It is safe for concurrent use; calls for one
// identity must be made one at a time.
type Store struct {
	opt     Options
	log     *slog.Logger
	conn    *zk.Conn
	acl     []zk.ACL
	dialer  *zkdial.Dialer
	quit    chan struct{} // closed by Close
	calls   sync.WaitGroup
	hub     *hub
	balance *balance // nil unless destinations are shared
	canal   *canalView
	end     context.CancelFunc // of the goroutines of both

	mu     sync.Mutex
	closed bool
	authed bool // the credentials are given to the client, which repeats them with each connection
	leases map[string]*lease
	taking map[string]bool // destinations that are being taken
	made   map[string]bool // directories known to be there
	up     bool            // a session is established now
	since  time.Time       // since when up is as it is
}

var (
	_ meta.Store  = (*Store)(nil)
	_ meta.Owners = (*Store)(nil)
)

var errClosed = errors.New("the store is closed")

// Open returns a store. It does not wait for ZooKeeper: calls do.
func Open(o Options) (*Store, error) {
	if len(o.Servers) == 0 {
		return nil, errors.New("zookeeper: no servers are given (meta.zookeeper.servers)")
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = DefaultSessionTimeout
	}
	if o.SessionTimeout < MinSessionTimeout {
		return nil, fmt.Errorf("zookeeper: a session timeout of %v is too short; %v is the least (meta.zookeeper.session_timeout)", o.SessionTimeout, MinSessionTimeout)
	}
	if o.Root == "" {
		o.Root = DefaultRoot
	}
	if !strings.HasPrefix(o.Root, "/") || path.Clean(o.Root) != o.Root || o.Root == "/" {
		return nil, fmt.Errorf("zookeeper: root %q is not a path such as %s (meta.zookeeper.root)", o.Root, DefaultRoot)
	}
	if o.Node == "" {
		host, _ := os.Hostname()
		o.Node = fmt.Sprintf("%s, process %d", host, os.Getpid())
	}
	s := &Store{opt: o, log: o.Logger, quit: make(chan struct{}), leases: map[string]*lease{}, taking: map[string]bool{}, made: map[string]bool{}, since: time.Now()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opt.RebalanceDelay == 0 {
		s.opt.RebalanceDelay = DefaultRebalanceDelay
	}
	s.hub = newHub()
	if len(o.Destinations) > 0 {
		s.balance = newBalance(s)
	}
	if o.Canal != nil {
		s.canal = newCanalView(s, *o.Canal)
	}
	s.acl = zk.WorldACL(zk.PermAll)
	if o.User != "" {
		s.acl = zk.AuthACL(zk.PermAll)
	}
	s.dialer = &zkdial.Dialer{TLS: o.TLS, Timeout: o.SessionTimeout}
	var err error
	s.conn, _, err = zk.Connect(o.Servers, o.SessionTimeout,
		zk.WithHostProvider(&hosts{}), zk.WithDialer(s.dialer.Dial), zk.WithLogger(clientLog{s.log}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(16<<20), zk.WithEventCallback(s.event))
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	if s.balance != nil {
		go s.balance.run(ctx)
	}
	if s.canal != nil {
		go s.canal.run(ctx)
	}
	return s, nil
}

// event is called by the client when something happens to the connection. It must not block.
func (s *Store) event(e zk.Event) {
	if e.Type != zk.EventSession {
		s.hub.fire(e.Path)
		return
	}
	switch e.State {
	case zk.StateExpired:
		s.hub.fireAll()
	case zk.StateHasSession:
		s.hub.pokeAll()
	}
	up := e.State == zk.StateHasSession
	if !up && e.State != zk.StateDisconnected && e.State != zk.StateExpired {
		return
	}
	s.mu.Lock()
	changed, closed := s.up != up, s.closed
	if changed {
		s.up, s.since = up, time.Now()
	}
	s.mu.Unlock()
	switch {
	case !changed || closed:
	case up:
		s.log.Info("ZooKeeper is connected", "server", e.Server, "session_timeout", s.dialer.Granted())
	default:
		s.log.Warn("ZooKeeper is away; leases last until they can no longer be proven", "server", e.Server, "for", s.hold())
	}
}

// hold is for how long a lease lasts after the last proof was sent; see the package's comment.
func (s *Store) hold() time.Duration { return s.dialer.Hold() }

// Close ends the session. Leases that are still held are released with it.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	var held []*lease
	for _, l := range s.leases {
		held = append(held, l)
	}
	s.mu.Unlock()
	for _, l := range held {
		l.lose(errReleased)
		l.wg.Wait()
	}
	s.end()
	if s.balance != nil {
		<-s.balance.ended
	}
	if s.canal != nil {
		<-s.canal.ended
	}
	close(s.quit)
	s.conn.Close()
	s.calls.Wait()
	return nil
}

// Status is what health checks and metrics show.
type Status struct {
	Connected      bool          // a session is established
	Since          time.Time     // since when Connected is as it is
	Server         string        // the server connected to last
	SessionTimeout time.Duration // that the server granted; 0 before the first session
}

// Status returns a snapshot.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{Connected: s.up, Since: s.since, Server: s.conn.Server(), SessionTimeout: s.dialer.Granted()}
}

// String names the servers and the root, for people.
func (s *Store) String() string {
	return "zookeeper " + strings.Join(s.opt.Servers, ",") + s.opt.Root
}

// ---- paths

func (s *Store) destinations() string { return s.opt.Root + "/destinations" }

// nodes holds a node for each process that shares destinations.
func (s *Store) nodes() string { return s.opt.Root + "/nodes" }

func (s *Store) dir(destination string) string {
	return s.destinations() + "/" + meta.Escape(destination)
}

func (s *Store) owner(destination string) string { return s.dir(destination) + "/owner" }

func (s *Store) epoch(destination string) string { return s.dir(destination) + "/epoch" }

func (s *Store) subscriptions(destination string) string {
	return s.dir(destination) + "/subscriptions"
}

func (s *Store) record(id meta.Identity) (string, error) {
	if err := id.Validate(); err != nil {
		return "", err
	}
	return s.subscriptions(id.Destination) + "/" + meta.Escape(id.Client), nil
}

// authenticate gives the client the credentials, once.
func (s *Store) authenticate(ctx context.Context) error {
	s.mu.Lock()
	done := s.authed || s.opt.User == ""
	s.mu.Unlock()
	if done {
		return nil
	}
	_, err := call(ctx, s, func() (struct{}, error) {
		return struct{}{}, s.conn.AddAuth("digest", []byte(s.opt.User+":"+s.opt.Password))
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.authed = true
	s.mu.Unlock()
	return nil
}

// ensure makes a directory and those above it.
func (s *Store) ensure(ctx context.Context, dir string, acl []zk.ACL) error {
	if err := s.authenticate(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	there := s.made[dir]
	s.mu.Unlock()
	if there {
		return nil
	}
	for i := 1; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		at := dir[:i]
		_, err := call(ctx, s, func() (string, error) { return s.conn.Create(at, nil, 0, acl) })
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
		case errors.Is(err, zk.ErrNoAuth) && i < len(dir):
			// One above, made by somebody else, perhaps for us.
		default:
			return s.explain(err, at)
		}
	}
	s.mu.Lock()
	s.made[dir] = true
	s.mu.Unlock()
	return nil
}

// away reports whether err says that ZooKeeper was not reached, or not for sure: trying again may help.
func away(err error) bool {
	for _, e := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// explain says what to do about an error of the client.
func (s *Store) explain(err error, at string) error {
	switch {
	case errors.Is(err, errClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case away(err):
		return fmt.Errorf("ZooKeeper at %s cannot be reached: %w", strings.Join(s.opt.Servers, ", "), err)
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("ZooKeeper node %s: %w; give the user that made it in meta.zookeeper.auth, or another meta.zookeeper.root", at, err)
	}
	return fmt.Errorf("ZooKeeper node %s: %w", at, err)
}

// retry repeats a reading that fails because ZooKeeper is away, until ctx ends.
func (s *Store) retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || !away(err) {
			return err
		}
		if serr := s.sleep(ctx, s.opt.SessionTimeout/20); serr != nil {
			return fmt.Errorf("%w (%w)", err, serr)
		}
	}
}

func (s *Store) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.quit:
		return errClosed
	}
}

// ---- records

type node struct {
	data []byte
	stat *zk.Stat
}

func (s *Store) get(ctx context.Context, at string) (node, error) {
	if err := s.authenticate(ctx); err != nil {
		return node{}, err
	}
	return call(ctx, s, func() (node, error) {
		data, stat, err := s.conn.Get(at)
		return node{data, stat}, err
	})
}

// Load implements meta.Store. It waits while ZooKeeper is away. For the destination's owner it is what was saved
// last; others may see what was saved a moment before. That nothing is saved of a client of which a Canal has left a cursor is an error of its own,
// where Canal's nodes are kept.
func (s *Store) Load(ctx context.Context, id meta.Identity) (*meta.Record, error) {
	at, err := s.record(id)
	if err != nil {
		return nil, err
	}
	var n node
	err = s.retry(ctx, func() (err error) {
		n, err = s.get(ctx, at)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		if s.canal != nil {
			if err := s.retry(ctx, func() error { return s.canal.left(ctx, id) }); err != nil {
				return nil, err
			}
		}
		return nil, fmt.Errorf("%s: %w", id, meta.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("cursor of %s: %w", id, s.explain(err, at))
	}
	data, err := unpack(n.data)
	var got meta.Identity
	var r *meta.Record
	if err == nil {
		got, r, err = meta.DecodeRecord(data)
	}
	if err == nil && got != id {
		err = fmt.Errorf("it belongs to %s", got)
	}
	if err != nil {
		return nil, fmt.Errorf("ZooKeeper node %s, the cursor of %s, cannot be used: %w: %w; restore it with binlogmq cursor import, or set the cursor with: binlogmq cursor set", at, id, meta.ErrDamaged, err)
	}
	return r, nil
}

// Save implements meta.Store. It is refused with meta.ErrFenced unless this process holds the destination's lease.
func (s *Store) Save(ctx context.Context, id meta.Identity, r *meta.Record) error {
	at, err := s.record(id)
	if err != nil {
		return err
	}
	data, err := meta.EncodeRecord(id, r)
	if err == nil {
		data, err = pack(data)
	}
	if err != nil {
		return fmt.Errorf("cursor of %s not saved: %w", id, err)
	}
	set := []any{&zk.SetDataRequest{Path: at, Data: data, Version: -1}}
	create := []any{&zk.CreateRequest{Path: at, Data: data, Acl: s.acl}}
	err = s.conditional(ctx, id, set)
	if errors.Is(err, zk.ErrNoNode) {
		err = s.conditional(ctx, id, create)
		if errors.Is(err, zk.ErrNodeExists) { // the answer to an earlier try was lost
			err = s.conditional(ctx, id, set)
		}
	}
	if err != nil {
		return fmt.Errorf("cursor of %s not saved: %w", id, s.explain(err, at))
	}
	if s.canal != nil {
		s.canal.saved(id, r)
	}
	return nil
}

// conditional carries out ops if this process holds the destination's lease.
func (s *Store) conditional(ctx context.Context, id meta.Identity, ops []any) error {
	s.mu.Lock()
	l := s.leases[id.Destination]
	s.mu.Unlock()
	if l == nil {
		return fmt.Errorf("%w, or may: this process has no lease of it", meta.ErrFenced)
	}
	return l.do(ctx, ops)
}

// Delete implements meta.Store, on the conditions of Save.
func (s *Store) Delete(ctx context.Context, id meta.Identity) error {
	at, err := s.record(id)
	if err != nil {
		return err
	}
	err = s.conditional(ctx, id, []any{&zk.DeleteRequest{Path: at, Version: -1}})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("cursor of %s not deleted: %w", id, s.explain(err, at))
	}
	if s.canal != nil {
		s.canal.saved(id, nil)
	}
	return nil
}

func (s *Store) children(ctx context.Context, at string) (names []string, err error) {
	err = s.retry(ctx, func() error {
		if err := s.authenticate(ctx); err != nil {
			return err
		}
		names, err = call(ctx, s, func() ([]string, error) {
			names, _, err := s.conn.Children(at)
			return names, err
		})
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain(err, at)
	}
	return names, nil
}

// List implements meta.Store. Nodes that are not cursors are passed over.
func (s *Store) List(ctx context.Context, destination string) ([]meta.Identity, error) {
	dirs := []string{meta.Escape(destination)}
	if destination == "" {
		var err error
		if dirs, err = s.children(ctx, s.destinations()); err != nil {
			return nil, err
		}
	}
	var ids []meta.Identity
	for _, dir := range dirs {
		d, ok := meta.Unescape(dir)
		if !ok {
			continue
		}
		names, err := s.children(ctx, s.subscriptions(d))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			c, ok := meta.Unescape(name)
			if id := (meta.Identity{Destination: d, Client: c}); ok && id.Validate() == nil {
				ids = append(ids, id)
			}
		}
	}
	meta.SortIdentities(ids)
	return ids, nil
}

// pack compresses a large record. What does not fit a znode is an error.
func pack(data []byte) ([]byte, error) {
	if len(data) <= plainRecord {
		return data, nil
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	if b.Len() > maxNode {
		return nil, fmt.Errorf("the record takes %d bytes, compressed, and a ZooKeeper node at most %d: its state names too many topic partitions; "+
			"split the sink's tables over several sinks, or keep cursors in files (meta.file)", b.Len(), maxNode)
	}
	return b.Bytes(), nil
}

// unpack undoes pack.
func unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, meta.MaxRecord+1))
	if err == nil && len(out) > meta.MaxRecord {
		err = fmt.Errorf("larger than %d bytes", meta.MaxRecord)
	}
	return out, err
}
