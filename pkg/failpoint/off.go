//go:build !failpoint

package failpoint

// Enabled reports whether this binary was built with failpoints.
const Enabled = false

// Hit does nothing in this build.
func Hit(string) {}
