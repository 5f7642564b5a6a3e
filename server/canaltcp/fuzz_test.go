package canaltcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// FuzzConversation sends a server whatever bytes: all that it answers is packets, and it lets go of everything when its client has gone.
func FuzzConversation(f *testing.F) {
	login := canalwire.AppendPacket(nil, canalwire.Authentication, true, message(field{1, "canal"}, field{5, "shop"}, field{6, "7"}))
	id := []field{{1, "shop"}, {2, "7"}}
	talk := login
	for _, p := range []struct {
		typ  int
		more []field
	}{
		{canalwire.ClientRollback, nil}, {canalwire.Subscription, []field{{7, `shop\.(item|other)`}}}, {canalwire.Get, []field{{3, 2}, {4, 1}, {5, 0}}},
		{canalwire.ClientAck, []field{{3, 1}}}, {canalwire.Get, []field{{3, 1}, {6, 1}}}, {canalwire.ClientRollback, []field{{3, 2}}}, {canalwire.Unsubscription, nil}, {11, nil},
	} {
		talk = append(talk, canalwire.AppendPacket(nil, p.typ, false, message(append(id[:2:2], p.more...)...))...)
	}
	f.Add(talk)
	f.Add(login)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	r := newRig(f, Options{})
	r.h.write(10)
	f.Fuzz(func(t *testing.T, b []byte) {
		// A get that waits for ever is right, and of no use here.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.tcp.serve(ctx, theirs)
		}()
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = ours.Write(b)
		}()
		go func() {
			<-written
			time.Sleep(time.Millisecond) // for answers to what was asked
			_ = ours.SetReadDeadline(time.Now())
		}()
		answer, _ := io.ReadAll(ours)
		_ = ours.Close()
		<-done
		<-written
		for len(answer) >= 4 {
			n := binary.BigEndian.Uint32(answer)
			if int(n) > len(answer)-4 {
				return // cut off by us
			}
			typ, _, err := canalwire.ReadPacket(bytes.NewReader(answer[:4+n]), int(n))
			if err != nil || typ != canalwire.Handshake && typ != canalwire.Ack && typ != canalwire.Messages {
				t.Fatalf("type %d, %v: %x", typ, err, answer)
			}
			answer = answer[4+n:]
		}
		r.tcp.mu.Lock()
		defer r.tcp.mu.Unlock()
		if len(r.tcp.uses) > 0 {
			t.Errorf("still in use: %v", r.tcp.uses)
		}
	})
}
