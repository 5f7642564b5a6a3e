package config

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Duration is written as in Go: "500ms", "10s", "1h30m". An explicit zero is
// kept as -1, so that a default does not replace it.
type Duration time.Duration

// UnmarshalYAML reads a duration; it must not be negative.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err == nil && v < 0 {
		return fmt.Errorf("%q is negative", n.Value)
	}
	if err != nil {
		return fmt.Errorf("%q is not a duration: write a number with its unit, such as 500ms or 10s", n.Value)
	}
	if v == 0 {
		v = -1
	}
	*d = Duration(v)
	return nil
}

// Value returns the duration; an explicit zero is zero.
func (d Duration) Value() time.Duration { return max(0, time.Duration(d)) }

// Bytes is a size: a plain number of bytes, or one with KiB, MiB or GiB.
type Bytes int64

// UnmarshalYAML reads a size; it must be positive.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	s, shift := strings.TrimSpace(n.Value), 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if v, ok := strings.CutSuffix(s, unit); ok {
			s, shift = strings.TrimSpace(v), 10*(i+1)
		}
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v <= 0 || v > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a size: write bytes, or a number with KiB, MiB or GiB", n.Value)
	}
	*b = Bytes(v << shift)
	return nil
}

// Strings is a list; a single value may stand without brackets.
type Strings []string

// UnmarshalYAML reads one string or a list of them.
func (l *Strings) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*l = Strings{n.Value}
		return nil
	}
	return n.Decode((*[]string)(l))
}

// Secret is a string that formats, marshals and logs as "***".
type Secret string

const hidden = "***"

// String hides the value.
func (Secret) String() string { return hidden }

// GoString hides the value.
func (Secret) GoString() string { return hidden }

// Format hides the value, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, hidden) }

// LogValue hides the value.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalYAML hides the value.
func (Secret) MarshalYAML() (any, error) { return hidden, nil }

// MarshalText hides the value.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Reveal returns the value.
func (s Secret) Reveal() string { return string(s) }
