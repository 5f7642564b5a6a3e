package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// Bounds of what is passed over (I9).
const (
	maxPassed    = 64   // definitions of one table, at one time
	maxDecisions = 4096 // of a history
)

// decision has rows of a table that have one definition in the log passed over, from a place on until a statement changes the table. It depends on nothing
// else that is known of the table, and nothing that is found out later changes it: each replay passes over the same rows (I5).
type decision struct {
	Schema     string     `json:"schema"`
	Table      string     `json:"table"`
	Definition string     `json:"definition"` // by definitionOf
	From       savedPlace `json:"from"`       // the last transaction end before the first of the rows

	By    *version    `json:"by,omitempty"`    // the statement that ends it; only its place counts
	Until *savedPlace `json:"until,omitempty"` // where it was forgotten
}

func (d *decision) name() ddl.Name { return ddl.Name{Schema: d.Schema, Table: d.Table} }

func (d *decision) open() bool { return d.By == nil && d.Until == nil }

// begun reports whether whoever stands at pos has come to the place from which it holds.
func (d *decision) begun(pos *event.Position) bool {
	from := d.From.position()
	return pos.Reached(&from)
}

// over reports whether whoever stands at pos has come to its end.
func (d *decision) over(pos *event.Position) bool {
	if d.By != nil {
		return d.By.within(pos)
	}
	if d.Until != nil {
		until := d.Until.position()
		return pos.Reached(&until)
	}
	return false
}

// definitionOf names a definition of the log.
func definitionOf(definition []byte) string {
	sum := sha256.Sum256(definition)
	return hex.EncodeToString(sum[:12])
}

// passed tells whether rows of a definition are passed over where the reader stands.
func (v *View) passed(n ddl.Name, definition []byte) (bool, error) {
	v.h.mu.Lock()
	some := len(v.h.decisions[n]) > 0
	v.h.mu.Unlock()
	if !some {
		return false, nil
	}
	here, err := v.src.Here()
	if err != nil {
		return false, err
	}
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	name := definitionOf(definition)
	for _, d := range v.h.decisions[n] {
		if d.Definition != name {
			continue
		}
		if from := d.From.position(); !comparable(&from, &here) {
			return false, &binlog.StopError{
				What: fmt.Sprintf("rows like these have been passed over on another server (from %s:%d on), and without GTIDs nobody can tell whether these are among them", from.File, from.Offset),
				Remedy: "if every sink stands behind those rows have them read from now on, after a stop in order, with: binlogmq schema forget --table " + n.String() +
					"; else go on with the former server until it does",
			}
		}
		if d.begun(&here) && !d.over(&here) && (d.By == nil || d.By.place() != v.said) {
			return true, nil
		}
	}
	return false, nil
}

// passOver has rows of a definition passed over from here on, in each replay, until a statement changes the table (I5). It returns false if that
// cannot be kept.
func (v *View) passOver(n ddl.Name, definition []byte) (bool, error) {
	here, err := v.src.Here()
	if err != nil {
		return false, err
	}
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	if !v.h.known || v.h.loose || v.h.keeper == nil || !v.follows(n.Schema) {
		return false, nil
	}
	all := 0
	for _, list := range v.h.decisions {
		all += len(list)
	}
	open := 0
	for _, d := range v.h.decisions[n] {
		if d.open() {
			open++
		}
	}
	if all >= maxDecisions || open >= maxPassed {
		return false, nil
	}
	d := &decision{Schema: n.Schema, Table: n.Table, Definition: definitionOf(definition), From: saved(&here)}
	x := v.at(n)
	list := v.h.lists[n]
	for _, y := range list[slices.Index(list, x)+1:] {
		if !y.Looked {
			d.By = y.end() // another reader has been there
			break
		}
		if y.State == ddl.Known && !y.within(&here) {
			return false, nil // I5: rows behind may have been published
		}
	}
	v.h.decisions[n] = append(v.h.decisions[n], d)
	v.h.added++
	v.h.changes++
	return true, nil
}

// end returns a version with its place only.
func (v *version) end() *version {
	return &version{Schema: v.Schema, Table: v.Table, GTID: v.GTID, Server: v.Server, File: v.File, Start: v.Start, End: v.End}
}

// ends ends what is passed over of the tables that a statement may change, whatever is known of them. It comes before the statement is looked at.
func (v *View) ends(st *binlog.Statement) error {
	v.h.mu.Lock()
	v.said = placeOf(st.GTID, st.ServerUUID, st.File, st.Start)
	some := false
	for _, list := range v.h.decisions {
		some = some || slices.ContainsFunc(list, (*decision).open)
	}
	v.h.mu.Unlock()
	if !some {
		return nil
	}
	here, err := v.src.Here()
	if err != nil {
		return err
	}
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	for _, n := range ddl.Touched(v.statement(st), v.srv, nameless{v}) {
		for _, d := range v.h.decisions[n] {
			if d.open() && d.begun(&here) {
				d.By = &version{Schema: n.Schema, Table: n.Table, GTID: st.GTID, Server: st.ServerUUID, File: st.File, Start: st.Start, End: st.Next}
				v.h.changes++
			}
		}
	}
	return nil
}

// dropDecisions drops those that every cursor is behind. h.mu is held.
func (h *History) dropDecisions(cursors []event.Position) {
	for n, list := range h.decisions {
		list = slices.DeleteFunc(slices.Clone(list), func(d *decision) bool {
			return len(cursors) > 0 && !slices.ContainsFunc(cursors, func(p event.Position) bool { return !d.over(&p) })
		})
		if h.decisions[n] = list; len(list) == 0 {
			delete(h.decisions, n)
		}
	}
}

// endDecisions ends what is passed over of a table behind what has been read: what was passed over stays so in a replay (I5). h.mu is held.
func (h *History) endDecisions(n ddl.Name) {
	var kept []*decision
	for _, d := range h.decisions[n] {
		if from := d.From.position(); !comparable(&from, &h.read) {
			continue
		}
		if d.open() && d.begun(&h.read) {
			read := saved(&h.read)
			d.Until = &read
		}
		kept = append(kept, d)
	}
	if h.decisions[n] = kept; len(kept) == 0 {
		delete(h.decisions, n)
	}
}

// Adopt takes over what another history of the same log passes over, as [History.Save] has saved it. It reports whether there is any such thing.
func (h *History) Adopt(data []byte) (bool, error) {
	other := NewHistory(nil)
	if err := other.decode(data); err != nil {
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(other.decisions) == 0 {
		return false, nil
	}
	if !h.known {
		loaded := h.loaded
		if err := h.decode(data); err != nil {
			return false, err
		}
		h.loaded = loaded
		h.changes++
		return true, nil
	}
	for n, list := range other.decisions {
		for _, d := range list {
			i := slices.IndexFunc(h.decisions[n], func(o *decision) bool {
				return o.Definition == d.Definition && o.From.File == d.From.File && o.From.Offset == d.From.Offset && o.From.ServerUUID == d.From.ServerUUID
			})
			switch {
			case i < 0:
				h.decisions[n] = append(h.decisions[n], d)
			case h.decisions[n][i].open():
				h.decisions[n][i] = d // it may have been ended there
			}
			h.changes++
		}
	}
	return true, nil
}

// PassesOver reports whether rows of a table, or of any if it is the zero Name, are passed over where they come; still says whether this holds for rows that
// come from now on.
func (h *History) PassesOver(n ddl.Name) (any, still bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m, list := range h.decisions {
		if n == (ddl.Name{}) || n == m {
			any = any || len(list) > 0
			still = still || slices.ContainsFunc(list, (*decision).open)
		}
	}
	return any, still
}

func saved(p *event.Position) savedPlace {
	return savedPlace{p.File, p.Offset, p.GTIDs.Clone(), p.ServerUUID}
}
