package chaos

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestASeedDecides proves that a seed gives one schedule, and another seed another.
func TestASeedDecides(t *testing.T) {
	of := func(seed uint64) []step {
		return plan(rand.New(rand.NewPCG(seed, 1)), 60, 4, 2, map[string]bool{"kafka": true})
	}
	if !reflect.DeepEqual(of(1), of(1)) {
		t.Error("one seed gives two schedules")
	}
	if reflect.DeepEqual(of(1), of(2)) {
		t.Error("two seeds give one schedule")
	}
	kills, long := 0, 0
	for _, s := range of(1) {
		if s.kills() {
			kills++
		}
		if s.sleep >= time.Minute {
			long++
		}
		if s.fault == "kill pulsar" || s.mark == "wire.send" {
			t.Errorf("%v without Pulsar", s)
		}
	}
	if kills != 60 || long != 2 {
		t.Errorf("%d kills and %d long pauses, want 60 and 2", kills, long)
	}
}
