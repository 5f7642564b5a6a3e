package connector

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
)

// I3: however many rows are passed over at once, and of how many tables, the log tells each of them once; of one table not more often than every second.
func TestUnreadRowsAreTold(t *testing.T) {
	var out bytes.Buffer
	w := unreadRows{log: slog.New(slog.NewTextHandler(&out, nil)), told: map[string]*toldOf{}}
	why := &binlog.StopError{What: "gone"}
	began := time.Now()
	for range 20 {
		w.take(&binlog.Unread{Schema: "shop", Table: "t", Rows: 3, Why: why})
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n < 1 || n > 1+int(time.Since(began)/unreadEvery) {
		t.Errorf("%d lines for a burst", n)
	}
	w.told["shop.t"].at = time.Now().Add(-unreadEvery)
	w.due()
	sum := func() (rows int) {
		for _, m := range regexp.MustCompile(` rows=(\d+)`).FindAllStringSubmatch(out.String(), -1) {
			n, _ := strconv.Atoi(m[1])
			rows += n
		}
		return rows
	}
	if sum() != 60 {
		t.Errorf("%d rows of 60 are told once it is idle:\n%s", sum(), out.Bytes())
	}
	for range 2 {
		for i := range maxTold + 1 {
			w.take(&binlog.Unread{Schema: "shop", Table: fmt.Sprint(i), Rows: 1, Why: why})
		}
	}
	w.take(&binlog.Unread{Schema: "shop", Table: "0", Rows: 1, Why: why})
	w.rest()
	if want := 60 + 2*(maxTold+1) + 1; sum() != want || len(w.told) > maxTold {
		t.Errorf("%d rows of %d are told in the end", sum(), want)
	}
}
