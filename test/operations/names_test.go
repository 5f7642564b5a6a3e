//go:build integration

package operations

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// TestNamesInAnyCase: where the source does not tell upper from lower case in names, neither do the patterns of the configuration, whichever
// case they, the tables and the statements are written in; what is published has the names that the source shows.
func TestNamesInAnyCase(t *testing.T) {
	t.Parallel()
	db := testenv.NewMySQL(t, "mariadb", "--lower-case-table-names=1") // a data directory of MySQL's is made for one choice
	for _, q := range []string{"CREATE DATABASE ShopDB", "CREATE TABLE ShopDB.Orders (ID INT PRIMARY KEY, Customer INT)", "CREATE TABLE ShopDB.Tmp_1 (ID INT PRIMARY KEY)",
		"CREATE TABLE ShopDB.Other (ID INT PRIMARY KEY)"} {
		db.Exec(q)
	}
	s := newSetup(t, db)
	s.sink = fmt.Sprintf("file: { path: %q, sync: false }\n        tables: [\"SHOPDB.O*\"]\n        key_columns: [{ table: \"shopDB.ORDERS\", columns: [CUSTOMER] }]", s.lines)
	config := strings.Replace(s.text(), `tables: ["*.*"]`, `tables: ["SHOPDB.*", "!ShopDB.TMP_*"]`, 1)
	p := process.Start(t, config)
	p.AwaitReady()
	for _, q := range []string{"INSERT INTO shopdb.ORDERS VALUES (1, 7)", "INSERT INTO ShopDB.tmp_1 VALUES (1)", "ALTER TABLE SHOPDB.orders ADD Note TEXT",
		"INSERT INTO ShopDB.Orders VALUES (2, 7, 'n')", "INSERT INTO SHOPDB.OTHER VALUES (3)"} {
		db.Exec(q)
	}
	settled(t, db, p)
	r := command(t, patience, "", "check", "-c", writeFile(t, config))
	neat(t, r.out)
	if strings.Contains(r.out, "is about no") {
		t.Errorf("a pattern meets nothing:\n%s", r.out)
	}
	// What is mistaken meets nothing, and says so: a table that is not there, and one that the destination excludes.
	r = command(t, patience, "", "check", "-c", writeFile(t, strings.NewReplacer(`"!ShopDB.TMP_*"`, `"!ShopDB.TMP_*", "Shop.*"`, `"SHOPDB.O*"`, `"SHOPDB.O*", "ShopDB.Gone"`,
		`key_columns: [`, `key_columns: [{ table: "shopdb.tmp_1", columns: [ID] }, `).Replace(config)))
	neat(t, r.out)
	holds(t, "check", r.out, "tables: Shop.* is about no table that is there", "tables or key_columns: ShopDB.Gone is about no captured table", "tables or key_columns: shopdb.tmp_1 is about no captured table")
	if n := strings.Count(r.out, "is about no"); n != 3 {
		t.Errorf("%d patterns that meet nothing:\n%s", n, r.out)
	}
	p.Stop()
	var got []string
	for _, line := range append(s.rows(t, "orders"), s.rows(t, "other")...) {
		var v struct {
			Table string
			Data  []map[string]any
		}
		if err := json.Unmarshal(line.Value, &v); err != nil || len(v.Data) != 1 {
			t.Fatal(err, string(line.Value))
		}
		got = append(got, fmt.Sprint(line.Topic, " ", v.Table, " ", v.Data[0]))
	}
	want := "shopdb.orders orders map[Customer:7 ID:1]\nshopdb.orders orders map[Customer:7 ID:2 Note:n]\nshopdb.other other map[ID:3]"
	if text := strings.Join(got, "\n"); text != want || len(s.rows(t, "tmp_1")) != 0 {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	keys := map[string]bool{}
	for _, line := range s.rows(t, "orders") {
		keys[line.Key] = true
	}
	if len(keys) != 1 {
		t.Errorf("keys %v, not the customer's", keys)
	}
}
