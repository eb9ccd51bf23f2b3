//go:build !failpoint

package failpoint

// Enabled says whether this binary was built with failpoints.
const Enabled = false

// Hit does nothing in this build.
func Hit(string) {}
