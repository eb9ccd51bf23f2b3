package docker

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

// record is what is kept of a box in its folder.
type record struct {
	ID      string
	Owner   string
	Labels  map[string]string `json:",omitempty"`
	Created time.Time
	// Container is the engine's id of it, so that no other of the same name is taken for it.
	Container string `json:",omitempty"`
	// Ready tells that the box was made; a record that is not ready is what a crash left.
	Ready  bool
	Report driver.Report
}

const recordName = "box.json"

func readRecord(folder string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(folder, recordName))
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read the record of a box in %s: %w", folder, err)
	}
	return &r, nil
}

func (r *record) write(folder string) error {
	return writeJSON(filepath.Join(folder, recordName), r, 0o600)
}

// writeJSON replaces a file at once.
func writeJSON(path string, v any, mode os.FileMode) error {
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

// guestAlone owns the folder that is mounted into a container: nobody in there is that user, and the guest enters all folders. So
// no command comes near the socket, as root neither, since it has no capabilities.
const guestAlone = 0x6fff_0000

// makeControl makes the folder that is mounted, with what the guest reads in it. Remapped tells that root in containers is another
// user here, who enters only what is open to all; then who dials is all that is checked.
func makeControl(folder string, spec guest.ContainerSpec, remapped bool) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make the folder for the guest: %w", err)
	}
	if err := writeJSON(filepath.Join(folder, guest.ContainerSpecName), spec, 0o644); err != nil {
		return err
	}
	switch {
	case remapped:
		return os.Chmod(folder, 0o755)
	case os.Geteuid() == 0:
		return os.Chown(folder, guestAlone, guestAlone)
	}
	return nil
}
