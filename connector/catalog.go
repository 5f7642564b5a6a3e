package connector

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/schema"
)

// catalog answers from information_schema over a connection of its own, which
// it opens when it is first asked.
type catalog struct {
	ctx  context.Context
	c    *Connector
	addr string
	sv   *server
	s    *session
}

func (k *catalog) close() { k.s.close() }

// Columns implements schema.Catalog. Errors of the link are passed on, so that the stream is read again
// later; that the server refuses means that the table is described by the log alone.
func (k *catalog) Columns(schemaName, table string) ([]schema.Column, error) {
	cols, err := k.columns(schemaName, table)
	if err != nil && k.s != nil {
		if code := serverCode(err); code == 0 {
			// The idle connection may have been cut: once more on a fresh one.
			k.s.close()
			k.s = nil
			cols, err = k.columns(schemaName, table)
		}
	}
	switch serverCode(err) {
	case mysql.ER_DBACCESS_DENIED_ERROR, mysql.ER_TABLEACCESS_DENIED_ERROR, mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR, mysql.ER_NO_SUCH_TABLE, mysql.ER_BAD_DB_ERROR:
		return nil, fmt.Errorf("%w: %w", schema.ErrNoTable, err)
	}
	if err == nil && len(cols) == 0 {
		return nil, schema.ErrNoTable
	}
	return cols, err
}

func (k *catalog) columns(schemaName, table string) ([]schema.Column, error) {
	if k.s == nil {
		s, err := k.c.dial(k.ctx, k.addr)
		if err != nil {
			return nil, err
		}
		k.s = s
	}
	where := " WHERE TABLE_SCHEMA=" + literal(schemaName) + " AND TABLE_NAME=" + literal(table)
	r, err := k.s.query(k.ctx, "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, CHARACTER_OCTET_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,"+
		" DATETIME_PRECISION, IS_NULLABLE, EXTRA FROM information_schema.COLUMNS"+where+" ORDER BY ORDINAL_POSITION")
	if err != nil {
		return nil, err
	}
	cols := make([]schema.Column, r.rows())
	index := make(map[string]int, len(cols))
	for i := range cols {
		cols[i] = schema.Column{
			Name: r.text(i, 0), DataType: strings.ToLower(r.text(i, 1)), SQLType: r.text(i, 2), Charset: r.text(i, 3), Octets: r.number(i, 4),
			Precision: r.number(i, 5), Scale: r.number(i, 6), Fraction: r.number(i, 7), Nullable: r.text(i, 8) == "YES",
			Invisible: strings.Contains(r.text(i, 9), "INVISIBLE"),
		}
		index[cols[i].Name] = i
	}
	if len(cols) == 0 {
		return nil, nil
	}
	r, err = k.s.query(k.ctx, "SELECT COLUMN_NAME, SEQ_IN_INDEX FROM information_schema.STATISTICS"+where+" AND INDEX_NAME='PRIMARY'")
	if err != nil {
		return nil, err
	}
	for i := range r.rows() {
		if j, ok := index[r.text(i, 0)]; ok {
			cols[j].Key = int(r.number(i, 1))
		}
	}
	if k.sv.mariaDB {
		return cols, k.json(cols, schemaName, table)
	}
	return cols, nil
}

// json marks MariaDB's JSON columns: longtexts whose column check is json_valid.
func (k *catalog) json(cols []schema.Column, schemaName, table string) error {
	long := false
	for i := range cols {
		long = long || cols[i].DataType == "longtext"
	}
	if !long {
		return nil
	}
	r, err := k.s.query(k.ctx, "SELECT CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA="+literal(schemaName)+
		" AND TABLE_NAME="+literal(table))
	if err != nil {
		if serverCode(err) != 0 {
			return nil // before 10.2 there are no checks
		}
		return err
	}
	for i := range r.rows() {
		name, check := r.text(i, 0), r.text(i, 1)
		for j := range cols {
			c := &cols[j]
			if c.DataType == "longtext" && name == c.Name && check == "json_valid(`"+strings.ReplaceAll(c.Name, "`", "``")+"`)" {
				c.JSON = true
			}
		}
	}
	return nil
}
