package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-mysql-org/go-mysql/client"
)

// Every table has a column version that rises with each update of a row, so that a message tells which
// change of its row it is.
var schema = []string{
	"CREATE DATABASE shop CHARACTER SET utf8mb4",
	"CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(120) NOT NULL, tier ENUM('basic','silver','gold') NOT NULL DEFAULT 'basic', version INT NOT NULL)",
	"CREATE TABLE shop.orders (id INT PRIMARY KEY, customer_id INT NOT NULL, status VARCHAR(12) NOT NULL, total DECIMAL(10,2) NOT NULL, placed_at DATETIME(3) NOT NULL, note TEXT, version INT NOT NULL)",
	"CREATE TABLE shop.order_items (order_id INT, line INT, product VARCHAR(40) NOT NULL, quantity INT NOT NULL, price DECIMAL(8,2) NOT NULL, version INT NOT NULL, PRIMARY KEY (order_id, line))",
}

var tables = []string{"customers", "orders", "order_items"}

// keyColumns names the primary key of each table.
var keyColumns = map[string][]string{"customers": {"id"}, "orders": {"id"}, "order_items": {"order_id", "line"}}

// rowID is a row's table and primary key.
type rowID struct{ table, key string }

// step is what one message must say of its row.
type step struct {
	op      string // insert, update, delete
	version int
}

// history is what each row went through, in order, and how many row changes that were. A change of the key is one
// row change but a step of two rows: the old one ends, the new one begins.
type history struct {
	mu    sync.Mutex
	steps map[rowID][]step
	rows  map[string]int // row changes by table
}

func newHistory() *history { return &history{steps: map[rowID][]step{}, rows: map[string]int{}} }

func (h *history) total() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, rows := range h.rows {
		n += rows
	}
	return n
}

func (h *history) of(table string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rows[table]
}

// shop is the one database; its ids are unique among all clerks.
type shop struct {
	committed             *history
	nextCustomer, nextOrd atomic.Int64
}

type customer struct{ id, version int }

type item struct{ line, version int }

type order struct {
	id, version int
	status      string
	items       []item
}

// clerk is one session. It works on customers and orders of its own.
type clerk struct {
	shop      *shop
	conn      *client.Conn
	rng       *rand.Rand
	customers []customer
	orders    []order

	// The transaction under way.
	statements []string
	steps      []struct {
		row rowID
		step
	}
	rows map[string]int
}

func (c *clerk) did(table, key, op string, version int) {
	c.steps = append(c.steps, struct {
		row rowID
		step
	}{rowID{table, key}, step{op, version}})
}

func (c *clerk) run(format string, args ...any) {
	c.statements = append(c.statements, fmt.Sprintf(format, args...))
}

var (
	names    = strings.Fields("Ada Björn Chloé Dmitri Emeka Fatima Grace Hiroshi Inês Jürgen Kamala Léa 李雷 Nuria O'Neil Paweł")
	products = strings.Fields("teapot kettle lamp chair notebook pencil umbrella bicycle")
	notes    = []string{"NULL", "'leave at the door'", "'a \"gift\"'", "'día de entrega: lunes'"}
)

// transaction does one thing that happens in a shop and commits it; now and then it rolls back.
func (c *clerk) transaction() error {
	c.statements, c.steps, c.rows = c.statements[:0], c.steps[:0], map[string]int{}
	before := clerk{customers: slices.Clone(c.customers), orders: cloneOrders(c.orders)}
	switch n := c.rng.IntN(100); {
	case len(c.customers) == 0 || n < 12:
		c.signUp()
	case n < 45 || len(c.orders) == 0:
		c.placeOrder()
	case n < 70:
		c.advance()
	case n < 80:
		c.changeCustomer()
	case n < 90:
		c.moveItem()
	default:
		c.cancel()
	}
	if len(c.statements) == 0 {
		return nil
	}
	rollback := c.rng.IntN(15) == 0
	last := "COMMIT"
	if rollback {
		last = "ROLLBACK"
	}
	for _, q := range append(append([]string{"BEGIN"}, c.statements...), last) {
		if _, err := c.conn.Execute(q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	if rollback {
		c.customers, c.orders = before.customers, before.orders
		return nil
	}
	h := c.shop.committed
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range c.steps {
		h.steps[s.row] = append(h.steps[s.row], s.step)
	}
	for table, n := range c.rows {
		h.rows[table] += n
	}
	return nil
}

func cloneOrders(orders []order) []order {
	orders = slices.Clone(orders)
	for i := range orders {
		orders[i].items = slices.Clone(orders[i].items)
	}
	return orders
}

func (c *clerk) signUp() {
	id := int(c.shop.nextCustomer.Add(1))
	name := strings.ReplaceAll(names[c.rng.IntN(len(names))], "'", "''")
	c.run("INSERT INTO shop.customers (id, name, email, version) VALUES (%d, '%s', 'customer%d@example.com', 1)", id, name, id)
	c.did("customers", fmt.Sprint(id), "insert", 1)
	c.rows["customers"]++
	c.customers = append(c.customers, customer{id, 1})
}

func (c *clerk) placeOrder() {
	id := int(c.shop.nextOrd.Add(1))
	o := order{id: id, version: 1, status: "new"}
	var values []string
	total := 0
	for line := 1; line <= 1+c.rng.IntN(4); line++ {
		quantity, cents := 1+c.rng.IntN(3), 99+c.rng.IntN(20000)
		total += quantity * cents
		values = append(values, fmt.Sprintf("(%d, %d, '%s', %d, %d.%02d, 1)", id, line, products[c.rng.IntN(len(products))], quantity, cents/100, cents%100))
		o.items = append(o.items, item{line, 1})
		c.did("order_items", itemKey(id, line), "insert", 1)
		c.rows["order_items"]++
	}
	c.run("INSERT INTO shop.orders VALUES (%d, %d, 'new', %d.%02d, NOW(3), %s, 1)", id, c.customers[c.rng.IntN(len(c.customers))].id, total/100, total%100, notes[c.rng.IntN(len(notes))])
	c.run("INSERT INTO shop.order_items VALUES %s", strings.Join(values, ", "))
	c.did("orders", fmt.Sprint(id), "insert", 1)
	c.rows["orders"]++
	c.orders = append(c.orders, o)
}

func itemKey(order, line int) string { return fmt.Sprintf("%d|%d", order, line) }

// advance moves some orders on to their next status, in one statement.
func (c *clerk) advance() {
	from := []string{"new", "paid"}[c.rng.IntN(2)]
	to := map[string]string{"new": "paid", "paid": "shipped"}[from]
	var ids []string
	for i := range c.orders {
		o := &c.orders[i]
		if o.status == from && len(ids) < 4 {
			o.status, o.version = to, o.version+1
			ids = append(ids, fmt.Sprint(o.id))
			c.did("orders", fmt.Sprint(o.id), "update", o.version)
			c.rows["orders"]++
		}
	}
	if len(ids) > 0 {
		c.run("UPDATE shop.orders SET status = '%s', version = version + 1 WHERE id IN (%s)", to, strings.Join(ids, ", "))
	}
}

func (c *clerk) changeCustomer() {
	k := &c.customers[c.rng.IntN(len(c.customers))]
	k.version++
	tier := []string{"basic", "silver", "gold"}[c.rng.IntN(3)]
	c.run("UPDATE shop.customers SET tier = '%s', version = version + 1 WHERE id = %d", tier, k.id)
	c.did("customers", fmt.Sprint(k.id), "update", k.version)
	c.rows["customers"]++
}

// moveItem gives an item another line, so the row's key changes.
func (c *clerk) moveItem() {
	o := &c.orders[c.rng.IntN(len(c.orders))]
	i := &o.items[c.rng.IntN(len(o.items))]
	line := 1
	for slices.ContainsFunc(o.items, func(i item) bool { return i.line == line }) {
		line++
	}
	c.run("UPDATE shop.order_items SET line = %d, version = version + 1 WHERE order_id = %d AND line = %d", line, o.id, i.line)
	c.did("order_items", itemKey(o.id, i.line), "delete", i.version)
	i.line, i.version = line, i.version+1
	c.did("order_items", itemKey(o.id, i.line), "insert", i.version)
	c.rows["order_items"]++
}

func (c *clerk) cancel() {
	at := c.rng.IntN(len(c.orders))
	o := c.orders[at]
	c.run("DELETE FROM shop.order_items WHERE order_id = %d", o.id)
	c.run("DELETE FROM shop.orders WHERE id = %d", o.id)
	for _, i := range o.items {
		c.did("order_items", itemKey(o.id, i.line), "delete", i.version)
		c.rows["order_items"]++
	}
	c.did("orders", fmt.Sprint(o.id), "delete", o.version)
	c.rows["orders"]++
	c.orders = slices.Delete(c.orders, at, at+1)
}

// work commits transactions until n are done or ctx ends; pause waits between two.
func (c *clerk) work(ctx context.Context, n int, pause func(context.Context)) error {
	for i := 0; i < n && ctx.Err() == nil; i++ {
		if err := c.transaction(); err != nil {
			return err
		}
		pause(ctx)
	}
	return nil
}
