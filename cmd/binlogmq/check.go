package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
	"github.com/binlogmq/binlogmq/sink"
	filesink "github.com/binlogmq/binlogmq/sink/file"
	"github.com/binlogmq/binlogmq/sink/kafka"
)

// checkTimeout bounds each part that check asks.
const checkTimeout = 30 * time.Second

// needRoom is what the meta directory must hold free: cursors are small, but a
// full disk stops them from being saved.
const needRoom = 64 << 20

// checkCommand connects everywhere and lists every finding at once.
func checkCommand(ctx context.Context, args []string, out, errs io.Writer) error {
	f, path := flags("check")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, err := config.Load(*path)
	if err != nil {
		return usageError{err}
	}
	// Findings say what the parts would log; warnings stay visible.
	log := newLogger(config.Log{Level: "error", Format: cfg.Log.Format}, errs)
	c := &checker{out: out}
	fmt.Fprintf(out, "configuration %s is valid\n", *path)
	c.memory(cfg, "/")
	before := c.errors
	if cfg.Meta.ZooKeeper != nil {
		c.within(ctx, func(ctx context.Context) { c.zookeeper(ctx, cfg) })
	} else {
		c.meta(cfg)
	}
	metaTold := cfg.Meta.ZooKeeper != nil || c.errors > before // what is damaged there
	for i := range cfg.Destinations {
		d := &cfg.Destinations[i]
		c.section("destination %s: source %s", d.Name, strings.Join(d.Source.Address, ", "))
		var tables []connector.TableName
		listed := false
		src, err := newConnector(d, known{}, log)
		if err != nil {
			c.add(sink.Finding{Severity: sink.SeverityError, What: err.Error()})
		} else {
			c.within(ctx, func(ctx context.Context) {
				c.source(src.Check(ctx))
				// Without them topics that tables name cannot be looked at; why there are none is told above.
				var err error
				tables, err = src.Tables(ctx, mostTables)
				listed = err == nil
			})
			if d.Snapshots() {
				c.within(ctx, func(ctx context.Context) { c.snapshots(ctx, d, src) })
			}
			c.within(ctx, func(ctx context.Context) {
				if err := c.positions(ctx, cfg, d, src.CheckPosition); err != nil && !metaTold {
					c.add(sink.Finding{Severity: sink.SeverityError, What: err.Error()})
				}
			})
		}
		for j := range d.Sinks {
			s := &d.Sinks[j]
			name, _ := kind(s)
			c.section("destination %s: sink %s (%s)", d.Name, s.Name, name)
			if listed && len(s.Tables)+len(s.KeyColumns) > 0 {
				c.within(ctx, func(ctx context.Context) { c.patterns(ctx, src, s) })
			}
			clean := leaveNoFile(s)
			k, err := newSink(cfg.Deployment, d.Name, s, nil, log)
			if errors.Is(err, filesink.ErrInUse) {
				c.add(sink.Finding{What: "the file is open in a running binlogmq"})
				continue
			}
			if err != nil {
				c.add(sink.Finding{Severity: sink.SeverityError, What: err.Error()})
				continue
			}
			c.within(ctx, func(ctx context.Context) {
				topics, found := topicsOf(s, d.Name, tables)
				if t, ok := k.(topicChecker); ok {
					found = append(found, t.CheckTopics(ctx, topics...)...)
				} else {
					found = append(found, k.Check(ctx)...)
				}
				if len(found) == 0 {
					found = append(found, sink.Finding{What: "reachable, nothing to mend"})
				}
				for _, f := range found {
					c.add(f)
				}
			})
			c.within(ctx, func(ctx context.Context) {
				if err := k.Close(ctx); err != nil {
					c.add(sink.Finding{Severity: sink.SeverityWarning, What: err.Error()})
				}
			})
			clean()
		}
	}
	c.overlaps(cfg)
	fmt.Fprintf(out, "\n%d errors, %d warnings\n", c.errors, c.warnings)
	if c.errors > 0 {
		return errReported
	}
	return nil
}

// patterns looks for patterns of a sink that are about no table: what they are for happens to none, and nothing fails.
func (c *checker) patterns(ctx context.Context, src *connector.Connector, s *config.Sink) {
	lists := [][]string{s.Tables}
	for _, k := range s.KeyColumns {
		lists = append(lists, []string{k.Table})
	}
	unmet, _ := src.Unmet(ctx, lists...) // why it cannot be asked is told of the source
	for _, p := range unmet {
		c.add(sink.Finding{Severity: sink.SeverityWarning, What: fmt.Sprintf("tables or key_columns: %s is about no captured table that is there", p),
			Remedy: "correct it, unless such tables are still to come"})
	}
}

// leaveNoFile returns what removes the file that a file sink makes just by being
// looked at.
func leaveNoFile(s *config.Sink) func() {
	if s.File == nil {
		return func() {}
	}
	if _, err := os.Lstat(s.File.Path); !errors.Is(err, fs.ErrNotExist) {
		return func() {}
	}
	return func() {
		if info, err := os.Lstat(s.File.Path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			_ = os.Remove(s.File.Path)
		}
	}
}

// mostTables bounds the tables whose topics are looked at.
const mostTables = 100

// topicChecker is a sink that can look at topics before they are used.
type topicChecker interface {
	CheckTopics(ctx context.Context, topics ...string) []sink.Finding
}

// topicsOf returns the topics of a sink, as far as they can be known before any row is read, and the tables that can have
// none: rows of those stop the sink.
func topicsOf(s *config.Sink, destination string, tables []connector.TableName) (topics []string, found []sink.Finding) {
	filter, err := tablefilter.New(s.Tables)
	if err != nil {
		return nil, nil // validated
	}
	_, names := kind(s)
	for _, t := range checkTopics(s, destination) {
		if !strings.Contains(t, "{") {
			topics = append(topics, t)
			continue
		}
		topic, err := bridge.Topics(t, destination, names)
		if err != nil {
			return nil, []sink.Finding{{Severity: sink.SeverityError, What: err.Error()}}
		}
		for _, n := range tables {
			if !filter.For(n.Caseless).Match(n.Schema, n.Table) {
				continue
			}
			switch t, err := topic(n.Schema, n.Table); {
			case err != nil:
				found = append(found, sink.Finding{Severity: sink.SeverityError, What: fmt.Sprintf("table %s.%s can have no topic: %v", n.Schema, n.Table, err),
					Remedy: "change the sink's topic template, or keep the table out by the sink's tables"})
			case !slices.Contains(topics, t):
				topics = append(topics, t)
			}
		}
	}
	return topics, found
}

type checker struct {
	out              io.Writer
	errors, warnings int
}

func (c *checker) section(format string, args ...any) { fmt.Fprintf(c.out, "\n"+format+"\n", args...) }

func (c *checker) within(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f(ctx)
}

func (c *checker) add(f sink.Finding) {
	mark := "ok   "
	switch f.Severity {
	case sink.SeverityError:
		mark = "ERROR"
		c.errors++
	case sink.SeverityWarning:
		mark = "warn "
		c.warnings++
	}
	where := ""
	if f.Where != "" {
		where = " [" + f.Where + "]"
	}
	fmt.Fprintf(c.out, "  %s %s%s\n", mark, f.What, where)
	for line := range strings.Lines(f.Remedy) {
		fmt.Fprintf(c.out, "        -> %s\n", strings.TrimRight(line, "\n"))
	}
}

// meta looks at the directory without taking its lock: check may run beside the
// running program.
func (c *checker) meta(cfg *config.Config) {
	dir := cfg.Meta.File.Directory
	c.section("meta directory %s", dir)
	at := dir
	for {
		_, err := os.Stat(at)
		if err == nil {
			break
		}
		up := filepath.Dir(at)
		if !errors.Is(err, fs.ErrNotExist) || up == at {
			c.add(sink.Finding{Severity: sink.SeverityError, What: err.Error(), Remedy: "choose another meta.file.directory"})
			return
		}
		at = up
	}
	probe, err := os.CreateTemp(at, ".binlogmq-check-")
	if err != nil {
		c.add(sink.Finding{Severity: sink.SeverityError, What: fmt.Sprintf("cannot write: %v", err), Remedy: "make it a directory that the user that runs binlogmq can write to, or choose another meta.file.directory"})
		return
	}
	_ = probe.Close()
	_ = os.Remove(probe.Name())
	free, err := file.FreeBytes(at)
	switch {
	case err != nil:
		c.add(sink.Finding{Severity: sink.SeverityWarning, What: err.Error()})
	case free < needRoom:
		c.add(sink.Finding{Severity: sink.SeverityError, What: fmt.Sprintf("only %d MiB are free", free>>20), Remedy: fmt.Sprintf("free at least %d MiB, or choose another meta.file.directory", needRoom>>20)})
	default:
		c.add(sink.Finding{What: fmt.Sprintf("writable, %d MiB free", free>>20)})
	}
}

// source adds what was found at the source.
func (c *checker) source(found []connector.Finding) {
	for _, f := range found {
		c.add(sink.Finding{Severity: f.Severity.String(), What: f.What, Where: f.Address, Remedy: f.Remedy})
	}
}

// snapshots asks the source whether it lets tables be read.
func (c *checker) snapshots(ctx context.Context, d *config.Destination, src *connector.Connector) {
	tables, err := tablefilter.New(d.Snapshot.Tables)
	if err != nil {
		return // validated
	}
	c.source(src.CheckSnapshots(ctx, tables))
}

// positions asks the source whether it still has the places where cursors stand. Its error is of the store.
func (c *checker) positions(ctx context.Context, cfg *config.Config, d *config.Destination, ask func(context.Context, event.Position) (known bool, err error)) error {
	away := false
	_, err := eachRecord(ctx, cfg, d.Name, func(id meta.Identity, r *meta.Record) error {
		if away || !configured(cfg, id) && (cfg.Canal == nil || strings.HasPrefix(id.Client, sinkPrefix)) {
			return nil
		}
		at := r.Cursor.Position
		if at.File == "" && at.GTIDs.IsEmpty() {
			return nil
		}
		known, err := ask(ctx, at)
		if !known {
			away = true // told above; the others' turn would take as long
			return nil
		}
		f := sink.Finding{What: fmt.Sprintf("%s can go on at %s", id, positionText(at))}
		var stop *connector.StopError
		switch {
		case errors.As(err, &stop):
			f = sink.Finding{Severity: sink.SeverityError, What: fmt.Sprintf("%s: %s", id, stop.What), Remedy: stop.Remedy}
			if stop.Err != nil {
				f.What += ": " + stop.Err.Error()
			}
			gone := errors.Is(err, event.ErrPurged) || errors.Is(err, event.ErrNoPosition)
			switch {
			case gone && d.OnLostPosition != config.LostStop:
				f.Severity = sink.SeverityWarning
				f.Remedy += "\nor let it go on by itself, as on_lost_position: " + d.OnLostPosition + " says"
			case transactional(d, id):
				f.Severity = sink.SeverityWarning
				f.What += " (this is a copy: the cursor topic tells where the sink goes on)"
			}
		case err != nil:
			f = sink.Finding{Severity: sink.SeverityWarning, What: fmt.Sprintf("%s: whether it can go on at %s is not known: %v", id, positionText(at), err)}
		}
		c.add(f)
		return nil
	})
	return err
}

// transactional tells whether the cursor of a sink is kept in Kafka.
func transactional(d *config.Destination, id meta.Identity) bool {
	return slices.ContainsFunc(d.Sinks, func(s config.Sink) bool {
		return clientOf(d.Name, s.Name) == id && s.Kafka != nil && s.Kafka.Delivery == kafka.Transactional
	})
}

// zookeeper looks what is kept there, without taking anything: check may run beside the running program.
func (c *checker) zookeeper(ctx context.Context, cfg *config.Config) {
	c.section("meta ZooKeeper %s", strings.Join(cfg.Meta.ZooKeeper.Servers, ", "))
	n, err := eachRecord(ctx, cfg, "", func(meta.Identity, *meta.Record) error { return nil })
	if err != nil {
		c.add(sink.Finding{Severity: sink.SeverityError, What: err.Error()})
		return
	}
	c.add(sink.Finding{What: fmt.Sprintf("reachable, %d cursors below %s/%s", n, cfg.Meta.ZooKeeper.Root, cfg.Deployment)})
}

// overlaps finds Pulsar sinks whose topics may coincide: a topic has one
// exclusive producer.
func (c *checker) overlaps(cfg *config.Config) {
	seen := map[string]string{}
	for i := range cfg.Destinations {
		d := &cfg.Destinations[i]
		for j := range d.Sinks {
			s := &d.Sinks[j]
			if s.Pulsar == nil {
				continue
			}
			name := d.Name + "/" + s.Name
			k := s.Pulsar.URL + " " + strings.ReplaceAll(s.Topic, "{destination}", d.Name)
			if other, ok := seen[k]; ok {
				c.section("sinks %s and %s", other, name)
				c.add(sink.Finding{Severity: sink.SeverityError, What: "both may publish to the same Pulsar topic, which takes one exclusive producer",
					Remedy: "put {destination} or a literal of its own into the topic of one of them"})
			}
			seen[k] = name
		}
	}
}
