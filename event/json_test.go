package event

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestJSONText(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{"empty document", "", "null"},
		{"literals", "02 0300 0d00 040000 040100 040200", "[null, true, false]"},
		{"empty object", "00 0000 0400", "{}"},
		{"empty array", "02 0000 0400", "[]"},
		{"int16", "05 ff ff", "-1"},
		{"uint16", "06 ff ff", "65535"},
		{"int32", "07 00000080", "-2147483648"},
		{"uint32", "08 ffffffff", "4294967295"},
		{"int64", "09 0000000000000080", "-9223372036854775808"},
		{"uint64", "0a ffffffffffffffff", "18446744073709551615"},
		{"double", "0b 000000000000f03f", "1.0"},
		{"negative zero", "0b 0000000000000080", "-0.0"},
		{"1e100", "0b 7dc39425ad49b254", "1e100"},
		{"string", "0c 03 616263", `"abc"`},
		{"string escapes", "0c 0a 01080c0a0d0922 5c 2f 7f", `"\u0001\b\f\n\r\t\"\\/` + "\x7f\""},
		{"string not UTF-8", "0c 05 61 ff 0a e4 62", "\"a\ufffd\\n\ufffdb\""},
		{"string UTF-8", "0c 05 c3a9 0a c3a9", `"é\né"`},
		{"object", "00 0200 1900 1200 0100 1300 0200 05 0100 0c 1500 61 6262 03 78797a", `{"a": 1, "bb": "xyz"}`},
		{"empty key, gap before the value", "00 0100 1000 0b00 0000 0c 0d00 ee ee 02 7879", `{"": "xy"}`},
		{"large array of inlined ints", "03 02000000 12000000 07 ffffffff 08 01000000", "[-1, 1]"},
		{"large object", "01 01000000 16000000 13000000 0100 0c 14000000 61 01 62", `{"a": "b"}`},
		{"decimal", "0f f6 04 0302 810a", `1.10`},
		{"date", "0f 0a 08 0000000000 00 00 00", `"0000-00-00"`},
		{"time", "0f 0b 08 ffffffffffffffff", `"-00:00:00.000001"`},
		{"time 838:59:59", "0f 0b 08 000000 fb6e34 0000", `"838:59:59.000000"`},
		{"datetime", "0f 0c 08 0d0000 cca280b2 19", `"2024-02-00 10:11:12.000013"`},
		{"as text", "7f" + hex.EncodeToString([]byte(`{"a":  1.50}`)), `{"a":  1.50}`},
		{"opaque", "0f 0f 02 cafe", `"base64:type15:yv4="`},
		{"opaque of 57 bytes", "0f 10 39 " + strings.Repeat("00", 57), `"base64:type16:` + strings.Repeat("A", 76) + `"`},
		{"opaque of 58 bytes", "0f fc 3a " + strings.Repeat("00", 58), `"base64:type252:` + strings.Repeat("A", 76) + `\nAA=="`},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.doc, " ", ""))
		if err != nil {
			t.Fatal(c.name, err)
		}
		got, err := appendJSON([]byte("x"), b)
		if err != nil || string(got) != "x"+c.want {
			t.Errorf("%s: %s (%v), want %s", c.name, got, err, c.want)
		}
	}
}

func TestJSONMalformed(t *testing.T) {
	for _, doc := range []string{
		"7f", "7f 7b", "7f 7b7d7d", "02", "0d", "04", "04 03", "05 00", "07 000000", "0b 00", "0c", "0c 02 61", "0c 8080808080 01", "0f", "0f f6 01 00", "0f f6 02 0509", "0f 0a 01 00",
		"0f 0c 08 ffffffffffffff7f", "0f 0b 08 0000000000000080",
		"02 0100 0700 02 0000", // an array that holds itself
		"02 ffff 0400", "02 0100 ffff 04 0000", "02 0100 0700 0c 0700", "02 0100 0700 0c ffff", "00 0100 0b00 0b00 0100 04 0000", "03 01000000 09000000 0c ffffffff",
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(doc, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := appendJSON([]byte("x"), b); err == nil || string(got) != "x" {
			t.Errorf("%s: %q, %v", doc, got, err)
		}
	}
}

// TestI9JSONDoesNotMultiply proves that a document whose values refer to the
// same bytes again and again cannot blow up.
func TestI9JSONDoesNotMultiply(t *testing.T) {
	// 30 arrays in a row, each holding the next one eight times.
	var b []byte
	b = append(b, jsonSmallArray)
	const size = 4 + 8*3
	for range 30 {
		b = append(b, 8, 0, 0xff, 0xff)
		for range 8 {
			b = append(b, jsonSmallArray, size, 0)
		}
	}
	b = append(b, 0, 0, 4, 0)
	for len(b) < 66000+30*size {
		b = append(b, 0)
	}
	got, err := appendJSON(nil, b)
	if err == nil || len(got) != 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func BenchmarkJSON(b *testing.B) {
	row := orderEvent(b, 1)
	var s Scanner
	s.Reset(row)
	s.Next()
	v := s.Row().After[10]
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = v.AppendText(dst[:0])
	}
}
