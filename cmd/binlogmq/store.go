package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
	"github.com/binlogmq/binlogmq/meta/zookeeper"
)

// metaStore is where cursors are kept.
type metaStore interface {
	meta.Store
	meta.Owners
	meta.Documents
	Close() error
}

// openAlone opens the store of cursors for writing. Files are locked here, ZooKeeper's destinations by their leases.
func openAlone(cfg *config.Config, log *slog.Logger) (metaStore, error) {
	if cfg.Meta.ZooKeeper == nil {
		return file.Open(cfg.Meta.File.Directory)
	}
	return openZooKeeper(cfg, log, func(*zookeeper.Options) {})
}

// openStore is openAlone for what runs the destinations, and shares them with other processes.
func openStore(cfg *config.Config, log *slog.Logger) (metaStore, error) {
	if cfg.Meta.ZooKeeper == nil {
		return openAlone(cfg, log)
	}
	return openZooKeeper(cfg, log, func(o *zookeeper.Options) {
		o.Weight, o.RebalanceDelay = *cfg.Meta.ZooKeeper.Weight, cfg.Meta.ZooKeeper.RebalanceDelay.Value()
		sources := map[string]string{}
		for i := range cfg.Destinations {
			d := &cfg.Destinations[i]
			o.Destinations = append(o.Destinations, d.Name)
			sources[d.Name] = d.Source.Address[0]
		}
		if k := cfg.Canal; k != nil && k.ZooKeeperRoot != "off" {
			o.Canal = &zookeeper.Canal{Root: k.ZooKeeperRoot, Address: k.Advertise, Sources: sources}
		}
	})
}

func openZooKeeper(cfg *config.Config, log *slog.Logger, more func(*zookeeper.Options)) (metaStore, error) {
	z := cfg.Meta.ZooKeeper
	tls, err := z.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("meta.zookeeper.%w", err)
	}
	o := zookeeper.Options{
		Servers: z.Servers, SessionTimeout: z.SessionTimeout.Value(), Root: z.Root + "/" + cfg.Deployment, TLS: tls, Node: z.Node, Logger: log,
	}
	if z.Auth != nil {
		o.User, o.Password = z.Auth.User, z.Auth.Password.Reveal()
	}
	more(&o)
	return zookeeper.Open(o)
}

// lookTimeout bounds what a command waits for ZooKeeper.
const lookTimeout = 30 * time.Second

// lookStore opens the store for reading, beside the running program. A nil store: there is none yet.
func lookStore(cfg *config.Config) (meta.Store, func() error, error) {
	if cfg.Meta.ZooKeeper != nil {
		s, err := openAlone(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	}
	s, err := file.OpenReadOnly(cfg.Meta.File.Directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, func() error { return nil }, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// looked says of an error of the store what it means that the time of a command is over.
func looked(cfg *config.Config, err error) error {
	if z := cfg.Meta.ZooKeeper; z != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ZooKeeper at %s does not answer: check meta.zookeeper (servers, tls, auth), and that most of its servers run: %w", strings.Join(z.Servers, ", "), err)
	}
	return err
}

// storeText says where cursors are kept.
func storeText(cfg *config.Config) string {
	if z := cfg.Meta.ZooKeeper; z != nil {
		return fmt.Sprintf("ZooKeeper, %s/%s", z.Root, cfg.Deployment)
	}
	return cfg.Meta.File.Directory
}

// takeStore opens the store and takes a destination, which must not be running: it changes what is saved. free gives both back.
func takeStore(ctx context.Context, cfg *config.Config, destination string) (s metaStore, free func() error, err error) {
	if s, err = openAlone(cfg, slog.New(slog.DiscardHandler)); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	lease, err := s.TryAcquire(ctx, destination)
	if err != nil {
		return nil, nil, errors.Join(looked(cfg, err), s.Close())
	}
	return s, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
		defer cancel()
		return errors.Join(lease.Release(ctx), s.Close())
	}, nil
}
