package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// text passes over the rest of a text, its closing quote included.
//
// Most texts contain no quotes, and bytes.IndexByte finds their end with vector instructions. Texts that quote other
// texts (code, JSON of a tool's answer) have an escaped quote every few bytes: from the first one on they are scanned
// by blocks, without a branch for each quote, and passed over where every escape is of the simplest form.
func (s *scanner) text() bool {
	i := bytes.IndexByte(s.doc[s.at:], '"')
	if i < 0 {
		return false
	}
	if i == 0 || s.doc[s.at+i-1] != '\\' {
		s.at += i + 1
		return true
	}
	// Backslashes before the quote escape it or one another, so the block begins before them.
	start := s.at + i - 1
	for start > s.at && s.doc[start-1] == '\\' {
		start--
	}
	end := indexClose(s.doc[start:])
	if end < 0 {
		return false
	}
	s.at = start + end + 1
	return true
}

const (
	block = 64
	// pause is how many blocks are looked at before a look ahead is tried again that found nothing.
	pause = 16
)

// indexClose returns the index of the first quote without a backslash that escapes it; -1 if there is none.
func indexClose(b []byte) int {
	var escape uint64 // 1 where the last byte of the block before escapes the first of this one
	for at, waits := 0, 1; at < len(b); at, waits = at+block, waits-1 {
		// The byte before at is a backslash that escapes, or it is none.
		if waits <= 0 && (b[at-1] == '\\') == (escape == 1) {
			next := skipEscaped(b, at)
			if next == at {
				waits = pause
			} else if at = next; b[at-1] == '\\' {
				escape = 1
			} else {
				escape = 0
			}
		}
		var rest [block]byte
		piece := b[at:]
		if len(piece) < block {
			copy(rest[:], piece)
			piece = rest[:]
		}
		quote, backslash := masks(piece[:block])
		var escaped uint64
		escaped, escape = follow(backslash, escape)
		if open := quote &^ escaped; open != 0 {
			return at + bits.TrailingZeros64(open)
		}
	}
	return -1
}

// skipEscaped passes over bytes from at on, 32 at once, as long as each quote among them is behind a backslash and no
// backslash is behind another: then each quote is escaped, and a backslash at the end escapes. at is above 0.
func skipEscaped(b []byte, at int) int {
	for ; at+32 <= len(b); at += 32 {
		piece := b[at-1 : at+32]
		if doubtful(piece[0:9])|doubtful(piece[8:17])|doubtful(piece[16:25])|doubtful(piece[24:33]) != 0 {
			break
		}
	}
	return at
}

// doubtful is not zero if one of the last eight of nine bytes is a quote behind no backslash, or a backslash behind
// one.
func doubtful(b []byte) uint64 {
	const quotes, slashes, highs = 0x2222222222222222, 0x5C5C5C5C5C5C5C5C, 0x8080808080808080
	before, word := binary.LittleEndian.Uint64(b[0:8]), binary.LittleEndian.Uint64(b[1:9])
	plainBefore := others(before ^ slashes)
	return (^others(word^quotes)&plainBefore | ^(others(word^slashes) | plainBefore)) & highs
}

// others sets the highest bit of each byte of x that is not zero; other bits have no meaning.
func others(x uint64) uint64 {
	const low = 0x7F7F7F7F7F7F7F7F
	return x&low + low | x
}

// masks returns a bit for each byte of a block that is a quote, and for each that is a backslash.
func masks(b []byte) (quote, backslash uint64) {
	const quotes, slashes = 0x2222222222222222, 0x5C5C5C5C5C5C5C5C
	for i := 0; i < block; i += 8 {
		x := binary.LittleEndian.Uint64(b[i : i+8])
		quote |= zeros(x^quotes) << i
		backslash |= zeros(x^slashes) << i
	}
	return quote, backslash
}

// zeros returns a bit for each byte of x that is zero, the lowest first.
func zeros(x uint64) uint64 {
	const low, gather = 0x7F7F7F7F7F7F7F7F, 0x0102040810204080
	return ^((x&low + low) | x | low) >> 7 * gather >> 56
}

// follow returns a bit for each byte of a block that a backslash escapes, given whether the first one is, and whether
// the first byte of the next block is. A run of backslashes escapes what follows when its length is odd: adding the
// starts of runs that begin at odd places carries through them and distinguishes the two.
func follow(backslash, escape uint64) (escaped, next uint64) {
	const even = 0x5555555555555555
	backslash &^= escape
	after := backslash<<1 | escape
	oddStarts := backslash &^ even &^ after
	carried, next := bits.Add64(oddStarts, backslash, 0)
	return (even ^ carried<<1) & after, next
}
