package transport

import (
	"bytes"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/config"
)

const (
	// leastSecret is the minimal length of a secret: shorter texts are placeholders for a key that is not needed, such
	// as `EMPTY`, and occur in many words.
	leastSecret = 8
	// mostShown is one more than the number of consecutive characters of a secret that may be shown: vendors name a key
	// by its first and its last few.
	mostShown = 12
)

// RedactText returns a function that redacts an account's secrets, and significant parts of them, from what a vendor
// says in a failure: each character becomes a star. The function is safe for concurrent use.
func RedactText(secrets ...config.Secret) func(text string) string { return newSecretSet(secrets).text }

// secretSet finds secrets, and significant parts of them, in texts of other parties. It is safe for concurrent use.
type secretSet struct {
	secrets [][]byte
	// runs are the shortest parts that matter, and sizes how long these are.
	runs  map[string]bool
	sizes []int
	// pairs are the beginnings of runs, two bytes each: most texts have hardly any of them, and are so passed over.
	pairs [1 << 16 / 64]uint64
}

func newSecretSet(secrets []config.Secret) *secretSet {
	h := &secretSet{runs: map[string]bool{}}
	for _, s := range secrets {
		secret := []byte(s.Reveal())
		if len(secret) < leastSecret {
			continue
		}
		size := max(leastSecret, min(mostShown, len(secret)/2))
		h.secrets, h.sizes = append(h.secrets, secret), append(h.sizes, size)
		for at := 0; at+size <= len(secret); at++ {
			h.runs[string(secret[at:at+size])] = true
			pair := pairOf(secret[at:])
			h.pairs[pair/64] |= 1 << (pair % 64)
		}
	}
	return h
}

// redact puts stars over the parts of secrets that begin before end.
func (h *secretSet) redact(text []byte, end int) {
	for _, size := range h.sizes {
		for at := 0; at < end && at+size <= len(text); {
			if pair := pairOf(text[at:]); h.pairs[pair/64]>>(pair%64)&1 == 0 || !h.runs[string(text[at:at+size])] {
				at++
				continue
			}
			to := at + size
			for to < len(text) && h.runs[string(text[to-size+1:to+1])] {
				to++
			}
			for ; at < to; at++ {
				text[at] = '*'
			}
		}
	}
}

// pairOf is the first two bytes of a text, which has two.
func pairOf(text []byte) uint16 { return uint16(text[0])<<8 | uint16(text[1]) }

// text returns a text with stars over the parts of secrets.
func (h *secretSet) text(text string) string {
	if len(h.sizes) == 0 || len(text) < slices.Min(h.sizes) {
		return text
	}
	covered := []byte(text)
	h.redact(covered, len(covered))
	return string(covered)
}

// partialSuffix returns how many bytes at the end of a text are within some secret, so that more of it may follow.
func (h *secretSet) partialSuffix(text []byte) int {
	longest := 0
	for _, secret := range h.secrets {
		for longest < min(len(text), len(secret)) && bytes.Contains(secret, text[len(text)-longest-1:]) {
			longest++
		}
	}
	return longest
}
