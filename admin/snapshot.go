package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
)

// Snapshot is the state of a destination's snapshots.
type Snapshot struct {
	State    string          `json:"state"`               // of reading: none, reading, waiting or failing
	Since    string          `json:"since,omitempty"`     // when State became what it is, RFC 3339 in UTC
	Error    string          `json:"error,omitempty"`     // why it does not go on, with the remedy
	Warning  string          `json:"warning,omitempty"`   // what is left out by the snapshot that was begun last, as the account may not read it, with the remedy
	Table    string          `json:"table,omitempty"`     // that is being read
	Tables   int64           `json:"tables"`              // of the snapshot that is being read, as far as is known
	Done     int64           `json:"tables_done"`         // of those, read to their end
	Rows     int64           `json:"rows"`                // of the snapshot that is being read, handed on
	Chunks   int64           `json:"pending_chunks"`      // handed on, and kept until every cursor is well past them
	Bytes    int64           `json:"pending_bytes"`       // what they take in the store of cursors
	Waits    string          `json:"waits_for,omitempty"` // the sink or client that has passed the fewest of these chunks; none: all have passed them
	Queue    []SnapshotOrder `json:"queue"`               // the first one is being read
	Finished string          `json:"finished,omitempty"`  // id of the last one that came to its end
}

// SnapshotOrder orders a snapshot, or shows one that is ordered.
type SnapshotOrder struct {
	Sinks  []string          `json:"sinks,omitempty"`  // that get it; none: all, and clients of Canal's protocol
	Tables []string          `json:"tables,omitempty"` // patterns; none: as configured
	Where  map[string]string `json:"where,omitempty"`  // conditions by schema.table

	// The following are shown only.

	ID     string `json:"id,omitempty"`
	Reason string `json:"reason,omitempty"`
	At     string `json:"at,omitempty"` // RFC 3339 in UTC
}

// Snapshots is who carries orders out. It is safe for concurrent use.
type Snapshots interface {
	// StartSnapshot orders a snapshot, which is saved when it returns.
	StartSnapshot(ctx context.Context, destination string, o SnapshotOrder) (id string, err error)
	// CancelSnapshot takes a snapshot off the queue, or all of them for an empty id; it is ErrUnknown where there is none.
	CancelSnapshot(ctx context.Context, destination, id string) error
}

// Why an order is refused; any other error is answered with 503.
var (
	ErrUnknown   = errors.New("not known")               // no such destination or snapshot: 404
	ErrElsewhere = errors.New("not with this process")   // another one owns the destination: 409
	ErrOrder     = errors.New("not what can be ordered") // 400

	errForeign = errors.New("not taken from web pages")     // 403
	errMethod  = errors.New("not a method of this address") // 405
	errLong    = errors.New("longer than an order may be")  // 413
)

// maxOrder bounds the body of a request, in bytes.
const maxOrder = 1 << 20

// CancelOrder is the body of a request to cancel.
type CancelOrder struct {
	ID string `json:"id,omitempty"` // none: all
}

// Answer is the body of the answer to an order.
type Answer struct {
	ID    string `json:"id,omitempty"`
	Error string `json:"error,omitempty"`
}

func snapshotHandlers(mux *http.ServeMux, report func() Report, s Snapshots, log *slog.Logger) {
	mux.HandleFunc("/api/", func(w http.ResponseWriter, q *http.Request) {
		refuse(w, fmt.Errorf("path %q: %w", q.URL.Path, ErrUnknown))
	})
	for path, methods := range map[string]string{"": "GET, HEAD, POST", "/cancel": "POST"} {
		mux.HandleFunc("/api/destinations/{destination}/snapshot"+path, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Allow", methods)
			refuse(w, fmt.Errorf("%w: %s: use %s", errMethod, q.Method, methods))
		})
	}
	mux.HandleFunc("GET /api/destinations/{destination}/snapshot", func(w http.ResponseWriter, q *http.Request) {
		r, name := report(), q.PathValue("destination")
		i := slices.IndexFunc(r.Destinations, func(d Destination) bool { return d.Name == name })
		switch {
		case i < 0:
			refuse(w, fmt.Errorf("destination %q: %w", name, ErrUnknown))
		case r.Destinations[i].Snapshot == nil:
			refuse(w, fmt.Errorf("destination %s: %w: another one owns it, or may", name, ErrElsewhere))
		default:
			answer(w, http.StatusOK, r.Destinations[i].Snapshot)
		}
	})
	mux.HandleFunc("POST /api/destinations/{destination}/snapshot", func(w http.ResponseWriter, q *http.Request) {
		var o SnapshotOrder
		err := body(w, q, &o)
		id := ""
		if err == nil {
			id, err = s.StartSnapshot(q.Context(), q.PathValue("destination"), o)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		log.Info("a snapshot is ordered", "destination", q.PathValue("destination"), "id", id, "by", q.RemoteAddr, "tables", o.Tables, "sinks", o.Sinks)
		answer(w, http.StatusAccepted, Answer{ID: id})
	})
	mux.HandleFunc("POST /api/destinations/{destination}/snapshot/cancel", func(w http.ResponseWriter, q *http.Request) {
		var o CancelOrder
		err := body(w, q, &o)
		if err == nil {
			err = s.CancelSnapshot(q.Context(), q.PathValue("destination"), o.ID)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		log.Info("a snapshot is cancelled", "destination", q.PathValue("destination"), "id", o.ID, "by", q.RemoteAddr)
		answer(w, http.StatusOK, Answer{ID: o.ID})
	})
}

// body reads a request's JSON. Browsers send that type across origins only after asking, which is never allowed.
func body(w http.ResponseWriter, q *http.Request, v any) error {
	if t, _, err := mime.ParseMediaType(q.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return fmt.Errorf("%w: the content type must be application/json", ErrOrder)
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxOrder))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return fmt.Errorf("%w: %d bytes", errLong, large.Limit)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOrder, err)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) { // null would order everything
		return fmt.Errorf("%w: the body must be a JSON object, {} for what is configured", ErrOrder)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrOrder, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the order", ErrOrder)
	}
	return nil
}

func refuse(w http.ResponseWriter, err error) {
	code := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, ErrUnknown):
		code = http.StatusNotFound
	case errors.Is(err, ErrElsewhere):
		code = http.StatusConflict
	case errors.Is(err, ErrOrder):
		code = http.StatusBadRequest
	case errors.Is(err, errForeign):
		code = http.StatusForbidden
	case errors.Is(err, errMethod):
		code = http.StatusMethodNotAllowed
	case errors.Is(err, errLong):
		code = http.StatusRequestEntityTooLarge
	}
	answer(w, code, Answer{Error: err.Error()})
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client went away
}
