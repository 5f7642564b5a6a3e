package connector

import (
	"context"
	"time"
)

// poll asks the source for its position until ctx ends, so that lag is known
// and true even when nothing is read. Errors are the reader's to report.
func (c *Connector) poll(ctx context.Context) {
	var s *session
	var sv *server
	defer func() { s.close() }()
	t := time.NewTicker(c.opt.PollPeriod)
	defer t.Stop()
	for {
		if s == nil {
			addr := c.Status().Address
			if addr != "" {
				var err error
				if s, err = c.dial(ctx, addr); err != nil {
					s = nil
				} else if sv, err = s.server(ctx); err != nil {
					s.close()
					s = nil
				}
			}
		}
		if s != nil {
			if err := c.ask(ctx, s, sv); err != nil || c.Status().Address != s.addr {
				s.close()
				s = nil
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (c *Connector) ask(ctx context.Context, s *session, sv *server) error {
	file, offset, _, err := s.binlogStatus(ctx, sv)
	if err != nil {
		return err
	}
	var files []logFile
	if c.Status().File != file {
		if files, err = s.binlogs(ctx); err != nil {
			return err
		}
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	c.state.files = files
	c.state.s.SourceFile, c.state.s.SourceAt, c.state.s.SourceAsked = file, offset, time.Now()
	return nil
}
