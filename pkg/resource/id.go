package resource

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// idAlphabet is Crockford's base 32 in lower case: no letters that look like digits.
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID makes the id of a resource, of a request or of a call: 18 characters, the first ten of which are the time in
// milliseconds, so that ids sort by time; the others are random. Effect keys begin with ids, so they are short. It is
// safe for concurrent use.
func NewID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return encode(uint64(time.Now().UnixMilli()), binary.BigEndian.Uint64(random[:]))
}

// DerivedID derives an id from parts, in the form of [NewID] but without a time: equal parts have equal ids, so that a
// later process finds work by its id.
func DerivedID(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		_, _ = h.Write([]byte(part))
	}
	sum := h.Sum(nil)
	return encode(binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:]))
}

// encode writes the lowest bits of two numbers: ten characters, then eight.
func encode(first, second uint64) string {
	return string(appendBits(appendBits(make([]byte, 0, 18), first, 10), second, 8))
}

// appendBits appends the lowest bits of a number, five to a character.
func appendBits(id []byte, bits uint64, digits int) []byte {
	for shift := 5 * (digits - 1); shift >= 0; shift -= 5 {
		id = append(id, idAlphabet[bits>>shift&31])
	}
	return id
}
