package local

import (
	"log/slog"
	"path/filepath"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/door"
)

// controlFolder is the folder of a box in which this program listens. Only the box's guest has it open.
const controlFolder = "ctl"

// boxDoor is where the guest of a box comes in.
type boxDoor struct {
	*door.Door
	record *record
}

// listen listens for the first process of a box.
func listen(folder string, rec *record, log *slog.Logger) (*boxDoor, error) {
	d, err := door.Open(filepath.Join(folder, controlFolder), func(pid int) bool { return pid == rec.PID }, log)
	if err != nil {
		return nil, err
	}
	return &boxDoor{Door: d, record: rec}, nil
}
