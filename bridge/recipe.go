package bridge

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// recipeVersion is the version of the layout of Recipe.
const recipeVersion = 1

// Recipe is everything that decides which messages a row yields, where they go and which numbers
// they bear, but for the topics' partition counts, which State keeps. Its hash is the fingerprint.
//
// The cursor's state keeps the recipe under which the messages after the cursor were sent: after a crash they are
// sent again under it, whatever the configuration says by then (I5). It holds no secrets. A field that is
// added later is left out where it has the value that stood for it before, so that fingerprints stay.
type Recipe struct {
	Version     int          `json:"v"`
	Rule        string       `json:"rule"`               // countingRule
	Delivery    string       `json:"delivery,omitempty"` // kind of sink and delivery, as Options.Delivery
	Codec       string       `json:"codec"`
	Destination string       `json:"destination"`
	Tables      []string     `json:"tables,omitempty"`
	AllVersions bool         `json:"all_versions,omitempty"`
	Filter      string       `json:"filter,omitempty"`
	Topic       string       `json:"topic"`
	DDLTopic    string       `json:"ddl_topic,omitempty"`
	DDL         string       `json:"ddl,omitempty"` // "": all, as before there was a choice, and where there is no topic
	Key         string       `json:"key"`
	KeyColumns  []KeyColumns `json:"key_columns,omitempty"`
	KeyChange   string       `json:"key_change"`
	Tombstones  bool         `json:"tombstones,omitempty"`

	// What decides by a message's size; left out where nothing does.
	Oversize        string   `json:"oversize,omitempty"`
	MaxMessageBytes int      `json:"max_message_bytes,omitempty"`
	DeadLetterTopic string   `json:"dead_letter_topic,omitempty"`
	Headers         []string `json:"headers,omitempty"`
}

// recipe returns the recipe of the options.
func (o *Options) recipe() *Recipe {
	r := &Recipe{
		Version: recipeVersion, Rule: countingRule, Delivery: o.Delivery, Codec: o.CodecID, Destination: o.Destination, Tables: o.Tables, AllVersions: o.AllVersions, Filter: o.Filter,
		Topic: o.Topic, DDLTopic: o.DDLTopic, Key: o.Key.String(), KeyColumns: o.KeyColumns, KeyChange: o.KeyChange.String(), Tombstones: o.Tombstones,
	}
	if o.DDLTopic != "" && o.DDL != AllDDL {
		r.DDL = o.DDL.String()
	}
	if o.Oversize != StopOversize {
		r.Oversize, r.MaxMessageBytes, r.DeadLetterTopic, r.Headers = o.Oversize.String(), o.MaxMessageBytes, o.DeadLetterTopic, slices.Clone(o.headers())
		if o.DDLTopic == "" {
			// It stands beside statements only.
			r.Headers = slices.DeleteFunc(r.Headers, func(h string) bool { return h == headerNames[headerTables] })
		}
	}
	return r
}

// Counts tells whether both count the same row changes of the destination: else numbers of one mean nothing to the other.
func (r *Recipe) Counts(other *Recipe) bool {
	return slices.Equal(r.Tables, other.Tables) && r.AllVersions == other.AllVersions
}

// encode writes the recipe: always the same bytes for the same recipe.
func (r *Recipe) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil { // of strings and booleans, it cannot
		bug(err)
	}
	return b
}

// fingerprint hashes the recipe.
func (r *Recipe) fingerprint() string {
	h := sha256.Sum256(r.encode())
	return hex.EncodeToString(h[:16])
}

// fingerprint is that of the options' recipe.
func (o *Options) fingerprint() string { return o.recipe().fingerprint() }

// ErrRecipe is in the chain of an error of a recipe that this program cannot follow.
var ErrRecipe = errors.New("bridge: what was sent before cannot be made again")

// ErrRule is in the chain of the ErrRecipe of a recipe of another version, which counts otherwise.
var ErrRule = errors.New("another version of binlogmq sent it, which counts otherwise")

// ParseRecipe reads the recipe of a State. It refuses one that this program does not know all of: following
// the rest would send other messages under the same numbers.
func ParseRecipe(b []byte) (*Recipe, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: an older version has not kept its recipe", ErrRecipe)
	}
	var v struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%w: the recipe cannot be read: %w", ErrRecipe, err)
	}
	if v.Version != recipeVersion {
		return nil, fmt.Errorf("%w: the recipe has version %d, this program knows version %d", ErrRecipe, v.Version, recipeVersion)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	r := new(Recipe)
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("%w: the recipe cannot be read: %w", ErrRecipe, err)
	}
	if r.Rule != countingRule {
		return nil, fmt.Errorf("%w: %w: by rule %q, this one by rule %q", ErrRecipe, ErrRule, r.Rule, countingRule)
	}
	return r, nil
}

// Follow puts the recipe into options. Their codec must be the one that r.Codec names.
func (r *Recipe) Follow(o *Options) error {
	key, err := ParseKey(r.Key)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecipe, err)
	}
	change, err := ParseKeyChange(r.KeyChange)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecipe, err)
	}
	o.DDL = AllDDL
	if r.DDL != "" {
		if o.DDL, err = ParseDDL(r.DDL); err != nil {
			return fmt.Errorf("%w: %w", ErrRecipe, err)
		}
	}
	o.Delivery, o.CodecID, o.Destination, o.Tables, o.Filter, o.Topic, o.DDLTopic = r.Delivery, r.Codec, r.Destination, r.Tables, r.Filter, r.Topic, r.DDLTopic
	o.AllVersions, o.Key, o.KeyColumns, o.KeyChange, o.Tombstones = r.AllVersions, key, r.KeyColumns, change, r.Tombstones
	if o.Oversize, err = ParseOversize(r.Oversize); err != nil {
		return fmt.Errorf("%w: %w", ErrRecipe, err)
	}
	o.MaxMessageBytes, o.DeadLetterTopic = r.MaxMessageBytes, r.DeadLetterTopic
	if r.Oversize != "" {
		o.Headers = r.Headers
		if o.Headers == nil {
			o.Headers = []string{}
		}
	}
	// What the recipe does not hold would change its messages.
	if got := o.fingerprint(); got != r.fingerprint() {
		return fmt.Errorf("%w: this program makes fingerprint %s of the recipe of %s", ErrRecipe, got, r.fingerprint())
	}
	return nil
}
