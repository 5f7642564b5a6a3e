package meta

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Memory is a Store that forgets everything with the process. The zero value is ready.
type Memory struct {
	SoleOwners

	mu        sync.Mutex
	records   map[Identity]*Record
	documents map[Identity][]byte // by destination and name
}

// Load implements Store.
func (m *Memory) Load(_ context.Context, id Identity) (*Record, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[id]
	if !ok {
		return nil, ErrNotFound
	}
	return r.Clone(), nil
}

// Save implements Store.
func (m *Memory) Save(_ context.Context, id Identity, r *Record) error {
	if err := id.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = make(map[Identity]*Record)
	}
	m.records[id] = r.Clone()
	return nil
}

// Delete implements Store.
func (m *Memory) Delete(_ context.Context, id Identity) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, id)
	return nil
}

// List implements Store.
func (m *Memory) List(_ context.Context, destination string) ([]Identity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []Identity
	for id := range m.records {
		if destination == "" || id.Destination == destination {
			ids = append(ids, id)
		}
	}
	SortIdentities(ids)
	return ids, nil
}

// LoadDocument implements Documents.
func (m *Memory) LoadDocument(_ context.Context, destination, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.documents[Identity{destination, name}]
	if !ok {
		return nil, ErrNotFound
	}
	return slices.Clone(d), nil
}

// SaveDocument implements Documents.
func (m *Memory) SaveDocument(_ context.Context, destination, name string, data []byte) error {
	id := Identity{destination, name}
	if err := id.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.documents == nil {
		m.documents = make(map[Identity][]byte)
	}
	m.documents[id] = slices.Clone(data)
	if data == nil {
		delete(m.documents, id)
	}
	return nil
}

// SortIdentities sorts by destination and client, as Store.List returns them.
func SortIdentities(ids []Identity) {
	slices.SortFunc(ids, func(a, b Identity) int {
		return cmp.Or(cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Client, b.Client))
	})
}
