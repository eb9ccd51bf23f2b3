package taskfile

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// known names the keys there are.
func known(keys map[string]key) string { return strings.Join(sortedKeys(keys), ", ") }

// hint suggests the key that may have been meant, and lists the valid ones.
func hint(got string, keys map[string]key) string {
	return suggest.Question(got, sortedKeys(keys)) + "known keys: " + known(keys)
}
