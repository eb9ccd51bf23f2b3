package driver

import (
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// roomAgain is after how long a caller should retry if there was no room for a sandbox.
const roomAgain = 10 * time.Second

// Shortage is the error of a box that could not be made because of a transient shortage of the machine or of this
// program: SANDBOX_QUOTA with RetryInfo, so that its run waits.
func Shortage(err error) error {
	return rpcerr.SandboxQuota("machine", 0, roomAgain, "no sandbox is made now, for a shortage that may pass: %w", err)
}

// NoRoom is the error of a box for which a disk is too full: SANDBOX_QUOTA with RetryInfo, so that its run waits. lack
// names the disk.
func NoRoom(lack string) error {
	return rpcerr.SandboxQuota("disk", 0, roomAgain, "no sandbox is made now: %s", lack)
}
