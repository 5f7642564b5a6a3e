package config

import (
	"net"
	"time"

	"github.com/binlogmq/binlogmq/internal/canalzk"
)

// Config is the whole configuration file. The yaml tags are the keys a user
// writes; docs/configuration.md describes each.
type Config struct {
	Deployment   string        `yaml:"deployment"`
	Destinations []Destination `yaml:"destinations"`
	Meta         Meta          `yaml:"meta"`
	Admin        Admin         `yaml:"admin"`
	Canal        *Canal        `yaml:"canal"`
	Log          Log           `yaml:"log"`
	StopTimeout  Duration      `yaml:"stop_timeout"`
	Memory       Bytes         `yaml:"memory"`
}

// Destination is one stream: a source and what is captured from it.
type Destination struct {
	Name        string   `yaml:"name"`
	Source      Source   `yaml:"source"`
	Tables      []string `yaml:"tables"`
	Start       string   `yaml:"start"`
	Schema      string   `yaml:"schema"`
	Versioned   string   `yaml:"system_versioned"`
	Ring        Ring     `yaml:"ring"`
	DetachAfter Duration `yaml:"detach_after"`
	Sinks       []Sink   `yaml:"sinks"`
	Snapshot    Snapshot `yaml:"snapshot"`

	OnLostPosition  string `yaml:"on_lost_position"`
	StatementFormat string `yaml:"statement_format"`
	OnTableError    string `yaml:"on_table_error"`
}

// What Destination.OnTableError says of rows of a captured table that cannot be read.
const (
	TableStop = "stop"
	TableSkip = "skip" // logged and counted
)

// What Destination.StatementFormat says of statements that stand in the log in place of the rows that they changed.
const (
	StatementStop = "stop"
	StatementSkip = "skip" // logged and counted
)

// SchemaFormer is a former value of Destination.Schema, which means no more than an empty one.
const SchemaFormer = "information_schema"

// What Destination.Versioned shows of MariaDB's tables WITH SYSTEM VERSIONING.
const (
	VersionedLive = "live" // what their present rows undergo
	VersionedRaw  = "raw"  // the row changes that the log holds, those of history rows among them
)

// What Destination.OnLostPosition says of a position that the source does not have any more, or never had.
const (
	LostStop     = "stop"
	LostEarliest = "earliest" // go on at the first place of the source's log
	LostLatest   = "latest"   // or at its end
)

// StartSnapshot as Destination.Start begins at the end of the log, and has what the tables hold already read beside it. So does LostSnapshot
// as Destination.OnLostPosition.
const (
	StartSnapshot = "snapshot"
	LostSnapshot  = "snapshot"
)

// Snapshots tells whether the configuration orders snapshots by itself.
func (d *Destination) Snapshots() bool {
	return d.Start == StartSnapshot || d.OnLostPosition == LostSnapshot
}

// Snapshot says what snapshots of a destination read, and how much at a time.
type Snapshot struct {
	Tables        []string          `yaml:"tables"`          // patterns within the destination's tables; none: all of them
	Where         map[string]string `yaml:"where"`           // conditions in the source's SQL, by schema.table
	RowsPerSecond int64             `yaml:"rows_per_second"` // 0: as fast as they are published
	ChunkBytes    Bytes             `yaml:"chunk_bytes"`
	MaxPending    Bytes             `yaml:"max_pending"`
}

// Source is the database server of a destination, or its failover group.
type Source struct {
	Address     Strings  `yaml:"address"`
	User        string   `yaml:"user"`
	Password    Secret   `yaml:"password"`
	TLS         *TLS     `yaml:"tls"`
	ServerID    uint32   `yaml:"server_id"`
	Heartbeat   Duration `yaml:"heartbeat"`
	DialTimeout Duration `yaml:"dial_timeout"`
	MaxEvent    Bytes    `yaml:"max_event"`
}

// TLS configures an encrypted connection. An empty section means: verify the
// server against the system's certificate authorities.
type TLS struct {
	CA                 string `yaml:"ca"`
	Cert               string `yaml:"cert"`
	Key                string `yaml:"key"`
	ServerName         string `yaml:"server_name"`
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify"`
}

// Ring bounds the events held between the source and the slowest sink.
type Ring struct {
	Bytes  Bytes `yaml:"bytes"`
	Events int   `yaml:"events"`
}

// Sink is one subscription of the embedded server that publishes.
type Sink struct {
	Name          string        `yaml:"name"`
	Kafka         *Kafka        `yaml:"kafka"`
	Pulsar        *Pulsar       `yaml:"pulsar"`
	File          *File         `yaml:"file"`
	Codec         string        `yaml:"codec"`
	CanalJSON     CanalJSON     `yaml:"canal_json"`
	CanalProtobuf CanalProtobuf `yaml:"canal_protobuf"`
	Maxwell       Maxwell       `yaml:"maxwell"`
	Debezium      Debezium      `yaml:"debezium"`
	TimeZone      string        `yaml:"time_zone"`
	Topic         string        `yaml:"topic"`
	DDLTopic      string        `yaml:"ddl_topic"`
	DDL           string        `yaml:"ddl"`
	Definitions   *bool         `yaml:"ddl_definitions"`
	Key           string        `yaml:"key"`
	KeyColumns    []KeyColumns  `yaml:"key_columns"`
	KeyChange     string        `yaml:"key_change"`
	Tombstones    *bool         `yaml:"tombstones"`
	Oversize      string        `yaml:"oversize"`
	MaxMessage    Bytes         `yaml:"max_message_bytes"`
	DeadLetter    string        `yaml:"dead_letter_topic"`
	Headers       *[]string     `yaml:"headers"`
	Tables        []string      `yaml:"tables"`
	Workers       int           `yaml:"workers"`
	Window        Bytes         `yaml:"window"`
}

// KeyColumns names the key columns of the tables that a pattern matches.
type KeyColumns struct {
	Table   string   `yaml:"table"`
	Columns []string `yaml:"columns"`
}

// Kafka is the cluster of a Kafka sink.
type Kafka struct {
	Brokers        Strings     `yaml:"brokers"`
	Delivery       string      `yaml:"delivery"`
	Compression    string      `yaml:"compression"`
	TLS            *TLS        `yaml:"tls"`
	SASL           *SASL       `yaml:"sasl"`
	Topics         KafkaTopics `yaml:"topics"`
	BatchBytes     Bytes       `yaml:"batch_bytes"`
	RequestTimeout Duration    `yaml:"request_timeout"`

	// For delivery: transactional only.
	CommitInterval      Duration `yaml:"commit_interval"`
	MaxTransactionBytes Bytes    `yaml:"max_transaction_bytes"`
	TransactionTimeout  Duration `yaml:"transaction_timeout"`
}

// SASL authenticates against Kafka.
type SASL struct {
	Mechanism string `yaml:"mechanism"`
	User      string `yaml:"user"`
	Password  Secret `yaml:"password"`
}

// KafkaTopics says how missing topics are made; a number of 0 leaves it to the broker.
type KafkaTopics struct {
	Create            *bool             `yaml:"create"`
	Partitions        int32             `yaml:"partitions"`
	ReplicationFactor int16             `yaml:"replication_factor"`
	Configs           map[string]string `yaml:"configs"`
}

// Pulsar is the cluster of a Pulsar sink.
type Pulsar struct {
	URL                  string       `yaml:"url"`
	AdminURL             string       `yaml:"admin_url"`
	Token                Secret       `yaml:"token"`
	TLS                  *TLS         `yaml:"tls"`
	Producer             string       `yaml:"producer"`
	Batching             bool         `yaml:"batching"`
	Compression          string       `yaml:"compression"`
	Topics               PulsarTopics `yaml:"topics"`
	RequireDeduplication *bool        `yaml:"require_deduplication"`
	Watchdog             Duration     `yaml:"watchdog"`
	MaxMessageBytes      Bytes        `yaml:"max_message_bytes"`
	DeduplicationWindow  Duration     `yaml:"deduplication_window"`
	IdleTimeout          Duration     `yaml:"idle_timeout"`
	MaxProducers         int          `yaml:"max_producers"`
}

// PulsarTopics says how missing topics are made.
type PulsarTopics struct {
	Create     *bool `yaml:"create"`
	Partitions int32 `yaml:"partitions"`
}

// File writes JSON lines to a file, or to standard output for the path "-".
type File struct {
	Path       string `yaml:"path"`
	ValuesOnly bool   `yaml:"values_only"`
	Sync       *bool  `yaml:"sync"`
}

// CanalJSON holds the options of the codec canal-json.
type CanalJSON struct {
	Binary string `yaml:"binary"`
	Enum   string `yaml:"enum"`
}

// CanalProtobuf holds the options of the codec canal-protobuf.
type CanalProtobuf struct {
	Enum string `yaml:"enum"`
}

// Maxwell holds the options of the codec maxwell, under the original's names.
type Maxwell struct {
	KeyFormat         string `yaml:"kafka_key_format"`
	Nulls             *bool  `yaml:"output_nulls"`
	CommitInfo        *bool  `yaml:"output_commit_info"`
	Xoffset           *bool  `yaml:"output_xoffset"`
	BinlogPosition    bool   `yaml:"output_binlog_position"`
	GTIDPosition      bool   `yaml:"output_gtid_position"`
	ServerID          bool   `yaml:"output_server_id"`
	ThreadID          bool   `yaml:"output_thread_id"`
	PrimaryKeys       bool   `yaml:"output_primary_keys"`
	PrimaryKeyColumns bool   `yaml:"output_primary_key_columns"`
	NullZeroDates     bool   `yaml:"output_null_zerodates"`
}

// Debezium holds the options of the codec debezium, under the original's names.
type Debezium struct {
	Prefix         string `yaml:"topic.prefix"`
	Schemas        *bool  `yaml:"schemas.enable"`
	Decimal        string `yaml:"decimal.handling.mode"`
	Time           string `yaml:"time.precision.mode"`
	BigintUnsigned string `yaml:"bigint.unsigned.handling.mode"`
	Binary         string `yaml:"binary.handling.mode"`
	Failure        string `yaml:"event.converting.failure.handling.mode"`
	Skipped        string `yaml:"skipped.operations" json:",omitempty"` // "" is Debezium's default, t
}

// Meta says where cursors are kept.
type Meta struct {
	File         MetaFile       `yaml:"file"`
	SaveInterval Duration       `yaml:"save_interval"`
	ZooKeeper    *MetaZooKeeper `yaml:"zookeeper"`
}

// MetaFile keeps cursors in files of a directory.
type MetaFile struct {
	Directory string `yaml:"directory"`
}

// MetaZooKeeper keeps cursors in ZooKeeper, where nodes share the destinations.
type MetaZooKeeper struct {
	Servers        Strings        `yaml:"servers"`
	SessionTimeout Duration       `yaml:"session_timeout"`
	Root           string         `yaml:"root"`
	Node           string         `yaml:"node"`
	Weight         *int           `yaml:"weight"`
	RebalanceDelay Duration       `yaml:"rebalance_delay"`
	Auth           *ZooKeeperAuth `yaml:"auth"`
	TLS            *TLS           `yaml:"tls"`
}

// ZooKeeperAuth is ZooKeeper's digest authentication.
type ZooKeeperAuth struct {
	User     string `yaml:"user"`
	Password Secret `yaml:"password"`
}

// Canal serves destinations over Canal's TCP protocol.
type Canal struct {
	Listen         string     `yaml:"listen"`
	Advertise      string     `yaml:"advertise"`
	ZooKeeperRoot  string     `yaml:"zookeeper_root"`
	User           string     `yaml:"user"`
	Password       Secret     `yaml:"password"` // or its hash, as in Canal's configuration
	AllowClearText bool       `yaml:"allow_clear_text"`
	TLS            *ServerTLS `yaml:"tls"`
	MaxConnections int        `yaml:"max_connections"`
	Memory         Bytes      `yaml:"memory"`
	IdleTimeout    Duration   `yaml:"idle_timeout"`
	Batch          string     `yaml:"batch"`
	Filter         string     `yaml:"filter"`
	Enum           string     `yaml:"enum"`
	TimeZone       string     `yaml:"time_zone"`
}

// ServerTLS is the server's side of TLS.
type ServerTLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Admin serves health and metrics over HTTP.
type Admin struct {
	Listen string `yaml:"listen"`
}

// Log configures the program's own log on standard error.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// DefaultHeaders travel with a message unless headers: says otherwise.
var DefaultHeaders = []string{"seq", "gtid", "row", "tables"}

// setDefaults fills what the file leaves out. All defaults stand here.
func (c *Config) setDefaults() {
	def(&c.Deployment, "default")
	def(&c.StopTimeout, Duration(30*time.Second))
	if z := c.Meta.ZooKeeper; z != nil {
		def(&z.SessionTimeout, Duration(10*time.Second))
		def(&z.Root, "/binlogmq")
		def(&z.Weight, ptr(1))
		def(&z.RebalanceDelay, Duration(10*time.Second))
	} else {
		def(&c.Meta.File.Directory, "./data")
	}
	def(&c.Meta.SaveInterval, Duration(time.Second))
	if k := c.Canal; k != nil {
		if c.Meta.ZooKeeper != nil {
			def(&k.ZooKeeperRoot, canalzk.Root)
			def(&k.Advertise, advertised(k.Listen))
		}
		def(&k.MaxConnections, 1000)
		def(&k.Memory, 64<<20)
		def(&k.IdleTimeout, Duration(time.Hour))
		def(&k.Batch, "memory")
		def(&k.Filter, "narrow")
		def(&k.Enum, "ordinal")
		def(&k.TimeZone, "UTC")
	}
	def(&c.Log.Level, "info")
	def(&c.Log.Format, "text")
	for i := range c.Destinations {
		d := &c.Destinations[i]
		def(&d.Start, "latest")
		def(&d.Versioned, VersionedLive)
		def(&d.OnLostPosition, LostStop)
		def(&d.StatementFormat, StatementStop)
		def(&d.OnTableError, TableStop)
		def(&d.Ring.Bytes, 16<<20)
		def(&d.Ring.Events, 1<<16)
		def(&d.DetachAfter, Duration(5*time.Second))
		def(&d.Snapshot.ChunkBytes, 512<<10)
		def(&d.Snapshot.MaxPending, 64<<20)
		def(&d.Source.Heartbeat, Duration(time.Second))
		def(&d.Source.DialTimeout, Duration(10*time.Second))
		for j := range d.Sinks {
			def(&d.Sinks[j].Debezium.Prefix, d.Name)
			d.Sinks[j].setDefaults()
			if k := d.Sinks[j].Kafka; k != nil && k.Delivery == "transactional" {
				def(&k.MaxTransactionBytes, min(d.Sinks[j].Window, d.Ring.Bytes)/2)
			}
		}
	}
	c.setMaxEvents()
}

// advertised is where others reach what listens on an address: there, or at this machine's first address that is not for itself.
func advertised(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen // which is a fault
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return listen
	}
	host = "127.0.0.1"
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			host = n.IP.String()
			break
		}
	}
	return net.JoinHostPort(host, port)
}

func (s *Sink) setDefaults() {
	def(&s.Codec, "canal-json")
	def(&s.Key, "primary_key")
	def(&s.KeyChange, "split")
	def(&s.Oversize, "stop")
	def(&s.DDL, "captured")
	def(&s.Definitions, ptr(s.DDLTopic != "" && (s.Codec == "maxwell" || s.Codec == "debezium")))
	def(&s.TimeZone, "UTC")
	def(&s.Window, 8<<20)
	if s.Headers == nil {
		h := append([]string(nil), DefaultHeaders...)
		s.Headers = &h
	}
	def(&s.CanalJSON.Binary, "latin1")
	def(&s.CanalJSON.Enum, "ordinal")
	def(&s.CanalProtobuf.Enum, "ordinal")
	def(&s.Maxwell.KeyFormat, "hash")
	def(&s.Maxwell.Nulls, ptr(true))
	def(&s.Maxwell.CommitInfo, ptr(true))
	def(&s.Maxwell.Xoffset, ptr(true))
	def(&s.Debezium.Schemas, ptr(true))
	def(&s.Debezium.Decimal, "precise")
	def(&s.Debezium.Time, "adaptive_time_microseconds")
	def(&s.Debezium.BigintUnsigned, "long")
	def(&s.Debezium.Binary, "bytes")
	def(&s.Debezium.Failure, "warn")
	if s.Debezium.Skipped == "t" { // the default, which the codec's identity does not name
		s.Debezium.Skipped = ""
	}
	topic := "{schema}.{table}"
	if s.Codec == "debezium" {
		topic = s.Debezium.Prefix + "." + topic
	}
	def(&s.Tombstones, ptr(s.Codec == "debezium"))
	if k := s.Kafka; k != nil {
		def(&s.Topic, topic)
		def(&k.Delivery, "sequenced")
		def(&k.Compression, "none")
		def(&k.Topics.Create, ptr(true))
		def(&k.BatchBytes, 1<<20)
		def(&k.RequestTimeout, Duration(30*time.Second))
		if k.Delivery == "transactional" {
			def(&k.CommitInterval, Duration(20*time.Millisecond))
			def(&k.TransactionTimeout, Duration(time.Minute))
		}
	}
	if p := s.Pulsar; p != nil {
		def(&s.Topic, "persistent://public/default/"+topic)
		def(&p.Producer, "wire")
		def(&p.Compression, "none")
		def(&p.Topics.Create, ptr(true))
		def(&p.Topics.Partitions, 1)
		def(&p.RequireDeduplication, ptr(true))
		def(&p.Watchdog, Duration(30*time.Second))
		def(&p.MaxMessageBytes, 5<<20-10<<10)
		def(&p.DeduplicationWindow, Duration(5*time.Hour))
		def(&p.IdleTimeout, min(Duration(time.Hour), p.DeduplicationWindow/2))
		def(&p.MaxProducers, 5000)
	}
	if f := s.File; f != nil {
		def(&s.Topic, topic)
		def(&f.Sync, ptr(true))
	}
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func ptr[T any](v T) *T { return &v }
