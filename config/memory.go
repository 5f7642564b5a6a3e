package config

import "fmt"

// Memory is what the program's resident memory is bounded by, in bytes (I9).
type Memory struct {
	Program int64 // code, connections, what is known about tables
	Rings   int64 // events between source and sinks
	Windows int64 // what is encoded, sent and not confirmed
	Rows    int64 // one row as large as source.max_event allows, on its way through each destination
}

// Total is the whole bound.
func (m Memory) Total() int64 { return m.Program + m.Rings + m.Windows + m.Rows }

// String shows the parts.
func (m Memory) String() string {
	return fmt.Sprintf("%d MiB: program %d, rings %d, windows %d, largest row %d", m.Total()>>20, m.Program>>20, m.Rings>>20, m.Windows>>20, m.Rows>>20)
}

const (
	programMemory = 96 << 20
	// The garbage collector lets what has been freed stand for as long again.
	ringFactor   = 2
	windowFactor = 4 // encoded, copied into a request, and both once more as garbage
	// A row is held by the reader, the ring and the event behind it; each sink has it as a message and in a request.
	// With one sink that makes 8.
	rowFactor     = 4
	rowSinkFactor = 4

	defaultMaxEvent = 256 << 20
	leastMaxEvent   = 1 << 20
)

// RowFactor is how many times the largest row of the destination counts.
func (d *Destination) RowFactor() int64 { return rowFactor + rowSinkFactor*int64(len(d.Sinks)) }

// MemoryBound returns what the settings make. With `memory` set it is no more than that.
func (c *Config) MemoryBound() Memory {
	m := c.fixedMemory()
	for i := range c.Destinations {
		d := &c.Destinations[i]
		m.Rows += d.RowFactor() * int64(d.Source.MaxEvent)
	}
	return m
}

// fixedMemory is the bound without its rows.
func (c *Config) fixedMemory() Memory {
	m := Memory{Program: programMemory}
	for i := range c.Destinations {
		d := &c.Destinations[i]
		rings := int64(1)
		if n := int64(len(d.Sinks)); n > 1 {
			rings += n // each may have to catch up with a ring of its own
		}
		m.Rings += rings * ringFactor * int64(d.Ring.Bytes)
		for j := range d.Sinks {
			m.Windows += windowFactor * int64(d.Sinks[j].Window)
		}
	}
	return m
}

// setMaxEvents fills in source.max_event where it is not given: what `memory` leaves for it, at most
// the default. All other defaults are set.
func (c *Config) setMaxEvents() {
	most := int64(defaultMaxEvent)
	if c.Memory > 0 {
		m, open := c.MemoryBound(), int64(0)
		for i := range c.Destinations {
			if d := &c.Destinations[i]; d.Source.MaxEvent == 0 {
				open += d.RowFactor()
			}
		}
		if open > 0 {
			most = min(most, max((int64(c.Memory)-m.Total())/open, leastMaxEvent)) // too little is a fault
		}
	}
	for i := range c.Destinations {
		def(&c.Destinations[i].Source.MaxEvent, Bytes(most))
	}
}

func (f *faults) memory(c *Config) {
	if m := c.MemoryBound(); c.Memory > 0 && m.Total() > int64(c.Memory) {
		f.add("memory", "%d MiB is not enough for the other settings, which make %s; raise it, or lower ring.bytes, window or source.max_event",
			c.Memory>>20, m)
	}
}
