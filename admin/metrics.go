package admin

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// Metric describes one metric that a destination or sink shows.
type Metric struct {
	Name    string // as OpenTelemetry knows it; Prometheus appends _total to counters
	Help    string
	Counter bool
	Float   bool
	dest    func(*Destination) (float64, bool)
	sink    func(*Sink) (float64, bool)
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func always(f func(*Destination) int64) func(*Destination) (float64, bool) {
	return func(d *Destination) (float64, bool) { return float64(f(d)), true }
}

func snapshot(f func(*Snapshot) int64) func(*Destination) (float64, bool) {
	return func(d *Destination) (float64, bool) {
		if d.Snapshot == nil {
			return 0, false
		}
		return float64(f(d.Snapshot)), true
	}
}

func sinkValue(f func(*Sink) int64) func(*Sink) (float64, bool) {
	return func(s *Sink) (float64, bool) { return float64(f(s)), true }
}

// Metrics lists every metric; docs/operations.md describes them.
var Metrics = []Metric{
	{Name: "binlogmq_destination_up", Help: "1 while the destination works", dest: func(d *Destination) (float64, bool) { return flag(d.Error == ""), true }},
	{Name: "binlogmq_lease_owner", Help: "1 while this process owns the destination", dest: func(d *Destination) (float64, bool) { return flag(d.Owner), true }},
	{Name: "binlogmq_lease_epoch", Help: "number of the lease that this process has or had last; 0 where there is only ever one", dest: always(func(d *Destination) int64 { return d.Epoch })},
	{Name: "binlogmq_meta_connected", Help: "1 while the store of cursors can be reached", dest: func(d *Destination) (float64, bool) { return flag(d.Meta), true }},
	{Name: "binlogmq_source_lost_positions", Help: "how often on_lost_position was obeyed: changes are missing then", Counter: true, dest: always(func(d *Destination) int64 { return d.Lost })},
	{Name: "binlogmq_source_skipped_transactions", Help: "transactions passed over by the operator's order", Counter: true, dest: always(func(d *Destination) int64 { return d.Skipped })},
	{Name: "binlogmq_source_passed_statements", Help: "statement-format DML passed over: row changes are missing", Counter: true, dest: always(func(d *Destination) int64 { return d.PassedDML })},
	{Name: "binlogmq_source_unread_rows", Help: "row changes of tables that cannot be read, passed over by the main reader: they are missing", Counter: true, dest: always(func(d *Destination) int64 { return d.Unread })},
	{Name: "binlogmq_source_connected", Help: "1 while the binlog stream is connected", dest: func(d *Destination) (float64, bool) { return flag(d.Connected), true }},
	{Name: "binlogmq_source_read_bytes", Help: "binlog bytes read", Counter: true, dest: always(func(d *Destination) int64 { return d.Bytes })},
	{Name: "binlogmq_source_events", Help: "binlog events read", Counter: true, dest: always(func(d *Destination) int64 { return d.Events })},
	{Name: "binlogmq_source_rows", Help: "row changes captured", Counter: true, dest: always(func(d *Destination) int64 { return d.Rows })},
	{Name: "binlogmq_source_reconnects", Help: "binlog connections lost and made again", Counter: true, dest: always(func(d *Destination) int64 { return d.Reconnects })},
	{Name: "binlogmq_lag_seconds", Help: "age of the oldest change that some sink has not acknowledged; 0 when there is none", Float: true,
		dest: func(d *Destination) (float64, bool) { return d.LagSeconds, d.LagKnown }},
	{Name: "binlogmq_lag_bytes", Help: "binlog bytes that the source has written and binlogmq has not read", dest: func(d *Destination) (float64, bool) { return float64(d.LagBytes), d.LagKnown }},
	{Name: "binlogmq_ring_events", Help: "events held between source and slowest sink", dest: always(func(d *Destination) int64 { return d.RingEvents })},
	{Name: "binlogmq_ring_bytes", Help: "bytes held between source and slowest sink", dest: always(func(d *Destination) int64 { return d.RingBytes })},
	{Name: "binlogmq_ring_limit_bytes", Help: "bound on the bytes held", dest: always(func(d *Destination) int64 { return d.RingLimit })},
	{Name: "binlogmq_snapshot_up", Help: "0 while a snapshot cannot go on", dest: snapshot(func(s *Snapshot) int64 { return int64(flag(s.Error == "")) })},
	{Name: "binlogmq_snapshot_queue", Help: "snapshots that are ordered and not finished, with the one that is being read", dest: snapshot(func(s *Snapshot) int64 { return int64(len(s.Queue)) })},
	{Name: "binlogmq_snapshot_tables", Help: "tables of the snapshot that is being read", dest: snapshot(func(s *Snapshot) int64 { return s.Tables })},
	{Name: "binlogmq_snapshot_tables_done", Help: "those of them that are read to their end", dest: snapshot(func(s *Snapshot) int64 { return s.Done })},
	{Name: "binlogmq_snapshot_rows", Help: "rows of the snapshot that is being read, handed on so far", dest: snapshot(func(s *Snapshot) int64 { return s.Rows })},
	{Name: "binlogmq_snapshot_pending_chunks", Help: "chunks of snapshots that are kept until every cursor is well past them", dest: snapshot(func(s *Snapshot) int64 { return s.Chunks })},
	{Name: "binlogmq_snapshot_pending_bytes", Help: "what these chunks take in the store of cursors", dest: snapshot(func(s *Snapshot) int64 { return s.Bytes })},
	{Name: "binlogmq_sink_up", Help: "1 while the sink works", sink: func(s *Sink) (float64, bool) { return flag(s.Healthy()), true }},
	{Name: "binlogmq_sink_rows", Help: "row changes whose messages the broker has confirmed", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Rows })},
	{Name: "binlogmq_sink_messages", Help: "messages that the broker has confirmed", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Messages })},
	{Name: "binlogmq_sink_bytes", Help: "keys, values and headers of confirmed messages, before compression", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Bytes })},
	{Name: "binlogmq_sink_in_flight_messages", Help: "messages handed to the sink and not confirmed", sink: sinkValue(func(s *Sink) int64 { return s.InFlight })},
	{Name: "binlogmq_sink_in_flight_bytes", Help: "bytes handed to the sink and not confirmed", sink: sinkValue(func(s *Sink) int64 { return s.FlightBytes })},
	{Name: "binlogmq_sink_retries", Help: "requests to the broker that were repeated", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Retries })},
	{Name: "binlogmq_sink_commits", Help: "Kafka transactions committed (delivery: transactional)", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Commits })},
	{Name: "binlogmq_sink_spread_transactions", Help: "source transactions that took several Kafka transactions", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Spread })},
	{Name: "binlogmq_sink_hanging_partitions", Help: "partitions whose read_committed consumers are held up by a transaction that nobody ends", sink: sinkValue(func(s *Sink) int64 { return s.Hanging })},
	{Name: "binlogmq_sink_rollbacks", Help: "times the sink began again at its acknowledged position", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Rollbacks })},
	{Name: "binlogmq_sink_stubs", Help: "messages above the limit that were sent without their largest columns", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Stubs })},
	{Name: "binlogmq_sink_splits", Help: "messages above the limit that were sent in parts", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.Splits })},
	{Name: "binlogmq_sink_dead_letters", Help: "messages above the limit that went whole to the dead letter topic, a stub in their place", Counter: true, sink: sinkValue(func(s *Sink) int64 { return s.DeadLetters })},
	{Name: "binlogmq_sink_ordinal", Help: "highest ordinal acknowledged", sink: sinkValue(func(s *Sink) int64 { return s.Ordinal })},
	{Name: "binlogmq_sink_behind", Help: "ordinals read from the source and not acknowledged by the sink", sink: sinkValue(func(s *Sink) int64 { return s.Behind })},
	{Name: "binlogmq_sink_lag_seconds", Help: "age of the oldest change that the sink has not acknowledged; 0 when there is none", Float: true, sink: func(s *Sink) (float64, bool) { return s.LagSeconds, true }},
	{Name: "binlogmq_sink_cursor_age_seconds", Help: "how long the saved cursor is behind the acknowledged one; 0 when equal", Float: true, sink: func(s *Sink) (float64, bool) { return s.CursorAge, true }},
	{Name: "binlogmq_sink_catching_up", Help: "1 while the sink is fed by a reader of its own", sink: func(s *Sink) (float64, bool) { return flag(s.CatchingUp), true }},
}

// meters registers every metric with a provider of its own, which exports to reg.
func meters(reg prometheus.Registerer, report func() Report) (*sdk.MeterProvider, error) {
	exporter, err := otelprom.New(otelprom.WithRegisterer(reg), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("admin: metrics exporter: %w", err)
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(exporter))
	m := provider.Meter("github.com/binlogmq/binlogmq")

	type observe func(metric.Observer, float64, metric.ObserveOption)
	observers := make([]observe, len(Metrics))
	instruments := make([]metric.Observable, len(Metrics))
	for i, d := range Metrics {
		var err error
		switch {
		case d.Counter:
			var g metric.Int64ObservableCounter
			g, err = m.Int64ObservableCounter(d.Name, metric.WithDescription(d.Help))
			instruments[i], observers[i] = g, func(o metric.Observer, v float64, a metric.ObserveOption) { o.ObserveInt64(g, int64(v), a) }
		case d.Float:
			var g metric.Float64ObservableGauge
			g, err = m.Float64ObservableGauge(d.Name, metric.WithDescription(d.Help))
			instruments[i], observers[i] = g, func(o metric.Observer, v float64, a metric.ObserveOption) { o.ObserveFloat64(g, v, a) }
		default:
			var g metric.Int64ObservableGauge
			g, err = m.Int64ObservableGauge(d.Name, metric.WithDescription(d.Help))
			instruments[i], observers[i] = g, func(o metric.Observer, v float64, a metric.ObserveOption) { o.ObserveInt64(g, int64(v), a) }
		}
		if err != nil {
			return nil, fmt.Errorf("admin: metric %s: %w", d.Name, err)
		}
	}
	info, err := m.Int64ObservableGauge("binlogmq_build_info", metric.WithDescription("always 1; labels tell the version"))
	if err != nil {
		return nil, fmt.Errorf("admin: metric binlogmq_build_info: %w", err)
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r := report()
		o.ObserveInt64(info, 1, metric.WithAttributes(attribute.String("version", r.Version)))
		for i := range r.Destinations {
			d := &r.Destinations[i]
			at := metric.WithAttributes(attribute.String("destination", d.Name))
			for k := range Metrics {
				if f := Metrics[k].dest; f != nil {
					if v, known := f(d); known {
						observers[k](o, v, at)
					}
				}
			}
			for j := range d.Sinks {
				s := &d.Sinks[j]
				at := metric.WithAttributes(attribute.String("destination", d.Name), attribute.String("sink", s.Name), attribute.String("kind", s.Kind))
				for k := range Metrics {
					if f := Metrics[k].sink; f != nil {
						if v, known := f(s); known {
							observers[k](o, v, at)
						}
					}
				}
			}
		}
		return nil
	}, append(instruments, info)...)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	return provider, nil
}
