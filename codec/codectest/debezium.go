package codectest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/event"
)

// DebeziumModes are the options of codec debezium that change how values look, by Debezium's words; empty: the defaults.
type DebeziumModes struct {
	Decimal string // decimal.handling.mode
	Time    string // time.precision.mode
	Binary  string // binary.handling.mode
}

// Bytes undoes binary.handling.mode.
func (o DebeziumModes) Bytes(s string) (string, error) {
	var b []byte
	var err error
	switch o.Binary {
	case "hex":
		b, err = hex.DecodeString(s)
	case "base64-url-safe":
		b, err = base64.URLEncoding.DecodeString(s)
	default:
		b, err = base64.StdEncoding.DecodeString(s)
	}
	return string(b), err
}

// Text undoes the encodings that docs/formats.md describes, for [Format].Text.
func (o DebeziumModes) Text(col *event.Column, v json.RawMessage) (string, error) {
	var n int64
	var s string
	switch {
	case v[0] == '"':
		if err := json.Unmarshal(v, &s); err != nil {
			return "", err
		}
	default:
		n, _ = strconv.ParseInt(string(v), 10, 64)
	}
	fraction := func(micros int64) string {
		if col.Meta == 0 {
			return ""
		}
		return "." + fmt.Sprintf("%06d", micros%1e6)[:col.Meta]
	}
	switch col.Class {
	case event.ClassUint:
		if v[0] == '"' {
			return unscaledText(s, 0)
		}
		if n < 0 {
			return fmt.Sprint(uint64(n)), nil
		}
		return string(v), nil
	case event.ClassInt, event.ClassVector:
		return string(v), nil
	case event.ClassFloat, event.ClassDouble:
		return strings.TrimSuffix(string(v), ".0"), nil
	case event.ClassDecimal:
		switch o.Decimal {
		case "string":
			return s, nil
		case "double":
			if col.Meta&0xff == 0 {
				return strings.TrimSuffix(string(v), ".0"), nil
			}
			return string(v), nil
		}
		return unscaledText(s, int(col.Meta&0xff))
	case event.ClassBit:
		if col.Meta == 1 {
			return map[string]string{"true": "1", "false": "0"}[string(v)], nil
		}
		b, err := base64.StdEncoding.DecodeString(s)
		if len(b) != int(col.Meta+7)/8 {
			return "", fmt.Errorf("%d bytes, %v", len(b), err)
		}
		return fmt.Sprint(binary.LittleEndian.Uint64(append(b, make([]byte, 8)...))), err
	case event.ClassYear:
		return fmt.Sprintf("%04d", n), nil
	case event.ClassDate:
		return time.Unix(n*86400, 0).UTC().Format("2006-01-02"), nil
	case event.ClassTime:
		if o.Time == "connect" {
			n *= 1000
		}
		sign := ""
		if n < 0 {
			n, sign = -n, "-"
		}
		sec := n / 1e6
		return fmt.Sprintf("%s%02d:%02d:%02d%s", sign, sec/3600, sec/60%60, sec%60, fraction(n)), nil
	case event.ClassDatetime:
		at := time.UnixMicro(n)
		if o.Time == "connect" || o.Time == "" && col.Meta <= 3 {
			at = time.UnixMilli(n)
		}
		return at.UTC().Format("2006-01-02 15:04:05") + fraction(int64(at.Nanosecond()/1000)), nil
	case event.ClassTimestamp:
		at, err := time.Parse(time.RFC3339, s)
		return at.Format("2006-01-02 15:04:05") + fraction(int64(at.Nanosecond()/1000)), err
	case event.ClassSet:
		return strings.TrimPrefix(s, ","), nil // behind a label '' that comes first, where servers have none
	case event.ClassBinary, event.ClassVarbinary, event.ClassBlob:
		return o.Bytes(s)
	case event.ClassGeometry:
		var g struct {
			WKB  []byte
			SRID *uint32
		}
		err := json.Unmarshal(v, &g)
		if len(g.WKB) == 0 {
			return "", err
		}
		b := make([]byte, 4)
		if g.SRID != nil {
			binary.LittleEndian.PutUint32(b, *g.SRID)
		}
		return string(append(b, g.WKB...)), err
	}
	return s, nil
}

// unscaledText is the number of Connect's Decimal.
func unscaledText(s string, scale int) (string, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	text := fmt.Sprintf("%0*d", scale+1, new(big.Int).Abs(n))
	if scale > 0 {
		text = text[:len(text)-scale] + "." + text[len(text)-scale:]
	}
	if n.Sign() < 0 {
		text = "-" + text
	}
	return text, err
}

// DebeziumLost tells of dates that codec debezium makes null, since the calendar does not have them; for [Format].Lost.
func DebeziumLost(col *event.Column, text string) bool {
	switch col.Class {
	case event.ClassDate, event.ClassDatetime, event.ClassTimestamp:
		_, err := time.Parse("2006-01-02", text[:10])
		return err != nil
	}
	return false
}
