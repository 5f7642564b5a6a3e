package meta_test

import (
	"testing"

	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server/metatest"
)

func TestMemory(t *testing.T) {
	s := &meta.Memory{}
	metatest.Run(t, true, func(*testing.T) (meta.Store, func()) { s.SoleOwners = meta.SoleOwners{}; return s, func() {} })
}
