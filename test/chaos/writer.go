package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/test/workload"
)

// Tables of the transfers and the counters. Those of the changing shapes come and go.
var tables = []workload.Table{
	{Name: "accounts", Key: []string{"id"}},
	{Name: "ledger", Key: []string{"id"}},
	{Name: "counters", Key: []string{"id"}},
}

// shapes are the names under which the tables of the third writer appear.
var shapes = []string{"shape_a", "shape_b", "brief"}

const (
	writers  = 4   // two of transfers, one of counters, one of shapes
	accounts = 200 // of one writer
	counters = 150
	funds    = 1000
)

// create makes the tables, which are empty.
func create(c *client.Conn, schema string) error {
	for _, q := range []string{
		"CREATE TABLE `" + schema + "`.accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL, tag BIGINT NOT NULL)",
		"CREATE TABLE `" + schema + "`.ledger (id BIGINT PRIMARY KEY, src INT NOT NULL, dst INT NOT NULL, amount BIGINT NOT NULL, note VARCHAR(100) NOT NULL, tag BIGINT NOT NULL)",
		"CREATE TABLE `" + schema + "`.counters (id INT PRIMARY KEY, n BIGINT NOT NULL, tag BIGINT NOT NULL)",
		"CREATE TABLE `" + schema + "`.shape_a (id INT PRIMARY KEY, v VARCHAR(50) NOT NULL, tag BIGINT NOT NULL)",
	} {
		if _, err := c.Execute(q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

// writer is one session with the database and what it knows of its rows, which are its own. It survives the
// database: what becomes of a transaction whose end was not answered it reads in the ledger, where each
// transaction leaves a row. It is not safe for concurrent use.
type writer struct {
	kind    string
	connect func() (*client.Conn, error)
	conn    *client.Conn
	schema  string
	id      int
	rng     *rand.Rand
	h       *history
	large   int // rows of the occasional large transaction

	tags    int64
	open    []record // changes of the open transaction
	undo    []func() // and how to forget them, newest last
	balance []int64
	count   []int64
	heap    [][2]int64      // from, to: ids of a large transaction's rows in the ledger
	shape   map[string]*tab // by name; those that exist

	transactions, rollbacks, savepoints, statements, unknown int
}

// tab is a table of the changing shapes.
type tab struct {
	cols []string // beside id, v and tag
	rows map[int64]row
}

func newWriter(kind string, id int, connect func() (*client.Conn, error), schema string, seed uint64, large int, h *history) *writer {
	return &writer{kind: kind, id: id, connect: connect, schema: schema, h: h, large: large, rng: rand.New(rand.NewPCG(seed, uint64(100+id))),
		balance: make([]int64, accounts), count: make([]int64, counters), shape: map[string]*tab{"shape_a": {rows: map[int64]row{}}}}
}

// tag returns the next mark of a change. Those of a writer rise.
func (w *writer) tag() int64 {
	w.tags++
	return w.tags*writers + int64(w.id)
}

func (w *writer) exec(format string, args ...any) error {
	q := fmt.Sprintf(format, args...)
	if _, err := w.conn.Execute(q); err != nil {
		return fmt.Errorf("%.200s: %w", q, err)
	}
	return nil
}

func (w *writer) note(op byte, table string, tag int64, r row, undo func()) {
	w.open = append(w.open, record{change{op, tag}, digest(table, r)})
	if undo != nil {
		w.undo = append(w.undo, undo)
	}
}

// back forgets what was done since there were so many records and undo steps.
func (w *writer) back(records, steps int) {
	w.h.settle(w.open[records:], false)
	w.open = w.open[:records]
	for _, f := range slices.Backward(w.undo[steps:]) {
		f()
	}
	w.undo = w.undo[:steps]
}

func num(n int64) string { return strconv.FormatInt(n, 10) }

// errRollback is how a transaction asks for its end.
var errRollback = errors.New("rolled back on purpose")

// run writes until ctx ends, with pauses of about so long. The transaction that runs then is finished.
func (w *writer) run(ctx context.Context, pause time.Duration) error {
	failures := 0
	for ctx.Err() == nil {
		err := w.step()
		if err == nil {
			failures = 0
			time.Sleep(time.Duration(w.rng.Int64N(int64(2*pause) + 1)))
			continue
		}
		// The server is away, or was. An error that does not go away is a fault of this test.
		if failures++; failures > 600 {
			return fmt.Errorf("writer %s: %w", w.kind, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for range 600 { // the last end may still be unknown
		if w.conn != nil {
			return nil
		}
		if w.reconnect() == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("writer %s: the database did not come back", w.kind)
}

func (w *writer) close() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// reconnect learns what a lost connection left behind.
func (w *writer) reconnect() error {
	c, err := w.connect()
	if err != nil {
		return err
	}
	w.conn = c
	if err := w.exec("SET NAMES utf8mb4"); err != nil {
		w.close()
		return err
	}
	if w.kind == "shapes" {
		if err := w.reload(); err != nil {
			w.close()
			return err
		}
	}
	return nil
}

// step runs one transaction or DDL statement.
func (w *writer) step() error {
	if w.conn == nil {
		if err := w.reconnect(); err != nil {
			return err
		}
	}
	if w.kind == "shapes" && w.rng.IntN(6) == 0 {
		w.statements++
		if err := w.ddl(); err != nil {
			w.close()
			return err
		}
		return nil
	}
	body := w.transfers
	switch {
	case w.kind == "transfers" && w.large > 0 && w.rng.IntN(80) == 0:
		body = w.bulk
	case w.kind == "counters":
		body = w.counts
	case w.kind == "shapes":
		body = w.reshape
	}
	return w.transaction(body)
}

// transaction runs body between BEGIN and COMMIT, and a row of the ledger at its end.
func (w *writer) transaction(body func() error) error {
	w.open, w.undo = nil, nil
	err := w.exec("BEGIN")
	if err == nil {
		err = body()
	}
	xid := w.tag()
	if err == nil {
		err = w.ledger(xid, 0, 0, 0)
	}
	if err == nil && w.rng.IntN(10) == 0 {
		err = errRollback
	}
	if err != nil {
		w.back(0, 0)
		if errors.Is(err, errRollback) {
			w.rollbacks++
			if err = w.exec("ROLLBACK"); err == nil {
				return nil
			}
		}
		w.close()
		return err
	}
	if err := w.exec("COMMIT"); err != nil {
		w.close()
		return w.resolve(xid)
	}
	w.commit()
	return nil
}

func (w *writer) commit() {
	w.h.settle(w.open, true)
	w.open, w.undo = nil, nil
	w.transactions++
}

// resolve asks the database, once it is back, whether the transaction was committed.
func (w *writer) resolve(xid int64) error {
	w.unknown++
	var err error
	for range 1200 {
		var c *client.Conn
		if c, err = w.connect(); err == nil {
			r, qerr := c.Execute(fmt.Sprintf("SELECT 1 FROM `%s`.ledger WHERE id=%d", w.schema, xid))
			_ = c.Close()
			if err = qerr; err == nil {
				if r.RowNumber() == 1 {
					w.commit()
				} else {
					w.back(0, 0)
				}
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("the end of transaction %d stays unknown: %w", xid, err)
}

func (w *writer) ledger(id int64, src, dst int, amount int64) error {
	w.note('i', "ledger", id, row{"id": num(id), "src": strconv.Itoa(src), "dst": strconv.Itoa(dst), "amount": num(amount), "note": w.kind, "tag": num(id)}, nil)
	return w.exec("INSERT INTO `%s`.ledger VALUES (%d,%d,%d,%d,'%s',%d)", w.schema, id, src, dst, amount, w.kind, id)
}

// transfers moves money between own accounts, and sometimes thinks better of it.
func (w *writer) transfers() error {
	for n := 1 + w.rng.IntN(4); n > 0; n-- {
		if w.rng.IntN(8) == 0 {
			records, steps := len(w.open), len(w.undo)
			if err := w.exec("SAVEPOINT s"); err != nil {
				return err
			}
			if err := w.transfer(); err != nil {
				return err
			}
			w.savepoints++
			w.back(records, steps)
			if err := w.exec("ROLLBACK TO SAVEPOINT s"); err != nil {
				return err
			}
		}
		if err := w.transfer(); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) transfer() error {
	a, b := w.rng.IntN(accounts), w.rng.IntN(accounts-1)
	if b >= a {
		b++
	}
	amount := 1 + w.rng.Int64N(100)
	if err := w.credit(a, -amount); err != nil {
		return err
	}
	if err := w.credit(b, amount); err != nil {
		return err
	}
	return w.ledger(w.tag(), w.id*accounts+a, w.id*accounts+b, amount)
}

// credit changes an account, which the first one opens.
func (w *writer) credit(k int, amount int64) error {
	id, tag, was := w.id*accounts+k, w.tag(), w.balance[k]
	now, op := was+amount, byte('u')
	q := fmt.Sprintf("UPDATE `%s`.accounts SET balance=balance+(%d), tag=%d WHERE id=%d", w.schema, amount, tag, id)
	if was == 0 { // a balance of 0 is an account that is not open: it is closed when it comes to that
		now = funds + amount
		op, q = 'i', fmt.Sprintf("INSERT INTO `%s`.accounts VALUES (%d,%d,%d)", w.schema, id, now, tag)
	}
	r := row{"id": strconv.Itoa(id), "balance": num(now), "tag": num(tag)}
	w.balance[k] = now
	w.note(op, "accounts", tag, r, func() { w.balance[k] = was })
	if err := w.exec("%s", q); err != nil || now != 0 {
		return err
	}
	w.note('d', "accounts", tag, r, nil)
	return w.exec("DELETE FROM `%s`.accounts WHERE id=%d", w.schema, id)
}

// bulk is a transaction larger than the program's ring: rows into the ledger, or those of an older one out of it.
func (w *writer) bulk() error {
	content := func(id int64) row {
		return row{"id": num(id), "src": "0", "dst": "0", "amount": num(id % 977), "note": strings.Repeat("x", int(id%60)), "tag": num(id)}
	}
	if len(w.heap) > 1 {
		h := w.heap[0]
		rest := w.heap[1:]
		old := w.heap
		w.heap = rest
		w.undo = append(w.undo, func() { w.heap = old })
		for id := h[0]; id <= h[1]; id += writers {
			w.note('d', "ledger", id, content(id), nil)
		}
		return w.exec("DELETE FROM `%s`.ledger WHERE id BETWEEN %d AND %d AND note<>'transfers' AND id %% %d = %d", w.schema, h[0], h[1], writers, w.id)
	}
	var first, last int64
	for done := 0; done < w.large; done += 500 {
		var b strings.Builder
		fmt.Fprintf(&b, "INSERT INTO `%s`.ledger VALUES ", w.schema)
		for i := range min(500, w.large-done) {
			id := w.tag()
			if first == 0 {
				first = id
			}
			last = id
			r := content(id)
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "(%d,0,0,%s,'%s',%d)", id, r["amount"], r["note"], id)
			w.note('i', "ledger", id, r, nil)
		}
		if err := w.exec("%s", b.String()); err != nil {
			return err
		}
	}
	old := w.heap
	w.heap = append(slices.Clone(w.heap), [2]int64{first, last})
	w.undo = append(w.undo, func() { w.heap = old })
	return nil
}

// counts raises some counters, one by one or in a statement of many rows.
func (w *writer) counts() error {
	if w.rng.IntN(5) > 0 {
		for n := 1 + w.rng.IntN(6); n > 0; n-- {
			k, tag := w.rng.IntN(counters), w.tag()
			was := w.count[k]
			w.count[k]++
			op, q := byte('u'), fmt.Sprintf("UPDATE `%s`.counters SET n=n+1, tag=%d WHERE id=%d", w.schema, tag, k)
			if was == 0 {
				op, q = 'i', fmt.Sprintf("INSERT INTO `%s`.counters VALUES (%d,1,%d)", w.schema, k, tag)
			}
			w.note(op, "counters", tag, row{"id": strconv.Itoa(k), "n": num(was + 1), "tag": num(tag)}, func() { w.count[k] = was })
			if err := w.exec("%s", q); err != nil {
				return err
			}
		}
		return nil
	}
	base := w.tags + 1
	w.tags += counters
	for k := range w.count {
		was := w.count[k]
		if was == 0 {
			continue
		}
		tag := (base+int64(k))*writers + int64(w.id)
		w.count[k]++
		w.note('u', "counters", tag, row{"id": strconv.Itoa(k), "n": num(was + 1), "tag": num(tag)}, func() { w.count[k] = was })
	}
	return w.exec("UPDATE `%s`.counters SET n=n+1, tag=(%d+id)*%d+%d", w.schema, base, writers, w.id)
}

// names returns the shapes that exist, in order.
func (w *writer) names() []string {
	var out []string
	for _, name := range shapes {
		if w.shape[name] != nil {
			out = append(out, name)
		}
	}
	return out
}

// reshape changes rows of a table whose columns come and go.
func (w *writer) reshape() error {
	for n := 1 + w.rng.IntN(5); n > 0; n-- {
		names := w.names()
		name := names[w.rng.IntN(len(names))]
		t := w.shape[name]
		id := w.rng.Int64N(60)
		was := t.rows[id]
		var q string
		switch {
		case was != nil && w.rng.IntN(4) == 0:
			var tag int64
			if _, err := fmt.Sscan(was["tag"], &tag); err != nil {
				return err
			}
			delete(t.rows, id)
			w.note('d', name, tag, was, func() { t.rows[id] = was })
			q = fmt.Sprintf("DELETE FROM `%s`.%s WHERE id=%d", w.schema, name, id)
		default:
			tag := w.tag()
			r := row{"id": num(id), "tag": num(tag), "v": fmt.Sprintf("%s %d", strings.Repeat("é", w.rng.IntN(20)), tag)}
			cols, vals := []string{"id", "tag", "v"}, []string{num(id), num(tag), "'" + r["v"] + "'"}
			for _, c := range t.cols {
				r[c] = num(w.rng.Int64N(1000))
				cols, vals = append(cols, c), append(vals, r[c])
			}
			t.rows[id] = r
			if was == nil {
				w.note('i', name, tag, r, func() { delete(t.rows, id) })
				q = fmt.Sprintf("INSERT INTO `%s`.%s (%s) VALUES (%s)", w.schema, name, strings.Join(cols, ","), strings.Join(vals, ","))
				break
			}
			w.note('u', name, tag, r, func() { t.rows[id] = was })
			var set []string
			for i, c := range cols[1:] {
				set = append(set, c+"="+vals[i+1])
			}
			q = fmt.Sprintf("UPDATE `%s`.%s SET %s WHERE id=%d", w.schema, name, strings.Join(set, ","), id)
		}
		if err := w.exec("%s", q); err != nil {
			return err
		}
	}
	return nil
}

// ddl changes a shape. After an error reload finds out whether it did.
func (w *writer) ddl() error {
	name := "shape_a"
	if w.shape[name] == nil {
		name = "shape_b"
	}
	t := w.shape[name]
	brief := w.shape["brief"]
	switch k := w.rng.IntN(10); {
	case k < 3 && len(t.cols) < 6:
		col, value := "c"+num(w.tag()), num(w.rng.Int64N(100))
		where := []string{"", " FIRST", " AFTER id", " AFTER v"}[w.rng.IntN(4)]
		if err := w.exec("ALTER TABLE `%s`.%s ADD COLUMN %s INT NOT NULL DEFAULT %s%s", w.schema, name, col, value, where); err != nil {
			return err
		}
		t.cols = append(t.cols, col)
		for id, r := range t.rows {
			r = cloneRow(r)
			r[col] = value
			t.rows[id] = r
		}
	case k < 6 && len(t.cols) > 0:
		col := t.cols[w.rng.IntN(len(t.cols))]
		if err := w.exec("ALTER TABLE `%s`.%s DROP COLUMN %s", w.schema, name, col); err != nil {
			return err
		}
		t.cols = slices.DeleteFunc(t.cols, func(c string) bool { return c == col })
		for id, r := range t.rows {
			r = cloneRow(r)
			delete(r, col)
			t.rows[id] = r
		}
	case k < 7:
		if err := w.exec("TRUNCATE TABLE `%s`.%s", w.schema, name); err != nil {
			return err
		}
		t.rows = map[int64]row{}
	case k < 8:
		to := map[string]string{"shape_a": "shape_b", "shape_b": "shape_a"}[name]
		if err := w.exec("RENAME TABLE `%s`.%s TO `%s`.%s", w.schema, name, w.schema, to); err != nil {
			return err
		}
		delete(w.shape, name)
		w.shape[to] = t
	case brief == nil:
		if err := w.exec("CREATE TABLE `%s`.brief (v VARCHAR(50) NOT NULL, id INT PRIMARY KEY, tag BIGINT NOT NULL)", w.schema); err != nil {
			return err
		}
		w.shape["brief"] = &tab{rows: map[int64]row{}}
	default:
		if err := w.exec("DROP TABLE `%s`.brief", w.schema); err != nil {
			return err
		}
		delete(w.shape, "brief")
	}
	return nil
}

func cloneRow(r row) row {
	out := make(row, len(r))
	for k, v := range r {
		out[k] = v
	}
	return out
}

// reload reads the shapes as they are.
func (w *writer) reload() error {
	w.shape = map[string]*tab{}
	for _, name := range shapes {
		r, err := w.conn.Execute(fmt.Sprintf("SELECT column_name FROM information_schema.columns WHERE table_schema='%s' AND table_name='%s' ORDER BY ordinal_position", w.schema, name))
		if err != nil {
			return err
		}
		if r.RowNumber() == 0 {
			continue
		}
		t := &tab{rows: map[int64]row{}}
		var all []string
		for i := range r.RowNumber() {
			col, err := r.GetString(i, 0)
			if err != nil {
				return err
			}
			all = append(all, strings.Clone(col))
			if col != "id" && col != "v" && col != "tag" {
				t.cols = append(t.cols, strings.Clone(col))
			}
		}
		if r, err = w.conn.Execute(fmt.Sprintf("SELECT %s FROM `%s`.%s", strings.Join(all, ","), w.schema, name)); err != nil {
			return err
		}
		for i := range r.RowNumber() {
			out := row{}
			for j, col := range all {
				v, err := r.GetString(i, j)
				if err != nil {
					return err
				}
				out[col] = strings.Clone(v)
			}
			var id int64
			if _, err := fmt.Sscan(out["id"], &id); err != nil {
				return err
			}
			t.rows[id] = out
		}
		w.shape[name] = t
	}
	if w.shape["shape_a"] == nil && w.shape["shape_b"] == nil {
		return errors.New("the table of shapes is gone")
	}
	return nil
}
