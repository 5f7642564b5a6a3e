package config

// everything is what stands before the tables of a destination whose clients replace them.
const everything = "*.*"

// widen has destinations read all tables where the filters of Canal's clients replace what tables says. Exclusions stay in force.
func (c *Config) widen() {
	for i := range c.Destinations {
		if d := &c.Destinations[i]; c.replaced(d) && len(d.Tables) > 0 {
			d.Tables = append([]string{everything}, d.Tables...)
		}
	}
}

func (c *Config) replaced(d *Destination) bool {
	return c.Canal != nil && c.Canal.Filter == "replace" && len(d.Sinks) == 0
}

// ClientTables returns the patterns of what a client of Canal's sees that names no filter; nil for all that the
// destination reads.
func (c *Config) ClientTables(d *Destination) []string {
	if !c.replaced(d) || len(d.Tables) == 0 {
		return nil
	}
	return d.Tables[1:]
}
