package binlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/binlogmq/binlogmq/event"
)

// builder writes events and packets as a server does.
type builder struct {
	pos      uint64 // offset behind the last event
	noLogPos bool   // MariaDB 11.4 inside transactions
	serverID uint32
	time     uint32
	sum      bool // append checksums
	out      []byte
	seq      byte
}

func newBuilder() *builder { return &builder{pos: 4, serverID: 1, time: 1700000000, sum: true} }

// event returns the framed event and counts its position.
func (b *builder) event(t EventType, flags uint16, body []byte) []byte {
	size := HeaderSize + len(body)
	if b.sum {
		size += 4
	}
	var logPos uint32
	if flags&FlagArtificial == 0 {
		b.pos += uint64(size)
		logPos = uint32(b.pos)
	}
	if b.noLogPos {
		logPos = 0
	}
	e := binary.LittleEndian.AppendUint32(nil, b.time)
	if flags&FlagArtificial != 0 {
		clear(e)
	}
	e = append(e, byte(t))
	e = binary.LittleEndian.AppendUint32(e, b.serverID)
	e = binary.LittleEndian.AppendUint32(e, uint32(size))
	e = binary.LittleEndian.AppendUint32(e, logPos)
	e = binary.LittleEndian.AppendUint16(e, flags)
	e = append(e, body...)
	if b.sum {
		e = binary.LittleEndian.AppendUint32(e, crc32.ChecksumIEEE(e))
	}
	return e
}

// packets appends one event as one or more packets.
func (b *builder) packets(e []byte) {
	p := append([]byte{0}, e...)
	for {
		n := min(len(p), maxPacket)
		b.out = append(b.out, byte(n), byte(n>>8), byte(n>>16), b.seq)
		b.seq++
		b.out = append(b.out, p[:n]...)
		p = p[n:]
		if n < maxPacket {
			return
		}
	}
}

func (b *builder) add(t EventType, flags uint16, body []byte) { b.packets(b.event(t, flags, body)) }

func formatBody(version string, alg byte) []byte {
	p := binary.LittleEndian.AppendUint16(nil, 4)
	var name [50]byte
	copy(name[:], version)
	p = append(p, name[:]...)
	p = append(p, 0, 0, 0, 0, HeaderSize)
	post := make([]byte, 42)
	post[TypeTableMap-1], post[TypeWriteRowsV1-1], post[TypeWriteRows-1], post[TypeQuery-1] = 8, 8, 10, 13
	return append(append(p, post...), alg)
}

// format adds a fake ROTATE and a FORMAT_DESCRIPTION event.
func (b *builder) format(file string) {
	b.add(TypeRotate, FlagArtificial, rotateBody(file, b.pos))
	b.add(TypeFormatDescription, 0, formatBody("9.7.4", checksumCRC32))
}

func rotateBody(file string, pos uint64) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, pos), file...)
}

func gtidBody(g event.GTID) []byte {
	p := append([]byte{1}, g.SID[:]...)
	p = binary.LittleEndian.AppendUint64(p, g.Seq)
	p = append(p, 2)
	p = append(p, make([]byte, 16)...)
	micros := uint64(1700000000123456)
	for i := range 7 {
		p = append(p, byte(micros>>(8*i)))
	}
	return p
}

func mariaGTIDBody(domain uint32, seq uint64, flags byte, extra ...byte) []byte {
	p := binary.LittleEndian.AppendUint64(nil, seq)
	p = binary.LittleEndian.AppendUint32(p, domain)
	p = append(p, flags)
	p = append(p, extra...)
	for len(p) < 19 {
		p = append(p, 0)
	}
	return p
}

func queryBody(schema, statement string, vars ...byte) []byte {
	p := binary.LittleEndian.AppendUint32(nil, 7)
	p = append(p, 0, 0, 0, 0, byte(len(schema)), 0, 0, byte(len(vars)), 0)
	p = append(p, vars...)
	p = append(p, schema...)
	p = append(p, 0)
	return append(p, statement...)
}

func xidBody(x uint64) []byte { return binary.LittleEndian.AppendUint64(nil, x) }

// tableMapBody describes a table of one INT NOT NULL column "a", its key.
func tableMapBody(id uint64, schema, table string) []byte {
	p := id48(id)
	p = append(p, 1, 0, byte(len(schema)))
	p = append(p, schema...)
	p = append(p, 0, byte(len(table)))
	p = append(p, table...)
	p = append(p, 0, 1, 3, 0, 0) // one column, INT, no metadata, NOT NULL
	p = append(p, metaUnsigned, 1, 0)
	p = append(p, metaNames, 2, 1, 'a')
	return append(p, metaKey, 1, 0)
}

func id48(id uint64) []byte {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], id)
	return b[:6]
}

// rowsBody holds n row changes of such a table.
func rowsBody(t EventType, id uint64, n int) []byte {
	p := append(id48(id), 1, 0)
	if t >= TypeWriteRows {
		p = append(p, 2, 0)
	}
	p = append(p, 1, 1)
	images := 1
	if t == TypeUpdateRows || t == TypeUpdateRowsV1 || t == TypePartialUpdateRows {
		p = append(p, 1)
		images = 2
	}
	for i := range n * images {
		if t == TypePartialUpdateRows && i%2 == 1 {
			p = append(p, 0) // value options: no partial column
		}
		p = append(p, 0)
		p = binary.LittleEndian.AppendUint32(p, uint32(i))
	}
	return p
}

func xaPrepareBody(onePhase bool, gtrid string) []byte {
	p := []byte{0}
	if onePhase {
		p[0] = 1
	}
	p = binary.LittleEndian.AppendUint32(p, 1)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(gtrid)))
	p = append(p, 0, 0, 0, 0)
	return append(p, gtrid...)
}

// deflated packs a statement or images as MariaDB does.
func deflated(plain []byte) []byte {
	n := len(plain)
	return append([]byte{0x80 | 3, byte(n >> 16), byte(n >> 8), byte(n)}, zlibBytes(plain)...)
}

// show is one line of a transcript.
func show(e *event.Event) string {
	s := fmt.Sprintf("%-5s ordinal=%d index=%d", e.Kind, e.Ordinal, e.Index)
	switch e.Kind {
	case event.Rows:
		if e.Table == nil {
			return s + fmt.Sprintf(" passed over rows=%d last=%v at %s:%d-%d", e.Rows, e.Last, e.File, e.Start, e.Next)
		}
		s += fmt.Sprintf(" %s %s.%s rows=%d last=%v images=%x/%x raw=%d", e.Op, e.Table.Schema, e.Table.Name, e.Rows, e.Last, e.Images.Before, e.Images.After, len(e.Raw))
	case event.DDL:
		s += fmt.Sprintf(" [%s] %q", e.Schema, e.Raw)
	case event.Begin:
		s += fmt.Sprintf(" gtid=%s server=%d thread=%d time=%d", e.Txn.GTID, e.Txn.ServerID, e.Txn.ThreadID, e.Txn.Time)
	case event.End:
		s += fmt.Sprintf(" xid=%d", e.XID)
	}
	return s + fmt.Sprintf(" at %s:%d-%d", e.File, e.Start, e.Next)
}
