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

// A server is told from another one behind the same address, also where the two are set up alike.
func TestAnotherServerBehindAnAddress(t *testing.T) {
	of := func(mariaDB bool, uuid string, id uint32, host, port string) *server {
		return &server{mariaDB: mariaDB, uuid: uuid, id: id, vars: map[string]string{"hostname": host, "port": port}}
	}
	one := of(true, "1", 1, "db1", "3306")
	for what, c := range map[string]struct {
		a, b *server
		same bool
	}{
		"itself":              {one, of(true, "1", 1, "db1", "3306"), true},
		"another host":        {one, of(true, "1", 1, "db2", "3306"), false},
		"another port":        {one, of(true, "1", 1, "db1", "3307"), false},
		"another id":          {one, of(true, "2", 2, "db1", "3306"), false},
		"the other kind":      {one, of(false, "1", 1, "db1", "3306"), false},
		"another UUID":        {of(false, "a", 1, "db1", "3306"), of(false, "b", 1, "db1", "3306"), false},
		"a copy of its files": {of(false, "a", 1, "db1", "3306"), of(false, "a", 2, "db1", "3306"), false},
	} {
		if c.a.is(c.b) != c.same || c.b.is(c.a) != c.same {
			t.Errorf("%s: the same: %v", what, !c.same)
		}
	}
}
