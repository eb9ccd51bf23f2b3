package dialect

import (
	"slices"
	"strings"
)

// Paths are the paths below which vendors' clients ask. Gemini's have two versions, and some have none.
var Paths = []string{"/v1/", "/v1beta/", "/models/"}

// Serves reports whether a path is below one of Paths.
func Serves(path string) bool {
	return slices.ContainsFunc(Paths, func(below string) bool { return strings.HasPrefix(path, below) })
}
