package driver

import "github.com/evalfleet/evalfleet/pkg/rpcerr"

// ValidID keeps the ids of boxes fit for names of files and containers.
func ValidID(id string) bool {
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return id != "" && id[0] != '-' && len(id) <= 100
}

// OutOfMemory is why a box has ended whose guest the kernel ended when memory ended; Observed.Ended and the cause of
// SANDBOX_LOST say it.
const OutOfMemory = "oom"

// Lost is the error of a box that is gone, for that cause; "" is one that is not known.
func Lost(id, cause string) error {
	if cause == OutOfMemory {
		return rpcerr.SandboxLost(id, cause, "the box %s is gone: it was ended for want of memory", id)
	}
	return rpcerr.SandboxLost(id, "gone", "the box %s is gone", id)
}
