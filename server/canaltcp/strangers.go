package canaltcp

import (
	"container/list"
	"net"
	"sync"
)

// strangers are the connections that have not logged in. There are never more than most, so that those which never will
// do not keep others out.
type strangers struct {
	most int

	mu  sync.Mutex
	all list.List // of net.Conn, oldest first
	at  map[net.Conn]*list.Element
}

// add takes a connection in, and closes the oldest if it is one too many, which it tells.
func (s *strangers) add(n net.Conn) bool {
	oldest := s.push(n)
	if oldest == nil {
		return false
	}
	_ = oldest.Close() // its goroutines end by that
	return true
}

// push takes a connection in and returns the one that is too many.
func (s *strangers) push(n net.Conn) net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[net.Conn]*list.Element{}
	}
	s.at[n] = s.all.PushBack(n)
	if s.all.Len() <= s.most {
		return nil
	}
	oldest := s.all.Remove(s.all.Front()).(net.Conn)
	delete(s.at, oldest)
	return oldest
}

// welcome notes that the connection has logged in, or has ended.
func (s *strangers) welcome(n net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.at[n]; e != nil {
		s.all.Remove(e)
		delete(s.at, n)
	}
}
