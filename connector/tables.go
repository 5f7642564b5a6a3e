package connector

import "context"

// TableName names a table of the source.
type TableName struct {
	Schema, Table string
	Caseless      bool // as event.Table's
}

// Tables lists the captured tables that exist now and that the user may see, at most so
// many of them, in the order of their names.
func (c *Connector) Tables(ctx context.Context, most int) ([]TableName, error) {
	s, sv, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	r, err := s.query(ctx, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE' ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	tables := c.tables(sv)
	var out []TableName
	for i := range r.rows() {
		t := TableName{r.text(i, 0), r.text(i, 1), sv.caseless()}
		if len(out) < most && tables.Match(t.Schema, t.Table) {
			out = append(out, t)
		}
	}
	return out, nil
}
