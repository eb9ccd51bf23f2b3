package jsonscan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

func TestAtMostCountsValues(t *testing.T) {
	t.Parallel()
	for doc, values := range map[string]int{
		`1`:                                 2,
		`{"a": 1, "b": [2, 3]}`:             5,
		`[{}, {}, {}]`:                      7,
		`{"a": "1,2,3,[[[{{{", "b": "\","}`: 3,
		`["` + strings.Repeat(",", 1000):    2, // Never ends, and no further value is read.
	} {
		assert.True(t, jsonscan.AtMost([]byte(doc), values), doc)
	}
	for doc, values := range map[string]int{
		`{"a": 1, "b": [2, 3]}`: 3,
		`[{}, {}, {}]`:          5,
		`{"a": "1,2,3,[[[{{{", "b": "\",", "c": 1, "d":1}`: 3,
		`[` + strings.Repeat("{},", 1000) + `{}]`:          1000,
	} {
		assert.False(t, jsonscan.AtMost([]byte(doc), values), doc)
	}
}
