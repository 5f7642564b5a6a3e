//go:build integration

package operations

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// TestConfigurationRefused proves that a faulty configuration ends every command with code 2 and one message that
// names each fault with its place.
func TestConfigurationRefused(t *testing.T) {
	good := newSetup(t, nil)
	good.address, good.user, good.password = "127.0.0.1:1", "repl", secret
	change := func(from, to string) string {
		text := good.text()
		if !strings.Contains(text, from) {
			t.Fatalf("no %q in %s", from, text)
		}
		return strings.Replace(text, from, to, 1)
	}
	for name, c := range map[string]struct {
		text  string
		wants []string
	}{
		"no YAML":          {"destinations: [", []string{"line "}},
		"unknown key":      {change("start:", "strat:"), []string{"line ", "destinations[0].strat", "unknown key", "known here are"}},
		"missing variable": {change(fmt.Sprintf("%q", secret), `"${NO_SUCH_VARIABLE}"`), []string{"line ", "destinations[0].source.password", "NO_SUCH_VARIABLE is not set"}},
		"secret as number": {change("save_interval: 100ms", "save_interval: "+secret), []string{"meta.save_interval"}},
		"condition":        {change(`start: "latest"`, "start: snapshot\n    snapshot: { where: { shop.item: \"1) OR (1\" } }"), []string{"destinations[0].snapshot.where", "shop.item", "closes that was not opened"}},
		"several at once": {change(`start: "latest"`, "start: yesterday\n    schema: guess\n    ring: { bytes: 1 }"),
			[]string{"destinations[0].start", "destinations[0].schema", "destinations[0].ring.bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := writeFile(t, c.text)
			for _, args := range [][]string{{"run"}, {"check"}, {"cursor", "show"}} {
				r := command(t, patience, "", append(args, "-c", file)...)
				if r.code != 2 {
					t.Errorf("%s: exit code %d", args, r.code)
				}
				holds(t, args[0], r.errs, append([]string{"binlogmq: "}, c.wants...)...)
				if name != "secret as number" { // where a duration is wanted, nobody expects a secret
					neat(t, r.out+r.errs)
				}
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		r := command(t, patience, "", "run", "-c", "/no/such/file.yaml")
		if r.code != 2 {
			t.Errorf("exit code %d", r.code)
		}
		holds(t, "the output", r.errs, "/no/such/file.yaml")
	})
}

// TestCannotBegin holds what the program needs of its own machine.
func TestCannotBegin(t *testing.T) {
	s := newSetup(t, nil)
	s.address, s.user, s.password = "127.0.0.1:1", "repl", secret
	t.Run("address of admin is taken", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := *s
		s.top = fmt.Sprintf("admin: { listen: %q }", l.Addr())
		s.refused(t, l.Addr().String(), "admin.listen")
	})
	t.Run("no CA file", func(t *testing.T) {
		s := *s
		s.more = ""
		text := strings.Replace(s.text(), "password:", "tls: { ca: /no/such/ca.pem }, password:", 1)
		r := command(t, patience, "", "run", "-c", writeFile(t, text))
		s.refusal(t, r.code, r.errs, "destination shop", "source.tls.ca", "/no/such/ca.pem")
	})
	t.Run("CA file without certificate", func(t *testing.T) {
		s := *s
		ca := writeFile(t, "no certificate")
		text := strings.Replace(s.text(), "password:", fmt.Sprintf("tls: { ca: %q }, password:", ca), 1)
		r := command(t, patience, "", "run", "-c", writeFile(t, text))
		s.refusal(t, r.code, r.errs, "destination shop", "source.tls.ca", ca, "PEM")
	})
	t.Run("meta directory is a file", func(t *testing.T) {
		s := *s
		s.meta = writeFile(t, "")
		s.refused(t, s.meta, "meta.file.directory")
	})
	t.Run("meta directory is read-only", func(t *testing.T) {
		s := *s
		s.meta = tmpfs(t, "size=64k,mode=0755")
		if err := unix.Mount("", s.meta, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		s.refused(t, s.meta, "read-only", "meta.file.directory")
	})
	t.Run("meta directory is in use", func(t *testing.T) {
		p := process.Start(t, s.text())
		s.refused(t, s.meta, fmt.Sprintf("in use by process %d", p.PID()), "meta.file.directory")
		r := command(t, patience, "yes\n", "cursor", "set", "-c", s.file(t), "--at", "latest")
		if r.code != 1 {
			t.Errorf("cursor set beside the running program: exit code %d", r.code)
		}
		holds(t, "cursor set", r.errs, fmt.Sprintf("in use by process %d", p.PID()))
		neat(t, r.errs)
		p.Stop()
	})
}

// tmpfs mounts a small file system, for which one must be root.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mounting a small file system takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk proves I2 while cursors cannot be saved: health is red, what was published is repeated at the worst,
// and all mends itself once there is room.
func TestFullDisk(t *testing.T) {
	db := testenv.MySQL(t, "mysql")
	s := newSetup(t, db)
	table := s.table(t, db)
	s.meta = tmpfs(t, "size=64k,mode=0755")
	p := process.Start(t, s.text())
	p.AwaitReady()
	db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
	green(t, p)
	filler := filepath.Join(s.meta, "filler")
	fill(t, filler)
	db.Exec("INSERT INTO " + table + " VALUES (2, 'b')")
	red(t, p, patience, s.meta, "no space left", "make room in")
	p.Await("an ageing cursor", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].CursorAge > 1 })
	quiet(t, p, 2*time.Second, 3)
	p.Kill()
	if n := len(s.rows(t, "t")); n != 2 {
		t.Errorf("%d rows", n)
	}
	// Batch ids must be reserved before any is handed out, so it does not begin on a full disk.
	s.refused(t, s.meta, "no space left", "make room in")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	// The row whose cursor was not saved is repeated under the number that it had.
	p = process.Start(t, s.text())
	p.AwaitReady()
	p.Await("the repeated row", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Messages == 1 })
	green(t, p)
	p.Stop()
	rows := s.rows(t, "t")
	if len(rows) != 3 || rows[1].Headers["seq"] != rows[2].Headers["seq"] {
		t.Errorf("rows %+v", rows)
	}
	// Full again while it stops: the end says that the cursor is not saved.
	p = process.Start(t, s.text())
	p.AwaitReady()
	fill(t, filler)
	db.Exec("INSERT INTO " + table + " VALUES (3, 'c')")
	red(t, p, patience, "no space left")
	p.Signal(terminate)
	s.refusal(t, p.Wait(patience), p.Log(), s.meta, "no space left")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
}

// fill writes a file until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := 4096; n > 0; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
}

// TestDamagedCursor: a file that somebody edited is refused, and cursor set replaces it.
func TestDamagedCursor(t *testing.T) {
	db := testenv.MySQL(t, "mysql")
	s := newSetup(t, db)
	table := s.table(t, db)
	p := process.Start(t, s.text())
	p.AwaitReady()
	db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
	green(t, p)
	p.Stop()
	files, err := filepath.Glob(filepath.Join(s.meta, "*.cursor.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], []byte(strings.Replace(string(text), `"offset": `, `"offset": 1`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.refused(t, files[0], "checksum", "binlogmq cursor set")
	r := command(t, patience, "", "cursor", "show", "-c", s.file(t))
	if r.code != 1 {
		t.Errorf("cursor show: exit code %d", r.code)
	}
	holds(t, "cursor show", r.errs, files[0], "checksum")
	moveTo(t, s, "latest")
	p = process.Start(t, s.text())
	p.AwaitReady()
	db.Exec("INSERT INTO " + table + " VALUES (2, 'b')")
	p.Await("the row", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Messages == 1 })
	green(t, p)
	p.Stop()
	if rows := s.rows(t, "t"); len(rows) != 2 {
		t.Errorf("%d rows", len(rows))
	} else {
		risingSequences(t, rows)
	}
}
