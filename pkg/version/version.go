// Package version is the build's stamp.
package version

import "runtime/debug"

// number is set by the linker (-X …/pkg/version.number=v1.2.3).
var number = ""

// String returns the release number, or `devel` with the revision if there is none.
func String() string {
	if number != "" {
		return number
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
