package mistral

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// callID matches an id of a call that the server takes.
var callID = regexp.MustCompile(`^[A-Za-z0-9]{9}$`)

// CallID is the id of a call for the server, which takes nine letters and digits. The id of another vendor's model
// becomes a hash of it, always the same, so that a result has that of its call. An empty id stays.
func CallID(id string) string {
	if id == "" || callID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])[:9]
}
