package taskfile

import "strings"

// known names the keys there are.
func known(keys map[string]key) string { return strings.Join(sortedKeys(keys), ", ") }

// hint says which key may have been meant, and which there are.
func hint(got string, keys map[string]key) string {
	best, least := "", 3
	for _, k := range sortedKeys(keys) {
		if d := distance(got, k); d < least {
			best, least = k, d
		}
	}
	text := "known keys: " + known(keys)
	if best != "" {
		text = "did you mean " + best + "? " + text
	}
	return text
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
