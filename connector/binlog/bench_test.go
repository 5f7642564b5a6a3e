package binlog_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
)

// benchStream is a stream of transactions as MySQL sends them: GTID, BEGIN,
// then rows events of about 8 KiB, XID. The table has twelve columns and about 250 bytes a row.
func benchStream(transactions, events, rows int) []byte {
	var out []byte
	pos := uint32(4)
	seq := byte(0)
	add := func(t binlog.EventType, flags uint16, body []byte) {
		size := binlog.HeaderSize + len(body) + 4
		e := binary.LittleEndian.AppendUint32(nil, 1700000000)
		e = append(e, byte(t))
		e = binary.LittleEndian.AppendUint32(e, 1)
		e = binary.LittleEndian.AppendUint32(e, uint32(size))
		if flags == 0 {
			pos += uint32(size)
			e = binary.LittleEndian.AppendUint32(e, pos)
		} else {
			e = binary.LittleEndian.AppendUint32(e, 0)
		}
		e = binary.LittleEndian.AppendUint16(e, flags)
		e = append(e, body...)
		e = binary.LittleEndian.AppendUint32(e, crc32.ChecksumIEEE(e))
		n := len(e) + 1
		out = append(out, byte(n), byte(n>>8), byte(n>>16), seq, 0)
		seq++
		out = append(out, e...)
	}
	add(binlog.TypeRotate, binlog.FlagArtificial, append(binary.LittleEndian.AppendUint64(nil, 4), "binlog.000001"...))
	format := append([]byte{4, 0}, make([]byte, 50)...)
	copy(format[2:], "9.7.4")
	format = append(format, 0, 0, 0, 0, binlog.HeaderSize)
	post := make([]byte, 42)
	post[binlog.TypeTableMap-1], post[binlog.TypeWriteRows-1] = 8, 10
	add(binlog.TypeFormatDescription, 0, append(append(format, post...), 1))

	names := []string{"id", "customer_id", "status", "email", "name", "note", "price", "total", "created", "changed", "attributes", "comment"}
	types := []byte{8, 3, 1, 15, 15, 15, 246, 246, 18, 17, 252, 252}
	meta := []byte{144, 1, 144, 1, 144, 1, 10, 2, 12, 2, 3, 0, 2, 2}
	tm := []byte{7, 0, 0, 0, 0, 0, 1, 0, 4, 's', 'h', 'o', 'p', 0, 6, 'o', 'r', 'd', 'e', 'r', 's', 0, 12}
	tm = append(tm, types...)
	tm = append(append(tm, byte(len(meta))), meta...)
	tm = append(tm, 0xfe, 0x0f, 1, 1, 0xc0, 2, 1, 45, 4)
	var n []byte
	for _, s := range names {
		n = append(append(n, byte(len(s))), s...)
	}
	tm = append(append(tm, byte(len(n))), n...)
	tm = append(tm, 8, 1, 0)
	text := func(b []byte, s string) []byte {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		return append(b, s...)
	}
	row := []byte{0, 0}
	row = append(row, 1, 2, 3, 4, 5, 6, 7, 0, 9, 9, 9, 0, 2)
	for _, s := range []string{"someone@example.com", "A Person of Some Length", "a note that says nothing much"} {
		row = text(row, s)
	}
	row = append(row, 0x80, 0, 0, 12, 34, 0x80, 0, 0, 0, 12, 34, 0x99, 0xb2, 1, 2, 3, 0, 0, 0x65, 0x65, 0x65, 0x65)
	row = text(row, `{"colour": "red", "size": "XL", "gift": true, "weight": 1.25}`)
	row = text(row, "a comment of the customer, who would like to have it soon, please")
	for i := range transactions {
		gtid := append([]byte{1}, bytes.Repeat([]byte{7}, 16)...)
		gtid = binary.LittleEndian.AppendUint64(gtid, uint64(i+1))
		add(binlog.TypeGTID, 0, append(gtid, make([]byte, 17)...))
		add(binlog.TypeQuery, 0, append([]byte{7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0}, "shop\x00BEGIN"...))
		for range events {
			add(binlog.TypeTableMap, 0, tm)
			rows := append([]byte{7, 0, 0, 0, 0, 0, 1, 0, 2, 0, 12, 0xff, 0x0f}, bytes.Repeat(row, rows)...)
			add(binlog.TypeWriteRows, 0, rows)
		}
		add(binlog.TypeXID, 0, make([]byte, 8))
	}
	return out
}

// BenchmarkStream is framing, checksums, parsing and the state machine, up to
// numbered events: the cost of the connector without the network.
func BenchmarkStream(b *testing.B) {
	for _, c := range []struct {
		name                       string
		transactions, events, rows int
		captured                   bool
	}{{"batches", 20, 50, 32, true}, {"one-row", 10000, 1, 1, true}, {"excluded", 20, 50, 32, false}} {
		in := benchStream(c.transactions, c.events, c.rows)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			rows, events := 0, 0
			for b.Loop() {
				m := machine(b, false, func(e *event.Event) error {
					rows += int(e.Rows)
					return nil
				})
				if !c.captured {
					m = binlog.NewMachine(binlog.Options{Match: func(string, string) bool { return false }, Emit: func(*event.Event) error { return nil }})
				}
				s := binlog.NewStream(bytes.NewReader(in))
				var raw binlog.Raw
				for {
					var err error
					raw, err = s.Next()
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					events++
					if err := m.Feed(&raw); err != nil {
						b.Fatal(err)
					}
				}
			}
			if c.captured && rows != b.N*c.transactions*c.events*c.rows {
				b.Fatal(fmt.Sprint(rows, " rows"))
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
