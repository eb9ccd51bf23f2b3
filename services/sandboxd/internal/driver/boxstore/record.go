package boxstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// Record is the part of a box's record that all drivers share. A driver's own record embeds it and adds what identifies
// the box's first process.
type Record struct {
	ID      string
	Owner   string
	Labels  map[string]string `json:",omitempty"`
	Created time.Time
	// Ready reports that the box was made completely; a crash leaves a record that is not ready.
	Ready  bool
	Report driver.Report
}

// NewRecord returns the record of a box that is about to be made.
func NewRecord(spec driver.Spec) Record {
	return Record{ID: spec.ID, Owner: spec.Owner, Labels: spec.Labels, Created: time.Now()}
}

const recordName = "box.json"

// ErrNoRecord is the error of a box without a record: the process crashed before it was written, or the machine lost
// its power before it was on disk. Either way nothing runs in the box.
var ErrNoRecord = errors.New("no record")

// Read reads the record of a box, as the driver's own type. It fails with [ErrNoRecord] if there is no record, or no
// readable one.
func Read[R any](b *Store, id string) (*R, error) {
	data, err := os.ReadFile(filepath.Join(b.Folder(id), recordName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w of the box %s: %w", ErrNoRecord, id, err)
	}
	if err != nil {
		return nil, err
	}
	r := new(R)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%w of the box %s that can be read: %w", ErrNoRecord, id, err)
	}
	return r, nil
}

// Write replaces the record of a box atomically.
func (b *Store) Write(id string, record any) error {
	return WriteJSON(filepath.Join(b.Folder(id), recordName), record, 0o600)
}

// WriteJSON replaces a file atomically. If the machine loses its power soon after, the file may be empty; everything
// that ran in boxes has then ended too.
func WriteJSON(path string, v any, mode os.FileMode) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temp, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return os.Rename(temp, path)
}
