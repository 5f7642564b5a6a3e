package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

// Tables lists the tables that Create makes, with their key columns.
var Tables = []Table{
	{"accounts", []string{"id"}},
	{"pairs", []string{"a", "b"}},
	{"moves", []string{"id"}},
	{"events", nil},
}

// Table is a table of the workload. Each has a column ver that rises with
// every change of a row, deletes excepted.
type Table struct {
	Name string
	Key  []string // nil: no primary key
}

// Create makes the schema and its tables anew.
func Create(c *client.Conn, schema string) error {
	for _, q := range []string{
		"DROP DATABASE IF EXISTS `" + schema + "`",
		"CREATE DATABASE `" + schema + "` CHARACTER SET utf8mb4",
		"CREATE TABLE `" + schema + "`.accounts (id BIGINT UNSIGNED PRIMARY KEY, owner VARCHAR(300) NOT NULL, balance DECIMAL(20,4) NOT NULL, note TEXT, at DATETIME(6) NOT NULL, ver BIGINT NOT NULL)",
		"CREATE TABLE `" + schema + "`.pairs (a INT, b VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin, v INT, ver BIGINT NOT NULL, PRIMARY KEY (a, b))",
		"CREATE TABLE `" + schema + "`.moves (v SMALLINT, id INT PRIMARY KEY, ver BIGINT NOT NULL)",
		"CREATE TABLE `" + schema + "`.events (x INT, y VARCHAR(40), ver BIGINT NOT NULL)",
	} {
		if _, err := c.Execute(q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

// Writer is one session that writes to rows of its own: two writers never touch
// one key. It is not safe for concurrent use.
type Writer struct {
	c      *client.Conn
	schema string
	id     int
	n      int // writers in all
	rng    *rand.Rand
	ver    int64
	live   [3]map[int64]int64 // per keyed table: key number -> ver of the committed row
	tried  int                // transactions begun
	Large  int                // rows of one transaction in largeEvery; 0: none

	Changes int64 // row changes committed
	Commits int64
}

// NewWriter makes writer id of n.
func NewWriter(c *client.Conn, schema string, id, n int, seed uint64) *Writer {
	w := &Writer{c: c, schema: schema, id: id, n: n, rng: rand.New(rand.NewPCG(seed, uint64(id)))}
	for i := range w.live {
		w.live[i] = map[int64]int64{}
	}
	return w
}

// Run runs n transactions, or fewer if ctx ends. One that the server gives up
// for a deadlock counts as rolled back.
func (w *Writer) Run(ctx context.Context, n int) error {
	// The server's default for a session differs between servers.
	if err := w.exec("SET NAMES utf8mb4"); err != nil {
		return err
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		err := w.Transaction()
		var e *mysql.MyError
		if errors.As(err, &e) && (e.Code == mysql.ER_LOCK_DEADLOCK || e.Code == mysql.ER_LOCK_WAIT_TIMEOUT) {
			err = w.exec("ROLLBACK")
		}
		if err != nil {
			return fmt.Errorf("writer %d: %w", w.id, err)
		}
	}
	return nil
}

const (
	keys       = 400 // keys a writer and table
	largeEvery = 60  // of so many transactions one is large
)

func (w *Writer) key() int64 { return int64(w.rng.IntN(keys)*w.n + w.id) }

func (w *Writer) text(most int) string {
	var b strings.Builder
	for n := w.rng.IntN(most + 1); n > 0; n-- {
		b.WriteRune([]rune("abcdefghij XYZ0123456789_\"\\'\n\té€漢😀")[w.rng.IntN(32)])
	}
	return b.String()
}

func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\x00", `\0`).Replace(s) + "'"
}

// Transaction runs one transaction: usually a few statements, sometimes a large one, sometimes rolled back.
func (w *Writer) Transaction() error {
	var next [3]map[int64]int64
	for i := range next {
		next[i] = make(map[int64]int64, len(w.live[i]))
		for k, v := range w.live[i] {
			next[i][k] = v
		}
	}
	statements := 1 + w.rng.IntN(5)
	changes := int64(0)
	if err := w.exec("BEGIN"); err != nil {
		return err
	}
	w.tried++
	if w.Large > 0 && (w.tried+w.id*largeEvery/2)%largeEvery == largeEvery/4 {
		n, err := w.large()
		if err != nil {
			return err
		}
		changes += n
	}
	for range statements {
		n, err := w.statement(&next)
		if err != nil {
			return err
		}
		changes += n
	}
	if w.rng.IntN(10) == 0 {
		return w.exec("ROLLBACK")
	}
	if err := w.exec("COMMIT"); err != nil {
		return err
	}
	w.live = next
	w.Changes += changes
	w.Commits++
	return nil
}

func (w *Writer) exec(q string) error {
	if _, err := w.c.Execute(q); err != nil {
		return fmt.Errorf("%.200s: %w", q, err)
	}
	return nil
}

// large inserts many keyless rows in statements of a thousand.
func (w *Writer) large() (int64, error) {
	pad := strings.Repeat("p", 30)
	for done := 0; done < w.Large; done += 1000 {
		var b strings.Builder
		fmt.Fprintf(&b, "INSERT INTO `%s`.events VALUES ", w.schema)
		for i := 0; i < min(1000, w.Large-done); i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			w.ver++
			fmt.Fprintf(&b, "(%d,'%s',%d)", done+i, pad, w.ver*int64(w.n)+int64(w.id))
		}
		if err := w.exec(b.String()); err != nil {
			return 0, err
		}
	}
	return int64(w.Large), nil
}

// statement runs one statement on rows of the writer and returns how many rows it changed.
func (w *Writer) statement(live *[3]map[int64]int64) (int64, error) {
	w.ver++
	t := w.rng.IntN(4)
	if t == 3 {
		return w.keyless()
	}
	k := w.key()
	_, exists := live[t][k]
	switch {
	case !exists:
		// Several rows in one statement.
		rows := map[int64]bool{k: true}
		for range w.rng.IntN(6) {
			if k := w.key(); !has(live[t], k) {
				rows[k] = true
			}
		}
		var values []string
		for k := int64(0); k < int64(keys*w.n); k++ { // in order: maps have none
			if rows[k] {
				values = append(values, w.values(t, k))
				live[t][k] = w.ver
			}
		}
		return int64(len(values)), w.exec(fmt.Sprintf("INSERT INTO `%s`.%s VALUES %s", w.schema, Tables[t].Name, strings.Join(values, ",")))
	case w.rng.IntN(4) == 0:
		delete(live[t], k)
		return 1, w.exec(fmt.Sprintf("DELETE FROM `%s`.%s WHERE %s", w.schema, Tables[t].Name, w.where(t, k)))
	case t == 2 && w.rng.IntN(2) == 0:
		to := w.key()
		if has(live[t], to) {
			to = k
		}
		delete(live[t], k)
		live[t][to] = w.ver
		return 1, w.exec(fmt.Sprintf("UPDATE `%s`.moves SET id=%d, ver=%d WHERE id=%d", w.schema, to, w.ver, k))
	default:
		live[t][k] = w.ver
		set := []string{
			fmt.Sprintf("balance=balance+%d.%04d, note=%s", w.rng.IntN(1000)-500, w.rng.IntN(10000), quote(w.text(200))),
			fmt.Sprintf("v=%d", w.rng.IntN(100)),
			fmt.Sprintf("v=%d", w.rng.IntN(100)),
		}[t]
		return 1, w.exec(fmt.Sprintf("UPDATE `%s`.%s SET %s, ver=%d WHERE %s", w.schema, Tables[t].Name, set, w.ver, w.where(t, k)))
	}
}

func has(m map[int64]int64, k int64) bool { _, ok := m[k]; return ok }

func (w *Writer) values(t int, k int64) string {
	switch t {
	case 0:
		note := "NULL"
		if w.rng.IntN(3) > 0 {
			note = quote(w.text(120))
		}
		return fmt.Sprintf("(%d,%s,%d.%04d,%s,'2026-%02d-%02d %02d:%02d:%02d.%06d',%d)", k, quote(w.text(60)), w.rng.IntN(100000), w.rng.IntN(10000), note,
			1+w.rng.IntN(12), 1+w.rng.IntN(28), w.rng.IntN(24), w.rng.IntN(60), w.rng.IntN(60), w.rng.IntN(1000000), w.ver)
	case 1:
		return fmt.Sprintf("(%d,'k%d é',%d,%d)", k%7-3, k, w.rng.IntN(1000), w.ver)
	}
	return fmt.Sprintf("(%d,%d,%d)", w.rng.IntN(1000), k, w.ver)
}

func (w *Writer) where(t int, k int64) string {
	if t == 1 {
		return fmt.Sprintf("a=%d AND b='k%d é'", k%7-3, k)
	}
	return fmt.Sprintf("id=%d", k)
}

// keyless inserts rows that are told apart by ver, or deletes one of them.
func (w *Writer) keyless() (int64, error) {
	own := w.ver*int64(w.n) + int64(w.id)
	if w.rng.IntN(4) > 0 {
		return 1, w.exec(fmt.Sprintf("INSERT INTO `%s`.events VALUES (%d,%s,%d)", w.schema, w.rng.IntN(50), quote(w.text(20)), own))
	}
	r, err := w.c.Execute(fmt.Sprintf("DELETE FROM `%s`.events WHERE ver %% %d = %d ORDER BY ver LIMIT %d", w.schema, w.n, w.id, w.rng.IntN(4)))
	if err != nil {
		return 0, err
	}
	return int64(r.AffectedRows), nil
}
