package docker

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

// record is the record of a box in its folder.
type record struct {
	boxstore.Record
	// Container is the engine's id of the container, so that another one of the same name is not taken for it.
	Container string `json:",omitempty"`
	// DiskBytes is how many bytes the container may write if the engine does not bound that; 0 if the engine does.
	DiskBytes int64 `json:",omitempty"`
}

// guestAlone owns the folder that is mounted into a container: no process in there runs as that user, and the guest may
// enter all folders. So no command can reach the socket, not even as root, because commands have no capabilities.
const guestAlone = 0x6fff_0000

// makeControl creates the folder that is mounted, with the guest's specification in it. remapped reports that root in
// containers is another user here, who enters only folders that are open to all; then the check of the dialling process
// is the only protection.
func makeControl(folder string, spec guest.ContainerSpec, remapped bool) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make the folder for the guest: %w", err)
	}
	if err := boxstore.WriteJSON(filepath.Join(folder, guest.ContainerSpecName), spec, 0o644); err != nil {
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
