package config

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func env(vars map[string]string) func(string) (string, bool) {
	return func(n string) (string, bool) { v, ok := vars[n]; return v, ok }
}

func TestExampleParses(t *testing.T) {
	data, err := os.ReadFile("../config.yaml.example")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(data, env(map[string]string{"MYSQL_PASSWORD": "a: b # c"}))
	if err != nil {
		t.Fatal(err)
	}
	d := c.Destinations[0]
	if d.Source.Password.Reveal() != "a: b # c" {
		t.Errorf("password %q: the variable's content must not be read as YAML", d.Source.Password.Reveal())
	}
	if d.Ring.Bytes != 16<<20 || c.Meta.SaveInterval.Value() != time.Second || d.Sinks[0].Codec != "canal-json" {
		t.Errorf("values of the example: %+v", d)
	}
	if len(c.Destinations) != 2 || len(c.Destinations[1].Sinks) != 3 {
		t.Error("the example lost a destination or sink")
	}
}

// TestFewLinesSuffice proves that a newcomer needs the first lines only.
func TestFewLinesSuffice(t *testing.T) {
	data, err := os.ReadFile("../config.yaml.example")
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(data), "# ---- what follows is optional")
	if !found {
		t.Fatal("the example lost its mark")
	}
	if _, err := Parse([]byte(head), env(map[string]string{"MYSQL_PASSWORD": "x"})); err != nil {
		t.Error(err)
	}
}

// keys lists every key path of a type.
func keys(t reflect.Type, path string, out *[]string) {
	switch t.Kind() {
	case reflect.Pointer:
		keys(t.Elem(), path, out)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			keys(t.Elem(), path+"[]", out)
		}
	case reflect.Struct:
		for i := 0; i < t.NumField(); i++ {
			p := strings.TrimPrefix(path+"."+t.Field(i).Tag.Get("yaml"), ".")
			*out = append(*out, p)
			keys(t.Field(i).Type, p, out)
		}
	}
}

func TestEveryKeyIsDocumentedAndShown(t *testing.T) {
	doc, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../config.yaml.example")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	keys(reflect.TypeFor[Config](), "", &all)
	for _, k := range all {
		short := strings.NewReplacer("destinations[].sinks[].", "", "destinations[].", "").Replace(k)
		// Every TLS section has the same keys, described once.
		if i := strings.Index(short, "tls."); i > 0 {
			short = short[i:]
		}
		if !strings.Contains(string(doc), "`"+short+"`") {
			t.Errorf("docs/configuration.md does not describe `%s`", short)
		}
		last := k[strings.LastIndexByte(k, '.')+1:]
		if last != "insecure_skip_verify" && !strings.Contains(string(example), last+":") {
			t.Errorf("config.yaml.example does not show %s", k)
		}
	}
}

const minimal = `
destinations:
  - name: shop
    source: {address: "127.0.0.1:3306", user: u, password: p}
    sinks: [{name: out, file: {path: "-"}}]
`

func TestAllFaultsAtOnceEachWithItsPath(t *testing.T) {
	in := `
deployment: "a/b"
nonsense: 1
stop_timeout: soon
destinations:
  - name: shop
    source: {address: [nohost], user: "", pasword: hunter2}
    tables: [shop, "a.b.c"]
    start: snapshots
    on_lost_position: snapshots
    snapshot: { tables: [orders], where: { orders: "id > 5", shop.orders: "id > 5)" }, rows_per_second: -1, chunk_bytes: 1KiB, max_pending: 2KiB }
    statement_format: ignore
    ring: {bytes: 5 apples}
    sinks:
      - name: orders
        kafka: {brokers: [], delivery: twice, commit_interval: 5ms, topics: {partitions: x}}
        pulsar: {url: "http://x"}
        codec: debezium
        debezium: { topic.prefix: "a b", schemas.enable: 3, decimal.handling.mode: exact, time.precision.mode: adaptive, bigint.unsigned.handling.mode: x, binary.handling.mode: x, event.converting.failure.handling.mode: skip, provide.transaction.metadata: true }
        time_zone: Europe/Berlin
        headers: [seq, sequence]
        key: colour
  - name: SHOP
    source: {address: "h:1", user: u, password: "${NO_SUCH}"}
    sinks: {}
meta: {save_interval: -1s, file: {directory: d}, zookeeper: {servers: [a], session_timeout: 1s, root: "x/", auth: {user: "a:b"}, tls: {cert: c}}}
canal: {listen: "11111", user: canal, tls: {cert: c}, batch: rows, filter: widen, enum: x, time_zone: Mars}
`
	_, err := Parse([]byte(in), env(nil))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"deployment:", "nonsense: unknown key", "stop_timeout:", "destinations[0].source.address[0]:", "destinations[0].source.user:",
		"destinations[0].source.pasword: unknown key", "destinations[0].tables[0]:", "destinations[0].tables[1]:",
		`destinations[0].start: "snapshots" is not known`, `destinations[0].on_lost_position: "snapshots" is not known`,
		"destinations[0].snapshot.tables[0]:", `destinations[0].snapshot.where: "orders" is not the name of a table`, "shop.orders: a parenthesis in", "destinations[0].snapshot.rows_per_second:", "destinations[0].snapshot.chunk_bytes:", "destinations[0].snapshot.max_pending:",
		`destinations[0].statement_format: "ignore" is not known`, "meta.save_interval:", "destinations[0].ring.bytes:",
		"destinations[0].sinks[0]: exactly one of", "destinations[0].sinks[0].kafka.brokers:", `destinations[0].sinks[0].kafka.delivery: "twice" is not known`, "destinations[0].sinks[0].kafka.commit_interval: needs delivery: transactional",
		"destinations[0].sinks[0].kafka.topics.partitions:", "destinations[0].sinks[0].pulsar.url:", "destinations[0].sinks[0].time_zone: must be UTC",
		"destinations[0].sinks[0].debezium.topic.prefix:", "destinations[0].sinks[0].debezium.schemas.enable:", "destinations[0].sinks[0].debezium.decimal.handling.mode:", "destinations[0].sinks[0].debezium.time.precision.mode:",
		"destinations[0].sinks[0].debezium.bigint.unsigned.handling.mode:", "destinations[0].sinks[0].debezium.binary.handling.mode:", "destinations[0].sinks[0].debezium.event.converting.failure.handling.mode:",
		"destinations[0].sinks[0].debezium.provide.transaction.metadata: unknown key",
		"destinations[0].sinks[0].headers[1]:", "destinations[0].sinks[0].key:", `destinations[1].name: "SHOP" is taken`,
		"destinations[1].source.password: environment variable NO_SUCH is not set", "destinations[1].sinks: a list is wanted",
		"meta.zookeeper.servers[0]:", "meta.zookeeper.session_timeout:", "meta.zookeeper.root:", "meta.zookeeper.auth.user:", "meta.zookeeper.tls:", "meta: file and zookeeper", "canal.listen:", "canal: user and password", "canal.tls:", "canal.batch:", "canal.filter:", "canal.enum:", "canal.time_zone:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the error shows a value")
	}
}

// TestDebeziumDefaults: what Debezium does by itself is what the codec does by itself, and nothing of it touches other codecs.
// What was valid once is so still; what never was is told with the choices, of which one is to leave the key out.
func TestSchemaChoices(t *testing.T) {
	for value, want := range map[string]string{"log": "", SchemaFormer: "", `""`: "", "guess": `destinations[0].schema: "guess" is not known; leave it out, or choose one of log`} {
		_, err := Parse([]byte("destinations: [{name: shop, source: {address: 'h:1', user: u, password: p}, tables: ['shop.*'], schema: "+value+", sinks: [{name: s, kafka: {brokers: ['k:1']}}]}]\nmeta: {file: {directory: d}}"), env(nil))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func TestDebeziumDefaults(t *testing.T) {
	for codec, want := range map[string]string{
		"debezium": "shop.{schema}.{table} true shop true",
		"debezium, debezium: {topic.prefix: a.b}":                                            "a.b.{schema}.{table} true a.b true",
		"debezium, tombstones: false, topic: \"{table}\", debezium: {schemas.enable: false}": "{table} false shop false",
		"maxwell":                   "{schema}.{table} false shop true",
		"maxwell, tombstones: true": "{schema}.{table} true shop true",
	} {
		c, err := Parse([]byte(strings.Replace(minimal, "{name: out,", "{name: out, codec: "+codec+",", 1)), env(nil))
		if err != nil {
			t.Errorf("%s: %v", codec, err)
			continue
		}
		s := &c.Destinations[0].Sinks[0]
		if got := fmt.Sprint(s.Topic, " ", *s.Tombstones, " ", s.Debezium.Prefix, " ", *s.Debezium.Schemas); got != want {
			t.Errorf("%s: %s, want %s", codec, got, want)
		}
	}
}

// TestSnapshotsWithinTables: what snapshots can never meet is a mistake.
func TestSnapshotsWithinTables(t *testing.T) {
	in := minimal + "    tables: [\"shop.*\"]\n    snapshot: { tables: [\"other.*\", \"*.a\"], where: { shop.b: x > 1, other.c: x > 1 } }\n"
	_, err := Parse([]byte(in), env(nil))
	for _, want := range []string{"snapshot.tables: other.* is not in the destination's tables", "snapshot.where: other.c is not in the destination's tables"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told: %v", want, err)
		}
	}
	if err != nil && (strings.Contains(err.Error(), "*.a") || strings.Contains(err.Error(), "shop.b")) {
		t.Error(err)
	}
}

// TestSnapshots: what orders snapshots, and what they read by default.
func TestSnapshots(t *testing.T) {
	for more, want := range map[string]string{
		"":                           "false 524288 67108864 0",
		"start: snapshot":            "true 524288 67108864 0",
		"on_lost_position: snapshot": "true 524288 67108864 0",
		"snapshot: {tables: [shop.a], where: {shop.a: 'x > 1'}, rows_per_second: 100, chunk_bytes: 64KiB, max_pending: 1MiB}": "false 65536 1048576 100",
	} {
		c, err := Parse([]byte(minimal+"    "+more+"\n"), env(nil))
		if err != nil {
			t.Errorf("%s: %v", more, err)
			continue
		}
		d := &c.Destinations[0]
		if got := fmt.Sprint(d.Snapshots(), int64(d.Snapshot.ChunkBytes), int64(d.Snapshot.MaxPending), d.Snapshot.RowsPerSecond); got != want {
			t.Errorf("%s: %s, want %s", more, got, want)
		}
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	c, err := Parse([]byte(strings.Replace(minimal, "password: p", "password: hunter2", 1)), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "c", c, "p", c.Destinations[0].Source.Password)
	y, _ := yaml.Marshal(c)
	for _, s := range []string{fmt.Sprintf("%v %+v %#v %s %q %x", c.Destinations, c.Destinations, c.Destinations, c.Destinations[0].Source.Password,
		c.Destinations[0].Source.Password, c.Destinations[0].Source.Password), log.String(), string(y)} {
		if strings.Contains(s, "hunter2") || strings.Contains(s, fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("secret shown: %s", s)
		}
	}
	// A secret of a wrong type must not show in the error either.
	_, err = Parse([]byte(strings.Replace(minimal, "password: p", "password: [hunter2]", 1)), env(nil))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}

func TestExpand(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "${A}": "1", "x${A}y${B}": "x1y${A}", "$${A}": "${A}", "$A": "$A", "a$": "a$", "${A": "${A",
	} {
		c, err := Parse([]byte(strings.Replace(minimal, "password: p", "password: '"+in+"'", 1)), env(map[string]string{"A": "1", "B": "${A}"}))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := c.Destinations[0].Source.Password.Reveal(); got != want {
			t.Errorf("%s gives %q, want %q", in, got, want)
		}
	}
	if _, err := Parse([]byte(strings.Replace(minimal, "user: u", "user: u, server_id: \"${ID}\"", 1)), env(map[string]string{"ID": "7"})); err != nil {
		t.Errorf("a variable must be able to stand for a number: %v", err)
	}
}

func TestZeroSaveInterval(t *testing.T) {
	c, err := Parse([]byte(minimal+"meta: {save_interval: 0s}"), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Meta.SaveInterval.Value(); got != 0 {
		t.Errorf("save_interval 0s became %v", got)
	}
}

func FuzzParse(f *testing.F) {
	data, _ := os.ReadFile("../config.yaml.example")
	f.Add(data)
	f.Add([]byte(minimal))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b, env(map[string]string{"MYSQL_PASSWORD": "x"}))
		if err == nil && c.Validate() != nil {
			t.Error("Parse accepted what Validate refuses")
		}
	})
}

// Who writes credentials into an address, as other programs take them, is told where they belong, and they are shown nowhere.
func TestNoCredentialsInAddresses(t *testing.T) {
	const in = `
destinations:
  - name: shop
    source: {address: ["root:hunter2@127.0.0.1:3306", "hunter2@db:3306"], user: u}
    sinks:
      - {name: a, kafka: {brokers: ["root:hunter2@127.0.0.1:9092", "hunter2@k:9092"]}}
      - {name: b, pulsar: {url: "pulsar://root:hunter2@127.0.0.1:6650", admin_url: "http://root:hunter2@127.0.0.1:8080"}}
      - {name: c, pulsar: {url: "root:hunter2@127.0.0.1:6650"}}
meta: {zookeeper: {servers: ["root:hunter2@127.0.0.1:2181"]}}
canal: {listen: "canal:hunter2@127.0.0.1:11111", advertise: "canal:hunter2@h:1"}
admin: {listen: "admin:hunter2@127.0.0.1:8088"}
`
	_, err := Parse([]byte(in), env(nil))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Fatalf("error %v", err)
	}
	for _, path := range []string{"destinations[0].source.address[0]", "destinations[0].source.address[1]", "destinations[0].sinks[0].kafka.brokers[0]", "destinations[0].sinks[0].kafka.brokers[1]",
		"destinations[0].sinks[1].pulsar.url", "destinations[0].sinks[1].pulsar.admin_url", "destinations[0].sinks[2].pulsar.url", "meta.zookeeper.servers[0]", "canal.listen", "canal.advertise", "admin.listen"} {
		if !strings.Contains(err.Error(), path+": holds an @") {
			t.Errorf("nothing about %s in\n%v", path, err)
		}
	}
}

// TestSingleFaults shows what each key refuses that would else be taken for something else, or be found at the first use.
func TestSingleFaults(t *testing.T) {
	base := func(destination, sink, rest string) string {
		return "destinations: [{name: shop, " + destination + ", sinks: [{name: out, " + sink + "}]}]\n" + rest
	}
	const source, file, pulsar = `source: {address: "a:1", user: u}`, `file: {path: "-"}`, `pulsar: {url: "pulsar://a:1"`
	of := func(more string) string { return `source: {address: "a:1", user: u, ` + more + `}` }
	for _, c := range []struct{ name, in, want string }{
		{"nothing", base(source, file, ""), ""},
		{"no port", base(`source: {address: "a:", user: u}`, file, ""), `source.address[0]: "a:" has no port: a number from 1 to 65535`},
		{"port out of range", base(`source: {address: "a:99999", user: u}`, file, ""), `source.address[0]: "a:99999" has no port`},
		{"port by name", base(`source: {address: "a:mysql", user: u}`, file, ""), `source.address[0]: "a:mysql" has no port`},
		{"no host", base(`source: {address: ":3306", user: u}`, file, ""), `source.address[0]: ":3306" names no host`},
		{"broker without host", base(source, `kafka: {brokers: ":9092"}`, ""), `kafka.brokers[0]: ":9092" names no host`},
		{"listening everywhere", base(source, file, `admin: {listen: ":0"}`), ""},
		{"IPv6", base(`source: {address: "[::1]:1", user: u}`, file, `admin: {listen: "[::1]:8088"}`), ""},
		{"listening nowhere", base(source, file, `admin: {listen: "127.0.0.1:99999"}`), `admin.listen: "127.0.0.1:99999" has no port: a number from 0 to 65535`},
		{"heartbeat", base(of("heartbeat: 0s"), file, ""), "source.heartbeat: must be positive"},
		{"dial timeout", base(of("dial_timeout: 0s"), file, ""), "source.dial_timeout: must be positive"},
		{"stop", base(source, file, "stop_timeout: 0s"), "stop_timeout: must be positive"},
		{"negative", base(of("dial_timeout: -1s"), file, ""), `source.dial_timeout: "-1s" is negative`},
		{"request timeout", base(source, `kafka: {brokers: "a:1", request_timeout: 0s}`, ""), "kafka.request_timeout: must be positive"},
		{"watchdog", base(source, pulsar+", watchdog: 0s}", ""), "pulsar.watchdog: at least 1s is needed"},
		{"canal's memory", base(source, file, `canal: {listen: ":1", memory: 1}`), "canal.memory: at least 1MiB is needed"},
		{"canal's patience", base(source, file, `canal: {listen: ":1", idle_timeout: 0s}`), "canal.idle_timeout: must be positive"},
		{"topic", base(source, file+`, topic: "{schema}.{tabel}"`, ""), "sinks[0].topic: topic template \"{schema}.{tabel}\": unknown field {tabel}"},
		{"brace", base(source, file+`, topic: "{schema"`, ""), "sinks[0].topic: topic template \"{schema\": unbalanced brace"},
		{"DDL's topic", base(source, file+`, ddl_topic: "{table}"`, ""), "sinks[0].ddl_topic: topic template \"{table}\": unknown field {table}, known are {destination}"},
		{"dead letters", base(source, file+`, oversize: dead_letter, max_message_bytes: 1KiB, dead_letter_topic: "{x}"`, ""), "sinks[0].dead_letter_topic: topic template \"{x}\": unknown field"},
		{"an expression for a pattern", base(source+`, tables: ['shop\..*']`, file, ""), "destinations[0].tables[0]: table pattern \"shop\\\\..*\" is no regular expression: write database.*"},
		{"digits in a pattern", base(source, file+`, tables: ['shop.order_\d{1,2}']`, ""), "sinks[0].tables[0]: table pattern \"shop.order_\\\\d{1,2}\" is no regular expression"},
		{"one id twice", "destinations: [{name: one, source: {address: ['a:1', 'b:1'], user: u, server_id: 7}, sinks: [{name: out, " + file + "}]}, {name: other, source: {address: 'c:1', user: u, server_id: 7}, sinks: [{name: out, " + file + "}]}, {name: two, source: {address: 'b:1', user: u, server_id: 7}, sinks: [{name: out, " + file + "}]}]", "destinations[2].source.server_id: 7 is that of destinations[0] at the same source"},
		{"half a worker", base(source, file+", workers: 1.5", ""), "sinks[0].workers: a whole number in range is wanted"},
		{"number with exponent", base(of("server_id: 1e3"), file, ""), "source.server_id: a whole number in range is wanted"},
		{"hexadecimal", base(of("server_id: 0x10"), file, ""), ""},
		{"truth", base(source, file+", tombstones: 3", ""), "sinks[0].tombstones: true or false is wanted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.in), env(nil))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s\n%v\nwanted: %s", c.in, err, c.want)
			}
		})
	}
}
