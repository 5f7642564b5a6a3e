package bridge

import (
	"strings"
	"testing"
)

// TestNewReportsEveryFault: all at once.
func TestNewReportsEveryFault(t *testing.T) {
	_, err := New(Options{Topic: "{tabel}", DDLTopic: "{schema}", Key: 9, KeyChange: 9, Headers: []string{"seq", "seq"},
		KeyColumns: []KeyColumns{{}, {Tables: []string{"a.b"}}}})
	for _, want := range []string{"no destination", "no name", "required", "{tabel}", "{schema}", "key:", "key_change", `"seq" is named twice`, "key columns 0", "key columns 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	o := testOptions(nil)
	o.Headers = []string{"sequence"}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "commit_time") {
		t.Errorf("error %v does not list the known headers", err)
	}
}
