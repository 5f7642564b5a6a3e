package event

import (
	"strconv"
	"strings"
)

// FileNumber returns the number that a binlog file's name ends with.
func FileNumber(name string) uint64 {
	n, _ := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
	return n
}

// Reached tells whether whoever stands at p has read what lay before end when that was the log's end. It says
// no where that cannot be known.
func (p *Position) Reached(end *Position) bool {
	if !end.GTIDs.IsEmpty() && p.GTIDs.ContainsSet(end.GTIDs) {
		return true
	}
	if p.File == "" || end.File == "" || p.ServerUUID != end.ServerUUID {
		return false
	}
	at, until := FileNumber(p.File), FileNumber(end.File)
	return at > until || at == until && p.Offset >= end.Offset
}
