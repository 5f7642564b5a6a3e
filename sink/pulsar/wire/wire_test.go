package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/sink"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares bytes with a file in hexadecimal, 32 bytes a line.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var b strings.Builder
	for i := 0; i < len(got); i += 32 {
		b.WriteString(hex.EncodeToString(got[i:min(i+32, len(got))]) + "\n")
	}
	file := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("%s differs:\n%s", file, b.String())
	}
}

func testProducer(batching bool, codec string) *Producer {
	typ, _ := compression(codec)
	return &Producer{o: ProducerOptions{Topic: topic, Name: "prod/shop/orders", Batching: batching}, nameField: appendText(nil, 1, "prod/shop/orders"), compression: typ}
}

func samples(e *Encoder) []Message {
	srcs := []sink.Message{
		{Key: []byte("1"), Value: []byte(`{"id":1,"note":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`), Time: 1_700_000_000_000,
			Headers: []sink.Header{{Name: "seq", Value: []byte("7")}, {Name: "gtid", Value: []byte("3e11fa47-71ca-11e1-9e33-c80aa9429562:5")}}},
		{Key: []byte("2"), Time: 1_700_000_000_001}, // tombstone
		{Value: []byte{}}, // neither key nor anything else
		{Key: []byte{0xff, 1}, Value: []byte("binary key"), Time: 1_700_000_000_002}, // base64
	}
	msgs := make([]Message, len(srcs))
	for i := range srcs {
		e.Encode(&msgs[i], int64(7+i)<<10, &srcs[i])
	}
	return msgs
}

func TestGoldenEntries(t *testing.T) {
	const now = 1_800_000_000_000
	var w composer
	var e Encoder
	for _, m := range samples(&e) {
		if _, err := w.entry(testProducer(false, "none"), 3, []Message{m}, now, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "unbatched", w.buf)
	w.buf = nil
	b := Encoder{Batching: true}
	for _, codec := range []string{"none", "lz4"} {
		if _, err := w.entry(testProducer(true, codec), 3, samples(&b), now, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "batched", w.buf)
}

func TestGoldenCommands(t *testing.T) {
	b := appendCommand(nil, cmdPing, nil)
	b = appendCommand(b, cmdCloseProducer, closeBody(3, 4))
	b = appendCommand(b, cmdAuthResponse, (&conn{client: &Client{o: Options{Token: "t"}}}).authResponse())
	golden(t, "commands", b)
}

// An entry above the limit leaves nothing behind.
func TestEntryAboveLimit(t *testing.T) {
	var w composer
	var e Encoder
	msgs := samples(&e)
	p := testProducer(false, "none")
	if _, err := w.entry(p, 3, msgs[:1], 1, 1<<20); err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(w.buf)
	if size, err := w.entry(p, 3, msgs[:1], 1, 100); err != nil || size <= 100 || !bytes.Equal(w.buf, before) {
		t.Errorf("size %d, %v", size, err)
	}
}

// Messages share chunks, and none reaches into another.
func TestEncoderChunks(t *testing.T) {
	for _, batching := range []bool{false, true} {
		e := Encoder{Batching: batching}
		var msgs []Message
		var want []string
		for i := range 3000 {
			value := strings.Repeat(string(rune('a'+i%26)), 1+i*37%5000)
			if i%500 == 0 {
				value = strings.Repeat("L", chunkBytes+i)
			}
			var m Message
			e.Encode(&m, int64(i), &sink.Message{Key: []byte(value[:1]), Value: []byte(value)})
			msgs, want = append(msgs, m), append(want, value)
		}
		for i := range msgs {
			if got := string(msgs[i].body()[msgs[i].meta:]); got != want[i] {
				t.Fatalf("message %d: %.20q, want %.20q", i, got, want[i])
			}
			if batching != (msgs[i].key > 0) {
				t.Fatalf("message %d: key %d", i, msgs[i].key)
			}
		}
	}
}

func TestEncodeAllocations(t *testing.T) {
	e := Encoder{Batching: true}
	src := sink.Message{Key: []byte("12345678"), Value: bytes.Repeat([]byte("x"), 250), Headers: []sink.Header{{Name: "seq", Value: []byte("1")}}}
	var w composer
	p := testProducer(true, "none")
	msgs := make([]Message, 100)
	n := testing.AllocsPerRun(100, func() {
		for i := range msgs {
			e.Encode(&msgs[i], int64(i), &src)
		}
		w.buf = w.buf[:0]
		if _, err := w.entry(p, 1, msgs, 1, 1<<20); err != nil {
			t.Fatal(err)
		}
	})
	if n > 2 { // a chunk now and then
		t.Errorf("%v allocations for 100 messages", n)
	}
}

func TestParse(t *testing.T) {
	for name, b := range map[string][]byte{
		"cut tag": {0x80}, "cut number": {0x08, 0x80}, "cut text": {0x0a, 5, 'a'}, "length beyond": {0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f}, "end of group": {0x0c},
	} {
		if err := new(fields).parse(b); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, _, err := parseCommand(b); err == nil {
			t.Errorf("%s: no error as a command", name)
		}
	}
	var f fields
	if err := f.parse(appendNum(appendNum(appendText(nil, 2, "a"), 100, 1), 2, 5)); err != nil || f.uint(2) != 5 || string(f.bytes(2)) != "a" || f.uint(3) != 0 || f.int(3, -1) != -1 || f.bytes(3) != nil {
		t.Errorf("%+v, %v", f, err)
	}
	typ, body, err := parseCommand(appendData(appendNum(nil, 1, cmdPing), 5, []byte("of another")))
	if typ != cmdPing || body != nil || err != nil {
		t.Errorf("%d %q %v", typ, body, err)
	}
	for name, b := range map[string]string{"too short": "\x00\x00\x00\x03\x00\x00\x00\x00", "too long": "\xff\x00\x00\x00\x00\x00\x00\x00", "command beyond": "\x00\x00\x00\x04\x00\x00\x00\x09", "HTTP": "HTTP/1.1 400 Bad Request\r\n"} {
		if _, _, err := readFrame(bufio.NewReaderSize(strings.NewReader(b), maxFrame)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzReadFrame: what comes from the network is no threat.
func FuzzReadFrame(f *testing.F) {
	f.Add(appendCommand(nil, cmdPing, nil))
	f.Add(appendCommand(appendCommand(nil, cmdPong, nil), cmdError, appendText(appendNum(appendNum(nil, 1, 1), 2, 25), 3, "no")))
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(b), maxFrame)
		for {
			cmd, size, err := readFrame(br)
			if err != nil {
				return
			}
			if size < 8 || len(cmd) > size-8 {
				t.Fatalf("%d bytes of a frame of %d", len(cmd), size)
			}
			_, _, _ = parseCommand(cmd)
			if _, err := br.Discard(size); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzHandle: a command may say anything, in any state of a producer.
func FuzzHandle(f *testing.F) {
	pos := appendNum(appendNum(nil, 1, 5), 2, 6)
	duplicate := appendNum(appendNum(nil, 1, ^uint64(0)), 2, ^uint64(0))
	command := func(typ int, body []byte) []byte { return appendCommand(nil, typ, body)[8:] }
	f.Add(command(cmdSendReceipt, appendData(appendNum(appendNum(nil, 1, 1), 2, 1), 3, pos)))
	f.Add(command(cmdSendReceipt, appendData(appendNum(appendNum(nil, 1, 1), 2, 1), 3, duplicate)))
	f.Add(command(cmdSendError, appendText(appendNum(appendNum(appendNum(nil, 1, 1), 2, 3), 3, 2), 4, "unknown")))
	f.Add(command(cmdSendError, appendText(appendNum(appendNum(appendNum(nil, 1, 1), 2, 3), 3, 22), 4, "large")))
	f.Add(command(cmdCloseProducer, closeBody(1, 1)))
	f.Add(command(cmdError, appendNum(appendNum(nil, 1, ^uint64(0)), 2, 3)))
	f.Add(command(cmdProducerSuccess, appendNum(appendText(appendNum(nil, 1, 1), 2, "n"), 3, 7)))
	f.Add(command(cmdLookupAnswer, appendNum(appendNum(appendText(nil, 1, "pulsar://h:1"), 3, 1), 4, 1)))
	f.Add(command(cmdPartitionedAnswer, appendNum(appendNum(nil, 1, 3), 2, 1)))
	f.Add(command(cmdAuthChallenge, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, batching := range []bool{false, true} {
			c, err := New(Options{URL: "pulsar://127.0.0.1:1"})
			if err != nil {
				t.Fatal(err)
			}
			c.cancel() // nothing may be dialled
			nc, other := net.Pipe()
			done := make(chan struct{})
			close(done)
			n := &conn{client: c, nc: nc, done: done, addr: address{"h:1", "h:1"}, maxMessage: 1000, requests: map[uint64]chan answer{1: make(chan answer, 1)}, producers: map[uint64]*Producer{}}
			n.wake.L = &n.mu
			p := testProducer(batching, "none")
			p.c, p.r, p.ctx, p.cancel = c, newRecorder(), c.ctx, c.cancel
			p.state, p.conn, p.id, p.last, p.probe, p.confirmed, p.refused, p.batchCap = open, n, 1, 2, -1, -1, -1, batchBytes
			n.producers[1] = p
			e := Encoder{Batching: batching}
			for id := range int64(5) {
				var m Message
				e.Encode(&m, id+1, &sink.Message{Value: []byte("v")})
				p.Send(m)
			}
			var w composer
			var l plan
			var r reader
			p.fill(n, &w, &l)
			_ = r.handle(n, b)
			p.fill(n, &w, &l)
			_ = r.handle(n, b)
			n.fail(ErrClosed)
			p.Close()
			other.Close()
		}
	})
}

// TestHeaderLengths: headers are read as they were, whatever their lengths take.
func TestHeaderLengths(t *testing.T) {
	for _, n := range []int{0, 1, 60, 63, 119, 120, 121, 122, 123, 124, 127, 128, 129, 20_000} {
		for _, h := range []sink.Header{{Name: "seq", Value: bytes.Repeat([]byte("v"), n)}, {Name: strings.Repeat("n", n), Value: []byte("val")}, {Name: strings.Repeat("n", n), Value: bytes.Repeat([]byte("v"), n)}} {
			var f, pair fields
			if err := f.parse(appendHeader(nil, 4, &h)); err != nil {
				t.Fatal(err)
			}
			if err := pair.parse(f.bytes(4)); err != nil || string(pair.bytes(1)) != h.Name || !bytes.Equal(pair.bytes(2), h.Value) {
				t.Errorf("name of %d bytes, value of %d: read %d and %d (%v)", len(h.Name), len(h.Value), len(pair.bytes(1)), len(pair.bytes(2)), err)
			}
		}
	}
}
