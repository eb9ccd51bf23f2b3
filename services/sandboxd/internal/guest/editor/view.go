package editor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxShown bounds the characters of a file that are shown.
	maxShown = 16_000
	// shownDepth is how deep a directory is shown.
	shownDepth = 2
	tabWidth   = 8
)

const clipped = "[clipped: only the beginning is shown. Search the file for the line numbers that you need, for example with grep -n, and view that range.]"

func (e *Editor) view(path string, req Request) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return viewDirectory(path)
	}
	text, err := read(path)
	if err != nil {
		return "", err
	}
	first, last, err := viewRange(req.ViewRange, strings.Count(text, "\n")+1)
	if err != nil {
		return "", err
	}
	lines := strings.Split(text, "\n")
	return fileHeader(path) + numbered(strings.Join(lines[first-1:last], "\n"), first), nil
}

func fileHeader(path string) string { return fmt.Sprintf("%s, with line numbers:\n", path) }

// viewRange reads [first, last], lines from 1 to count, both shown; -1 and what lies beyond the end mean the last line.
func viewRange(raw json.RawMessage, count int) (first, last int, err error) {
	var values []json.Number
	if len(raw) > 0 && json.Unmarshal(raw, &values) != nil {
		return 0, 0, refuse("view_range must be two whole numbers, the first and the last line")
	}
	if len(values) == 0 {
		return 1, count, nil
	}
	numbers := make([]int64, len(values))
	for i, v := range values {
		n, err := v.Int64()
		if err != nil {
			return 0, 0, refuse("view_range must be two whole numbers, the first and the last line")
		}
		numbers[i] = n
	}
	if len(numbers) != 2 {
		return 0, 0, refuse("view_range must be two whole numbers, the first and the last line")
	}
	given := fmt.Sprintf("[%d, %d]", numbers[0], numbers[1])
	if numbers[0] < 1 || numbers[0] > int64(count) {
		return 0, 0, refuse("view_range %s cannot be used: the first line %d is not among the lines of the file, [1, %d]", given, numbers[0], count)
	}
	first, last = int(numbers[0]), count
	if numbers[1] == -1 {
		return first, last, nil
	}
	if numbers[1] < numbers[0] {
		return 0, 0, refuse("view_range %s cannot be used: the last line %d comes before the first line %d; give a number in [%d, %d], or -1 for the end", given, numbers[1], first, first, count)
	}
	return first, int(min(numbers[1], int64(count))), nil
}

// numbered shows text with the number of each line, the first of which is first.
func numbered(text string, first int) string {
	if runes := []rune(text); len(runes) > maxShown {
		text = string(runes[:maxShown]) + clipped
	}
	var b strings.Builder
	for i, line := range strings.Split(expandTabs(text), "\n") {
		fmt.Fprintf(&b, "%6d\t%s\n", first+i, line)
	}
	return b.String()
}

// expandTabs replaces tabs by spaces up to the next multiple of eight characters of the line.
func expandTabs(text string) string {
	if !strings.ContainsRune(text, '\t') {
		return text
	}
	var b strings.Builder
	column := 0
	for _, r := range text {
		switch r {
		case '\t':
			n := tabWidth - column%tabWidth
			b.WriteString(strings.Repeat(" ", n))
			column += n
			continue
		case '\n', '\r':
			column = 0
		default:
			column++
		}
		b.WriteRune(r)
	}
	return b.String()
}

// viewDirectory lists a directory and what is in it, hidden entries left out.
func viewDirectory(path string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s and what is in it, two levels deep, without hidden entries:\n%s\n", path, path)
	if err := listDirectory(&b, path, shownDepth); err != nil {
		return "", failed("read", path, err)
	}
	return b.String(), nil
}

func listDirectory(b *strings.Builder, path string, depth int) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	// Files before directories, so that what belongs to a directory follows it at once.
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int {
		switch {
		case a.IsDir() == b.IsDir():
			return 0
		case b.IsDir():
			return -1
		}
		return 1
	})
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		full := filepath.Join(path, entry.Name())
		b.WriteString(full + "\n")
		if entry.IsDir() && depth > 1 {
			_ = listDirectory(b, full, depth-1) // one that cannot be read is shown without what is in it
		}
	}
	return nil
}
