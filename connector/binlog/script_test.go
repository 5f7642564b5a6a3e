package binlog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/binlogmq/binlogmq/event"
)

// oneColumn is the table that tableMapBody describes.
type oneColumn struct{}

func (oneColumn) Table(t *TableMap) (*event.Table, error) {
	switch string(t.Table) {
	case "sequence":
		return nil, nil
	case "strange":
		return nil, &StopError{What: "column 1 cannot be decoded", Remedy: "exclude the table", Err: errors.New("unknown column type 99")}
	case "unreachable":
		return nil, errors.New("asking information_schema: connection refused")
	}
	cols, err := t.Columns()
	if err != nil {
		return nil, err
	}
	tab := &event.Table{Schema: string(t.Schema), Name: string(t.Table), Key: []int{0}}
	for i := range cols.Types {
		tab.Columns = append(tab.Columns, event.Column{Name: string(cols.Names[i]), Type: cols.Types[i]})
	}
	return tab, tab.Compile()
}

func (oneColumn) Changed(*Statement) error { return nil }

var uuidA = [16]byte{0x3e, 0x11, 0xfa, 0x47, 0x71, 0xca, 0x11, 0xe1, 0x9e, 0x33, 0xc8, 0x0a, 0xa9, 0x42, 0x95, 0x62}

// script runs the lines of a script and returns its transcript.
type script struct {
	t    *testing.T
	b    *builder
	m    *Machine
	out  bytes.Buffer
	done bool

	inner   []byte // events of a payload being built
	payload string

	chunks []func() error
}

func (s *script) feed(t EventType, flags uint16, body []byte) {
	if s.payload != "" {
		at := s.b.pos
		s.inner = append(s.inner, s.b.event(t, flags, body)...)
		s.b.pos = at
		return
	}
	s.raw(s.b.event(t, flags, body))
}

func (s *script) raw(e []byte) {
	h, err := ParseHeader(e)
	if err == nil {
		r := Raw{Header: h, Data: e}
		if s.b.sum {
			r.Data = e[:len(e)-4]
		}
		err = s.m.Feed(&r)
	}
	if err != nil {
		fmt.Fprintf(&s.out, "error: %v\n", err)
		var stop *StopError
		if !errors.As(err, &stop) {
			fmt.Fprintf(&s.out, "       (no stop: malformed=%v)\n", errors.Is(err, ErrMalformed))
		}
		s.done = true
	}
}

func (s *script) line(line string) {
	cmd, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	num := func(i int) uint64 {
		n, err := strconv.ParseUint(args[i], 0, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		return n
	}
	switch cmd {
	case "format":
		s.feed(TypeRotate, FlagArtificial, rotateBody(args[0], s.b.pos))
		s.feed(TypeFormatDescription, 0, formatBody("9.7.4", 1))
	case "rotate":
		s.feed(TypeRotate, 0, rotateBody(args[0], num(1)))
		s.b.pos = num(1)
	case "gtid":
		s.feed(TypeGTID, 0, gtidBody(event.GTID{SID: uuidA, Seq: num(0)}))
	case "anonymous":
		s.feed(TypeAnonymousGTID, 0, gtidBody(event.GTID{}))
	case "maria": // number flags extra...
		var extra []byte
		for i := 2; i < len(args); i++ {
			x, _ := hex.DecodeString(args[i])
			extra = append(extra, x...)
		}
		s.feed(TypeMariaGTID, 0, mariaGTIDBody(0, num(0), byte(num(1)), extra...))
	case "pass": // statement-format DML from here on
		s.m.opt.Passed = func(p *Passed) {
			fmt.Fprintf(&s.out, "passed %s [%s] at %s:%d %s\n", p.Verb, p.Schema, p.File, p.Start, p.GTID)
		}
	case "query":
		s.feed(TypeQuery, 0, queryBody("shop", rest))
	case "zquery":
		s.feed(TypeQueryCompressed, 0, queryBody("shop", string(deflated([]byte(rest)))))
	case "map":
		schema, table, _ := strings.Cut(args[1], ".")
		s.feed(TypeTableMap, 0, tableMapBody(num(0), schema, table))
	case "insert", "update", "delete", "insert1", "update1", "delete1", "partial":
		t := map[string]EventType{"insert": TypeWriteRows, "update": TypeUpdateRows, "delete": TypeDeleteRows, "insert1": TypeWriteRowsV1,
			"update1": TypeUpdateRowsV1, "delete1": TypeDeleteRowsV1, "partial": TypePartialUpdateRows}[cmd]
		s.feed(t, 0, rowsBody(t, num(0), int(num(1))))
	case "zinsert":
		p := rowsBody(TypeWriteRowsV1, num(0), int(num(1)))
		s.feed(TypeWriteRowsCompressedV1, 0, append(p[:10:10], deflated(p[10:])...))
	case "xid":
		s.feed(TypeXID, 0, xidBody(num(0)))
	case "xaprepare":
		s.feed(TypeXAPrepare, 0, xaPrepareBody(args[0] == "one", args[1]))
	case "event": // type flags hex
		body := []byte{}
		if len(args) > 2 {
			body, _ = hex.DecodeString(args[2])
		}
		s.feed(EventType(num(0)), uint16(num(1)), body)
	case "heartbeat":
		at := s.b.pos
		s.feed(TypeHeartbeat, 0, []byte(args[0]))
		s.b.pos = at
		fmt.Fprintf(&s.out, "position %s:%d\n", s.m.file, s.m.pos)
	case "heartbeat2":
		at := s.b.pos
		p := append([]byte{1, byte(len(args[0]))}, args[0]...)
		p = append(p, 2, 9, 0xfe)
		s.feed(TypeHeartbeatV2, 0, append(binary.LittleEndian.AppendUint64(p, num(1)), 0))
		s.b.pos = at
		fmt.Fprintf(&s.out, "position %s:%d\n", s.m.file, s.m.pos)
	case "position":
		fmt.Fprintf(&s.out, "position %s:%d open=%v\n", s.m.file, s.m.pos, s.m.Open())
	case "skip":
		s.b.pos += num(0)
	case "behind": // file, offset
		s.m.opt.Position.File, s.m.opt.Position.Offset, s.m.behind = args[0], num(1), false
	case "nologpos":
		s.b.noLogPos = args[0] == "on"
	case "passover": // GTID number, ordinals
		want, n := event.GTID{SID: uuidA, Seq: num(0)}, int64(num(1))
		s.m.opt.Skip = func(g event.GTID) int64 {
			if g == want || g.IsMariaDB() && g.Seq == want.Seq {
				return n
			}
			return 0
		}
		s.m.opt.Skipped = func(g event.GTID, n int64) { fmt.Fprintf(&s.out, "passed over %s, %d\n", g, n) }
	case "chunk": // ordinal, rows of each part: stands behind the transaction end with that ordinal
		tab := &event.Table{Schema: "shop", Name: "item", Columns: []event.Column{{Name: "id", Type: event.TypeLong}}, Key: []int{0}}
		if args[1] == "other" {
			tab.Schema = "other"
			args = append(args[:1:1], args[2:]...)
		}
		if err := tab.Compile(); err != nil {
			s.t.Fatal(err)
		}
		c := &Insertion{Snapshot: &event.Snapshot{ID: "first", Chunk: 1 + int64(len(s.chunks))}, ServerID: 7, Time: 1e15, Table: tab}
		for i := 1; i < len(args); i++ {
			n, err := strconv.Atoi(args[i])
			if err != nil {
				s.t.Fatal(err)
			}
			c.Parts = append(c.Parts, InsertionPart{Rows: n, Raw: make([]byte, 5*n)})
		}
		at, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		s.chunks = append(s.chunks, func() error {
			if s.m.Ordinal() != at {
				return nil
			}
			return s.m.Insert(c)
		})
		s.m.opt.Ended = func() error {
			for _, f := range s.chunks {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		}
	case "begin":
		if err := s.m.opt.Ended(); err != nil {
			fmt.Fprintf(&s.out, "error: %v\n", err)
		}
	case "scan":
		s.m.opt.Scan = true
	case "payload":
		s.payload, s.inner = args[0], nil
		s.b.sum, s.b.noLogPos = false, true
	case "end":
		kind := s.payload
		s.payload = ""
		s.b.sum, s.b.noLogPos = true, false
		code, data := byte(0), s.inner
		switch kind {
		case "zstd":
			w, _ := zstd.NewWriter(nil)
			data = w.EncodeAll(s.inner, nil)
		case "none":
			code = 0xff
		case "cut":
			w, _ := zstd.NewWriter(nil)
			data = w.EncodeAll(s.inner, nil)
			data = data[:len(data)-5]
		}
		body := []byte{2, 1, 0}
		if code == 0xff {
			body = []byte{2, 3, 0xfc, 0xff, 0}
		}
		body = append(body, 1, 3, 0xfc, byte(len(data)), byte(len(data)>>8), 0)
		s.feed(TypePayload, 0, append(body, data...))
	default:
		s.t.Fatalf("unknown command %q", line)
	}
}

// TestMachineScripts runs the scripts of testdata/machine: commands, a line
// "---" and the transcript.
func TestMachineScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/machine/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			in, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, want, _ := strings.Cut(string(in), "---\n")
			s := &script{t: t, b: newBuilder()}
			s.m = NewMachine(Options{
				Destination: "shop", ServerUUID: "u", Tables: oneColumn{}, Ordinal: 100,
				Match: func(schema, _ string) bool { return schema == "shop" },
				Emit: func(e *event.Event) error {
					fmt.Fprintln(&s.out, show(e))
					return nil
				},
			})
			defer s.m.Close()
			for line := range strings.SplitSeq(text, "\n") {
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !s.done {
					s.line(line)
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(text+"---\n"+s.out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got := s.out.String(); got != want {
				t.Errorf("transcript:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
