// Package deps keeps the modules that packages under construction need in go.mod.
package deps

import (
	_ "github.com/apache/pulsar-client-go/pulsar"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/go-mysql-org/go-mysql/client"
	_ "github.com/go-mysql-org/go-mysql/replication"
	_ "github.com/klauspost/compress/s2"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/pierrec/lz4/v4"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/segmentio/kafka-go"
	_ "github.com/segmentio/kafka-go/protocol/rawproduce"
	_ "github.com/segmentio/kafka-go/sasl/scram"
	_ "github.com/twmb/franz-go/pkg/kadm"
	_ "github.com/twmb/franz-go/pkg/kfake"
	_ "github.com/twmb/franz-go/pkg/kgo"
	_ "go.opentelemetry.io/otel"
	_ "go.opentelemetry.io/otel/exporters/prometheus"
	_ "go.opentelemetry.io/otel/sdk/metric"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/text/encoding/simplifiedchinese"
	_ "google.golang.org/protobuf/encoding/protowire"
	_ "gopkg.in/yaml.v3"
)
