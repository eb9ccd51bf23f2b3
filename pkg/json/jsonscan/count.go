package jsonscan

import "bytes"

// AtMost reports whether a document has at most so many values. A member and its name are one value, an empty object or
// list counts as two. It validates nothing else. It is for readers that create something for each value; it scans a
// long document with few values at the speed of memory.
func AtMost(doc []byte, values int) bool {
	if 1+bytes.Count(doc, []byte(","))+bytes.Count(doc, []byte("{"))+bytes.Count(doc, []byte("[")) <= values {
		return true // The same, with those within texts.
	}
	s := scanner{doc: doc}
	for n := 1; s.at < len(doc); {
		c := doc[s.at]
		s.at++
		switch c {
		case '"':
			if !s.text() {
				return true // No reader gets further.
			}
		case ',', '{', '[':
			if n++; n > values {
				return false
			}
		}
	}
	return true
}
