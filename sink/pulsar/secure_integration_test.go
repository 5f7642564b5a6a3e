//go:build integration

package pulsar

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// TestSecure sends over TLS with a token, and where the broker knows client certificates, with one of these; and without TLS
// with tokens of less right.
func TestSecure(t *testing.T) {
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
	for _, k := range kinds {
		for how, certificates := range map[string][]tls.Certificate{"token": nil, "certificate": {pair}} {
			t.Run(k.name+" "+how, func(t *testing.T) {
				o := options(b.PulsarBroker, k, k.name+how)
				o.URL, o.AdminURL = b.TLSURL, ""
				o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: certificates}
				if certificates == nil {
					o.Token = b.Token("admin")
				}
				s := open(t, o)
				topic := b.Topic() + "-" + k.name + "-" + how
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

	grant := exec.Command("../../testenv/pulsar.sh", "admin", b.Dir, "POST", "namespaces/public/default/permissions/writer", `["produce"]`)
	grant.Env = append(os.Environ(), "PULSAR_ADMIN_TOKEN="+b.Token("admin"))
	if out, err := grant.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, k := range kinds {
		t.Run(k.name+" rights", func(t *testing.T) {
			o := options(b.PulsarBroker, k, "tokens")
			o.Token, o.AdminURL = b.Token("writer"), ""
			topic := b.Topic() + "-" + k.name
			s := open(t, o)
			send(t, s, topic, 1, 5)
			state := s.AppendState(nil)
			send(t, s, topic, 6, 10)
			if err := s.Close(within(t)); err != nil {
				t.Fatal(err)
			}
			// What has no receipt cannot be looked for; check says so before.
			s = resume(t, o, state)
			send(t, s, topic, 4, 20)
			if n := s.Duplicates(); n < 7 { // more if a link was lost
				t.Errorf("%d duplicates", n)
			}
			if found := s.Check(within(t)); !slices.ContainsFunc(found, func(f sink.Finding) bool {
				return f.Severity == sink.SeverityWarning && strings.Contains(f.What, "we may not consume")
			}) {
				t.Errorf("%+v", found)
			}

			forged := b.Token("writer")
			forged = forged[:len(forged)-8] + "AAAAAAAA"
			for name, token := range map[string]string{"forged": forged, "without rights": b.Token("stranger")} {
				o.Token = token
				s := open(t, o)
				r := sinktest.NewRecorder(nil)
				if _, err := s.Publish(within(t), sinktest.Messages(r, b.Topic()+"-"+k.name, 0, 1, 1)); err != nil {
					t.Fatal(err)
				}
				if err := shows(t, s, "check the token"); strings.Contains(err.Error(), token) {
					t.Errorf("%s: the status is %v", name, err)
				}
				found := s.Check(within(t))
				if len(found) < 2 || found[1].Severity != sink.SeverityError || !strings.Contains(found[1].Remedy, "check the token") {
					t.Errorf("%s: %+v", name, found)
				}
			}
		})
	}
}
