package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
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
		http:     &http.Server{Handler: guarded(address, mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)},
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

// guarded refuses what pages in a browser have it send: what is of another origin, and what is sent by a name that is not known to be ours, as whoever
// serves a page can have its name lead here (DNS rebinding).
func guarded(address string, h http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(address) // which was listened on
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodGet && q.Method != http.MethodHead {
			if site := q.Header.Get("Sec-Fetch-Site"); origin.Check(q) != nil || site != "" && site != "same-origin" && site != "none" {
				refuse(w, fmt.Errorf("%w: a page of another origin sent it", errForeign))
				return
			}
			if !known(q.Host, own) {
				refuse(w, fmt.Errorf("%w: it came for the name %q: call this address by its IP, as localhost, or by the name that admin.listen has", errForeign, q.Host))
				return
			}
		}
		h.ServeHTTP(w, q)
	})
}

// known tells whether a request's Host is one that nobody else can have lead here: own, an IP or localhost.
func known(host, own string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip, _, _ := strings.Cut(host, "%")
	return net.ParseIP(ip) != nil || strings.EqualFold(host, "localhost") || own != "" && strings.EqualFold(host, own)
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
