package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"google.golang.org/protobuf/encoding/protowire"
)

// broker stands in for a real one where faults are to be injected that a real
// one cannot be made to show at will. It knows deduplication (as in
// MessageDeduplication.isDuplicateNormal), exclusive producers with epochs and
// fencing, lookup, and receipts in the order of the ledger.
type broker struct {
	t    testing.TB
	ln   net.Listener
	addr string
	wg   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	topics   map[string]*fakeTopic
	conns    map[*fakeConn]bool
	connects []fields // of CONNECT; strings are copies

	partitions map[string]int
	maxMessage int
	limit      int // the topics' own; 0: none
	token      string
	challenge  bool // credentials are asked for again at once
	noDedup    bool
	mute       bool // says nothing at all
	jitter     bool // persisting takes a random time
	hold       bool // persisting waits for release
	fate       func(e *fakeEntry) fate
	lookup     func(topic string, authoritative bool) (redirect, proxied bool, addr string)
	producing  func(access uint64) *Error // refuses CommandProducer
}

type fate int

const (
	normal     fate = iota
	cutBefore       // the connection is cut, the entry not read
	cutAfter        // the entry goes to the ledger, its receipt is lost with the connection
	silent          // stored, no receipt
	fails           // persisting fails: the topic closes its producers and resets
	closes          // CLOSE_PRODUCER instead
	swapped         // the receipt names another id
	unknown         // SEND_ERROR PersistenceError though nothing is wrong
	corrupt         // SEND_ERROR ChecksumError
	terminated      // SEND_ERROR TopicTerminated
)

type fakeEntry struct {
	producer     string
	first, last  int64
	command      fields // SEND
	meta         fields // MessageMetadata
	ids          []int64
	payloads     []string
	size         int
	conn         *fakeConn
	id           uint64 // producer id
	topic        *fakeTopic
	lostReceipt  bool
	failsPersist bool
}

type fakeTopic struct {
	name              string
	stored            []*fakeEntry
	pushed, persisted map[string]int64
	holder            *fakeProducer
	others            map[*fakeProducer]bool // shared
	epoch             int64
	pending           []*fakeEntry
	running           bool
}

type fakeProducer struct {
	id    uint64
	name  string
	topic *fakeTopic
	conn  *fakeConn
	gone  bool
}

type fakeConn struct {
	b     *broker
	nc    net.Conn
	wmu   sync.Mutex
	prods map[uint64]*fakeProducer
}

func newBroker(t testing.TB) *broker {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, ln: ln, addr: ln.Addr().String(), topics: map[string]*fakeTopic{}, conns: map[*fakeConn]bool{}, partitions: map[string]int{}, maxMessage: 5 << 20}
	b.wg.Go(b.accept)
	t.Cleanup(func() {
		b.set(func() { b.closed = true; b.hold = false })
		ln.Close()
		b.cut()
		b.wg.Wait()
	})
	return b
}

func (b *broker) url() string { return "pulsar://" + b.addr }

func (b *broker) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// cut cuts all connections.
func (b *broker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		c.nc.Close()
	}
}

// release lets persisting go on.
func (b *broker) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold = false
	for _, t := range b.topics {
		b.start(t)
	}
}

// start runs the topic's writer; b.mu is held.
func (b *broker) start(t *fakeTopic) {
	if t.running || len(t.pending) == 0 || b.hold {
		return
	}
	t.running = true
	b.wg.Go(func() { b.persist(t) })
}

func (b *broker) persist(t *fakeTopic) {
	for {
		b.mu.Lock()
		if len(t.pending) == 0 || b.hold {
			t.running = false
			b.mu.Unlock()
			return
		}
		e := t.pending[0]
		t.pending = t.pending[1:]
		wait := time.Duration(0)
		if b.jitter && rand.IntN(8) == 0 {
			wait = time.Duration(rand.IntN(1000)) * time.Microsecond
		}
		if e.failsPersist {
			// PersistentTopic.addFailed: all that is pending fails, the producers are closed, pushed goes back.
			t.pending = nil
			t.pushed[e.producer] = get(t.persisted, e.producer)
			if p := t.holder; p != nil {
				b.closeProducer(p)
				p.conn.send(cmdCloseProducer, closeBody(p.id, 0))
			}
			b.mu.Unlock()
			continue
		}
		b.mu.Unlock()
		time.Sleep(wait)
		b.mu.Lock()
		t.stored = append(t.stored, e)
		t.persisted[e.producer] = max(get(t.persisted, e.producer), e.last)
		n := int64(len(t.stored))
		lost := e.lostReceipt
		b.mu.Unlock()
		if !lost {
			e.conn.receipt(e.id, e.first, e.last, 1, n)
		}
	}
}

func get(m map[string]int64, name string) int64 {
	if v, ok := m[name]; ok {
		return v
	}
	return -1
}

func (b *broker) topic(name string) *fakeTopic {
	t := b.topics[name]
	if t == nil {
		t = &fakeTopic{name: name, pushed: map[string]int64{}, persisted: map[string]int64{}, others: map[*fakeProducer]bool{}, epoch: -1}
		b.topics[name] = t
	}
	return t
}

// ids returns the ids of all messages stored.
func (b *broker) ids(topic string) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []int64
	for _, e := range b.topic(topic).stored {
		ids = append(ids, e.ids...)
	}
	return ids
}

func (b *broker) entries(topic string) []*fakeEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*fakeEntry(nil), b.topic(topic).stored...)
}

func (b *broker) accept() {
	for {
		nc, err := b.ln.Accept()
		if err != nil {
			return
		}
		c := &fakeConn{b: b, nc: nc, prods: map[uint64]*fakeProducer{}}
		b.mu.Lock()
		if b.closed {
			nc.Close()
		}
		b.conns[c] = true
		b.mu.Unlock()
		b.wg.Go(c.run)
	}
}

func (c *fakeConn) send(typ int, body []byte) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.nc.Write(appendCommand(nil, typ, body))
}

func (c *fakeConn) receipt(id uint64, first, last, ledger, entry int64) {
	pos := appendNum(appendNum(nil, 1, uint64(ledger)), 2, uint64(entry))
	c.send(cmdSendReceipt, appendNum(appendData(appendNum(appendNum(nil, 1, id), 2, uint64(first)), 3, pos), 4, uint64(last)))
}

func (c *fakeConn) refuse(request uint64, e *Error) {
	c.send(cmdError, appendText(appendNum(appendNum(nil, 1, request), 2, uint64(e.Code)), 3, e.Message))
}

func (c *fakeConn) sendError(id uint64, seq int64, code int, text string) {
	c.send(cmdSendError, appendText(appendNum(appendNum(appendNum(nil, 1, id), 2, uint64(seq)), 3, uint64(code)), 4, text))
}

func (c *fakeConn) run() {
	br := bufio.NewReaderSize(c.nc, 1<<16)
	defer func() {
		c.nc.Close()
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		delete(c.b.conns, c)
		for _, p := range c.prods {
			c.b.closeProducer(p)
		}
	}()
	for {
		h := make([]byte, 4)
		if _, err := io.ReadFull(br, h); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(h))
		if _, err := io.ReadFull(br, frame); err != nil {
			return
		}
		c.b.mu.Lock()
		mute := c.b.mute
		c.b.mu.Unlock()
		if mute {
			continue
		}
		n := binary.BigEndian.Uint32(frame)
		typ, body, err := parseCommand(frame[4 : 4+n])
		var f fields
		if err == nil {
			err = f.parse(body)
		}
		if err != nil {
			c.b.t.Errorf("the client sent rubbish: %v", err)
			return
		}
		if !c.command(typ, &f, frame[4+n:]) {
			return
		}
	}
}

// closeProducer frees what p holds; b.mu is held.
func (b *broker) closeProducer(p *fakeProducer) {
	p.gone = true
	if p.topic.holder == p {
		p.topic.holder = nil
	}
	delete(p.topic.others, p)
}

func (c *fakeConn) command(typ int, f *fields, rest []byte) bool {
	b := c.b
	switch typ {
	case cmdConnect:
		b.mu.Lock()
		b.connects = append(b.connects, *f)
		ok := b.token == "" || string(f.bytes(3)) == b.token && string(f.bytes(5)) == "token"
		max, challenge := b.maxMessage, b.challenge
		b.mu.Unlock()
		if !ok {
			c.refuse(^uint64(0), &Error{Code: CodeAuthentication, Message: "Failed to authenticate"})
			return false
		}
		if challenge {
			c.send(cmdAuthChallenge, nil)
		}
		c.send(cmdConnected, appendNum(appendNum(appendText(nil, 1, "fake"), 2, 19), 3, uint64(max)))
		if challenge {
			c.send(cmdAuthChallenge, nil)
		}
	case cmdAuthResponse:
		var data fields
		if data.parse(f.bytes(2)) != nil || string(data.bytes(2)) != b.token {
			b.t.Error("wrong credentials after a challenge")
		}
	case cmdPing:
		c.send(cmdPong, nil)
	case cmdPong:
	case cmdPartitionedMetadata:
		b.mu.Lock()
		n := b.partitions[string(f.bytes(1))]
		b.mu.Unlock()
		c.send(cmdPartitionedAnswer, appendNum(appendNum(appendNum(nil, 1, uint64(n)), 2, f.uint(2)), 3, 0))
	case cmdLookup:
		redirect, proxied, addr := false, false, b.addr
		b.mu.Lock()
		hook := b.lookup
		b.mu.Unlock()
		if hook != nil {
			redirect, proxied, addr = hook(string(f.bytes(1)), f.uint(3) == 1)
		}
		a := appendText(nil, 1, "pulsar://"+addr)
		a = appendNum(a, 3, map[bool]uint64{true: 0, false: 1}[redirect])
		a = appendNum(appendNum(a, 4, f.uint(2)), 5, 1)
		if proxied {
			a = appendNum(a, 8, 1)
		}
		c.send(cmdLookupAnswer, a)
	case cmdProducer:
		c.produce(f)
	case cmdCloseProducer:
		b.mu.Lock()
		p := c.prods[f.uint(1)]
		if p != nil {
			b.closeProducer(p)
		}
		b.mu.Unlock()
		c.send(cmdSuccess, appendNum(nil, 1, f.uint(2)))
	case cmdSend:
		return c.entry(f, rest)
	default:
		b.t.Errorf("command %d is unexpected", typ)
	}
	return true
}

func (c *fakeConn) produce(f *fields) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topic(string(f.bytes(1)))
	p := &fakeProducer{id: f.uint(2), name: string(f.bytes(4)), topic: t, conn: c}
	access := f.uint(10)
	if b.producing != nil {
		if e := b.producing(access); e != nil {
			c.refuse(f.uint(3), e)
			return
		}
	}
	known, epoch := f.nums&(1<<11) != 0, f.int(11, -1)
	moved := &Error{Code: CodeProducerFenced, Message: fmt.Sprintf("Topic epoch has already moved. Current epoch: %d, Producer epoch: %d", t.epoch, epoch)}
	switch Access(access) {
	case Shared:
		if t.holder != nil {
			c.refuse(f.uint(3), &Error{Code: CodeProducerBusy, Message: heldBy + t.holder.name})
			return
		}
		t.others[p] = true
	case Exclusive:
		switch {
		case t.holder != nil:
			c.refuse(f.uint(3), &Error{Code: CodeProducerFenced, Message: "Topic has an " + heldBy + t.holder.name})
			return
		case known && epoch < t.epoch:
			c.refuse(f.uint(3), moved)
			return
		}
	case exclusiveWithFencing:
		if old := t.holder; old != nil {
			b.closeProducer(old)
			old.conn.send(cmdCloseProducer, closeBody(old.id, 0))
		}
		if known && epoch < t.epoch {
			c.refuse(f.uint(3), moved)
			return
		}
	default:
		b.t.Errorf("access mode %d", access)
	}
	if Access(access) != Shared {
		t.holder = p
		if known {
			t.epoch = epoch
		} else {
			t.epoch++
		}
	}
	c.prods[p.id] = p
	last := get(t.pushed, p.name)
	if b.noDedup {
		last = -1
	}
	a := appendNum(appendText(appendNum(nil, 1, f.uint(3)), 2, p.name), 3, uint64(last))
	c.send(cmdProducerSuccess, appendNum(appendNum(a, 5, uint64(t.epoch)), 6, 1))
}

func (c *fakeConn) entry(f *fields, rest []byte) bool {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	p := c.prods[f.uint(1)]
	if p == nil {
		b.t.Errorf("an entry of an unknown producer %d", f.uint(1))
		return false
	}
	if p.gone {
		return true
	}
	t := p.topic
	e := &fakeEntry{producer: p.name, first: f.int(2, -1), last: f.int(6, f.int(2, -1)), command: *f, conn: c, id: p.id, topic: t}
	if err := e.decode(rest); err != nil {
		b.t.Errorf("entry %d: %v", e.first, err)
		return false
	}
	if e.size > b.maxMessage {
		b.t.Errorf("entry %d has %d bytes", e.first, e.size)
	}
	what := normal
	if b.fate != nil {
		what = b.fate(e)
	}
	switch what {
	case cutBefore:
		return false
	case closes:
		b.closeProducer(p)
		c.send(cmdCloseProducer, closeBody(p.id, 0))
		return true
	case unknown:
		c.sendError(p.id, e.last, CodePersistence, "Cannot determine whether the message is a duplicate at this time")
		return true
	case corrupt:
		c.sendError(p.id, e.first, CodeChecksum, "Checksum failed on the broker")
		return true
	case terminated:
		c.sendError(p.id, e.last, CodeTopicTerminated, "topic was already terminated")
		return true
	case fails:
		e.failsPersist = true
	case silent, cutAfter:
		e.lostReceipt = true
	case swapped:
		c.receipt(p.id, e.first+1, e.last+1, 1, 1)
		e.lostReceipt = true
	}
	if b.limit > 0 && e.size > b.limit {
		c.sendError(p.id, e.last, CodeNotAllowed, "Exceed maximum message size")
		return true
	}
	if !b.noDedup {
		if e.first <= get(t.pushed, p.name) {
			if e.first <= get(t.persisted, p.name) {
				c.receipt(p.id, e.first, e.last, -1, -1)
			} else {
				c.sendError(p.id, e.last, CodePersistence, "Cannot determine whether the message is a duplicate at this time")
			}
			return true
		}
		t.pushed[p.name] = e.last
	}
	t.pending = append(t.pending, e)
	b.start(t)
	return what != cutAfter
}

// decode checks an entry as a broker and a consumer would.
func (e *fakeEntry) decode(b []byte) error {
	if len(b) < 10 || b[0] != 0x0e || b[1] != 1 {
		return fmt.Errorf("no checksum")
	}
	if crc32.Checksum(b[6:], castagnoli) != binary.BigEndian.Uint32(b[2:]) {
		return fmt.Errorf("wrong checksum")
	}
	b = b[6:]
	e.size = len(b) - 4
	n := binary.BigEndian.Uint32(b)
	if err := e.meta.parse(b[4 : 4+n]); err != nil {
		return err
	}
	payload, err := uncompress(int(e.meta.uint(8)), b[4+n:], int(e.meta.uint(9)))
	if err != nil {
		return err
	}
	if e.meta.int(2, -1) != e.first || string(e.meta.bytes(1)) != e.producer || e.meta.uint(3) == 0 {
		return fmt.Errorf("the metadata differ from the command")
	}
	if e.meta.nums&(1<<11) == 0 {
		e.ids, e.payloads = []int64{e.first}, []string{string(payload)}
		return nil
	}
	if e.meta.int(24, -1) != e.last || e.command.nums&(1<<6) == 0 {
		return fmt.Errorf("no highest id")
	}
	for len(payload) > 0 {
		n := binary.BigEndian.Uint32(payload)
		var m fields
		if err := m.parse(payload[4 : 4+n]); err != nil {
			return err
		}
		payload = payload[4+n:]
		size := m.uint(3)
		e.ids = append(e.ids, m.int(8, -1))
		e.payloads = append(e.payloads, string(payload[:size]))
		payload = payload[size:]
	}
	if len(e.ids) != int(e.meta.uint(11)) || len(e.ids) != int(e.command.uint(3)) || e.ids[0] != e.first || e.ids[len(e.ids)-1] != e.last {
		return fmt.Errorf("the ids %v are not those of the entry %d..%d", e.ids, e.first, e.last)
	}
	return nil
}

func uncompress(typ int, b []byte, size int) ([]byte, error) {
	switch typ {
	case compressNone:
		if len(b) != size {
			return nil, fmt.Errorf("uncompressed size %d of %d bytes", size, len(b))
		}
		return b, nil
	case compressLZ4:
		out := make([]byte, size)
		n, err := lz4.UncompressBlock(b, out)
		return out[:max(n, 0)], err
	case compressZLib:
		r, err := zlib.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case compressZstd:
		d, err := zstd.NewReader(nil)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(b, nil)
	case compressSnappy:
		return s2.Decode(nil, b)
	}
	return nil, fmt.Errorf("compression %d", typ)
}

// headers returns the properties of an unbatched entry.
func headers(meta []byte) map[string]string {
	out := map[string]string{}
	for len(meta) > 0 {
		num, typ, n := protowire.ConsumeTag(meta)
		meta = meta[n:]
		n = protowire.ConsumeFieldValue(num, typ, meta)
		if num == 4 {
			kv, _ := protowire.ConsumeBytes(meta)
			var f fields
			_ = f.parse(kv)
			out[string(f.bytes(1))] = string(f.bytes(2))
		}
		meta = meta[n:]
	}
	return out
}
