package kafka

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/segmentio/kafka-go/protocol/findcoordinator"

	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

// ApiVersions in the version that tells a broker's features (KIP-584), a "flexible" one.
const (
	apiVersionsKey     = 18
	featuresVersion    = 3
	supportedFeatures  = 0 // tag
	metadataFeature    = "metadata.version"
	kafka43, kafka44   = 30, 33 // levels of metadata.version that Kafka 4.3 begins and 4.4 ends with
	forgetsTransaction = "Kafka 4.3 and 4.4 answer a commit with success and forget it where a partition has no leader at that moment: its rows stay invisible, and hide all that follow from consumers that read committed"
)

// metadataLevel returns the highest level of metadata.version that the broker supports, which tells its release; 0: it does not say.
func (c *conn) metadataLevel(ctx context.Context) (int16, error) {
	if r := c.versions[apiVersionsKey]; !r.ok || r.max < featuresVersion {
		return 0, nil
	}
	frame, err := c.converse(ctx, func() error {
		be := binary.BigEndian
		b := be.AppendUint16(make([]byte, 4, 64), apiVersionsKey)
		b = be.AppendUint16(b, featuresVersion)
		b = be.AppendUint32(b, uint32(c.corr))
		b = be.AppendUint16(b, uint16(len(c.clientID)))
		b = append(b, c.clientID...)
		b = append(b, 0) // no tagged fields in the header
		for _, s := range []string{"binlogmq", "1"} {
			b = append(b, byte(len(s)+1))
			b = append(b, s...)
		}
		b = append(b, 0)
		be.PutUint32(b, uint32(len(b)-4))
		_, err := c.Write(b)
		return err
	})
	if err != nil {
		return 0, err
	}
	return parseMetadataLevel(frame[8:])
}

// parseMetadataLevel reads an ApiVersions response of version 3 or 4, behind the correlation id.
func parseMetadataLevel(b []byte) (int16, error) {
	r := reader{b: b}
	if code := r.int16(); r.err == nil && code != codeNoError {
		return 0, &Error{Code: code}
	}
	for n := r.uvarint(); n > 1 && r.err == nil; n-- { // compact arrays and strings count one more than they hold
		r.take(6)
		r.skipTags()
	}
	r.int32() // throttle time
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		tag, size := r.uvarint(), r.uvarint()
		field := reader{b: r.take(int(size))}
		if tag != supportedFeatures || r.err != nil {
			continue
		}
		for k := field.uvarint(); k > 1 && field.err == nil; k-- {
			name := field.take(int(field.uvarint()) - 1)
			field.int16()
			level := field.int16()
			field.skipTags()
			if field.err == nil && string(name) == metadataFeature {
				return level, nil
			}
		}
		if field.err != nil {
			return 0, field.err
		}
	}
	return 0, r.err
}

func (r *reader) uvarint() uint32 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<30 {
		if r.err == nil {
			r.err = errShortResponse
		}
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

func (r *reader) skipTags() {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		r.uvarint()
		r.take(int(r.uvarint()))
	}
}

// transactions looks at our right to the transactional id.
func (c *checker) transactions() {
	id := c.s.transactionalID()
	for n := 1; ; n++ {
		res, err := ask[*findcoordinator.Response](c.ctx, c.s.admin, &findcoordinator.Request{Key: id, KeyType: coordinatorKey})
		if err == nil && res.ErrorCode == codeNoError {
			return
		}
		if err == nil {
			err = transactionError("looking for the coordinator of", id, res.ErrorCode)
		}
		if again, _ := repeatable(err); !again || n == 10 || retry.Sleep(c.ctx, backoff(n)) != nil { // a fresh broker asks for patience
			c.add(sink.SeverityError, c.cluster(), err.Error(),
				c.tool("kafka-acls.sh", "--add --allow-principal User:NAME --operation Write --operation Describe --transactional-id "+id))
			return
		}
	}
}

// forgetful warns of releases that lose the ends of transactions.
func (c *checker) forgetful() {
	if c.level >= kafka43 && c.level <= kafka44 {
		c.add(sink.SeverityWarning, c.cluster(), "delivery: transactional on brokers of Kafka 4.3 or 4.4: "+forgetsTransaction,
			fmt.Sprintf("keep replication factor %d and min.insync.replicas 2 for every topic and watch for `a transaction hangs`, or use delivery: sequenced", safeReplicas))
	}
}

// frail warns of a topic whose partitions can be without a leader when one broker ends. A minISR of 0 is not known, nor are 0 replicas.
func (c *checker) frail(where string, replicas int, minISR int64, remedy string) {
	if replicas < 1 || replicas > 1 && minISR != 1 {
		return
	}
	what := fmt.Sprintf("delivery: transactional with replication factor %d", replicas)
	if minISR > 0 {
		what += fmt.Sprintf(" and min.insync.replicas %d", minISR)
	}
	what += ": one broker can leave a partition without a leader. "
	switch {
	case c.level >= kafka43 && c.level <= kafka44:
		what += "These brokers are Kafka 4.3 or 4.4, which then lose the ends of transactions"
	case c.level == 0:
		what += forgetsTransaction + " (the brokers do not say which release they are)"
	default:
		what += "Confirmed transactions are lost with its disk"
	}
	c.add(sink.SeverityWarning, where, what, remedy+"\nor use delivery: sequenced")
}

// kept makes sure that the cursor topic keeps the cursor.
func (c *checker) kept(name string, conf map[string]string) {
	if name == c.s.cursorTopic() && conf[configCleanup] != "" && conf[configCleanup] != "compact" {
		c.add(sink.SeverityError, "topic "+name, fmt.Sprintf("the cursor topic has cleanup.policy=%s, under which the cursor is deleted some day", conf[configCleanup]),
			c.alter(name, configCleanup+"=compact"))
	}
}
