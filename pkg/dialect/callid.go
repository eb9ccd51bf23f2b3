package dialect

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// plainID matches an id that every vendor takes, but for its length.
var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// PlainCallID is the id of a call for a server that takes ids of letters, digits, `_` and `-` alone, of at most so many
// bytes. An id of another vendor's model that is none, such as `functions.find:0`, becomes a hash of it, always the same,
// so that a result has that of its call. An empty id stays.
func PlainCallID(id string, most int) string {
	if !plainID.MatchString(id) {
		return ShortCallID(id, 0)
	}
	return ShortCallID(id, most)
}

// ShortCallID is PlainCallID for a server that bounds the length of ids alone.
func ShortCallID(id string, most int) string {
	if len(id) <= most || id == "" {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// FixedCallID is the id of a call for a server that takes ids of exactly so many letters and digits, at most 64. Another
// id becomes a hash of it, always the same. An empty id stays.
func FixedCallID(id string, length int) string {
	isOther := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if id == "" || len(id) == length && !strings.ContainsFunc(id, isOther) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])[:length]
}
