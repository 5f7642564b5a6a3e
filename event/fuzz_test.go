package event

import (
	"bytes"
	"encoding/json"
	"math/big"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzRowImages reads tables and images from any bytes: no panic, and Scanner
// and CountRows agree.
func FuzzRowImages(f *testing.F) {
	e := orderEvent(f, 2)
	f.Add([]byte{8, 3, 1, 15, 15, 15, 246, 246, 18, 17, 245, 252}, []byte{32, 3, 160, 0, 144, 1, 12, 2, 10, 4, 3, 0, 4, 2}, byte(1), []byte{0xff, 0x0f}, []byte{0xff, 0x0f}, e.Raw)
	f.Add([]byte{254, 254, 254, 16, 13, 10, 140, 141, 242, 255}, []byte{254, 40, 247, 1, 248, 8, 0, 1, 2, 9, 0, 4, 4}, byte(2), []byte{3, 0}, []byte{0xff, 0xff}, []byte{0, 1, 2, 3})
	f.Add([]byte{17, 15, 3, 17}, []byte{0, 10, 0, 6}, byte(2), []byte{15}, []byte{15}, []byte{0, 1, 2, 3, 4, 1, 'a', 1, 0, 0, 0, 127, 255, 255, 255, 15, 66, 63, 0, 1, 2, 3, 4, 1, 'a', 1, 0, 0, 0, 1, 2, 3, 4, 15, 66, 63})
	f.Add([]byte{1, 245, 245}, []byte{4, 4}, byte(0x82), []byte{7}, []byte{7}, partialEvent(f).Raw)
	f.Fuzz(func(t *testing.T, types, meta []byte, op byte, before, after, raw []byte) {
		table := &Table{Schema: "s", Name: "t"}
		for i, typ := range types {
			real, m, n, err := NormalizeType(typ, meta)
			if err != nil {
				return
			}
			meta = meta[n:]
			c := Column{Name: "c", Type: real, Meta: m, Unsigned: i&1 != 0, Charset: []string{"utf8mb4", "binary", "gbk", "ujis", "utf16"}[i%5]}
			if real == TypeTime || real == TypeDatetime || real == TypeTimestamp {
				c.SQLType = []string{"x", "x(1)", "x(6)"}[i%3]
			}
			if i%2 == 0 {
				c.Members = []string{"a", "b", "c"}
			}
			table.Columns = append(table.Columns, c)
		}
		if err := table.Compile(); err != nil {
			t.Fatalf("NormalizeType let pass what Compile refuses: %v", err)
		}
		im := Images{Before: before, After: after}
		if Op(op&0x7f) == Insert {
			im.Before = nil
		}
		if Op(op&0x7f) == Delete {
			im.After = nil
		}
		n, countErr := CountRows(table, Op(op), im, raw)
		partial := op > 0x7f
		if partial {
			op &= 0x7f
			n, countErr = CountPartialRows(table, im, raw)
		}
		var s Scanner
		s.Reset(&Event{Kind: Rows, Op: Op(op), Table: table, Images: im, Raw: raw, Rows: uint32(n), Partial: partial})
		rows := 0
		for s.Next() {
			rows++
			for _, values := range [][]Value{s.Row().Before, s.Row().After} {
				for _, v := range values {
					_, _ = v.AppendText(nil)
					_, _ = v.Int64()
					_ = v.Equal(values[0])
				}
			}
		}
		if countErr == nil && !partial && n > 0 {
			other := &Table{Columns: append([]Column(nil), table.Columns...)}
			for i := range other.Columns {
				if c := &other.Columns[i]; c.Class == ClassTimestamp && c.width == 7 {
					other.RowEnd = i + 1
				} else {
					c.Hidden = i%3 == 0
				}
			}
			if err := other.Compile(); err != nil {
				t.Fatal(err)
			}
			im, raw := im, raw
			var err error
			if other.Shown() != other {
				if im, raw, err = other.Strip(Op(op), im, raw); err != nil {
					t.Fatal(err)
				}
			}
			if shown := other.Shown(); shown.RowEnd > 0 {
				_, _ = Live(shown, Op(op), im, n, raw)
			} else if m, err := CountRows(shown, Op(op), im, raw); len(raw) > 0 && (err != nil || m != n) {
				t.Errorf("%d rows without hidden columns, %d with: %v", m, n, err)
			}
		}
		if countErr == nil && !partial && (s.Err() != nil || rows != n) {
			t.Errorf("CountRows %d, Scanner %d: %v", n, rows, s.Err())
		}
	})
}

// FuzzJSON proves that any document gives valid JSON text or an error, of a
// size that the document's bounds.
func FuzzJSON(f *testing.F) {
	var s Scanner
	s.Reset(orderEvent(f, 1))
	s.Next()
	f.Add(s.Row().After[10].Raw())
	for _, doc := range [][]byte{{}, {4, 0}, {0x0f, 0xf6, 4, 3, 2, 0x81, 0x0a}, {0x0f, 0x0b, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {2, 1, 0, 7, 0, 5, 0, 0}} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		text, err := appendJSON(nil, doc)
		if err != nil {
			return
		}
		if !json.Valid(text) {
			t.Errorf("% x: invalid JSON %s", doc, text)
		}
		if len(text) > 100*(len(doc)+1) {
			t.Errorf("%d bytes of text from %d", len(text), len(doc))
		}
	})
}

func FuzzDecimal(f *testing.F) {
	f.Add([]byte{0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2}, 14, 4)
	f.Add([]byte{0x76}, 1, 0)
	f.Fuzz(func(t *testing.T, raw []byte, precision, scale int) {
		if precision < 1 || precision > 65 || scale < 0 || scale > 38 || scale > precision {
			return
		}
		text, err := appendDecimal(nil, raw, precision, scale)
		if err != nil {
			return
		}
		if _, ok := new(big.Rat).SetString(string(text)); !ok {
			t.Errorf("% x: %s is no number", raw, text)
		}
		if dot := bytes.IndexByte(text, '.'); dot < 0 && scale > 0 || dot >= 0 && len(text)-dot-1 != scale {
			t.Errorf("% x: %s has not %d digits behind the point", raw, text, scale)
		}
	})
}

func FuzzTemporals(f *testing.F) {
	f.Add([]byte{0x7e, 0xfd, 0xfb, 0xf6, 0x3c}, byte(TypeTime2), uint16(3), 0)
	f.Add([]byte{0x99, 0xb4, 0xcc, 0x53, 0x08, 0x1e, 0xa0}, byte(TypeDatetime2), uint16(3), 0)
	f.Add([]byte{0x67, 0x2b, 0x10, 0x40}, byte(TypeTimestamp2), uint16(0), 3600)
	f.Fuzz(func(t *testing.T, raw []byte, typ byte, meta uint16, zone int) {
		switch typ {
		case TypeTime2, TypeDatetime2, TypeTimestamp2, TypeDate, TypeYear:
		case TypeTime, TypeDatetime, TypeTimestamp:
		default:
			return
		}
		c := Column{Type: typ, Meta: meta, SQLType: "t(" + string('0'+rune(meta%7)) + ")"}
		if c.compile() != nil || len(raw) != int(c.width) || zone < -86400 || zone > 86400 {
			return
		}
		v := Value{raw: raw, col: &c, state: statePresent}
		text, err := v.AppendTextIn(nil, time.FixedZone("", zone))
		if err == nil && (len(text) < 4 || len(text) > 26) {
			t.Errorf("type %d, % x: %q", typ, raw, text)
		}
	})
}

func FuzzCharset(f *testing.F) {
	for name := range charsets {
		f.Add(name, []byte("a\x81\x30\x81\x30\x8f\xa1\xa1\x8e\xb1\xd8\x3d\xde\x00\xff"))
	}
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		text, err := AppendUTF8(nil, name, b)
		if err != nil {
			return
		}
		if !utf8.Valid(text) || len(text) > 3*len(b) {
			t.Errorf("%s % x: %q", name, b, text)
		}
	})
}
