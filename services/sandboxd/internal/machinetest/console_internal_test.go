package machinetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAConsoleLeavesBeatsOut(t *testing.T) {
	t.Parallel()
	beats := 0
	c := &console{beat: func() { beats++ }}
	for _, piece := range []string{
		"one\r\nmachinetest: b", "eat\r\ntwo\r\nthrmachinetest: beat\nee\nmachinetest: exit 0\nend",
	} {
		n, err := c.Write([]byte(piece))
		assert.NoError(t, err)
		assert.Equal(t, len(piece), n)
	}
	assert.Equal(t, 2, beats)
	assert.Equal(t, "one\ntwo\nthree\nmachinetest: exit 0\n", c.text.String())
	assert.Equal(t, "end", string(c.line))
}
