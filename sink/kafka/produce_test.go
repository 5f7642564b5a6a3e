package kafka

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/binlogmq/binlogmq/sink"
)

func sampleResponse(version int16) []byte {
	r := kmsg.NewPtrProduceResponse()
	r.Version = version
	for _, topic := range []string{"a", "shop.orders"} {
		t := kmsg.NewProduceResponseTopic()
		t.Topic = topic
		for p := range int32(3) {
			tp := kmsg.NewProduceResponseTopicPartition()
			tp.Partition, tp.ErrorCode, tp.BaseOffset, tp.LogAppendTime, tp.LogStartOffset = p, int16(p)*5, 1<<40+int64(p), -1, 7
			if p == 2 {
				e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
				e.RelativeOffset, e.ErrorMessage = 3, kmsg.StringPtr("record 3")
				tp.ErrorRecords = append(tp.ErrorRecords, e)
			}
			if p == 1 {
				tp.ErrorMessage = kmsg.StringPtr("whole batch")
			}
			t.Partitions = append(t.Partitions, tp)
		}
		r.Topics = append(r.Topics, t)
	}
	return r.AppendTo(nil)
}

func TestParseProduce(t *testing.T) {
	for v := int16(minProduceVersion); v <= maxProduceVersion; v++ {
		b := sampleResponse(v)
		n := 0
		err := parseProduce(b, v, func(p *producePartition) error {
			topic := []string{"a", "shop.orders"}[n/3]
			want := ""
			if v >= 8 {
				want = []string{"", "whole batch", "record 3"}[n%3]
			}
			if string(p.topic) != topic || p.partition != int32(n%3) || p.code != int16(n%3)*5 || p.offset != 1<<40+int64(n%3) || string(p.message) != want {
				t.Errorf("v%d partition %d: %+v", v, n, p)
			}
			n++
			return nil
		})
		if err != nil || n != 6 {
			t.Fatalf("v%d: %d partitions, %v", v, n, err)
		}
		for cut := range b {
			if err := parseProduce(b[:cut], v, func(*producePartition) error { return nil }); !errors.Is(err, errShortResponse) {
				t.Fatalf("v%d cut at %d of %d: %v", v, cut, len(b), err)
			}
		}
	}
	if parseProduce(nil, 9, nil) == nil || parseProduce(nil, 2, nil) == nil {
		t.Error("unknown versions are taken")
	}
}

func FuzzParseProduce(f *testing.F) {
	for v := int16(minProduceVersion); v <= maxProduceVersion; v++ {
		f.Add(v, sampleResponse(v))
	}
	f.Fuzz(func(t *testing.T, v int16, b []byte) {
		n := 0
		_ = parseProduce(b, v, func(*producePartition) error { n++; return nil })
		if n > len(b)/22 {
			t.Fatalf("%d partitions from %d bytes", n, len(b))
		}
	})
}

// FuzzHandle feeds the answer to a request with two batches: whatever it says,
// every message is still in exactly one place.
func FuzzHandle(f *testing.F) {
	frame := func(body []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
		return append(binary.BigEndian.AppendUint32(b, 1), body...)
	}
	ok := kmsg.NewPtrProduceResponse()
	ok.Version = maxProduceVersion
	rt := kmsg.NewProduceResponseTopic()
	rt.Topic = "t"
	for p := range int32(2) {
		tp := kmsg.NewProduceResponseTopicPartition()
		tp.Partition = p
		rt.Partitions = append(rt.Partitions, tp)
	}
	ok.Topics = append(ok.Topics, rt)
	for _, codes := range [][2]int16{{0, 0}, {6, 0}, {0, 45}, {10, 20}, {46, 47}, {10, 10}} {
		ok.Topics[0].Partitions[0].ErrorCode, ok.Topics[0].Partitions[1].ErrorCode = codes[0], codes[1]
		f.Add(frame(ok.AppendTo(nil)))
	}
	ok.Topics[0].Partitions[1].Partition = 0
	f.Add(frame(ok.AppendTo(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 8 {
			return
		}
		o, _, err := Options{Brokers: []string{"127.0.0.1:1"}, Logger: quiet()}.normalize()
		if err != nil {
			t.Fatal(err)
		}
		s := &Sink{o: o}
		ses := &session{
			s: s, retries: &s.retries, wake: make(chan struct{}, 1), space: make(chan struct{}, 1),
			topics: map[string]*topicLanes{}, brokers: map[int32]*broker{}, refresh: map[string]struct{}{}, started: true,
		}
		ses.cancel = func(error) {}
		br := &broker{ses: ses, wake: make(chan struct{}, 1)}
		p := &pipe{b: br, conn: &conn{Conn: deadConn{}}, version: maxProduceVersion}
		var owner fates
		msgs := numbered(&owner, "t", 2, 0, 6)
		tl := ses.addTopic(&topic{name: "t", partitions: 2, batchBytes: 1 << 20})
		for i := range msgs {
			l, err := ses.lane(tl, msgs[i].Partition)
			if err != nil {
				t.Fatal(err)
			}
			ses.msgs.Add(1)
			ses.bytes.Add(int64(msgs[i].Size()))
			l.queue.push(newEntry(&msgs[i], msgs[i].Size()))
			l.lead(br)
		}
		r := p.take()
		if err := (&encoder{ses: ses, comp: mustCompressor(t, "none", 0)}).encode(r, p); err != nil {
			t.Fatal(err)
		}
		r.corr = 1
		p.sent = append(p.sent, r)
		err = p.handle(b)
		if err != nil && len(p.sent) != 1 {
			t.Fatal("a torn answer took effect")
		}
		ses.fail(sink.ErrReset)
		p.err = err
		p.giveBack()
		if ok, errs := owner.count(); ok+len(errs) != len(msgs) || ses.msgs.Load() != 0 || ses.bytes.Load() != 0 {
			t.Fatalf("%d done, %d failed of %d; in flight %d", ok, len(errs), len(msgs), ses.msgs.Load())
		}
		for _, l := range tl.lanes {
			if l.waiting != nil {
				l.waiting.Stop()
			}
		}
	})
}
