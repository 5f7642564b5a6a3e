package admin

import "time"

// Report is a snapshot of the whole program.
type Report struct {
	Version      string        `json:"version"`
	Started      time.Time     `json:"started"`
	Destinations []Destination `json:"destinations"`
}

// Destination is a snapshot of one destination.
type Destination struct {
	Name       string  `json:"name"`
	State      string  `json:"state"`           // "reading", "failed", ..., Waiting or Standby
	Owner      bool    `json:"owner"`           // this process has the destination's lease
	Epoch      int64   `json:"epoch"`           // of the lease, or the last one that this process had; 0 where there is only ever one
	Meta       bool    `json:"meta_connected"`  // the store of cursors can be reached
	Error      string  `json:"error,omitempty"` // why it is not healthy, with the remedy
	Connected  bool    `json:"connected"`
	Since      string  `json:"since,omitempty"` // when Connected became what it is, RFC 3339 in UTC
	Position   string  `json:"position"`        // where reading is
	LagKnown   bool    `json:"lag_known"`       // false until the source's own position is known
	LagSeconds float64 `json:"lag_seconds"`     // age of the oldest change not yet acknowledged by every sink; 0 when there is none
	LagBytes   int64   `json:"lag_bytes"`       // binlog bytes between the source's end and what was read
	Bytes      int64   `json:"bytes"`           // binlog bytes read
	Events     int64   `json:"events"`          // binlog events read
	Rows       int64   `json:"rows"`            // row changes captured
	Reconnects int64   `json:"reconnects"`
	Skipped    int64   `json:"skipped_transactions"` // passed over by the operator's order
	PassedDML  int64   `json:"passed_statements"`    // statement-format DML passed over, as configured
	Unread     int64   `json:"unread_rows"`          // row changes of tables that cannot be read, passed over, as configured
	Lost       int64   `json:"lost_positions"`       // how often the configured way of going on from a lost position was gone
	RingEvents int64   `json:"ring_events"`
	RingBytes  int64   `json:"ring_bytes"`
	RingLimit  int64   `json:"ring_bytes_limit"`
	Sinks      []Sink  `json:"sinks"`

	Snapshot *Snapshot `json:"snapshot,omitempty"` // nil while another process owns the destination
}

// Sink is a snapshot of one sink and its subscription.
type Sink struct {
	Name        string  `json:"name"`
	Kind        string  `json:"kind"`
	State       string  `json:"state"`
	Error       string  `json:"error,omitempty"`
	Rows        int64   `json:"rows"`     // row changes confirmed
	Messages    int64   `json:"messages"` // messages confirmed by the broker
	Bytes       int64   `json:"bytes"`    // their keys, values and headers
	InFlight    int64   `json:"in_flight_messages"`
	FlightBytes int64   `json:"in_flight_bytes"`
	Retries     int64   `json:"retries"` // requests repeated
	Commits     int64   `json:"commits"` // Kafka transactions committed
	Spread      int64   `json:"spread_transactions"`
	Hanging     int64   `json:"hanging_partitions"`
	Rollbacks   int64   `json:"rollbacks"` // times the sink began again at its acknowledged position
	Stubs       int64   `json:"stubs"`     // messages above the limit of which a stub was made
	Splits      int64   `json:"splits"`    // messages above the limit that were split
	DeadLetters int64   `json:"dead_letters"`
	Ordinal     int64   `json:"ordinal"` // highest acknowledged
	Behind      int64   `json:"behind"`  // ordinals read and not acknowledged
	LagSeconds  float64 `json:"lag_seconds"`
	CursorAge   float64 `json:"cursor_age_seconds"` // since the cursor was last saved while it moved; 0 when saved
	CatchingUp  bool    `json:"catching_up"`        // fed by a reader of its own
}

// Waiting is the State of a destination without sinks that no client of Canal's protocol has subscribed to yet: its source is not
// read before.
const Waiting = "waiting"

// Standby is the State of a destination that another process owns, or may own: this one waits for it.
const Standby = "standby"

// Healthy reports whether the destination works, and its snapshots go on.
func (d *Destination) Healthy() bool {
	return d.Error == "" && (d.Snapshot == nil || d.Snapshot.Error == "")
}

// Healthy reports whether the sink works.
func (s *Sink) Healthy() bool { return s.Error == "" }

// Healthy reports whether everything works.
func (r *Report) Healthy() bool {
	for i := range r.Destinations {
		d := &r.Destinations[i]
		if !d.Healthy() {
			return false
		}
		for j := range d.Sinks {
			if !d.Sinks[j].Healthy() {
				return false
			}
		}
	}
	return true
}

// Ready reports whether every source is connected, or waits in good order for the lease or for its first client.
func (r *Report) Ready() bool {
	for i := range r.Destinations {
		if d := &r.Destinations[i]; !d.Connected && (d.State != Standby && d.State != Waiting || d.Error != "") {
			return false
		}
	}
	return len(r.Destinations) > 0
}
