package binlog

import "github.com/binlogmq/binlogmq/event"

// ofTemporary tells whether a statement that seems to be about a table is about a temporary one, which hides a table of its name from its session. Sessions
// that log statements log these too, and their text does not say so: only the event does. It also does where another table is made
// of a temporary one, which is an ordinary change then.
func ofTemporary(r *Raw, about *event.Statement) bool {
	if r.Flags&FlagThread == 0 || about == nil || !about.Whole || len(about.Changes) == 0 {
		return false
	}
	renames := 0
	for i := range about.Changes {
		c := &about.Changes[i]
		if c.Object != event.ObjectTable {
			return false
		}
		switch c.Action {
		case event.ActionAlter, event.ActionTruncate:
		case event.ActionRename:
			renames++ // RENAME TABLE may name tables of both kinds
		default:
			return false
		}
	}
	return renames <= 1
}
