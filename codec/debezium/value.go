package debezium

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/binlogmq/binlogmq/codec/internal/jsonvalue"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

func (c *Codec) appendValue(dst []byte, v *event.Value, col *column) ([]byte, error) {
	if v.IsNull() {
		return append(dst, "null"...), nil
	}
	var err error
	switch col.encoding {
	case number:
		return v.AppendText(dst)
	case utf8:
		return jsontext.AppendString(dst, v.Raw()), nil
	case plain:
		dst = append(dst, '"')
		if dst, err = v.AppendText(dst); err != nil {
			return nil, err
		}
		return append(dst, '"'), nil
	case text: // see package maxwell's; TestConformance of each holds it to the same texts
		dst = append(dst, '"')
		at := len(dst)
		if col.empty != 0 {
			// Where the label '' comes first, Debezium has the comma behind it that the server leaves out.
			if n, _ := v.Uint64(); n&-n == col.empty && n != col.empty {
				dst = append(dst, ',')
			}
		}
		if dst, err = v.AppendText(dst); err != nil {
			return nil, err
		}
		return jsontext.Close(dst, at), nil
	case float:
		return jsonvalue.AppendFloat(dst, v)
	case unscaled:
		return appendUnscaled(dst, v)
	case date, moment, momentMillis, zoned:
		return c.appendTime(dst, v, col)
	case clock, clockMillis:
		return c.appendClock(dst, v, col)
	case blob:
		return jsonvalue.AppendEncoded(dst, v, c.appendBinary)
	case wrapped, integer, flag:
		n, err := v.Uint64()
		switch {
		case err != nil:
			return nil, err
		case col.encoding == flag:
			return strconv.AppendBool(dst, n != 0), nil
		}
		return strconv.AppendInt(dst, int64(n), 10), nil
	case bits8:
		var b [8]byte
		raw := v.Raw()
		n := copy(b[:], raw)
		slices.Reverse(b[:n])
		return jsontext.AppendBase64(dst, b[:n]), nil
	case geometry, point:
		return appendGeometry(dst, v, col)
	}
	return nil, fmt.Errorf("column %q: unknown encoding %d", v.Column().Name, col.encoding)
}

// invalid appends what stands for a value that the field's type cannot hold: null or, in a column that is never
// NULL, zero. Both are Debezium's.
func (c *Codec) invalid(dst []byte, v *event.Value, col *column, zero string) ([]byte, error) {
	switch {
	case c.fail:
		text, err := v.AppendText(nil)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("column %q: %q does not fit the type of its field: set event.converting.failure.handling.mode: warn to send null in its place, or exclude the table", v.Column().Name, text)
	case col.nullable:
		return append(dst, "null"...), nil
	}
	return append(dst, zero...), nil
}

const (
	day      = int64(86400e6) // in microseconds
	zeroTime = `"1970-01-01T00:00:00Z"`
)

// appendTime appends a DATE, DATETIME or TIMESTAMP, whose text begins yyyy-mm-dd.
func (c *Codec) appendTime(dst []byte, v *event.Value, col *column) ([]byte, error) {
	at := len(dst)
	if col.encoding == zoned {
		dst = append(dst, '"')
	}
	start := len(dst)
	dst, err := v.AppendText(dst)
	if err != nil {
		return nil, err
	}
	text := dst[start:]
	days, ok := daysOf(text)
	if !ok {
		if col.encoding == zoned {
			return c.invalid(dst[:at], v, col, zeroTime)
		}
		return c.invalid(dst[:at], v, col, "0")
	}
	switch col.encoding {
	case zoned:
		text[len("yyyy-mm-dd")] = 'T'
		return append(dst, `Z"`...), nil
	case date:
		return strconv.AppendInt(dst[:at], days, 10), nil
	}
	clock, err := clockOf(text[len("yyyy-mm-dd "):])
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", v.Column().Name, err)
	}
	micros := days*day + clock
	if col.encoding == momentMillis {
		return strconv.AppendInt(dst[:at], floorDiv(micros, 1000), 10), nil
	}
	return strconv.AppendInt(dst[:at], micros, 10), nil
}

func (c *Codec) appendClock(dst []byte, v *event.Value, col *column) ([]byte, error) {
	at := len(dst)
	dst, err := v.AppendText(dst)
	if err != nil {
		return nil, err
	}
	micros, err := clockOf(dst[at:])
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", v.Column().Name, err)
	}
	dst = dst[:at]
	if col.encoding == clock {
		return strconv.AppendInt(dst, micros, 10), nil
	}
	if micros < 0 || micros > day {
		return c.invalid(dst, v, col, "0")
	}
	return strconv.AppendInt(dst, micros/1000, 10), nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// digitsOf reads a decimal number without sign.
func digitsOf(s []byte) (n int64) {
	for _, b := range s {
		n = n*10 + int64(b-'0')
	}
	return n
}

var monthDays = [...]int64{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// daysOf returns the days from 1970 to a date yyyy-mm-dd in the Gregorian calendar, which reaches back to year 0 as
// the server's does. It is not ok where the calendar has no such day.
func daysOf(s []byte) (days int64, ok bool) {
	y, m, d := digitsOf(s[:4]), digitsOf(s[5:7]), digitsOf(s[8:10])
	if m < 1 || m > 12 || d < 1 {
		return 0, false
	}
	leap := y%4 == 0 && (y%100 != 0 || y%400 == 0)
	if d > monthDays[m] && !(m == 2 && d == 29 && leap) {
		return 0, false
	}
	// Years begin in March, so that the leap day is the last. Howard Hinnant's days_from_civil.
	if m <= 2 {
		y--
		m += 12
	}
	era := floorDiv(y, 400)
	yoe := y - era*400
	doy := (153*(m-3)+2)/5 + d - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468, true
}

// clockOf returns the microseconds of [-]h…:mm:ss[.f…].
func clockOf(s []byte) (int64, error) {
	negative := len(s) > 0 && s[0] == '-'
	if negative {
		s = s[1:]
	}
	i := slices.Index(s, ':')
	if i < 1 || len(s) < i+len(":mm:ss") {
		return 0, errors.New("malformed time")
	}
	seconds := digitsOf(s[:i])*3600 + digitsOf(s[i+1:i+3])*60 + digitsOf(s[i+4:i+6])
	micros := int64(0)
	if f := s[i+6:]; len(f) > 1 {
		f = f[1:]
		micros = digitsOf(f)
		for n := len(f); n < 6; n++ {
			micros *= 10
		}
	}
	micros += seconds * 1e6
	if negative {
		return -micros, nil
	}
	return micros, nil
}

// appendUnscaled appends the digits of a DECIMAL, or a BIGINT UNSIGNED, as one integer: big-endian, in two's
// complement, in as few bytes as it takes, in base64. 65 digits are 216 bits.
func appendUnscaled(dst []byte, v *event.Value) ([]byte, error) {
	at := len(dst)
	dst, err := v.AppendText(dst)
	if err != nil {
		return nil, err
	}
	if len(dst)-at <= 18 { // so it fits 64 bits
		n, negative := uint64(0), false
		for _, b := range dst[at:] {
			switch b {
			case '-':
				negative = true
			case '.':
			default:
				n = n*10 + uint64(b-'0')
			}
		}
		if negative {
			n = -n
		}
		return appendTwos(dst[:at], binary.BigEndian.AppendUint64(make([]byte, 0, 8), n)), nil
	}
	var words [4]uint64 // the least significant first
	negative := false
	chunk, scale := uint64(0), uint64(1)
	flush := func() {
		carry := chunk
		for i := range words {
			hi, lo := bits.Mul64(words[i], scale)
			var c uint64
			words[i], c = bits.Add64(lo, carry, 0)
			carry = hi + c
		}
		chunk, scale = 0, 1
	}
	for _, b := range dst[at:] {
		switch {
		case b == '-':
			negative = true
		case b == '.':
		default:
			chunk, scale = chunk*10+uint64(b-'0'), scale*10
			if scale == 1e19 {
				flush()
			}
		}
	}
	flush()
	if negative {
		carry := uint64(1)
		for i := range words {
			words[i], carry = bits.Add64(^words[i], 0, carry)
		}
	}
	var b [32]byte
	for i, w := range words {
		binary.BigEndian.PutUint64(b[24-8*i:], w)
	}
	return appendTwos(dst[:at], b[:]), nil
}

// appendTwos appends a number in two's complement, big-endian, without the bytes that only repeat the sign.
func appendTwos(dst, n []byte) []byte {
	for len(n) > 1 && (n[0] == 0 && n[1] < 0x80 || n[0] == 0xff && n[1] >= 0x80) {
		n = n[1:]
	}
	return jsontext.AppendBase64(dst, n)
}

// appendGeometry appends SRID and WKB as Debezium's structs. Coordinates are as stored.
func appendGeometry(dst []byte, v *event.Value, col *column) ([]byte, error) {
	raw := v.Raw()
	var wkb []byte
	srid := uint32(0)
	switch {
	case len(raw) > 4:
		srid, wkb = binary.LittleEndian.Uint32(raw), raw[4:]
	case len(raw) > 0 || col.encoding == point:
		// MariaDB stores '' where it has to invent a value; that is no point.
		return nil, fmt.Errorf("column %q: the bytes are not SRID and WKB as the server writes them", v.Column().Name)
	}
	dst = append(dst, '{')
	if col.encoding == point {
		var err error
		if dst, err = appendPoint(dst, wkb); err != nil {
			return nil, fmt.Errorf("column %q: %w", v.Column().Name, err)
		}
	}
	dst = jsontext.AppendBase64(append(dst, `"wkb":`...), wkb)
	if srid == 0 {
		return append(dst, `,"srid":null}`...), nil
	}
	dst = strconv.AppendUint(append(dst, `,"srid":`...), uint64(srid), 10)
	return append(dst, '}'), nil
}

// appendPoint appends the coordinates of a point: WKB is the byte order, the type 1 and two doubles.
func appendPoint(dst, wkb []byte) ([]byte, error) {
	if len(wkb) != 21 || wkb[0] != 1 || binary.LittleEndian.Uint32(wkb[1:]) != 1 {
		return nil, errors.New("geometry: the bytes are not WKB of a point as the server writes it")
	}
	for i, name := range [...]string{`"x":`, `"y":`} {
		f := math.Float64frombits(binary.LittleEndian.Uint64(wkb[5+8*i:]))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, errors.New("geometry: a coordinate is no number")
		}
		dst = append(dst, name...)
		at := len(dst)
		dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
		if !slices.ContainsFunc(dst[at:], func(b byte) bool { return b == '.' || b == 'e' }) {
			dst = append(dst, ".0"...)
		}
		dst = append(dst, ',')
	}
	return dst, nil
}

// identifier quotes a name as Debezium does in the ids of tables.
func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
