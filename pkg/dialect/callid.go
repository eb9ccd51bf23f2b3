package dialect

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// PlainCallID is the id of a call for a server that takes ids of letters, digits, `_` and `-` alone, of at most so many
// bytes. An id of another vendor's model that is none, such as `functions.find:0`, becomes a hash of it, always the same,
// so that a result has that of its call. An empty id stays.
func PlainCallID(id string, most int) string {
	if !isPlainID(id, "_-") {
		return ShortCallID(id, 0)
	}
	return ShortCallID(id, most)
}

// ShortCallID is PlainCallID for a server that bounds the length of ids alone.
func ShortCallID(id string, most int) string {
	if len(id) <= most || id == "" {
		return id
	}
	return "call_" + hashedID(id)[:24]
}

// FixedCallID is the id of a call for a server that takes ids of exactly so many letters and digits, at most 64. Another
// id becomes a hash of it, always the same. An empty id stays.
func FixedCallID(id string, length int) string {
	if id == "" || len(id) == length && isPlainID(id, "") {
		return id
	}
	return hashedID(id)[:length]
}

// isPlainID reports whether an id has ASCII letters, digits and these other characters alone.
func isPlainID(id, others string) bool {
	return !strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(others, r)
	})
}

// hashedID is the hash of an id in 64 hex digits.
func hashedID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
