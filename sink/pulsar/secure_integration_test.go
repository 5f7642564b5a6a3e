//go:build integration

package pulsar

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// TestTLS sends over TLS with a token, and where the broker knows client certificates, with one of these.
func TestTLS(t *testing.T) {
	b := testenv.NewSecurePulsar(t,
		"authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken,org.apache.pulsar.broker.authentication.AuthenticationProviderTls",
		"superUserRoles=admin,localhost") // the certificate's name is its role
	ca, err := os.ReadFile(b.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(b.Cert, b.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, producer := range map[string]string{"client": ProducerClient, "wire": ProducerWire} {
		for how, certificates := range map[string][]tls.Certificate{"token": nil, "certificate": {pair}} {
			t.Run(name+" "+how, func(t *testing.T) {
				o := options(b.PulsarBroker, name+how)
				o.Producer, o.URL, o.AdminURL = producer, b.TLSURL, ""
				o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: certificates}
				if certificates == nil {
					o.Token = b.Token("admin")
				}
				s := open(t, o)
				topic := b.Topic()
				r := sinktest.NewRecorder(nil)
				msgs := sinktest.Messages(r, topic, 0, 1, 2000)
				if _, err := s.Publish(within(t), msgs); err != nil {
					t.Fatal(err)
				}
				if err := s.Flush(within(t)); err != nil {
					t.Fatalf("%v; %v", err, s.Status().Err)
				}
				if _, failed := r.Count(); failed > 0 {
					t.Errorf("%d messages failed: %v", failed, s.Status().Err)
				}
			})
		}
	}
}
