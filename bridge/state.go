package bridge

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

const (
	// stateVersion is the version of the layout of State. Version 1 kept no recipe, nor whether the sink had stopped in order.
	stateVersion = 2

	// countingRule is the version of the rules by which a row yields messages
	// and messages get their numbers. A change of the rules is a change of the fingerprint. By rule 1 statements with bodies were
	// published whatever they said, and patterns told upper from lower case where the server does not.
	countingRule = "2"

	// epochStride is how far the offset jumps with a new epoch. What was sent
	// under the old offset lies at most one window above the cursor, which is far less.
	epochStride = 1 << 32
)

// MovedFingerprint is the fingerprint of a cursor that was moved by hand. No options have
// it, so that a new epoch begins.
const MovedFingerprint = "moved"

// elsewhereFingerprint is that of a cursor that was put to another place without its user, see State.Elsewhere.
const elsewhereFingerprint = "another server"

// State is what the bridge keeps in its subscription's cursor: saved in the
// same write as the position (I2).
type State struct {
	Version     int              `json:"v"`
	Epoch       int64            `json:"epoch"`                // rises by one whenever the replay may not equal what was sent
	Offset      int64            `json:"offset"`               // sequence = ordinal + Offset
	Fingerprint string           `json:"fingerprint"`          // of the options under which the messages up to the cursor were sent
	Partitions  map[string]int32 `json:"partitions,omitempty"` // of each topic used since; part of the fingerprint
	Recipe      json.RawMessage  `json:"recipe,omitempty"`     // that Fingerprint is of, for ParseRecipe; none for MovedFingerprint
	Clean       bool             `json:"clean,omitempty"`      // nothing was sent after the cursor: no replay must equal what was sent
	Limits      map[string]int   `json:"limits,omitempty"`     // largest message of each topic as it was then, where Options.Oversize asks for it; likewise
	Reconciling *Reconcile       `json:"reconcile,omitempty"`  // what is replayed is compared with what the topics hold; nil: it is not
	Sink        []byte           `json:"sink,omitempty"`       // the sink's own state, opaque to the bridge
}

// firstLife is the second from which NewState counts: the start of 2020.
const firstLife = 1577836800

// NewState is the state of a subscription of whose past nothing is known. Its numbers lie above all that lives
// which ended before born can have used, if those took less than a million a second since 2020. The
// zero time gives epoch 1 and offset 0.
func NewState(born time.Time) *State {
	ms := max(0, born.UnixMilli()-firstLife*1000)
	return &State{Version: stateVersion, Epoch: ms/1000 + 1, Offset: ms << 10, Fingerprint: MovedFingerprint}
}

// ParseState reads a cursor's state. Empty bytes are no state: nil, nil.
func ParseState(b []byte) (*State, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var v struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("bridge: state in the cursor cannot be read: %w", err)
	}
	if v.Version < 1 || v.Version > stateVersion {
		return nil, fmt.Errorf("bridge: state in the cursor has version %d, this program knows version %d", v.Version, stateVersion)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // a field that we would lose with the next write
	s := new(State)
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("bridge: state in the cursor cannot be read: %w", err)
	}
	if s.Epoch < 1 || s.Offset < 0 || s.Fingerprint == "" {
		return nil, fmt.Errorf("bridge: state in the cursor is damaged: epoch %d, offset %d, fingerprint %q", s.Epoch, s.Offset, s.Fingerprint)
	}
	s.Version = stateVersion
	return s, nil
}

// Encode writes the state as it is kept in the cursor.
func (s *State) Encode() ([]byte, error) { return json.Marshal(s) }

// appendState appends to dst the state whose text, without the sink's own state, is given.
func appendState(dst, text, sink []byte) []byte {
	dst = append(dst, text[:len(text)-1]...)
	dst = append(dst, `,"sink":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, sink)
	return append(dst, `"}`...)
}

// clone returns a copy that shares no map.
func (s *State) clone() *State {
	c := *s
	c.Partitions = maps.Clone(s.Partitions)
	if c.Partitions == nil {
		c.Partitions = map[string]int32{}
	}
	c.Limits = maps.Clone(s.Limits)
	if c.Limits == nil {
		c.Limits = map[string]int{}
	}
	return &c
}

// forget lets go of what the state knows of topics, at the beginning of an epoch.
func (s *State) forget() {
	clear(s.Partitions)
	clear(s.Limits)
}

// next begins an epoch: I5: no number that may have been sent is used again.
func (s *State) next(r *Recipe) {
	s.Epoch++
	s.Offset += epochStride
	s.follow(r)
}

// follow notes the recipe.
func (s *State) follow(r *Recipe) {
	s.Fingerprint, s.Recipe, s.Clean = r.fingerprint(), r.encode(), false
}

// Moved makes the state one of a cursor that was moved by hand: the next start begins a new epoch.
func (s *State) Moved() {
	s.Fingerprint, s.Recipe, s.Clean, s.Reconciling = MovedFingerprint, nil, false, nil
}
