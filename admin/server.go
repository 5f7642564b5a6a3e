package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// Server is the HTTP server. Its handlers are safe for concurrent use.
type Server struct {
	http     *http.Server
	listener net.Listener
	provider *sdk.MeterProvider
	done     chan struct{}
}

// Listen binds the address and serves until Close: /healthz (200 while
// everything works, else 503), /readyz (200 once every source is connected, else 503), both
// with the report as JSON, /metrics in Prometheus's format, and below /api the snapshots of destinations, which orders are for. report is
// called for each request and must be safe for concurrent use.
func Listen(address string, report func() Report, orders Snapshots, log *slog.Logger) (*Server, error) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	provider, err := meters(reg, report)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("admin: %w; set admin.listen to an address that is free, or stop what holds it", err)
	}
	mux := http.NewServeMux()
	show := func(ok func(*Report) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			r := report()
			code := http.StatusOK
			if !ok(&r) {
				code = http.StatusServiceUnavailable
			}
			answer(w, code, r)
		}
	}
	mux.HandleFunc("GET /healthz", show((*Report).Healthy))
	mux.HandleFunc("GET /readyz", show((*Report).Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	snapshotHandlers(mux, report, orders, log)
	s := &Server{
		// Orders that a page of another origin makes a browser send are refused.
		http:     &http.Server{Handler: http.NewCrossOriginProtection().Handler(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)},
		listener: l,
		provider: provider,
		done:     make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("admin: the HTTP server ended", "error", err)
		}
	}()
	return s, nil
}

// Addr is the address bound.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the server: running requests may finish until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return errors.Join(err, s.provider.Shutdown(ctx))
}
