package connector

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// Options configures a [Connector].
type Options struct {
	Destination string
	Addresses   []string    // host:port of the source; several form a failover group and are tried in order
	User        string      // needs REPLICATION SLAVE, REPLICATION CLIENT (BINLOG MONITOR on MariaDB) and SELECT
	Password    string      // never logged, never sent but to log in
	TLS         *tls.Config // nil: plain text; an empty ServerName is set to the address's host
	Tables      *tablefilter.Filter
	Start       string               // earliest, latest (also ""), gtid:SET, FILE:OFFSET or an RFC 3339 time
	Reader      int                  // tells Connectors of one destination apart that read at the same time: at the source each is a replica of its own
	ServerID    uint32               // replica id; 0: derived from this host's name and the destination
	SchemaFrom  string               // schema.FromHistory or schema.FromLog
	AllVersions bool                 // of MariaDB's tables WITH SYSTEM VERSIONING all row changes of the log are shown, not what their present rows undergo; part of the numbering
	PassDML     bool                 // statement-format DML that may concern captured tables is logged, counted and passed over, instead of ending Read
	PassTables  bool                 // rows of captured tables that cannot be described are logged, counted and passed over, instead of ending Read; their numbers stay theirs. What History says was passed over is so without it
	History     *schema.History      // what is known of the tables, shared by the Connectors of a destination; nil: it ends with this Connector
	Snapshots   *snapshot.Log        // of the destination, shared by its Connectors; nil: there are none
	Skips       map[event.GTID]int64 // transactions that are passed over unread, with the ordinals that each takes (meta.Skip)
	Snapshot    SnapshotOptions      // how tables are read for them
	Heartbeat   time.Duration        // of the idle source; 0: 5 s
	ReadTimeout time.Duration        // silence that counts as a lost link; 0: three heartbeats
	DialTimeout time.Duration        // connect and log in; 0: 10 s
	PollPeriod  time.Duration        // how often the source is asked for its position; 0: 2 s
	MaxEvent    int                  // largest event accepted, in bytes, as logged: a row, or a whole transaction when compressed; 0: no limit
	HeldXA      int                  // as [binlog.Options]
	Logger      *slog.Logger         // nil: slog.Default
}

// SnapshotOptions say how fast tables are read for snapshots, and in which pieces. The zero value is good.
type SnapshotOptions struct {
	ChunkBytes    int   // row images that are read at once, about; 0: 512 KiB. A table without a key is read at once, up to 64 MiB or MaxEvent
	ChunkRows     int   // rows that are read at once, at most; 0: 8192
	RowsPerSecond int   // at most, on average; 0: as fast as it goes
	MaxPending    int64 // bytes of chunks that may wait for subscriptions to acknowledge them: above it nothing is read; 0: 256 MiB
}

// Limits of one put.
const (
	maxBatchEvents = 256
	maxBatchBytes  = 512 << 10
)

// Connector reads one source. It is safe for concurrent use.
type Connector struct {
	opt  Options
	log  *slog.Logger
	host string // as registered at the source

	onLarge func(size int)
	slots   slots
	shown   atomic.Bool // a Read runs that Status shows
	state   status
	account atomic.Pointer[string] // as GRANT wants it; nil until a server has told
	sight   sync.Once              // the first look at what the account sees
	doubted onces                  // columns whose labels are in doubt
	window  *window                // joins chunks of snapshots with the main reader; nil: this Connector reads none
}

// New checks the options and returns a Connector. It connects nowhere.
func New(opt Options) (*Connector, error) {
	var errs []error
	if opt.Destination == "" {
		errs = append(errs, errors.New("connector: the destination has no name"))
	}
	if len(opt.Addresses) == 0 {
		errs = append(errs, errors.New("connector: no address of the source"))
	}
	if opt.SchemaFrom != schema.FromHistory && opt.SchemaFrom != schema.FromLog {
		errs = append(errs, errors.New("connector: schema source is neither empty nor log"))
	}
	if opt.Start == "" {
		opt.Start = "latest"
	}
	if _, err := parseStart(opt.Start); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if opt.History == nil {
		opt.History = schema.NewHistory(nil)
	}
	orDefault(&opt.Heartbeat, 5*time.Second)
	orDefault(&opt.ReadTimeout, 3*opt.Heartbeat)
	orDefault(&opt.DialTimeout, 10*time.Second)
	orDefault(&opt.PollPeriod, 2*time.Second)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	c := &Connector{opt: opt, log: opt.Logger.With("destination", opt.Destination), host: host}
	if opt.Snapshots != nil && opt.Reader == 0 {
		c.window = &window{}
	}
	return c, nil
}

func orDefault(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// OnLarge has f told of each event of binlog.LargeEvent bytes and more, logged or unpacked, before memory for it is taken. Call it before
// any Read; f must be safe for concurrent use, and may be nil.
func (c *Connector) OnLarge(f func(size int)) { c.onLarge = f }

// identity is what a dump connection calls itself.
type identity struct {
	slot     int
	serverID uint32
	uuid     string
	host     string // shown by SHOW REPLICAS
}

// identity derives a name that is the same after every restart, so that the
// source drops a forgotten connection of ours when the next one comes, and that differs
// between hosts, destinations and the readers of one destination.
func (c *Connector) identity(slot int) identity {
	name := fmt.Appendf(nil, "binlogmq\x00%s\x00%s\x00%d", c.host, c.opt.Destination, slot)
	if c.opt.Reader != 0 {
		name = fmt.Appendf(name, "\x00reader %d", c.opt.Reader)
	}
	if c.opt.ServerID != 0 {
		// The source cuts one of two replicas with the same UUID, too.
		name = fmt.Appendf(name, "\x00%d", c.opt.ServerID)
	}
	sum := sha256.Sum256(name)
	id := [16]byte(sum[:])
	n := uint32(id[0])<<24 | uint32(id[1])<<16 | uint32(id[2])<<8 | uint32(id[3])
	// Ids that people choose are small or made of addresses; stay in a quarter of the range that is rarely used.
	n = 1<<31 | n>>2
	if c.opt.ServerID != 0 && slot == 0 && c.opt.Reader == 0 {
		n = c.opt.ServerID
	}
	id[6] = id[6]&0x0f | 0x50 // a UUID made of a name
	id[8] = id[8]&0x3f | 0x80
	host := "binlogmq-" + c.opt.Destination + "@" + c.host
	return identity{slot: slot, serverID: n, uuid: event.FormatUUID(id), host: host[:min(len(host), 60)]}
}
