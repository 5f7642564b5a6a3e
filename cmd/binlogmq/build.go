package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/debezium"
	"github.com/binlogmq/binlogmq/codec/maxwell"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/file"
	"github.com/binlogmq/binlogmq/sink/kafka"
	"github.com/binlogmq/binlogmq/sink/pulsar"
)

// newLogger writes the program's log to w.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // validated
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// known is what is saved of a destination that those who read it must know. All may be nil.
type known struct {
	history   *schema.History
	snapshots *snapshot.Log
	skips     map[event.GTID]int64
}

// newConnector makes the database side of a destination. It does not connect.
func newConnector(d *config.Destination, k known, log *slog.Logger) (*connector.Connector, error) {
	return newReader(d, k, log, 0)
}

// newReader is newConnector for what reads beside the destination's own: each with a number.
func newReader(d *config.Destination, k known, log *slog.Logger, number int) (*connector.Connector, error) {
	tables, err := tablefilter.New(d.Tables)
	if err != nil {
		return nil, err
	}
	tls, err := d.Source.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("destination %s: source.%w", d.Name, err)
	}
	from := d.Schema
	if from == config.SchemaFormer {
		if from = schema.FromHistory; number == 0 {
			log.Warn("schema: information_schema means the same as none: leave it out", "destination", d.Name)
		}
	}
	start := d.Start
	if start == config.StartSnapshot {
		start = "latest" // what is there already is read beside the stream
	}
	c, err := connector.New(connector.Options{
		Destination: d.Name,
		Addresses:   d.Source.Address,
		User:        d.Source.User,
		Password:    d.Source.Password.Reveal(),
		TLS:         tls,
		Tables:      tables,
		Snapshots:   k.snapshots,
		Skips:       k.skips,
		Start:       start,
		Reader:      number,
		ServerID:    d.Source.ServerID,
		SchemaFrom:  from,
		AllVersions: d.Versioned == config.VersionedRaw,
		PassDML:     d.StatementFormat == config.StatementSkip,
		PassTables:  d.OnTableError == config.TableSkip,
		History:     k.history,
		Heartbeat:   d.Source.Heartbeat.Value(),
		DialTimeout: d.Source.DialTimeout.Value(),
		MaxEvent:    int(d.Source.MaxEvent),
		Snapshot: connector.SnapshotOptions{
			ChunkBytes: int(d.Snapshot.ChunkBytes), RowsPerSecond: int(d.Snapshot.RowsPerSecond), MaxPending: int64(d.Snapshot.MaxPending),
		},
		Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("destination %s: %w", d.Name, err)
	}
	return c, nil
}

// publisher is a sink with what check asks of it.
type publisher interface {
	sink.Sink
	Check(ctx context.Context) []sink.Finding
}

// newSink makes the broker side of a sink. It does not wait for the broker. owner is nil where nothing is sent.
func newSink(deployment, destination string, s *config.Sink, owner func() error, log *slog.Logger) (publisher, error) {
	named := log.With("destination", destination, "sink", s.Name) // which Pulsar's sink does by itself
	where := func(err error) error {
		if err != nil {
			err = fmt.Errorf("destination %s, sink %s: %w", destination, s.Name, err)
		}
		return err
	}
	switch {
	case s.Kafka != nil:
		k := s.Kafka
		tls, err := k.TLS.Client()
		if err != nil {
			return nil, where(fmt.Errorf("kafka.%w", err))
		}
		o := kafka.Options{
			Brokers: k.Brokers, Delivery: k.Delivery, ClientID: "binlogmq", TLS: tls, Compression: k.Compression,
			Deployment: deployment, Destination: destination, Sink: s.Name, Owner: owner,
			Topics: kafka.Topics{
				Create: *k.Topics.Create, Partitions: k.Topics.Partitions, ReplicationFactor: k.Topics.ReplicationFactor, Configs: k.Topics.Configs,
			},
			MaxInFlightBytes: int64(s.Window), BatchBytes: int(k.BatchBytes), RequestTimeout: k.RequestTimeout.Value(), Logger: named,
			CommitInterval: k.CommitInterval.Value(), MaxTransactionBytes: int64(k.MaxTransactionBytes), TransactionTimeout: k.TransactionTimeout.Value(),
		}
		if a := k.SASL; a != nil {
			o.SASL = &kafka.SASL{Mechanism: a.Mechanism, User: a.User, Password: a.Password.Reveal()}
		}
		p, err := kafka.New(o)
		return p, where(err)
	case s.Pulsar != nil:
		p := s.Pulsar
		tls, err := p.TLS.Client()
		if err != nil {
			return nil, where(fmt.Errorf("pulsar.%w", err))
		}
		q, err := pulsar.New(pulsar.Options{
			Owner: owner,
			URL:   p.URL, AdminURL: p.AdminURL, Token: p.Token.Reveal(), TLS: tls,
			Deployment: deployment, Destination: destination, Sink: s.Name,
			Topics:   pulsar.Topics{Create: *p.Topics.Create, Partitions: p.Topics.Partitions},
			Producer: p.Producer, Batching: p.Batching,
			Compression: p.Compression, MaxInFlightBytes: int64(s.Window), WithoutDeduplication: !*p.RequireDeduplication,
			CheckTopics:     checkTopics(s, destination),
			WatchdogTimeout: p.Watchdog.Value(), MaxMessageBytes: int(p.MaxMessageBytes), Logger: log,
			DeduplicationWindow: p.DeduplicationWindow.Value(), IdleTimeout: p.IdleTimeout.Value(), MaxProducers: p.MaxProducers,
		})
		return q, where(err)
	case s.File != nil:
		f, err := file.New(file.Options{Path: s.File.Path, ValuesOnly: s.File.ValuesOnly, NoSync: !*s.File.Sync, MaxInFlightBytes: int64(s.Window), Logger: named})
		return f, where(err)
	}
	return nil, where(errors.New("no kind of sink is given"))
}

// checkTopics names the topics that check looks at, as far as they are known before any table is.
func checkTopics(s *config.Sink, destination string) []string {
	topics := []string{strings.ReplaceAll(s.Topic, "{destination}", destination)}
	for _, t := range []string{s.DDLTopic, s.DeadLetter} {
		if t != "" {
			topics = append(topics, strings.ReplaceAll(t, "{destination}", destination))
		}
	}
	return topics
}

// kind names what newSink makes, and the rules for its topic names.
func kind(s *config.Sink) (string, bridge.Names) {
	switch {
	case s.Kafka != nil:
		return "kafka", bridge.KafkaNames
	case s.Pulsar != nil:
		return "pulsar", bridge.PulsarNames
	}
	return "file", bridge.AnyNames
}

// codecID identifies a codec with every option that changes its output. It is part of the recipe: its JSON must stay the
// same for the same options. The structures are those of the configuration.
type codecID struct {
	Name      string                `json:"name"`
	TimeZone  string                `json:"time_zone"`
	CanalJSON *config.CanalJSON     `json:"canal_json,omitempty"`
	CanalPB   *config.CanalProtobuf `json:"canal_protobuf,omitempty"`
	Maxwell   *config.Maxwell       `json:"maxwell,omitempty"`
	Debezium  *config.Debezium      `json:"debezium,omitempty"`

	Definitions bool `json:"ddl_definitions,omitempty"`
}

// identify writes the identity of a sink's codec.
func identify(s *config.Sink) (string, error) {
	id := codecID{Name: s.Codec, TimeZone: s.TimeZone}
	switch s.Codec {
	case "canal-json":
		id.CanalJSON = &s.CanalJSON
	case "canal-protobuf":
		id.CanalPB = &s.CanalProtobuf
	case "maxwell":
		id.Maxwell, id.Definitions = &s.Maxwell, *s.Definitions
	case "debezium":
		id.Debezium, id.Definitions = &s.Debezium, *s.Definitions
	}
	b, err := json.Marshal(&id)
	return string(b), err
}

// identified sets the codec of s to the one with the identity.
func identified(s *config.Sink, text string) error {
	var id codecID
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&id); err != nil {
		return fmt.Errorf("%w: codec %q: %w", bridge.ErrRecipe, text, err)
	}
	s.Codec, s.TimeZone, s.Definitions = id.Name, id.TimeZone, &id.Definitions
	if id.CanalJSON != nil {
		s.CanalJSON = *id.CanalJSON
	}
	if id.CanalPB != nil {
		s.CanalProtobuf = *id.CanalPB
	}
	if id.Maxwell != nil {
		s.Maxwell = *id.Maxwell
	}
	if id.Debezium != nil {
		s.Debezium = *id.Debezium
	}
	if again, err := identify(s); err != nil || again != text {
		return fmt.Errorf("%w: this version has no codec %s", bridge.ErrRecipe, text)
	}
	return nil
}

// newCodec makes the codec.
func newCodec(s *config.Sink) (codec.Codec, error) {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return nil, err
	}
	switch s.Codec {
	case "canal-json":
		return canaljson.New(canaljson.Options{Binary: s.CanalJSON.Binary, Enum: s.CanalJSON.Enum, Location: zone})
	case "canal-protobuf":
		return newCanalEncoder(s.CanalProtobuf.Enum, zone)
	case "maxwell":
		m := &s.Maxwell
		return maxwell.New(maxwell.Options{
			Nulls: *m.Nulls, CommitInfo: *m.CommitInfo, XOffset: *m.Xoffset, BinlogPosition: m.BinlogPosition, GTIDPosition: m.GTIDPosition,
			ServerID: m.ServerID, ThreadID: m.ThreadID, PrimaryKeys: m.PrimaryKeys, PrimaryKeyColumns: m.PrimaryKeyColumns,
			NullZeroDates: m.NullZeroDates, KeyFormat: m.KeyFormat, Definitions: *s.Definitions, Location: zone,
		})
	case "debezium":
		d := &s.Debezium
		return debezium.New(debezium.Options{
			Name: d.Prefix, Schemas: *d.Schemas, Decimal: d.Decimal, Time: d.Time, BigintUnsigned: d.BigintUnsigned, Binary: d.Binary, Failure: d.Failure, Skipped: d.Skipped, Definitions: *s.Definitions,
		})
	}
	return nil, fmt.Errorf("no codec %q", s.Codec)
}

// delivery names the kind of a sink and how it delivers.
func delivery(s *config.Sink) string {
	name, _ := kind(s)
	if s.Kafka != nil {
		name += " " + s.Kafka.Delivery
	}
	return name
}

// exact says whether the broker recognises what is sent again by its number, so that a replay must equal what was sent.
func exact(s *config.Sink) bool {
	return s.Kafka != nil && s.Kafka.Delivery != kafka.AtLeastOnce || s.Pulsar != nil && *s.Pulsar.RequireDeduplication
}

// bridgeOptions are those of the bridge that joins a subscription, a codec and a sink.
func bridgeOptions(d *config.Destination, s *config.Sink, c bridge.Client, out sink.Sink, drain time.Duration, log *slog.Logger) (bridge.Options, error) {
	fail := func(err error) (bridge.Options, error) {
		return bridge.Options{}, fmt.Errorf("destination %s, sink %s: %w", d.Name, s.Name, err)
	}
	cd, err := newCodec(s)
	if err != nil {
		return fail(err)
	}
	id, err := identify(s)
	if err != nil {
		return fail(err)
	}
	key, err := bridge.ParseKey(s.Key)
	if err != nil {
		return fail(err)
	}
	change, err := bridge.ParseKeyChange(s.KeyChange)
	if err != nil {
		return fail(err)
	}
	statements, err := bridge.ParseDDL(s.DDL)
	if err != nil {
		return fail(err)
	}
	oversize, err := bridge.ParseOversize(s.Oversize)
	if err != nil {
		return fail(err)
	}
	var columns []bridge.KeyColumns
	for _, k := range s.KeyColumns {
		columns = append(columns, bridge.KeyColumns{Tables: []string{k.Table}, Columns: k.Columns})
	}
	_, names := kind(s)
	return bridge.Options{
		Destination: d.Name, Name: s.Name, Client: c, Sink: out, Codec: cd, Delivery: delivery(s), Exact: exact(s),
		CodecID: id, Tables: d.Tables, AllVersions: d.Versioned == config.VersionedRaw, Filter: filterText(s), Topic: s.Topic, DDLTopic: s.DDLTopic, DDL: statements, Key: key, KeyColumns: columns, KeyChange: change,
		Oversize: oversize, MaxMessageBytes: int(s.MaxMessage), DeadLetterTopic: s.DeadLetter,
		Tombstones: *s.Tombstones, Names: names, Headers: *s.Headers, Workers: s.Workers, WindowBytes: int64(s.Window), Born: time.Now(), DrainTimeout: drain, Logger: log,
	}, nil
}

func serverOptions(d *config.Destination) server.DestinationOptions {
	detach := d.DetachAfter.Value()
	if detach == 0 {
		detach = -1
	}
	return server.DestinationOptions{RingEvents: d.Ring.Events, RingBytes: int64(d.Ring.Bytes), DetachAfter: detach}
}
