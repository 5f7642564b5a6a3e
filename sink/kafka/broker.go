package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

// broker is the leader of some lanes. Its goroutine runs for as long as the
// session; it connects when a lane has something to send.
type broker struct {
	ses  *session
	id   int32
	wake chan struct{}

	search chan struct{} // unknown is not empty

	// Guarded by the session's mu.
	addr    string
	ready   []*lane // may hold lanes that have moved or emptied meanwhile
	unknown []*lane // to be synchronised before they send; likewise
	pipe    *pipe   // nil: not connected
	err     error   // why it cannot be reached or does not answer
}

// pipe is one connection to a broker with the requests on their way, oldest first.
type pipe struct {
	b       *broker
	conn    *conn
	version int16 // of the Produce API

	// Guarded by the session's mu.
	sent []*request
	free []*request
	err  error // why the connection is of no more use
}

// request is one Produce request.
type request struct {
	batches []*batch
	acked   []*batch // of batches, when the answer is taken in
	buf     []byte
	corr    int32
	at      time.Time
}

func (b *broker) signal() { notify(b.wake) }

// slow says whether the oldest request has been on its way for long. Caller holds mu.
func (b *broker) slow() bool {
	return b.pipe != nil && len(b.pipe.sent) > 0 && time.Since(b.pipe.sent[0].at) >= b.ses.s.o.slowAfter
}

// hasReady drops stale entries and says whether a lane is left. Caller holds mu.
func (b *broker) hasReady() bool {
	for len(b.ready) > 0 {
		l := b.ready[0]
		if l.broker == b && l.listed && l.sendable() {
			return true
		}
		b.drop()
		if l.broker == b {
			l.listed = false
			l.poke() // it may have to be synchronised
		}
	}
	return false
}

func (b *broker) drop() {
	b.ready[0] = nil
	b.ready = b.ready[1:]
	if len(b.ready) == 0 {
		b.ready = b.ready[:0:0]
	}
}

func (b *broker) run() {
	defer b.ses.wg.Done()
	comp, err := newCompressor(b.ses.s.o.Compression, b.ses.s.o.CompressionLevel)
	if err != nil {
		b.ses.fail(err)
		return
	}
	defer comp.close()
	enc := &encoder{ses: b.ses, comp: comp}
	for attempts := 0; b.waitReady(); {
		b.ses.mu.Lock()
		addr := b.addr
		b.ses.mu.Unlock()
		if err := b.ses.s.o.Owner(); err != nil { // I8
			b.ses.fail(err)
			return
		}
		c, err := b.ses.s.dial.dial(b.ses.ctx, addr)
		if b.ses.ctx.Err() != nil {
			if c != nil {
				c.Close()
			}
			return
		}
		var version int16
		if err == nil {
			version, err = c.version(produceKey, b.ses.s.minProduceVersion(), maxProduceVersion)
			if err != nil {
				c.Close()
			}
		}
		b.unreachable(err)
		if err != nil {
			attempts++
			b.ses.retries.Add(1)
			b.ses.logRetry(fmt.Sprintf("connecting to broker %d", b.id), attempts, err)
			if retry.Sleep(b.ses.ctx, backoff(attempts)) != nil {
				return
			}
			continue
		}
		attempts = 0
		b.serve(&pipe{b: b, conn: c, version: version}, enc)
	}
	b.unreachable(nil)
}

// waitReady waits until a lane has something to send; false at the session's end.
func (b *broker) waitReady() bool {
	for {
		b.ses.mu.Lock()
		ready := b.hasReady() || b.hasUnknown()
		if !ready {
			b.setErr(nil)
		}
		b.ses.mu.Unlock()
		if b.ses.ctx.Err() != nil {
			return false
		}
		if ready {
			return true
		}
		select {
		case <-b.wake:
		case <-b.ses.ctx.Done():
			return false
		}
	}
}

// unreachable notes the outcome of connecting. After an error the lanes may
// have another leader: look at once.
func (b *broker) unreachable(err error) {
	b.ses.mu.Lock()
	defer b.ses.mu.Unlock()
	b.setErr(err)
	if err != nil {
		for _, l := range b.ready {
			b.ses.lookUp(l.t.name)
		}
	}
}

func (b *broker) setErr(err error) {
	b.ses.setTrouble(b.err != nil, err)
	b.err = err
}

// serve sends over one connection until it fails or the session ends. The
// batches that are on their way then go back to their lanes.
func (b *broker) serve(p *pipe, enc *encoder) {
	ses := b.ses
	p.conn.SetDeadline(time.Time{}) //nolint:errcheck // a broken connection shows at the first use
	stop := context.AfterFunc(ses.ctx, func() { p.conn.Close() })
	defer stop()
	ses.mu.Lock()
	b.pipe = p
	ses.mu.Unlock()
	var parts sync.WaitGroup
	parts.Go(p.read)
	ctx, cancel := context.WithCancel(ses.ctx)
	defer cancel()
	if ses.s.book != nil {
		parts.Go(func() { p.synchronise(ctx) })
	}
	for p.sendNext(enc) {
	}
	p.conn.Close()
	cancel()
	parts.Wait()
	p.giveBack()
}

// sendNext waits until a request may be sent, and sends it. It returns false
// when the connection is of no more use.
func (p *pipe) sendNext(enc *encoder) bool {
	ses := p.b.ses
	for {
		ses.mu.Lock()
		if ses.err != nil || p.err != nil {
			ses.mu.Unlock()
			return false
		}
		if p.conn.expired() {
			if len(p.sent) == 0 {
				ses.mu.Unlock()
				return false
			}
		} else if len(p.sent) < ses.s.o.RequestsInFlight && p.b.hasReady() {
			break
		}
		ses.mu.Unlock()
		select {
		case <-p.b.wake:
		case <-ses.ctx.Done():
		}
	}
	r := p.take()
	ses.mu.Unlock()

	err := enc.encode(r, p)

	ses.mu.Lock()
	// From here on giveBack owns the batches, whatever happens.
	p.sent = append(p.sent, r)
	r.at = time.Now()
	if err != nil {
		ses.mu.Unlock()
		ses.fail(err)
		return false
	}
	if ses.err != nil || p.err != nil {
		ses.mu.Unlock()
		return false
	}
	if len(p.sent) == 1 {
		p.setReadDeadline()
	}
	ses.mu.Unlock()

	if err := ses.s.o.Owner(); err != nil { // I8: the last moment to know
		ses.fail(err)
		return false
	}
	p.conn.SetWriteDeadline(r.at.Add(ses.s.clientTimeout())) //nolint:errcheck // Write reports it
	killpoint.Hit("kafka.send")
	if _, err := p.conn.Write(r.buf); err != nil {
		ses.mu.Lock()
		p.fail(err)
		ses.mu.Unlock()
		return false
	}
	return true
}

// take builds the next request's list of batches: at most one per lane. Caller holds mu.
func (p *pipe) take() *request {
	var r *request
	if n := len(p.free); n > 0 {
		r = p.free[n-1]
		p.free = p.free[:n-1]
	} else {
		r = &request{}
	}
	b := p.b
	size := 0
	for size < b.ses.s.o.RequestBytes && b.hasReady() {
		l := b.ready[0]
		if size > 0 && size+l.nextSize() > maxBatchBytes {
			break
		}
		b.drop()
		l.listed = false
		bt := l.next()
		bt.answered = false
		r.batches = append(r.batches, bt)
		size += bt.size()
	}
	slices.SortFunc(r.batches, func(x, y *batch) int {
		if x.l.t != y.l.t {
			return strings.Compare(x.l.t.name, y.l.t.name)
		}
		return int(x.l.partition) - int(y.l.partition)
	})
	return r
}

// setReadDeadline starts the clock for the oldest request. Caller holds mu.
func (p *pipe) setReadDeadline() {
	var t time.Time
	if len(p.sent) > 0 {
		t = time.Now().Add(p.b.ses.s.clientTimeout())
	}
	p.conn.SetReadDeadline(t) //nolint:errcheck // a broken connection shows in read
}

// fail notes why the connection is of no more use. Caller holds mu.
func (p *pipe) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.b.signal()
}

// read handles the answers, which come in the order of the requests.
func (p *pipe) read() {
	var frame []byte
	for {
		var err error
		if frame, err = p.conn.readFrame(frame); err == nil {
			err = p.handle(frame)
		}
		if cap(frame) > 1<<20 {
			frame = nil
		}
		if err != nil {
			p.b.ses.mu.Lock()
			p.fail(err)
			p.b.ses.mu.Unlock()
			return
		}
	}
}

// handle takes one answer in.
func (p *pipe) handle(frame []byte) error {
	ses := p.b.ses
	ses.mu.Lock()
	if len(p.sent) == 0 {
		ses.mu.Unlock()
		return errors.New("kafka: an answer came without a request")
	}
	r := p.sent[0]
	if corr := int32(binary.BigEndian.Uint32(frame[4:])); corr != r.corr {
		ses.mu.Unlock()
		return fmt.Errorf("kafka: an answer came out of turn (correlation id %d, not %d)", corr, r.corr)
	}
	killpoint.Hit("kafka.answer") // under the lock: nothing else is sent meanwhile
	// All answers are read before any takes effect: a torn response counts as none.
	next, n := 0, 0
	err := parseProduce(frame[8:], p.version, func(a *producePartition) error {
		if next = r.find(a, next); next < 0 || r.batches[next].answered {
			return fmt.Errorf("kafka: an answer names %s/%d, which was not sent or named before", a.topic, a.partition)
		}
		r.batches[next].answered = true
		n++
		return nil
	})
	if err == nil && n != len(r.batches) {
		err = fmt.Errorf("kafka: an answer names %d of %d partitions", n, len(r.batches))
	}
	if err != nil {
		ses.mu.Unlock()
		return err
	}
	p.sent = slices.Delete(p.sent, 0, 1)
	p.setReadDeadline()
	p.b.setErr(nil)

	var fatal error
	next = 0
	_ = parseProduce(frame[8:], p.version, func(a *producePartition) error { // cannot fail: it has just not failed
		next = r.find(a, next)
		bt := r.batches[next]
		acked, err := ses.settle(bt, a)
		if acked {
			r.acked = append(r.acked, bt)
		}
		if err != nil && fatal == nil {
			fatal = err
		}
		return nil
	})
	p.b.signal()
	ended, rest := ses.err, []entry(nil)
	if ended != nil { // fail has been there before these came back to their lanes
		for _, bt := range r.batches {
			rest = bt.l.drain(rest)
		}
	}
	ses.mu.Unlock()

	for _, bt := range r.acked {
		ses.acknowledged(bt)
	}
	ses.done(rest, ended)
	if fatal != nil {
		ses.fail(fatal)
	}

	ses.mu.Lock()
	for _, bt := range r.acked {
		ses.recycle(bt)
	}
	p.reuse(r)
	ses.mu.Unlock()
	return nil
}

// reuse keeps r for another use. Caller holds mu.
func (p *pipe) reuse(r *request) {
	clear(r.batches)
	clear(r.acked)
	r.batches, r.acked = r.batches[:0], r.acked[:0]
	if cap(r.buf) > p.b.ses.s.o.RequestBytes*2 {
		r.buf = nil
	}
	p.free = append(p.free, r)
}

// find returns the index of the batch that a answers, looking from hint on; -1: none.
func (r *request) find(a *producePartition, hint int) int {
	for i := range r.batches {
		k := (hint + i) % len(r.batches)
		if l := r.batches[k].l; l.partition == a.partition && l.t.name == string(a.topic) {
			return k
		}
	}
	return -1
}

// settle applies the broker's answer to a batch: it is acknowledged, or goes back
// to its lane; then an error returned ends the session. Caller holds mu.
func (ses *session) settle(bt *batch, a *producePartition) (acked bool, fatal error) {
	l := bt.l
	if l.seq != nil {
		if err := l.judge(bt, a); err != nil {
			ses.putBack(bt, err)
			return false, err
		}
	}
	switch {
	case a.code == codeNoError || a.code == codeDuplicate:
		l.answered(false)
		if l.first < 0 {
			l.first = a.offset
		}
		if l.t.confirmed != nil { // acknowledged in order, as every batch names the one before
			m := bt.entries[len(bt.entries)-1].m
			l.t.confirmed[l.partition] = mark{m.Sequence, m.SubIndex, true}
		}
		if l.err != nil && len(l.retry) == 0 {
			l.trouble(nil)
		}
		l.attempts = 0
		l.poke()
		return true, nil

	case a.code == codeMessageTooLarge || a.code == codeRecordListTooLarge:
		return false, ses.tooLarge(bt)

	// While an earlier batch of the lane waits to be sent again, those behind it that were
	// on their way are out of order by nature.
	case retriable(a.code) || a.code == codeOutOfOrder && l.draining || l.seq != nil && disagrees(a.code):
		err := ses.answerError(bt, a)
		l.attempts++
		ses.putBack(bt, err)
		l.pause(produceBackoff(a.code, l.attempts))
		ses.logRetry("sending", l.attempts, err)
		if movesLeader(a.code) {
			ses.lookUp(l.t.name)
		}
		l.poke()
		return false, nil
	}
	err := ses.answerError(bt, a)
	ses.putBack(bt, err)
	return false, err
}

func (ses *session) answerError(bt *batch, a *producePartition) error {
	err := fmt.Errorf("kafka: topic %s partition %d: %w", bt.l.t.name, bt.l.partition, &Error{a.code, string(a.message)})
	switch a.code {
	case codeNotEnoughReplicas, 20:
		err = fmt.Errorf("%w; fewer replicas are in sync than min.insync.replicas: start the missing brokers", err)
	case codeTopicNotAuthorized:
		err = fmt.Errorf("%w; allow WRITE: kafka-acls.sh --add --allow-principal User:NAME --operation Write --topic %s", err, bt.l.t.name)
	}
	return err
}

// putBack puts a batch that was not acknowledged back to its lane. Its bytes
// leave the request's buffer: they must not change (I7). After the session's end the
// batch is done instead, by the caller of fail or giveBack. Caller holds mu.
func (ses *session) putBack(bt *batch, err error) {
	l := bt.l
	if l.seq != nil {
		bt.raw, bt.own = nil, false // what of it is stored decides; the rest is cut and stamped anew
	} else if bt.raw != nil && !bt.own {
		bt.raw, bt.own = slices.Clone(bt.raw), true
	}
	ses.retries.Add(1)
	l.answered(true)
	l.putBack(bt)
	l.trouble(err)
}

// tooLarge halves a batch that the broker refused for its size. The broker has
// not counted its sequences, so the halves take them. Caller holds mu.
func (ses *session) tooLarge(bt *batch) error {
	l := bt.l
	size := len(bt.raw)
	l.answered(true)
	if n := len(bt.entries); n > 1 {
		// The next ones begin smaller, lest each of them goes this way.
		bt.raw, bt.own = nil, false
		l.t.batchBytes = max(min(l.t.batchBytes, bt.size()/2), 1024)
		half := ses.newBatch(l)
		half.first = bt.first + int64(n/2)
		half.entries = append(half.entries[:0], bt.entries[n/2:]...)
		clear(bt.entries[n/2:])
		bt.entries = bt.entries[:n/2]
		l.putBack(half)
		l.putBack(bt)
		ses.retries.Add(1)
		l.poke()
		return nil
	}
	l.putBack(bt)
	return ses.recordTooLarge(bt, size)
}

func (ses *session) recordTooLarge(bt *batch, size int) error {
	key := bt.entries[0].m.Key
	more := ""
	if len(key) > 64 {
		key, more = key[:64], "..."
	}
	if size > maxBatchBytes {
		return sink.TooLarge(bt.entries[0].m, fmt.Errorf("kafka: topic %s partition %d, key %q%s: %w: %d bytes as sent, and no request may have more than %d; set compression, or oversize with a max_message_bytes below that",
			bt.l.t.name, bt.l.partition, key, more, ErrRecordTooLarge, size, maxBatchBytes))
	}
	limit := "max.message.bytes is unknown (the sink may not describe the topic)"
	switch was := bt.l.t.limit; {
	case was >= size:
		limit = fmt.Sprintf("max.message.bytes was %d when the sink first used the topic, and is less now", was)
	case was > 0:
		limit = fmt.Sprintf("max.message.bytes is %d", was)
	}
	return sink.TooLarge(bt.entries[0].m, fmt.Errorf("kafka: topic %s partition %d, key %q%s: %w: %d bytes as sent, %s; "+
		"raise it: kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config max.message.bytes=%d (and the consumers' fetch limits), or set compression",
		bt.l.t.name, bt.l.partition, key, more, ErrRecordTooLarge, size, limit, bt.l.t.name, roundUp(size)))
}

// roundUp returns a power of two with room for n and some growth.
func roundUp(n int) int {
	p := 1 << 20
	for p < n+n/4 {
		p <<= 1
	}
	return p
}

// giveBack returns what is on its way to the lanes, or fails it if the session has ended.
func (p *pipe) giveBack() {
	ses := p.b.ses
	ses.mu.Lock()
	sent := p.sent
	p.sent = nil
	p.b.pipe = nil
	if ses.err == nil && len(sent) > 0 {
		err := p.err
		if err == nil || errors.Is(err, io.EOF) {
			err = errors.New("the connection was cut")
		}
		err = fmt.Errorf("kafka: broker %d (%s): %w", p.b.id, p.conn.addr, err)
		var lanes []*lane
		for _, r := range sent {
			for _, bt := range r.batches {
				ses.putBack(bt, err)
				if bt.l.inflight == 0 { // its last one
					lanes = append(lanes, bt.l)
				}
			}
		}
		for _, l := range lanes {
			// At once the first time: brokers close idle connections.
			if l.attempts++; l.attempts > 1 {
				l.pause(backoff(l.attempts - 1))
			}
			ses.logRetry("sending", l.attempts, err)
			ses.lookUp(l.t.name)
			l.poke()
		}
		ses.mu.Unlock()
		return
	}
	err := ses.err
	ses.mu.Unlock()
	for _, r := range sent {
		for _, bt := range r.batches {
			ses.done(bt.entries, err)
		}
	}
}

// encoder builds requests. It belongs to the goroutine of a broker.
type encoder struct {
	ses     *session
	comp    *compressor
	scratch []byte
	corr    int32
}

// encode writes the request: batches that were sent before with the same bytes,
// the others freshly encoded.
func (e *encoder) encode(r *request, p *pipe) error {
	be := binary.BigEndian
	ses := e.ses
	e.corr++
	r.corr = e.corr
	params := batchParams{
		producerID: ses.producerID, // does not change once the session has started
		epoch:      ses.epoch,
		time:       time.Now().UnixMilli(),

		transactional: ses.txn != nil,
	}
	size := 512
	for _, bt := range r.batches {
		size += len(bt.l.t.name) + 16 + bt.size()
	}
	buf := slices.Grow(r.buf[:0], size)
	buf = appendProduceHeader(buf, p.version, r.corr, ses.s.o.ClientID, ses.s.transactionalID(), int32(ses.s.o.RequestTimeout.Milliseconds()))
	topicsAt := len(buf) - 4
	topics, partsAt, parts := 0, 0, 0
	var last *topic
	for _, bt := range r.batches {
		if bt.l.t != last {
			last = bt.l.t
			topics++
			buf = be.AppendUint16(buf, uint16(len(last.name)))
			buf = append(buf, last.name...)
			partsAt, parts = len(buf), 0
			buf = append(buf, 0, 0, 0, 0)
		}
		parts++
		be.PutUint32(buf[partsAt:], uint32(parts))
		buf = be.AppendUint32(buf, uint32(bt.l.partition))
		buf = append(buf, 0, 0, 0, 0)
		bt.at = len(buf)
		if bt.raw != nil {
			buf = append(buf, bt.raw...)
		} else {
			params.sequence = bt.sequence()
			var err error
			if buf, e.scratch, err = appendBatch(buf, params, bt.entries, e.comp, e.scratch); err != nil {
				return err
			}
			if cap(e.scratch) > 4<<20 {
				e.scratch = nil
			}
		}
		bt.end = len(buf)
		if bt.end-bt.at > maxBatchBytes {
			r.buf = buf
			return ses.recordTooLarge(bt, bt.end-bt.at)
		}
		be.PutUint32(buf[bt.at-4:], uint32(bt.end-bt.at))
	}
	be.PutUint32(buf[topicsAt:], uint32(topics))
	be.PutUint32(buf, uint32(len(buf)-4))
	r.buf = buf
	for _, bt := range r.batches {
		if bt.raw == nil {
			bt.raw = buf[bt.at:bt.end:bt.end]
		}
	}
	return nil
}
