package jsonscan_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

func TestBytesAreWhatJSONMakesOfThem(t *testing.T) {
	t.Parallel()
	for i := range 256 {
		c, read := byte(i), ""
		kind := jsonscan.KindOf(c)
		asIs := c < utf8.RuneSelf && json.Valid([]byte{'"', c, '"'})
		assert.Equal(t, asIs, kind == jsonscan.AsIs, "%q", c)
		assert.Equal(t, asIs, jsonscan.Plain([]byte{c}) == 1, "%q", c)
		assert.Equal(t, c >= utf8.RuneSelf, kind == jsonscan.Beyond, "%q", c)
		if kind > jsonscan.Beyond && assert.NoError(t, json.Unmarshal([]byte{'"', '\\', byte(kind), '"'}, &read)) {
			assert.Equal(t, string(rune(c)), read)
		}
	}
}

func TestLettersStandForWhatJSONReads(t *testing.T) {
	t.Parallel()
	for i := range 256 {
		letter, read := byte(i), ""
		if json.Unmarshal([]byte{'"', '\\', letter, '"'}, &read) != nil {
			assert.Zero(t, jsonscan.Unescape(letter), "%q", letter)
			continue
		}
		assert.Equal(t, read, string(rune(jsonscan.Unescape(letter))), "%q", letter)
		if read != "/" { // It needs no escape.
			assert.Equal(t, jsonscan.Kind(letter), jsonscan.KindOf(read[0]), "%q", letter)
		}
	}
}
