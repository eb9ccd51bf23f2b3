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

// Lost is the error of a box that is gone.
func Lost(id string) error {
	return rpcerr.SandboxLost(id, "gone", "the box %s is gone", id)
}
