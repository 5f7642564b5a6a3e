package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
)

func snapshotCommand(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "start":
			return snapshotStart(ctx, args[1:], out)
		case "status":
			return snapshotStatus(ctx, args[1:], out)
		case "cancel":
			return snapshotCancel(ctx, args[1:], out)
		}
	}
	return usageError{fmt.Errorf("snapshot: start, status or cancel is needed\n%s", usage)}
}

// lists splits what a flag holds at its commas.
func lists(text string) (all []string) {
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}

// snapshotStart orders a snapshot: from the process that runs the destination, or for the next one that will.
func snapshotStart(ctx context.Context, args []string, out io.Writer) error {
	f, path := flags("snapshot start")
	name := f.String("destination", "", "")
	tables := f.String("tables", "", "")
	sinks := f.String("sinks", "", "")
	at := f.String("admin", "", "")
	o := admin.SnapshotOrder{}
	f.Func("where", "", func(text string) error {
		table, cond, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("it is not of the form SCHEMA.TABLE=CONDITION")
		}
		if o.Where == nil {
			o.Where = map[string]string{}
		}
		o.Where[strings.TrimSpace(table)] = strings.TrimSpace(cond)
		return nil
	})
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, d, err := load(f.Name(), *path, *name)
	if err != nil {
		return err
	}
	o.Tables, o.Sinks = lists(*tables), lists(*sinks)
	r, err := requestOf(d, &o)
	if err != nil {
		return usageError{fmt.Errorf("snapshot start: %w", err)}
	}
	s, free, err := takeStore(ctx, cfg, d.Name)
	if running(err) {
		var a admin.Answer
		if err := ask(ctx, f.Name(), cfg, *at, err, http.MethodPost, d.Name, "", &o, &a); err != nil {
			return err
		}
		fmt.Fprintf(out, "snapshot %s is ordered; the running process carries it out\n", a.ID)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = free() }()
	if err := newSnapshots(s, d.Name).Order(ctx, r); err != nil {
		return err
	}
	fmt.Fprintf(out, "snapshot %s is ordered; it is carried out when binlogmq runs\n", r.ID)
	return nil
}

// snapshotCancel takes one snapshot off the queue, or all.
func snapshotCancel(ctx context.Context, args []string, out io.Writer) error {
	f, path := flags("snapshot cancel")
	name := f.String("destination", "", "")
	id := f.String("id", "", "")
	at := f.String("admin", "", "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, d, err := load(f.Name(), *path, *name)
	if err != nil {
		return err
	}
	s, free, err := takeStore(ctx, cfg, d.Name)
	switch {
	case running(err):
		err = ask(ctx, f.Name(), cfg, *at, err, http.MethodPost, d.Name, "/cancel", &admin.CancelOrder{ID: *id}, new(admin.Answer))
	case err == nil:
		defer func() { _ = free() }()
		l := newSnapshots(s, d.Name)
		if err = l.Load(ctx); err == nil && *id == "" && len(l.Status().Queue) == 0 {
			err = fmt.Errorf("snapshot cancel: destination %s: %w", d.Name, errNoneOrdered)
		}
		if err == nil {
			err = l.Cancel(ctx, *id)
		}
	}
	if err != nil {
		return err
	}
	which := "snapshot " + *id + " is"
	if *id == "" {
		which = "all snapshots of destination " + d.Name + " are"
	}
	fmt.Fprintf(out, "%s cancelled; rows that are in the stream already stay there\n", which)
	return nil
}

// snapshotStatus shows what is ordered: from the process that runs the destination if it answers, else what is saved.
func snapshotStatus(ctx context.Context, args []string, out io.Writer) (err error) {
	f, path := flags("snapshot status")
	name := f.String("destination", "", "")
	at := f.String("admin", "", "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, err := config.Load(*path)
	if err != nil {
		return usageError{err}
	}
	if *name != "" {
		if _, err := pick(cfg, *name); err != nil {
			return usageError{fmt.Errorf("snapshot status: %w", err)}
		}
	}
	docs, closeIt, err := lookStore(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(looked(cfg, err), closeIt()) }()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	for i := range cfg.Destinations {
		d := cfg.Destinations[i].Name
		if *name != "" && d != *name {
			continue
		}
		shown := new(admin.Snapshot)
		err := errNoAdmin
		if adminURL(cfg, *at) != "" {
			err = ask(ctx, f.Name(), cfg, *at, nil, http.MethodGet, d, "", nil, shown)
		}
		if err == nil {
			showSnapshot(out, d, "", shown)
			continue
		}
		if *at != "" {
			return err
		}
		s, ok := docs.(historyStore)
		if !ok { // nothing is saved at all
			fmt.Fprintf(out, "%s: no snapshot is ordered\n", d)
			continue
		}
		l := newSnapshots(s, d)
		if err := l.Load(ctx); err != nil {
			return err
		}
		showSnapshot(out, d, "as saved: ", reportSnapshot(l.Status(), connector.Snapshot{}))
	}
	return nil
}

func showSnapshot(out io.Writer, destination, saved string, s *admin.Snapshot) {
	fmt.Fprintf(out, "%s: %s", destination, saved)
	switch {
	case len(s.Queue) == 0:
		fmt.Fprint(out, "no snapshot is ordered")
	case saved != "":
		fmt.Fprintf(out, "%d ordered", len(s.Queue))
	default:
		fmt.Fprintf(out, "%s, %d of %d tables done, %d rows", s.State, s.Done, s.Tables, s.Rows)
		if s.Table != "" {
			fmt.Fprintf(out, ", at table %s", s.Table)
		}
	}
	if s.Finished != "" {
		fmt.Fprintf(out, "; finished last: %s", s.Finished)
	}
	fmt.Fprintln(out)
	for _, q := range s.Queue {
		fmt.Fprintf(out, "  %s  ordered %s (%s), for %s\n", q.ID, q.At, q.Reason, subscriptionsText(q.Sinks))
		if len(q.Tables) > 0 {
			fmt.Fprintf(out, "    tables %s\n", strings.Join(q.Tables, ", "))
		}
		for table, cond := range q.Where {
			fmt.Fprintf(out, "    where  %s: %s\n", table, cond)
		}
	}
	if s.Chunks > 0 {
		fmt.Fprintf(out, "  pending  %d chunks, %d bytes: kept until every cursor is well past them", s.Chunks, s.Bytes)
		if s.Waits != "" {
			fmt.Fprintf(out, "; the last one is %s", s.Waits)
		}
		fmt.Fprintln(out)
	}
	if s.Warning != "" {
		fmt.Fprintf(out, "  warning  %s\n", s.Warning)
	}
	if s.Error != "" {
		fmt.Fprintf(out, "  error    %s\n", s.Error)
	}
}

// running tells whether a process owns the destination.
func running(err error) bool {
	var locked *file.LockedError
	var owned *meta.OwnedError
	return errors.As(err, &locked) || errors.As(err, &owned)
}

var errNoAdmin = errors.New("no address of the running process is known: set admin.listen, or give --admin URL")

// adminURL returns where the running process takes orders; "": it is not known.
func adminURL(cfg *config.Config, flag string) string {
	if flag != "" {
		if !strings.Contains(flag, "://") {
			flag = "http://" + flag
		}
		return strings.TrimRight(flag, "/")
	}
	host, port, err := net.SplitHostPort(cfg.Admin.Listen)
	if err != nil || port == "0" {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// askTimeout bounds what a command waits for the running process.
const askTimeout = 30 * time.Second

// ask has the running process do something about the snapshots of a destination. owner is what says that it runs; it may be nil.
func ask(ctx context.Context, command string, cfg *config.Config, at string, owner error, method, destination, what string, body, answer any) error {
	fail := func(err error) error { return fmt.Errorf("%s: destination %s: %w", command, destination, err) }
	base := adminURL(cfg, at)
	if base == "" {
		return fail(fmt.Errorf("%w (%w)", errNoAdmin, owner))
	}
	var data io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fail(err)
		}
		data = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, base+"/api/destinations/"+url.PathEscape(destination)+"/snapshot"+what, data)
	if err != nil {
		return fail(err)
	}
	q.Header.Set("Content-Type", "application/json")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Do(q)
	if err != nil {
		if owner != nil {
			err = fmt.Errorf("%w (%w); give the address of the process that runs it with --admin URL", err, owner)
		}
		return fail(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		return fail(err)
	}
	if r.StatusCode >= 300 {
		var a admin.Answer
		if json.Unmarshal(text, &a) != nil || a.Error == "" {
			a.Error = "it is not what binlogmq serves: check the address"
		}
		return fail(fmt.Errorf("%s answers %s: %s", base, r.Status, a.Error))
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fail(fmt.Errorf("%s: %w", base, err))
	}
	return nil
}
