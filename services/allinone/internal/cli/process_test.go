package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// https://no-color.org, and terminals that have no colors or cannot move the cursor.
func TestWhereThereAreColors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		width         int
		env           map[string]string
		colors, draws bool
	}{
		"a terminal":       {80, nil, true, true},
		"a pipe":           {0, nil, false, false},
		"none are wanted":  {80, map[string]string{"NO_COLOR": "1"}, false, true},
		"an empty value":   {80, map[string]string{"NO_COLOR": ""}, true, true},
		"a plain terminal": {80, map[string]string{"TERM": "dumb"}, false, false},
	} {
		p := Process{Env: func(name string) (string, bool) { value, ok := tt.env[name]; return value, ok }}
		assert.Equal(t, tt.colors, p.colors(tt.width), name)
		assert.Equal(t, tt.draws, p.draws(tt.width), name)
	}
}
