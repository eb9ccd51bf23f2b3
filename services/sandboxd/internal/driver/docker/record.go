package docker

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

// record is what is kept of a box in its folder.
type record struct {
	boxstore.Record
	// Container is the engine's id of it, so that no other of the same name is taken for it.
	Container string `json:",omitempty"`
	// DiskBytes is how much the container may write where the engine does not bound that; 0: the engine does.
	DiskBytes int64 `json:",omitempty"`
}

// guestAlone owns the folder that is mounted into a container: no process in there runs as that user, and the guest
// enters all folders. So no command comes near the socket, as root neither, since it has no capabilities.
const guestAlone = 0x6fff_0000

// makeControl makes the folder that is mounted, with what the guest reads in it. Remapped says that root in containers
// is another user here, who enters only what is open to all; then who dials is all that is checked.
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
