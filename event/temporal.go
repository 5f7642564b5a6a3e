package event

import (
	"encoding/binary"
	"errors"
	"time"
)

// Sizes of MariaDB's temporal types from before mysql56_temporal_format, by
// fraction digits; without a fraction they are MySQL's from before 5.6.
// Source: MariaDB, sql/field.cc (Field_time_hires, Field_datetime_hires).
var (
	oldTimeBytes     = [7]uint8{3, 4, 4, 5, 5, 5, 6}
	oldDatetimeBytes = [7]uint8{8, 6, 6, 7, 7, 7, 8}
)

var errTemporal = errors.New("malformed date or time")

// appendClock appends "hh:mm:ss" with at least two digits for the hours.
func appendClock(dst []byte, h, m, s uint) []byte {
	if h >= 100 {
		dst = append(dst, byte('0'+h/100%10))
		h %= 100
	}
	h, m, s = h*2, m*2, s*2
	return append(dst, digitPairs[h], digitPairs[h+1], ':', digitPairs[m], digitPairs[m+1], ':', digitPairs[s], digitPairs[s+1])
}

// appendDay appends "yyyy-mm-dd"; year up to 9999, month and day up to 99.
func appendDay(dst []byte, y, m, d uint) []byte {
	c, y := y/100*2, y%100*2
	m, d = m*2, d*2
	return append(dst, digitPairs[c], digitPairs[c+1], digitPairs[y], digitPairs[y+1], '-',
		digitPairs[m], digitPairs[m+1], '-', digitPairs[d], digitPairs[d+1])
}

// appendFraction appends the fraction of the newer temporal types: digits are
// stored in pairs, so an odd number of them ends with a zero that is not shown.
func appendFraction(dst, b []byte, digits int) ([]byte, error) {
	if digits == 0 {
		return dst, nil
	}
	return fraction(dst, uint32(bigEndian(b)), digits)
}

func fraction(dst []byte, u uint32, digits int) ([]byte, error) {
	if digits&1 != 0 {
		u /= 10
	}
	if u >= pow10[digits] {
		return dst, errTemporal
	}
	return appendDigits(append(dst, '.'), uint64(u), digits), nil
}

// appendDate appends a DATE: 15 bits year, 4 month, 5 day, little-endian.
func appendDate(dst, b []byte) ([]byte, error) {
	u := uint(b[0]) | uint(b[1])<<8 | uint(b[2])<<16
	y := u >> 9
	if y > 9999 {
		return dst, errTemporal
	}
	return appendDay(dst, y, u>>5&15, u&31), nil
}

// appendPackedDatetime appends the 40-bit packed form: year*13+month in 17
// bits, day 5, hour 5, minute 6, second 6.
func appendPackedDatetime(dst []byte, u uint64) ([]byte, error) {
	ym := uint(u >> 22)
	y := ym / 13
	if y > 9999 {
		return dst, errTemporal
	}
	dst = appendDay(dst, y, ym%13, uint(u>>17)&31)
	dst = append(dst, ' ')
	return appendClock(dst, uint(u>>12)&31, uint(u>>6)&63, uint(u)&63), nil
}

// appendDatetime appends a DATETIME, invalid and zero dates as they are.
func (c *Column) appendDatetime(dst, b []byte) ([]byte, error) {
	if c.Type == TypeDatetime {
		return c.appendOldDatetime(dst, b)
	}
	const sign = 1 << 39
	u := uint64(b[0])<<32 | uint64(binary.BigEndian.Uint32(b[1:]))
	if u < sign {
		return dst, errTemporal
	}
	dst, err := appendPackedDatetime(dst, u-sign)
	if err != nil {
		return dst, err
	}
	return appendFraction(dst, b[5:], int(c.Meta))
}

// appendTimestamp appends a TIMESTAMP in loc. Seconds count from 1970 to 2106,
// without sign. The server's zero value is no instant and looks the same everywhere.
func (c *Column) appendTimestamp(dst, b []byte, loc *time.Location) ([]byte, error) {
	var sec, frac uint32
	digits := int(c.Meta)
	if c.Type == TypeTimestamp {
		if digits = int(c.fsp); digits == 0 {
			sec = binary.LittleEndian.Uint32(b)
		} else {
			sec, frac = binary.BigEndian.Uint32(b), uint32(bigEndian(b[4:]))
		}
	} else {
		sec, frac = binary.BigEndian.Uint32(b), uint32(bigEndian(b[4:]))
		if digits&1 != 0 {
			frac /= 10
		}
	}
	if frac >= pow10[digits] {
		return dst, errTemporal
	}
	if sec == 0 && frac == 0 {
		dst = append(dst, "0000-00-00 00:00:00"...)
	} else {
		dst = appendUnix(dst, int64(sec), loc)
	}
	if digits == 0 {
		return dst, nil
	}
	return appendDigits(append(dst, '.'), uint64(frac), digits), nil
}

// appendUnix appends the wall clock of loc at sec seconds after 1970 UTC, up
// to the year 2106 and a day.
func appendUnix(dst []byte, sec int64, loc *time.Location) []byte {
	if loc != time.UTC {
		_, offset := time.Unix(sec, 0).In(loc).Zone()
		sec += int64(offset)
	}
	// Days since 0000-03-01; then Howard Hinnant's civil_from_days.
	z := uint64(sec + 719468*86400)
	day, clock := uint32(z/86400), uint(z%86400)
	era := day / 146097
	doe := day - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	y, m, d := yoe+era*400, mp+3, doy-(153*mp+2)/5+1
	if m > 12 {
		m -= 12
		y++
	}
	dst = append(appendDay(dst, uint(y), uint(m), uint(d)), ' ')
	return appendClock(dst, clock/3600, clock/60%60, clock%60)
}

// appendTime appends a TIME: sign, 10 bits hour, 6 minute, 6 second and the
// fraction, as one big-endian number offset by its middle.
func (c *Column) appendTime(dst, b []byte) ([]byte, error) {
	if c.Type == TypeTime {
		return c.appendOldTime(dst, b)
	}
	shift := 8 * (len(b) - 3)
	v := int64(bigEndian(b)) - 0x800000<<shift
	if v < 0 {
		v = -v
		dst = append(dst, '-')
	}
	frac := uint32(v & (1<<shift - 1))
	hms := uint(v >> shift)
	dst = appendClock(dst, hms>>12&0x3ff, hms>>6&63, hms&63)
	if c.Meta == 0 {
		return dst, nil
	}
	return fraction(dst, frac, int(c.Meta))
}

// appendOldTime appends a TIME from before MySQL 5.6, hhmmss in decimal, or
// MariaDB's with a fraction.
func (c *Column) appendOldTime(dst, b []byte) ([]byte, error) {
	digits := int(c.fsp)
	if digits == 0 {
		v := int(signed(b))
		if v < 0 {
			v = -v
			dst = append(dst, '-')
		}
		if v > 9999999 {
			return dst, errTemporal
		}
		return appendClock(dst, uint(v/10000), uint(v/100%100), uint(v%100)), nil
	}
	// The number of 10^-digits seconds, offset by 839 hours.
	unit := int64(pow10[digits])
	v := int64(bigEndian(b)) - (839*3600)*unit
	if v < 0 {
		v = -v
		dst = append(dst, '-')
	}
	s := uint(v / unit)
	if s >= 1000*3600 {
		return dst, errTemporal
	}
	dst = appendClock(dst, s/3600, s/60%60, s%60)
	return appendDigits(append(dst, '.'), uint64(v%unit), digits), nil
}

// appendOldDatetime appends a DATETIME from before MySQL 5.6, yyyymmddhhmmss
// in decimal, or MariaDB's with a fraction.
func (c *Column) appendOldDatetime(dst, b []byte) ([]byte, error) {
	digits := int(c.fsp)
	if digits == 0 {
		u := binary.LittleEndian.Uint64(b)
		if u > 99999999999999 {
			return dst, errTemporal
		}
		day, clock := uint(u/1000000), uint(u%1000000)
		dst = append(appendDay(dst, day/10000, day/100%100, day%100), ' ')
		return appendClock(dst, clock/10000, clock/100%100, clock%100), nil
	}
	// ((((year*13+month)*32+day)*24+hour)*60+minute)*60+second, in 10^-digits seconds.
	u, unit := bigEndian(b), uint64(pow10[digits])
	frac := u % unit
	u /= unit
	clock, day := uint(u%86400), u/86400
	ym := uint(day / 32)
	if ym/13 > 9999 {
		return dst, errTemporal
	}
	dst = append(appendDay(dst, ym/13, ym%13, uint(day%32)), ' ')
	dst = appendClock(dst, clock/3600, clock/60%60, clock%60)
	return appendDigits(append(dst, '.'), frac, digits), nil
}
