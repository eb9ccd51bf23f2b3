package yamlnode

import (
	"math"

	"go.yaml.in/yaml/v3"
)

// CutsInteger reports whether decoding a node into an integer would make another number of it: yaml reads 1.5 as 1, and
// -1e300 as the least integer.
func CutsInteger(n *yaml.Node) bool {
	if n.ShortTag() != "!!float" {
		return false
	}
	var number float64
	return n.Decode(&number) != nil || number != math.Trunc(number) || number < math.MinInt64 || number >= math.MaxInt64
}
