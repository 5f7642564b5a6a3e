package connector

import (
	"context"
	"fmt"
	"strings"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// mostChecked bounds the tables of which [Connector.CheckSnapshots] asks whether they may be read, and mostNamed those that a finding names.
const (
	mostChecked = 1000
	mostNamed   = 10
)

// CheckSnapshots looks at every address whether snapshots of the tables, those of them that are captured, can be read. It changes nothing.
func (c *Connector) CheckSnapshots(ctx context.Context, tables *tablefilter.Filter) []Finding {
	var out []Finding
	for _, addr := range c.opt.Addresses {
		k := &checker{c: c, addr: addr}
		k.snapshots(ctx, tables)
		k.s.close()
		out = append(out, k.found...)
	}
	return out
}

func (k *checker) snapshots(ctx context.Context, tables *tablefilter.Filter) {
	var err error
	if k.s, err = k.c.dial(ctx, k.addr); err != nil {
		k.failed(err)
		return
	}
	if k.sv, err = k.s.server(ctx); err != nil {
		k.failed(err)
		return
	}
	k.c.learnAccount(ctx, k.s)
	if m := k.sv.vars["gtid_mode"]; !k.sv.mariaDB && m != "ON" {
		k.add(Warning, "switch GTIDs on, as said above", "gtid_mode is %s: nothing tells when a SELECT sees what the log shows, so a snapshot waits a second, and where the server takes longer to commit (semi-synchronous replication) a row may be older than the stream", m)
	} else if !k.sv.mariaDB && !k.sv.tells() {
		k.add(Warning, "upgrade to MySQL 5.7 or later", "MySQL %s: gtid_executed does not tell when a SELECT sees what the log shows, so a snapshot waits a second, and where the server takes longer to commit (semi-synchronous replication) a row may be older than the stream", k.sv.version)
	}
	r, err := k.s.query(ctx, "SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.DATA_LENGTH, e.TRANSACTIONS FROM information_schema.TABLES t LEFT JOIN information_schema.ENGINES e ON e.ENGINE=t.ENGINE "+
		"WHERE t.TABLE_TYPE IN ('BASE TABLE','SYSTEM VERSIONED') ORDER BY 1, 2")
	if err != nil {
		k.failed(err)
		return
	}
	captured, wanted := k.c.tables(k.sv), tables.For(k.sv.caseless())
	seen := map[string]bool{}
	var grants, keyless, plain []string
	n := 0
	for i := range r.rows() {
		name := ddl.Name{Schema: r.text(i, 0), Table: r.text(i, 1)}
		if !captured.Match(name.Schema, name.Table) || !wanted.Match(name.Schema, name.Table) {
			continue
		}
		seen[k.sv.folded(name.Schema)] = true
		if n++; n > mostChecked {
			continue
		}
		if _, err := k.s.query(ctx, "SELECT * FROM "+tableName(name)+" LIMIT 0"); denied(err) {
			grants = append(grants, "GRANT SELECT ON "+tableName(name)+" TO "+k.c.accountName()+";")
		} else if err != nil {
			k.add(Error, "repair the table, or leave it out by snapshot.tables", "table %s cannot be read: %v", name, err)
			if serverCode(err) == 0 {
				return // the connection is gone
			}
		}
		if r.text(i, 3) == "NO" {
			plain = append(plain, name.String())
		}
		if r.number(i, 2) > uint64(k.c.keyless()) {
			keyed, err := k.keyed(ctx, name)
			if err != nil {
				k.failed(err)
				return
			}
			if !keyed {
				keyless = append(keyless, name.String())
			}
		}
	}
	if len(grants) > 0 {
		k.add(Error, strings.Join(grants[:min(len(grants), mostNamed)], "\n"), "user %s may not read %d of the tables that snapshots read", k.c.opt.User, len(grants))
	}
	// What the user may not see at all is not listed.
	for _, name := range k.c.opt.Tables.Schemas() {
		if !seen[k.sv.folded(name)] && wanted.MatchSchema(name) {
			k.add(Warning, "GRANT SELECT ON "+snapshot.Quote(name)+".* TO "+k.c.accountName()+";", "no table of database %s can be seen: it has none that snapshots read, or user %s may not read them", name, k.c.opt.User)
		}
	}
	may, err := k.s.sight(ctx, k.sv)
	if err != nil {
		k.failed(err)
		return
	}
	if unseen := may.unseen(captured, wanted, k.c.accountName()); len(unseen) > 0 {
		sev := Warning
		if n == 0 {
			sev = Error
		}
		k.add(sev, strings.Join(unseen[:min(len(unseen), mostNamed)], ";\n")+";", "user %s may not read all tables that snapshots are for: those that it may not see are left out, and nothing fails", k.c.opt.User)
	}
	if len(keyless) > 0 {
		k.add(Warning, "give them a primary key, or a unique one of columns that are NOT NULL; or leave them out by snapshot.tables",
			"%d tables have no key and more than %d MiB, which is the most that a snapshot reads at once: %s", len(keyless), k.c.keyless()>>20, named(keyless))
	}
	if len(plain) > 0 {
		k.add(Warning, "convert them (ALTER TABLE ... ENGINE=InnoDB), or have nobody write to them while they are read",
			"%d tables have an engine without transactions: rows that are written while they are read may come as an insert once more: %s", len(plain), named(plain))
	}
	if n > 0 && len(grants) == 0 {
		k.add(OK, "", "%d %s can be read for snapshots", n, map[bool]string{true: "table", false: "tables"}[n == 1])
	}
}

// folded is a name as it is compared where the server does not tell upper from lower case.
func (sv *server) folded(name string) string {
	if sv.caseless() {
		return strings.ToLower(name)
	}
	return name
}

// keyed tells whether a table has a key by which it can be read in chunks.
func (k *checker) keyed(ctx context.Context, n ddl.Name) (bool, error) {
	r, err := k.s.query(ctx, fmt.Sprintf("SELECT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s AND NON_UNIQUE=0 GROUP BY INDEX_NAME HAVING SUM(NULLABLE='YES')=0 AND (INDEX_NAME='PRIMARY' OR SUM(SUB_PART IS NOT NULL)=0)",
		literal(n.Schema), literal(n.Table)))
	return err == nil && r.rows() > 0, err
}

func named(names []string) string {
	text := strings.Join(names[:min(len(names), mostNamed)], ", ")
	if len(names) > mostNamed {
		text += ", ..."
	}
	return text
}
