//go:build integration

package testenv

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func (c Certificates) config(t *testing.T) *tls.Config {
	text, err := os.ReadFile(c.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: pool}
}

func TestSecureKafka(t *testing.T) {
	t.Parallel()
	s := NewSecureKafka(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for name, c := range map[string]struct {
		addr      string
		tls       bool
		mechanism sasl.Mechanism
	}{
		"plain":          {s.SASL, false, plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()},
		"scram-256":      {s.SASL, false, scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism()},
		"scram-512, TLS": {s.SASLTLS, true, scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism()},
		"TLS":            {s.TLS, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			options := []kgo.Opt{kgo.SeedBrokers(c.addr)}
			if c.tls {
				options = append(options, kgo.DialTLSConfig(s.config(t)))
			}
			if c.mechanism != nil {
				options = append(options, kgo.SASL(c.mechanism))
			}
			client, err := kgo.NewClient(options...)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if err := client.Ping(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSecurePulsar(t *testing.T) {
	t.Parallel()
	s := NewSecurePulsar(t)
	for _, c := range []struct {
		url, role string
		ok        bool
	}{{s.URL, "admin", true}, {s.TLSURL, "admin", true}, {s.URL, "nobody", false}} {
		timeout := 10 * time.Second // until it gives up, too
		if c.ok {
			timeout = time.Minute
		}
		client, err := pulsar.NewClient(pulsar.ClientOptions{URL: c.url, Authentication: pulsar.NewAuthenticationToken(s.Token(c.role)),
			TLSTrustCertsFilePath: s.CA, OperationTimeout: timeout, Logger: log.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
		if err != nil {
			t.Fatal(err)
		}
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: s.Topic()})
		if (err == nil) != c.ok {
			t.Errorf("%s as %s: %v", c.url, c.role, err)
		}
		if err == nil {
			producer.Close()
		}
		client.Close()
	}
	r, err := http.Get(s.AdminURL + "/admin/v2/clusters/standalone")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the admin service answers %s without a token", r.Status)
	}
}
