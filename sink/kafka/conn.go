package kafka

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
)

const (
	maxResponse = 64 << 20 // no answer that we ask for is larger
	maxApiKey   = 128      // keys above are not used here
)

// dialer opens connections. It is immutable and safe for concurrent use.
type dialer struct {
	clientID string
	tls      *tls.Config
	mech     sasl.Mechanism
	timeout  time.Duration // for a connection with its handshakes
}

// conn is a connection to one broker after its handshakes. The goroutine that
// opened it owns it.
type conn struct {
	net.Conn
	br       *bufio.Reader
	addr     string
	clientID string
	versions [maxApiKey]versionRange
	corr     int32
	expires  time.Time // the broker wants authentication again; zero: never
}

type versionRange struct {
	min, max int16
	ok       bool
}

// AuthError says that a broker refused our credentials.
type AuthError struct {
	Broker string
	Err    error
}

func (e *AuthError) Error() string {
	return fmt.Sprintf("kafka: broker %s refuses the authentication: %v; check sasl mechanism, user and password, and that the listener is a SASL one", e.Broker, e.Err)
}

func (e *AuthError) Unwrap() error { return e.Err }

// dial connects to addr, with TLS and SASL as configured, and learns the
// broker's API versions.
func (d *dialer) dial(ctx context.Context, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("kafka: connecting to broker %s: %w; check that it runs and listens there", addr, err)
	}
	c := &conn{Conn: raw, addr: addr, clientID: d.clientID}
	if d.tls != nil {
		conf := d.tls
		if conf.ServerName == "" {
			conf = conf.Clone()
			conf.ServerName, _, _ = net.SplitHostPort(addr)
		}
		c.Conn = tls.Client(raw, conf)
	}
	c.br = bufio.NewReaderSize(c.Conn, 16<<10)
	if err := d.handshake(ctx, c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (d *dialer) handshake(ctx context.Context, c *conn) error {
	if t, ok := c.Conn.(*tls.Conn); ok {
		if err := t.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("kafka: TLS with broker %s: %w (check the sink's tls, and that the listener expects TLS)", c.addr, err)
		}
	}
	// Version 0 is what every broker answers, whatever it is.
	m, err := c.exchange(ctx, &apiversions.Request{}, 0)
	if err != nil {
		if d.tls == nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
			err = fmt.Errorf("%w (the listener may expect TLS: set tls)", err)
		}
		return fmt.Errorf("kafka: broker %s does not answer the first request: %w", c.addr, err)
	}
	res := m.(*apiversions.Response)
	if res.ErrorCode != codeNoError {
		return fmt.Errorf("kafka: broker %s: asking for its versions: %w", c.addr, &Error{Code: res.ErrorCode})
	}
	for _, k := range res.ApiKeys {
		if k.ApiKey >= 0 && k.ApiKey < maxApiKey {
			c.versions[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion, true}
		}
	}
	if d.mech != nil {
		return d.authenticate(ctx, c)
	}
	return nil
}

func (d *dialer) authenticate(ctx context.Context, c *conn) error {
	host, port, _ := net.SplitHostPort(c.addr)
	n, _ := strconv.Atoi(port)
	ctx = sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: n})

	m, err := c.roundTrip(ctx, &saslhandshake.Request{Mechanism: d.mech.Name()})
	if err != nil {
		return fmt.Errorf("kafka: broker %s: SASL handshake: %w", c.addr, err)
	}
	if res := m.(*saslhandshake.Response); res.ErrorCode != codeNoError {
		return &AuthError{c.addr, fmt.Errorf("%w; it offers %q, not %s", &Error{Code: res.ErrorCode}, res.Mechanisms, d.mech.Name())}
	}
	state, out, err := d.mech.Start(ctx)
	if err != nil {
		return &AuthError{c.addr, err}
	}
	for done := false; !done; {
		m, err := c.roundTrip(ctx, &saslauthenticate.Request{AuthBytes: out})
		if err != nil {
			if errors.Is(err, io.EOF) {
				return &AuthError{c.addr, errors.New("it closed the connection")}
			}
			return fmt.Errorf("kafka: broker %s: SASL authentication: %w", c.addr, err)
		}
		res := m.(*saslauthenticate.Response)
		if res.ErrorCode != codeNoError {
			return &AuthError{c.addr, &Error{Code: res.ErrorCode, Message: res.ErrorMessage}}
		}
		if res.SessionLifetimeMs > 0 {
			// KIP-368: after its lifetime the broker cuts the session; we connect
			// anew before that.
			c.expires = time.Now().Add(time.Duration(res.SessionLifetimeMs) * time.Millisecond * 8 / 10)
		}
		if done, out, err = state.Next(ctx, res.AuthBytes); err != nil {
			return &AuthError{c.addr, err}
		}
	}
	return nil
}

func (c *conn) expired() bool { return !c.expires.IsZero() && time.Now().After(c.expires) }

// version picks the highest version of an API within lo and hi that the broker has.
func (c *conn) version(key protocol.ApiKey, lo, hi int16) (int16, error) {
	var r versionRange
	if key >= 0 && key < maxApiKey {
		r = c.versions[key]
	}
	v := min(hi, r.max)
	if !r.ok || v < lo || v < r.min {
		return 0, fmt.Errorf("kafka: broker %s does not speak %s version %d to %d (it has %d to %d): Apache Kafka 2.1 or newer is needed", c.addr, key, lo, hi, r.min, r.max)
	}
	return v, nil
}

// roundTrip sends a request and waits for its answer, until ctx ends.
func (c *conn) roundTrip(ctx context.Context, msg protocol.Message) (protocol.Message, error) {
	key := msg.ApiKey()
	v, err := c.version(key, key.MinVersion(), key.MaxVersion())
	if err != nil {
		return nil, err
	}
	return c.exchange(ctx, msg, v)
}

func (c *conn) exchange(ctx context.Context, msg protocol.Message, version int16) (protocol.Message, error) {
	frame, err := c.converse(ctx, func() error {
		return protocol.WriteRequest(c.Conn, version, c.corr, c.clientID, msg)
	})
	if err != nil {
		return nil, err
	}
	return decodeResponse(frame, msg.ApiKey(), version, c.corr)
}

// rawExchange sends a request whose body is appended by body, and returns the
// answer's frame. The version must be one that is not "flexible".
func (c *conn) rawExchange(ctx context.Context, key protocol.ApiKey, version int16, body func([]byte) []byte) ([]byte, error) {
	if _, err := c.version(key, version, version); err != nil {
		return nil, err
	}
	frame, err := c.converse(ctx, func() error {
		be := binary.BigEndian
		b := be.AppendUint16(make([]byte, 4, 256), uint16(key))
		b = be.AppendUint16(b, uint16(version))
		b = be.AppendUint32(b, uint32(c.corr))
		b = be.AppendUint16(b, uint16(len(c.clientID)))
		b = append(b, c.clientID...)
		b = body(b)
		be.PutUint32(b, uint32(len(b)-4))
		_, err := c.Write(b)
		return err
	})
	if err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame[4:])); got != c.corr {
		return nil, fmt.Errorf("kafka: an answer came out of turn (correlation id %d, not %d)", got, c.corr)
	}
	return frame, nil
}

// converse writes one request and reads one answer, until ctx ends.
func (c *conn) converse(ctx context.Context, write func() error) (_ []byte, err error) {
	deadline, _ := ctx.Deadline() // none: the zero time, no deadline
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // the connection is broken then anyway
	defer func() {
		if !stop() && ctx.Err() != nil && err != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}()
	c.corr++
	if err := write(); err != nil {
		return nil, err
	}
	return c.readFrame(nil)
}

// readFrame reads one response into buf, grown as needed: its size, its
// correlation id and its body.
func (c *conn) readFrame(buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.br, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if head[0] == 0x15 && head[1] == 3 { // a TLS alert
		return nil, fmt.Errorf("kafka: the listener at %s expects TLS: set tls", c.addr)
	}
	if n < 4 || n > maxResponse {
		return nil, fmt.Errorf("kafka: what %s answers is not Kafka's protocol (first bytes %q); check the port, and tls", c.addr, head[:])
	}
	size := 4 + int(n)
	buf = append(buf[:0], head[:]...)
	// Grows as bytes arrive: a length alone allocates little.
	for len(buf) < size {
		step := min(size-len(buf), max(len(buf), 16<<10))
		at := len(buf)
		buf = append(buf, make([]byte, step)...)
		if _, err := io.ReadFull(c.br, buf[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return buf, nil
}

// decodeResponse decodes a frame by kafka-go's tables. Those trust array lengths:
// the frame's own correlation id is checked before, a panic becomes an error.
func decodeResponse(frame []byte, key protocol.ApiKey, version int16, corr int32) (msg protocol.Message, err error) {
	if got := int32(binary.BigEndian.Uint32(frame[4:])); got != corr {
		return nil, fmt.Errorf("kafka: an answer came out of turn (correlation id %d, not %d)", got, corr)
	}
	defer func() {
		if r := recover(); r != nil {
			msg, err = nil, fmt.Errorf("kafka: the %s answer cannot be decoded: %v", key, r)
		}
	}()
	_, msg, err = protocol.ReadResponse(bytes.NewReader(frame), key, version)
	if err != nil {
		return nil, fmt.Errorf("kafka: decoding the %s answer: %w", key, err)
	}
	return msg, nil
}
