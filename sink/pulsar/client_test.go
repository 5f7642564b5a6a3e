package pulsar

import (
	"testing"
	"testing/synctest"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
)

// closing is a producer of the client's that only closes.
type closing struct {
	pulsarclient.Producer
	at time.Time
}

func (c *closing) Close() { c.at = time.Now() }

// I8: a producer that the client closes while it makes a new link to the broker is closed on the new link too: it does not hold the topic
// against its successor.
func TestCloseWaitsForLink(t *testing.T) {
	const link = 3 * time.Second
	for name, c := range map[string]struct {
		link func(p *clientProducer) // what the client does, from its first call on
		want time.Duration           // when the client's producer is closed
	}{
		"no link":    {func(*clientProducer) {}, 0},
		"made":       {func(p *clientProducer) { p.connects(true); time.Sleep(link); (&reconnect{p: p}).Reset() }, link},
		"not made":   {func(p *clientProducer) { p.connects(true); time.Sleep(link); (&reconnect{p: p}).Next() }, link},
		"gave up":    {func(p *clientProducer) { p.connects(true); time.Sleep(link); p.connects(false) }, link},
		"never ends": {func(p *clientProducer) { p.connects(true) }, 2 * operationTimeout},
		"made before": {func(p *clientProducer) {
			p.connects(true)
			p.connects(false)
			p.connects(true)
			time.Sleep(link)
			p.connects(false)
		}, link},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := new(closing)
				p := &clientProducer{p: inner, gone: make(chan struct{}), closed: make(chan struct{}), idle: make(chan struct{}, 1)}
				begun := time.Now()
				go c.link(p)
				synctest.Wait()
				p.close()
				if got := inner.at.Sub(begun); got != c.want {
					t.Errorf("closed after %v, not %v", got, c.want)
				}
			})
		})
	}
}
