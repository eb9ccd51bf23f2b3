package jsonscan

import (
	"encoding/binary"
	"math/bits"
)

// Plain returns the number of bytes at the start of text that are ASCII and need no escape in a JSON text. It inspects
// eight bytes at once: prompts are mostly such text, and they are long.
func Plain[T string | []byte](text T) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(text); i += 8 {
		word := binary.LittleEndian.Uint64([]byte(text[i : i+8]))
		quote := word ^ (ones * '"')
		slash := word ^ (ones * '\\')
		// A byte below 0x20, a quote, a backslash or one above 0x7f sets its highest bit. Borrows only reach bytes
		// after such a one, so the first set bit is right.
		if found := (word | (word - ones*0x20) | (quote - ones) | (slash - ones)) & highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(text) && KindOf(text[i]) == AsIs {
		i++
	}
	return i
}
