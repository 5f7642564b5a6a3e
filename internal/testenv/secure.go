package testenv

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Certificates are PEM files of a certificate authority made for one test, and of what it signed: for a server
// on 127.0.0.1 and localhost, which clients may show as theirs too. Keys are in PKCS #8.
type Certificates struct {
	CA, Cert, Key string // paths
}

// NewCertificates makes them in t's temporary folder, valid for a day.
func NewCertificates(t testing.TB) Certificates {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	must(err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, leafKey.Public(), authorityKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	must(err)
	return Certificates{
		CA:   write("ca.pem", "CERTIFICATE", authorityDER),
		Cert: write("cert.pem", "CERTIFICATE", leafDER),
		Key:  write("key.pem", "PRIVATE KEY", keyDER),
	}
}

// SecureKafka is a broker that listens four times: without security at Bootstrap, and at the addresses below.
type SecureKafka struct {
	*KafkaCluster
	Certificates
	TLS      string // TLS; a client certificate is asked for and checked, not demanded
	SASL     string // PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 without TLS
	SASLTLS  string // the same with TLS
	User     string // known to each mechanism
	Password string
}

// NewSecureKafka starts one for t alone.
func NewSecureKafka(t testing.TB, settings ...string) *SecureKafka {
	t.Helper()
	s := &SecureKafka{Certificates: NewCertificates(t), User: "alice", Password: "alice-secret"}
	addrs := FreeAddresses(t, 3)
	s.TLS, s.SASL, s.SASLTLS = addrs[0], addrs[1], addrs[2]
	// Kafka wants key and certificate in one file.
	pair := filepath.Join(t.TempDir(), "pair.pem")
	key, err := os.ReadFile(s.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := os.ReadFile(s.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pair, append(key, cert...), 0o600); err != nil {
		t.Fatal(err)
	}
	more := fmt.Sprintf("TLS://%s,SASL://%s,SASLTLS://%s", s.TLS, s.SASL, s.SASLTLS)
	lines := []string{
		"listeners=CLIENT://127.0.0.1:@PORT@,CONTROLLER://127.0.0.1:@CONTROLLER@," + more,
		"advertised.listeners=CLIENT://127.0.0.1:@PORT@," + more,
		"listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT,SASLTLS:SASL_SSL",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + pair,
		"ssl.truststore.type=PEM", "ssl.truststore.location=" + s.CA,
		"ssl.client.auth=requested",
	}
	for _, listener := range []string{"sasl", "sasltls"} {
		const module = "org.apache.kafka.common.security."
		lines = append(lines,
			fmt.Sprintf(`listener.name.%s.plain.sasl.jaas.config=%splain.PlainLoginModule required user_%s="%s";`, listener, module, s.User, s.Password),
			fmt.Sprintf(`listener.name.%s.scram-sha-256.sasl.jaas.config=%sscram.ScramLoginModule required;`, listener, module),
			fmt.Sprintf(`listener.name.%s.scram-sha-512.sasl.jaas.config=%sscram.ScramLoginModule required;`, listener, module))
	}
	s.KafkaCluster = NewKafka(t, 1, append(lines, settings...)...)
	s.with(func(ctx context.Context, c *kadm.Client) error {
		// A request may name a user once.
		for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
			altered, err := c.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: s.User, Mechanism: mechanism, Iterations: 4096, Password: s.Password}})
			if err != nil {
				return err
			}
			if err := altered.Error(); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

// SecurePulsar is a broker that wants a token of everybody, and listens twice: without TLS at URL, with it at TLSURL.
type SecurePulsar struct {
	*PulsarBroker
	Certificates
	TLSURL string // pulsar+ssl://host:port

	secret []byte
}

// NewSecurePulsar starts one for t alone. Role "admin" may do everything, others what they are granted.
func NewSecurePulsar(t testing.TB, settings ...string) *SecurePulsar {
	t.Helper()
	s := &SecurePulsar{Certificates: NewCertificates(t), secret: make([]byte, 32)}
	if _, err := rand.Read(s.secret); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(FreeAddresses(t, 1)[0], ":")
	s.TLSURL = "pulsar+ssl://" + host + ":" + port
	lines := []string{
		"brokerServicePortTls=" + port,
		"tlsCertificateFilePath=" + s.Cert, "tlsKeyFilePath=" + s.Key, "tlsTrustCertsFilePath=" + s.CA,
		"authenticationEnabled=true", "authorizationEnabled=true", "superUserRoles=admin",
		"authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
		"tokenSecretKey=data:;base64," + base64.StdEncoding.EncodeToString(s.secret),
		"brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken",
		"brokerClientAuthenticationParameters=token:" + s.Token("admin"),
	}
	s.PulsarBroker = startPulsar(t, []string{"PULSAR_ADMIN_TOKEN=" + s.Token("admin")}, append(lines, settings...)...)
	return s
}

// Token returns a token, a JSON Web Token signed with HMAC-SHA256, that gives its bearer a role.
func (s *SecurePulsar) Token(role string) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(fmt.Appendf(nil, `{"sub":%q}`, role))
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}
