package driver

import "github.com/evalfleet/evalfleet/pkg/rpcerr"

// ValidID reports whether an id is fit for names of files and containers.
func ValidID(id string) bool {
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return id != "" && id[0] != '-' && len(id) <= 100
}

// OutOfMemory is the end of a box whose guest the kernel killed for lack of memory. It is used in Observed.Ended and as
// the cause of SANDBOX_LOST.
const OutOfMemory = "oom"

// Lost is the error of a box that no longer exists, with the cause; "" if the cause is unknown.
func Lost(id, cause string) error {
	if cause == OutOfMemory {
		return rpcerr.SandboxLost(id, cause, "the box %s is gone: it was ended for want of memory", id)
	}
	return rpcerr.SandboxLost(id, "gone", "the box %s is gone", id)
}
