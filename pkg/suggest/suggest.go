// Package suggest finds the known name that a person probably meant by an unknown one.
package suggest

import (
	"slices"
	"strings"
)

// most is how many letters a name may differ in.
const most = 2

// Name returns the known name nearest to the input; empty if none is near, or the input is known.
func Name(written string, known []string) string {
	best, least := "", min(most, max(1, len(written)/2))+1
	for _, name := range slices.Sorted(slices.Values(known)) {
		if max(len(name)-len(written), len(written)-len(name)) >= least {
			continue
		}
		if d := distance(written, name); d < least {
			best, least = name, d
		}
	}
	if best == written {
		return ""
	}
	return best
}

// Question suggests the nearest known name as a question, followed by a blank; empty if none is near.
func Question(written string, known []string) string {
	if name := Name(written, known); name != "" {
		return "did you mean " + name + "? "
	}
	return ""
}

// Known lists the known names, for the end of an error about an unknown one.
func Known(known []string) string {
	if len(known) == 0 {
		return "there are none"
	}
	return "known: " + strings.Join(known, ", ")
}

// distance is the number of letters to insert, delete or replace to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
