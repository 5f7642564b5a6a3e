package connector

import "testing"

// A file that is not listed any more has been purged: what the server says of a place in it proves nothing.
func TestSizeOf(t *testing.T) {
	files := []logFile{{"binlog.000002", 180}, {"binlog.000010", 4}}
	for name, want := range map[string]uint64{"binlog.000002": 180, "binlog.000010": 4, "binlog.000001": 0, "": 0} {
		if got := sizeOf(files, name); got != want {
			t.Errorf("%q: %d", name, got)
		}
	}
}
