// Package prefix names a conversation by a hash over all its messages, so that a growing conversation need not be sent,
// encoded and hashed again as a whole.
//
//	hash(0) = zero      hash(n) = SHA-256(hash(n-1) ‖ digest of message n)
//
// The next hash is computed from hash(n) and the next message alone. The digest is SHA-256 over the message's
// deterministic encoding, so that two builds with different fields of a message may disagree: an unknown hash is never
// an error of its caller, and the messages are sent again.
package prefix

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// version is how hashes are made, and the beginning of their text. Another way needs another one.
const version = "1-"

// Hash identifies the messages of a conversation up to one of them. The zero Hash identifies none.
type Hash [sha256.Size]byte

// Digest is the hash of one message alone.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a message and its encoded size in bytes. It fails if the message cannot be encoded,
// such as for text that is not UTF-8.
func DigestOf(m *modelv1.ChatMessage) (d Digest, size int, err error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	encoded, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend((*buffer)[:0], m)
	if err != nil {
		return d, 0, fmt.Errorf("prefix: %w", err)
	}
	if cap(encoded) <= keptBuffer {
		*buffer = encoded
	}
	return sha256.Sum256(encoded), len(encoded), nil
}

// keptBuffer bounds a buffer that is used again.
const keptBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Next returns the hash of the conversation with one more message.
func (h Hash) Next(d Digest) Hash {
	var both [2 * sha256.Size]byte
	copy(both[:], h[:])
	copy(both[sha256.Size:], d[:])
	return sha256.Sum256(both[:])
}

// Digester returns the digest of a message, or of the part of it that matters to its user.
type Digester func(*modelv1.ChatMessage) (Digest, error)

// Of returns the hash of a conversation by the digests of its messages.
func Of(messages []*modelv1.ChatMessage, digest Digester) (h Hash, err error) {
	for _, m := range messages {
		d, err := digest(m)
		if err != nil {
			return Hash{}, err
		}
		h = h.Next(d)
	}
	return h, nil
}

// String returns the hash as requests have it: the version of the hash, a dash and 64 hexadecimal digits.
func (h Hash) String() string { return version + hex.EncodeToString(h[:]) }

// Parse parses String's output. It is false for anything else, also for a hash of another version.
func Parse(text string) (h Hash, ok bool) {
	digits, ok := strings.CutPrefix(text, version)
	if !ok || len(digits) != hex.EncodedLen(len(h)) {
		return Hash{}, false
	}
	_, err := hex.Decode(h[:], []byte(digits))
	return h, err == nil
}
