package connector

// sparing tells once of statement-format DML that is passed over.
type sparing struct {
	c    *Connector
	told bool
}

func (s *sparing) tell(verb, schema string) {
	if !s.told {
		s.told = true
		s.c.log.Warn("statement-format DML of tables that are not captured is passed over; what their triggers, functions and cascades do to captured ones would not be seen: "+
			"set binlog_format=ROW for every session", "statement", verb, "default_schema", schema)
	}
}
