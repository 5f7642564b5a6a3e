package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/binlogmq/binlogmq/meta"
)

var _ meta.Documents = (*Store)(nil)

// documentName returns the file of a document. Its ending differs from that of cursors.
func documentName(destination, name string) (string, error) {
	if err := (meta.Identity{Destination: destination, Client: name}).Validate(); err != nil {
		return "", err
	}
	file := meta.Escape(destination) + "@" + name + ".document.json"
	if len(file) > maxFileName {
		return "", fmt.Errorf("destination %s: its name is too long for a file name", destination)
	}
	return file, nil
}

// LoadDocument implements meta.Documents.
func (s *Store) LoadDocument(_ context.Context, destination, name string) ([]byte, error) {
	base, err := documentName(destination, name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, base)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s of %s: %w", name, destination, meta.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", name, destination, err)
	}
	doc, err := meta.DecodeDocument(destination, name, data)
	if err != nil {
		return nil, fmt.Errorf("file %s cannot be used: %w: %w", path, meta.ErrDamaged, err)
	}
	return doc, nil
}

// SaveDocument implements meta.Documents.
func (s *Store) SaveDocument(_ context.Context, destination, name string, data []byte) error {
	if s.readOnly {
		return errReadOnly
	}
	base, err := documentName(destination, name)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, base)
	if data == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s of %s not deleted: %w", name, destination, err)
		}
		return s.syncDir()
	}
	out, err := meta.EncodeDocument(destination, name, data)
	if err == nil {
		err = s.replace(path, filepath.Join(s.dir, "."+base+".tmp"), out)
	}
	if err != nil {
		return fmt.Errorf("%s of %s not saved: %w", name, destination, err)
	}
	return nil
}
