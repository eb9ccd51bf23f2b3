package editor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// around is how many lines are shown on either side of a change.
const around = 4

const reminder = "Review the change: is the indentation right, is no line there twice? Edit again if need be.\n"

func (e *Editor) create(path string, req Request) (string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", failed("write to", path, err)
	}
	_, err = f.WriteString(*req.FileText)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", failed("write to", path, err)
	}
	e.remember(path, edit{Created: true})
	return fmt.Sprintf("%s was created.", path), nil
}

func (e *Editor) replace(path string, req Request) (string, error) {
	text, err := read(path)
	if err != nil {
		return "", err
	}
	text = expandTabs(text)
	old, replacement := expandTabs(*req.OldStr), ""
	if req.NewStr != nil {
		replacement = expandTabs(*req.NewStr)
	}
	if old == "" {
		return "", refuse("old_str is empty; give the text to replace")
	}
	switch n := strings.Count(text, old); {
	case n == 0:
		return "", refuse("nothing was replaced: the text %s does not occur in %s as it stands", old, path)
	case n > 1:
		return "", refuse("nothing was replaced: the text %s occurs more than once, in the lines %s; give more of its surroundings", old, linesWith(text, old))
	}
	before, after, _ := strings.Cut(text, old)
	changed := before + replacement + after
	if err := write(path, changed); err != nil {
		return "", err
	}
	e.remember(path, edit{Text: text})
	line := strings.Count(before, "\n")
	lines := strings.Split(changed, "\n")
	first := max(0, line-around)
	last := min(len(lines), line+around+strings.Count(replacement, "\n")+1)
	return edited(path, "around the change in "+path, lines[first:last], first+1), nil
}

func (e *Editor) insert(path string, req Request) (string, error) {
	text, err := read(path)
	if err != nil {
		return "", err
	}
	text = expandTabs(text)
	lines := strings.Split(text, "\n")
	at := *req.InsertLine
	if at < 0 || at > len(lines) {
		return "", refuse("insert_line %d is not among the lines after which text can be inserted, [0, %d]", at, len(lines))
	}
	fresh := req.NewStr
	if fresh == nil {
		fresh = req.InsertText
	}
	added := strings.Split(expandTabs(*fresh), "\n")
	changed := strings.Join(join(lines[:at], added, lines[at:]), "\n")
	if err := write(path, changed); err != nil {
		return "", err
	}
	e.remember(path, edit{Text: text})
	first := max(0, at-around)
	shown := join(lines[first:at], added, lines[at:min(len(lines), at+around)])
	return edited(path, "around the insertion in the edited file", shown, first+1), nil
}

func (e *Editor) undo(path string, _ Request) (string, error) {
	last, ok := e.recall(path)
	if !ok {
		return "", refuse("there is no edit of %s to undo; the last %d edits of a file are kept", path, keptEdits)
	}
	if last.Created {
		if err := os.Remove(path); err != nil {
			return "", failed("remove", path, err)
		}
		return fmt.Sprintf("The creation of %s was undone: it was deleted.", path), nil
	}
	if err := write(path, last.Text); err != nil {
		return "", err
	}
	return fmt.Sprintf("The last edit of %s was undone. ", path) + fileHeader(path) + numbered(last.Text, 1), nil
}

// edited tells of a change and shows it.
func edited(path, where string, lines []string, first int) string {
	return fmt.Sprintf("%s was edited. Lines %s:\n", path, where) + numbered(strings.Join(lines, "\n"), first) + reminder
}

// linesWith lists the numbers of the lines that hold text.
func linesWith(all, text string) string {
	var numbers []string
	for i, line := range strings.Split(all, "\n") {
		if strings.Contains(line, text) {
			numbers = append(numbers, strconv.Itoa(i+1))
		}
	}
	return "[" + strings.Join(numbers, ", ") + "]"
}

func join(parts ...[]string) []string {
	var all []string
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
