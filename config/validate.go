package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/internal/condition"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/internal/topicname"
)

// HeaderNames are the headers that `headers:` may list.
var HeaderNames = []string{"seq", "gtid", "row", "destination", "schema", "table", "op", "position", "commit_time", "epoch", "tables"}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Validate returns every fault of c, joined, each with its key path; nil when
// there is none. Load has called it already.
func (c *Config) Validate() error { return errors.Join(c.faults()...) }

type faults []error

func (f *faults) add(path, format string, args ...any) {
	*f = append(*f, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

func (f *faults) oneOf(path, v string, known ...string) {
	if !slices.Contains(known, v) {
		list := strings.Join(known, ", ")
		if known[0] == "" {
			list = "leave it out, or choose one of " + strings.Join(known[1:], ", ")
		} else {
			list = "choose one of " + list
		}
		f.add(path, "%q is not known; %s", v, list)
	}
}

func (f *faults) name(path, v string) {
	if !nameForm.MatchString(v) {
		f.add(path, "%q is not a name: letters, digits, - and _, at most 64, the first a letter or digit", v)
	}
}

func (f *faults) tables(path string, patterns []string) {
	for i, p := range patterns {
		if err := tablefilter.Check([]string{p}); err != nil {
			f.add(fmt.Sprintf("%s[%d]", path, i), "%v", err)
		}
	}
}

// address wants the host:port of a server.
func (f *faults) address(path, v string) {
	if host, ok := f.hostPort(path, v, 1); ok && host == "" {
		f.add(path, "%q names no host", v)
	}
}

// listen wants a host:port to listen on. Without host it is every address of the machine, and port 0 is any that is free.
func (f *faults) listen(path, v string) bool {
	_, ok := f.hostPort(path, v, 0)
	return ok
}

// hostPort returns the host of host:port, whose port is not below least. What holds a password is not repeated.
func (f *faults) hostPort(path, v string, least uint64) (host string, ok bool) {
	if strings.Contains(v, "@") {
		f.add(path, "holds an @; an address is host:port, user and password have keys of their own")
		return "", false
	}
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		f.add(path, "%q is not host:port", v)
		return "", false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < least {
		f.add(path, "%q has no port: a number from %d to 65535", v, least)
		return "", false
	}
	return host, true
}

// positive wants more than the zero that [Duration] keeps.
func (f *faults) positive(path string, d Duration) {
	if d < 0 {
		f.add(path, "must be positive")
	}
}

// template wants a topic's name whose fields are known.
func (f *faults) template(path, v string, fields []string) {
	if _, err := topicname.Parse(v, fields); err != nil {
		f.add(path, "%v", err)
	}
}

// url wants one of these schemes and no user or password.
func (f *faults) url(path, v, form string, schemes ...string) {
	known := slices.ContainsFunc(schemes, func(s string) bool { return strings.HasPrefix(v, s) })
	switch {
	case strings.Contains(v, "@"):
		f.add(path, "holds an @; it is of the form %s, credentials have keys of their own", form)
	case !known:
		f.add(path, "%q is not of the form %s", v, form)
	}
}

func (f *faults) tls(path string, t *TLS) {
	if t != nil && (t.Cert == "") != (t.Key == "") {
		f.add(path, "cert and key go together")
	}
}

func (c *Config) faults() []error {
	var f faults
	f.name("deployment", c.Deployment)
	if len(c.Destinations) == 0 {
		f.add("destinations", "at least one is needed")
	}
	f.positive("stop_timeout", c.StopTimeout)
	f.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	f.oneOf("log.format", c.Log.Format, "text", "json")
	if k := c.Canal; k != nil {
		f.canal("canal", k)
		if c.Meta.ZooKeeper == nil && (k.ZooKeeperRoot != "" || k.Advertise != "") {
			f.add("canal", "zookeeper_root and advertise need meta.zookeeper")
		}
	}
	if z := c.Meta.ZooKeeper; z != nil {
		f.zookeeper("meta.zookeeper", z)
		if c.Meta.File.Directory != "" {
			f.add("meta", "file and zookeeper exclude each other")
		}
	}
	if a := c.Admin.Listen; a != "" {
		f.listen("admin.listen", a)
	}
	names := map[string]string{}
	for i := range c.Destinations {
		d, path := &c.Destinations[i], fmt.Sprintf("destinations[%d]", i)
		f.name(path+".name", d.Name)
		// The names of cursor files must differ on any file system.
		if other, ok := names[strings.ToLower(d.Name)]; ok {
			f.add(path+".name", "%q is taken by %s", d.Name, other)
		}
		names[strings.ToLower(d.Name)] = path
		// A source cuts one of two replicas that have the same id, over and over.
		for j := range c.Destinations[:i] {
			other := &c.Destinations[j]
			if d.Source.ServerID != 0 && d.Source.ServerID == other.Source.ServerID && slices.ContainsFunc(d.Source.Address, func(a string) bool { return slices.Contains(other.Source.Address, a) }) {
				f.add(path+".source.server_id", "%d is that of destinations[%d] at the same source: leave it out, or make it differ", d.Source.ServerID, j)
			}
		}
		f.destination(path, d, c.Canal != nil)
	}
	f.memory(c)
	return f
}

func (f *faults) zone(path, name string) {
	if _, err := time.LoadLocation(name); err != nil || name == "Local" {
		f.add(path, "%q is not a zone: write UTC or an IANA name such as Europe/Berlin", name)
	}
}

func (f *faults) canal(path string, k *Canal) {
	listens := f.listen(path+".listen", k.Listen)
	f.positive(path+".idle_timeout", k.IdleTimeout)
	if k.Memory < 1<<20 {
		f.add(path+".memory", "at least 1MiB is needed")
	}
	if k.ZooKeeperRoot != "" && k.ZooKeeperRoot != "off" {
		if !zookeeperRoot.MatchString(k.ZooKeeperRoot) {
			f.add(path+".zookeeper_root", "%q is not a path such as %s, nor off", k.ZooKeeperRoot, canalzk.Root)
		}
		if strings.Contains(k.Advertise, "@") {
			f.address(path+".advertise", k.Advertise)
		} else if err := canalzk.CheckAddress(k.Advertise); err != nil && (listens || k.Advertise != k.Listen) { // which is its default
			f.add(path+".advertise", "%v", err)
		}
	}
	if (k.User == "") != (k.Password == "") {
		f.add(path, "user and password go together; without both everybody is let in")
	}
	if t := k.TLS; t != nil && (t.Cert == "" || t.Key == "") {
		f.add(path+".tls", "cert and key are needed")
	}
	if k.MaxConnections < 0 {
		f.add(path+".max_connections", "must be positive")
	}
	f.oneOf(path+".filter", k.Filter, "narrow", "replace")
	f.oneOf(path+".batch", k.Batch, "memory", "events")
	f.oneOf(path+".enum", k.Enum, "ordinal", "label")
	f.zone(path+".time_zone", k.TimeZone)
}

// zookeeperRoot is a path of names that are the same in any ZooKeeper.
var zookeeperRoot = regexp.MustCompile(`^(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$`)

func (f *faults) zookeeper(path string, z *MetaZooKeeper) {
	if len(z.Servers) == 0 {
		f.add(path+".servers", "at least one host:port is needed")
	}
	for i, a := range z.Servers {
		f.address(fmt.Sprintf("%s.servers[%d]", path, i), a)
	}
	if d := z.SessionTimeout.Value(); d < 2*time.Second || d > 5*time.Minute {
		f.add(path+".session_timeout", "2s to 5m; the servers grant 2 to 20 of their ticks")
	}
	if w := *z.Weight; w < 0 || w > 1000 {
		f.add(path+".weight", "0 to 1000")
	}
	if z.RebalanceDelay < 0 {
		f.add(path+".rebalance_delay", "must be positive")
	}
	if !zookeeperRoot.MatchString(z.Root) {
		f.add(path+".root", "%q is not a path such as /binlogmq", z.Root)
	}
	if a := z.Auth; a != nil && (a.User == "" || strings.Contains(a.User, ":")) {
		f.add(path+".auth.user", "a user without colon is needed")
	}
	f.tls(path+".tls", z.TLS)
}

func (f *faults) destination(path string, d *Destination, served bool) {
	s := &d.Source
	if len(s.Address) == 0 {
		f.add(path+".source.address", "the server's host:port is needed")
	}
	for i, a := range s.Address {
		f.address(fmt.Sprintf("%s.source.address[%d]", path, i), a)
	}
	if s.User == "" {
		f.add(path+".source.user", "a user with REPLICATION SLAVE and REPLICATION CLIENT is needed")
	}
	f.positive(path+".source.heartbeat", s.Heartbeat)
	f.positive(path+".source.dial_timeout", s.DialTimeout)
	f.tls(path+".source.tls", s.TLS)
	f.tables(path+".tables", d.Tables)
	f.start(path+".start", d.Start)
	f.oneOf(path+".statement_format", d.StatementFormat, StatementStop, StatementSkip)
	f.oneOf(path+".on_table_error", d.OnTableError, TableStop, TableSkip)
	f.oneOf(path+".on_lost_position", d.OnLostPosition, LostStop, LostEarliest, LostLatest, LostSnapshot)
	f.snapshot(path+".snapshot", &d.Snapshot, d.Tables)
	if d.Schema != SchemaFormer {
		f.oneOf(path+".schema", d.Schema, "", "log")
	}
	f.oneOf(path+".system_versioned", d.Versioned, VersionedLive, VersionedRaw)
	if d.Ring.Events < 0 {
		f.add(path+".ring.events", "must be positive")
	}
	if d.Ring.Bytes < 1<<20 {
		f.add(path+".ring.bytes", "at least 1MiB is needed")
	}
	if len(d.Sinks) == 0 && !served {
		f.add(path+".sinks", "at least one is needed, unless canal serves the destination")
	}
	names := map[string]bool{}
	for i := range d.Sinks {
		k, at := &d.Sinks[i], fmt.Sprintf("%s.sinks[%d]", path, i)
		f.name(at+".name", k.Name)
		if names[strings.ToLower(k.Name)] {
			f.add(at+".name", "%q is taken by another sink of the destination", k.Name)
		}
		names[strings.ToLower(k.Name)] = true
		f.sink(at, k)
		if k := d.Sinks[i].Kafka; k != nil && k.Delivery == "transactional" {
			// What is not committed stays in the ring and in the window; a commit must not wait for what has no room there.
			if k.MaxTransactionBytes < 64<<10 || k.MaxTransactionBytes > d.Sinks[i].Window || k.MaxTransactionBytes >= d.Ring.Bytes {
				f.add(at+".kafka.max_transaction_bytes", "64KiB to the sink's window (%d bytes), and less than ring.bytes (%d)", d.Sinks[i].Window, d.Ring.Bytes)
			}
		}
	}
}

// snapshot checks what snapshots read.
func (f *faults) snapshot(path string, s *Snapshot, captured []string) {
	f.tables(path+".tables", s.Tables)
	if err := condition.CheckAll(s.Where); err != nil {
		f.add(path+".where", "%v", err)
	}
	if tables, err := tablefilter.New(captured); err == nil && tablefilter.Check(captured) == nil { // else it is told
		for _, p := range tables.Outside(s.Tables) {
			f.add(path+".tables", "%s is not in the destination's tables", p)
		}
		for _, table := range slices.Sorted(maps.Keys(s.Where)) {
			if strings.Contains(table, ".") && !tables.MayTakeNamed(table) {
				f.add(path+".where", "%s is not in the destination's tables", table)
			}
		}
	}
	if s.RowsPerSecond < 0 {
		f.add(path+".rows_per_second", "must be positive, or 0 for as fast as they are published")
	}
	if s.ChunkBytes < 16<<10 || s.ChunkBytes > 8<<20 {
		f.add(path+".chunk_bytes", "16KiB to 8MiB")
	}
	if s.MaxPending < 4*s.ChunkBytes {
		f.add(path+".max_pending", "at least four times chunk_bytes (%d bytes)", s.ChunkBytes)
	}
}

var (
	gtidStart = regexp.MustCompile(`^gtid:.+`)
	fileStart = regexp.MustCompile(`^[^:/]+:\d+$`)
)

func (f *faults) start(path, s string) {
	_, timeErr := time.Parse(time.RFC3339, s)
	switch {
	case s == StartSnapshot, s == "earliest", s == "latest", gtidStart.MatchString(s), timeErr == nil:
	case fileStart.MatchString(s):
		if _, err := strconv.ParseUint(s[strings.LastIndexByte(s, ':')+1:], 10, 64); err != nil {
			f.add(path, "the offset in %q is out of range", s)
		}
	default:
		f.add(path, "%q is not known; write earliest, latest, snapshot, gtid:SET, FILE:OFFSET or a time such as 2026-01-31T12:00:00Z", s)
	}
}

func (f *faults) sink(path string, s *Sink) {
	kinds := 0
	for _, set := range []bool{s.Kafka != nil, s.Pulsar != nil, s.File != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		f.add(path, "exactly one of kafka, pulsar and file is needed, %d are given", kinds)
	}
	f.oneOf(path+".codec", s.Codec, "canal-json", "canal-protobuf", "maxwell", "debezium")
	f.zone(path+".time_zone", s.TimeZone)
	f.template(path+".topic", s.Topic, topicname.OfTable)
	f.template(path+".ddl_topic", s.DDLTopic, topicname.OfNone)
	f.template(path+".dead_letter_topic", s.DeadLetter, topicname.OfTable)
	f.debezium(path, s)
	f.oneOf(path+".canal_protobuf.enum", s.CanalProtobuf.Enum, "ordinal", "label")
	f.oneOf(path+".canal_json.binary", s.CanalJSON.Binary, "latin1", "base64")
	f.oneOf(path+".canal_json.enum", s.CanalJSON.Enum, "ordinal", "label")
	f.oneOf(path+".maxwell.kafka_key_format", s.Maxwell.KeyFormat, "hash", "array")
	f.oneOf(path+".key", s.Key, "primary_key", "table", "none")
	f.oneOf(path+".ddl", s.DDL, "captured", "all")
	f.oneOf(path+".key_change", s.KeyChange, "split", "update")
	f.oversize(path, s)
	for i, k := range s.KeyColumns {
		at := fmt.Sprintf("%s.key_columns[%d]", path, i)
		f.tables(at+".table", []string{k.Table})
		if len(k.Columns) == 0 {
			f.add(at+".columns", "at least one column is needed")
		}
	}
	for i, h := range *s.Headers {
		f.oneOf(fmt.Sprintf("%s.headers[%d]", path, i), h, HeaderNames...)
	}
	f.tables(path+".tables", s.Tables)
	if s.Workers < 0 || s.Workers > 256 {
		f.add(path+".workers", "0 (as many as processors) to 256")
	}
	if s.Window < 1<<20 {
		f.add(path+".window", "at least 1MiB is needed")
	}
	if k := s.Kafka; k != nil {
		f.kafka(path+".kafka", k)
	}
	if p := s.Pulsar; p != nil {
		f.pulsar(path+".pulsar", p)
	}
	if s.File != nil && s.File.Path == "" {
		f.add(path+".file.path", "a path is needed, or - for standard output")
	}
}

// debeziumPrefix is what Debezium takes, and is safe in the name of a topic.
var debeziumPrefix = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func (f *faults) debezium(path string, s *Sink) {
	if s.Codec == "debezium" && s.TimeZone != "UTC" {
		f.add(path+".time_zone", "must be UTC with the codec debezium: its messages say so of every TIMESTAMP")
	}
	d := &s.Debezium
	path += ".debezium"
	if s.Codec == "debezium" && !debeziumPrefix.MatchString(d.Prefix) {
		f.add(path+".topic.prefix", "%q is none: letters, digits, ., - and _", d.Prefix)
	}
	f.oneOf(path+".decimal.handling.mode", d.Decimal, "precise", "string", "double")
	f.oneOf(path+".time.precision.mode", d.Time, "adaptive_time_microseconds", "microseconds", "connect")
	f.oneOf(path+".bigint.unsigned.handling.mode", d.BigintUnsigned, "long", "precise")
	f.oneOf(path+".binary.handling.mode", d.Binary, "bytes", "base64", "base64-url-safe", "hex")
	f.oneOf(path+".event.converting.failure.handling.mode", d.Failure, "warn", "fail")
	f.oneOf(path+".skipped.operations", cmp.Or(d.Skipped, "t"), "t", "none")
}

// oversize checks what is to become of messages that are too large.
func (f *faults) oversize(path string, s *Sink) {
	f.oneOf(path+".oversize", s.Oversize, "stop", "stub", "split", "dead_letter")
	if s.MaxMessage != 0 && s.MaxMessage < 1<<10 {
		f.add(path+".max_message_bytes", "at least 1KiB, or 0 for the topic's own limit")
	}
	switch {
	case s.Oversize == "dead_letter" && s.DeadLetter == "":
		f.add(path+".dead_letter_topic", "dead_letter needs the topic that takes the whole messages")
	case s.Oversize == "dead_letter" && (s.DeadLetter == s.Topic || s.DeadLetter == s.DDLTopic):
		f.add(path+".dead_letter_topic", "must be another than topic and ddl_topic")
	case s.Oversize != "dead_letter" && s.DeadLetter != "":
		f.add(path+".dead_letter_topic", "is used with oversize: dead_letter only")
	}
	if s.File != nil && s.Oversize != "stop" && s.MaxMessage == 0 {
		f.add(path+".max_message_bytes", "a file has no limit of its own: oversize: %s needs one", s.Oversize)
	}
	if s.File != nil && s.File.ValuesOnly && s.Oversize == "split" {
		f.add(path+".oversize", "split needs the headers, which file.values_only leaves out")
	}
}

func (f *faults) kafka(path string, k *Kafka) {
	if len(k.Brokers) == 0 {
		f.add(path+".brokers", "at least one host:port is needed")
	}
	for i, b := range k.Brokers {
		f.address(fmt.Sprintf("%s.brokers[%d]", path, i), b)
	}
	f.positive(path+".request_timeout", k.RequestTimeout)
	f.oneOf(path+".delivery", k.Delivery, "at_least_once", "sequenced", "transactional")
	f.transactions(path, k)
	f.oneOf(path+".compression", k.Compression, "none", "gzip", "snappy", "lz4", "zstd")
	f.tls(path+".tls", k.TLS)
	if s := k.SASL; s != nil {
		f.oneOf(path+".sasl.mechanism", s.Mechanism, "plain", "scram-sha-256", "scram-sha-512")
		if s.User == "" {
			f.add(path+".sasl.user", "a user is needed")
		}
	}
	if k.Topics.Partitions < 0 {
		f.add(path+".topics.partitions", "must be positive, or 0 for the broker's default")
	}
	if k.Topics.ReplicationFactor < 0 {
		f.add(path+".topics.replication_factor", "must be positive, or 0 for the broker's default")
	}
}

// transactions checks what only delivery: transactional has.
func (f *faults) transactions(path string, k *Kafka) {
	if k.Delivery != "transactional" {
		for key, set := range map[string]bool{"commit_interval": k.CommitInterval != 0, "max_transaction_bytes": k.MaxTransactionBytes != 0, "transaction_timeout": k.TransactionTimeout != 0} {
			if set {
				f.add(path+"."+key, "needs delivery: transactional")
			}
		}
		return
	}
	timeout := k.TransactionTimeout.Value()
	if timeout < time.Second || timeout > 15*time.Minute {
		f.add(path+".transaction_timeout", "1s to 15m; brokers refuse more than their transaction.max.timeout.ms")
	}
	if i := k.CommitInterval.Value(); i < time.Millisecond || i > timeout/2 {
		f.add(path+".commit_interval", "1ms to half of transaction_timeout")
	}
}

func (f *faults) pulsar(path string, p *Pulsar) {
	f.url(path+".url", p.URL, "pulsar://host:port or pulsar+ssl://host:port", "pulsar://", "pulsar+ssl://")
	if p.AdminURL != "" {
		f.url(path+".admin_url", p.AdminURL, "http://host:port", "http://", "https://")
	}
	f.oneOf(path+".producer", p.Producer, "client", "wire")
	if p.Batching && p.Producer != "wire" {
		f.add(path+".batching", "needs producer: wire; the client's batches are not exact across a restart")
	}
	f.oneOf(path+".compression", p.Compression, "none", "lz4", "zlib", "zstd", "snappy")
	if p.Watchdog < Duration(time.Second) {
		f.add(path+".watchdog", "at least 1s is needed")
	}
	if p.IdleTimeout < Duration(time.Second) || p.IdleTimeout >= p.DeduplicationWindow {
		f.add(path+".idle_timeout", "must be at least 1s and below deduplication_window")
	}
	if p.MaxProducers < 1 {
		f.add(path+".max_producers", "must be positive")
	}
	f.tls(path+".tls", p.TLS)
	if p.Topics.Partitions < 1 {
		f.add(path+".topics.partitions", "must be positive")
	}
}
