package connector

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// I9: check tells of rows that clients can write and the destination does not accept.
func TestCheckComparesSizes(t *testing.T) {
	for _, c := range []struct {
		packet string
		limit  int
		warn   bool
	}{
		{"67108864", 256 << 20, false}, {"67108864", 64 << 20, false}, {"67108864", 63 << 20, true}, {"1073741824", 0, false}, {"", 1 << 20, false},
	} {
		k := &checker{c: &Connector{opt: Options{MaxEvent: c.limit}}, sv: &server{vars: map[string]string{"max_allowed_packet": c.packet}}}
		k.sizes()
		if warned := len(k.found) == 1 && k.found[0].Severity == Warning && strings.Contains(k.found[0].Remedy, "source.max_event to 64MiB"); warned != c.warn || !c.warn && len(k.found) > 0 {
			t.Errorf("packet %q, limit %d: %+v", c.packet, c.limit, k.found)
		}
	}
}

// What is to be granted is what the patterns name, each statement on a line of its own.
func TestSelectGrants(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		want     string
	}{
		{[]string{"shop.*", "!shop.tmp_*"}, "GRANT SELECT ON `shop`.* TO 'u'@'h';"},
		{[]string{"shop.*", "a`b.c"}, "GRANT SELECT ON `a``b`.* TO 'u'@'h';\nGRANT SELECT ON `shop`.* TO 'u'@'h';"},
		{[]string{"shop_*.*"}, "GRANT SELECT ON *.* TO 'u'@'h';"},
	} {
		f, err := tablefilter.New(c.patterns)
		if err != nil {
			t.Fatal(err)
		}
		k := &Connector{opt: Options{Tables: f}}
		account := "'u'@'h'"
		k.account.Store(&account)
		var stop *StopError
		if !errors.As(k.judge(&mysql.MyError{Code: mysql.ER_DBACCESS_DENIED_ERROR}), &stop) {
			t.Fatal("no stop")
		}
		if got, want := asLines(stop.Remedy), "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'u'@'h';\n"+c.want; got != want {
			t.Errorf("%q:\n%s\nwant\n%s", c.patterns, got, want)
		}
	}
}

// The steps to GTIDs are those that the version takes.
func TestSwitchGTIDsOn(t *testing.T) {
	for _, c := range []struct{ version, mode, want string }{
		{"8.4.0", "OFF", "SET PERSIST enforce_gtid_consistency=ON;\nSET PERSIST gtid_mode=OFF_PERMISSIVE;\nSET PERSIST gtid_mode=ON_PERMISSIVE;\nSET PERSIST gtid_mode=ON;"},
		{"9.7.4-2", "ON_PERMISSIVE", "SET PERSIST enforce_gtid_consistency=ON;\nSET PERSIST gtid_mode=ON;"},
		{"5.7.44-log", "ON_PERMISSIVE", "SET GLOBAL enforce_gtid_consistency=ON;\nSET GLOBAL gtid_mode=ON;\nand put gtid_mode=ON and enforce_gtid_consistency=ON under [mysqld] in its option file"},
		{"5.6.24-log", "OFF", "put gtid_mode=ON, enforce_gtid_consistency=ON and log_slave_updates under [mysqld] in its option file, and restart it"},
	} {
		if got := switchGTIDsOn(c.version, c.mode); got != c.want {
			t.Errorf("%s %s:\n%s\nwant\n%s", c.version, c.mode, got, c.want)
		}
	}
}
