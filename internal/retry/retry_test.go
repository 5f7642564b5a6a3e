package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		start = time.Now()
		time.AfterFunc(time.Minute, func() { cancel(why) })
		if err := Sleep(ctx, time.Hour); !errors.Is(err, why) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestJitter(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 2, 7, time.Second} {
		for range 1000 {
			if got := Jitter(d); got < d/2 || got > d {
				t.Fatalf("%v of %v", got, d)
			}
		}
	}
}
