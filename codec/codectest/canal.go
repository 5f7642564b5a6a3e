package codectest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/binlogmq/binlogmq/event"
)

// CanalText undoes the encodings of Canal's formats that docs/formats.md describes, for [Format].Text. Byte strings are in base64, or
// each byte is a character; ENUM and SET are labels, or numbers.
func CanalText(inBase64, labels bool) func(col *event.Column, v json.RawMessage) (string, error) {
	return func(col *event.Column, v json.RawMessage) (string, error) {
		var s string
		if err := json.Unmarshal(v, &s); err != nil {
			return "", err
		}
		switch col.Class {
		case event.ClassBinary, event.ClassVarbinary, event.ClassBlob, event.ClassGeometry:
			if inBase64 {
				b, err := base64.StdEncoding.DecodeString(s)
				return string(b), err
			}
			var b []byte
			for _, r := range s {
				if r > 0xff {
					return "", fmt.Errorf("%U in a byte string", r)
				}
				b = append(b, byte(r))
			}
			return string(b), nil
		case event.ClassEnum:
			if labels {
				return s, nil
			}
			n, err := strconv.Atoi(s)
			if err != nil || n == 0 {
				return "", err
			}
			return col.Members[n-1], nil
		case event.ClassSet:
			if labels {
				return s, nil
			}
			mask, err := strconv.ParseUint(s, 10, 64)
			var set []string
			for i, m := range col.Members {
				if mask>>i&1 != 0 {
					set = append(set, m)
				}
			}
			return setText(set), err
		}
		return s, nil
	}
}
