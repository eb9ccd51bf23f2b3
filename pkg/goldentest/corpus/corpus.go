// Package corpus reads folders of recorded ("golden") cases. It knows the forms of their files and nothing of their
// content, which the driver of a case interprets.
//
// Three forms of files hold cases:
//
//   - JSON of the shape {"theme": …, "cases": [{"id": …}, …]}: many cases, of the theme that the file names;
//   - JSON lines, each {"id", "op", "input", "expect"} with an optional tolerance: many cases, the file is the theme;
//   - any other JSON object: one case, the folder is the theme. Its id is its `name`, else the file's name.
//
// A file X that has a neighbour X.summary.json is data which that case describes, not a case.
package corpus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoFile reports a pattern that no file of the folder matches.
var ErrNoFile = errors.New("no such file of cases")

const summarySuffix = ".summary.json"

// Load reads the files of the folder root that match the patterns (path.Match, slash-separated, relative to root), in
// the order of the patterns and then of the names, and returns their cases in the order of the files. A pattern without
// a match results in ErrNoFile; the cases of the other patterns are still returned. Any other error ends the reading.
func Load(root string, patterns ...string) ([]Case, error) {
	var (
		cases   []Case
		missing error
	)
	for _, pattern := range patterns {
		files, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		files = slices.DeleteFunc(files, func(name string) bool { return !holdsCases(root, name) })
		if len(files) == 0 {
			missing = errors.Join(missing, fmt.Errorf("%q in %s: %w", pattern, root, ErrNoFile))
		}
		for _, name := range files {
			found, err := readFile(root, name)
			if err != nil {
				return nil, err
			}
			cases = append(cases, found...)
		}
	}
	return cases, missing
}

// All reads every file of cases below root. Files that cannot be read as cases are reported in the error, joined; the
// cases of the others are returned beside it.
func All(root string) ([]Case, error) {
	var (
		cases  []Case
		faults error
	)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if !holdsCases(root, name) {
			return nil
		}
		found, err := readFile(root, name)
		if err != nil {
			faults = errors.Join(faults, err)
			return nil
		}
		cases = append(cases, found...)
		return nil
	})
	return cases, errors.Join(err, faults)
}

// holdsCases reports whether the file is one of the forms by its name and its neighbours.
func holdsCases(root, name string) bool {
	switch path.Ext(name) {
	case ".jsonl":
		return true
	case ".json":
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)+summarySuffix))
		return errors.Is(err, fs.ErrNotExist)
	default:
		return false
	}
}

func readFile(root, name string) ([]Case, error) {
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	var cases []Case
	if path.Ext(name) == ".jsonl" {
		cases, err = parseLines(content, name)
	} else {
		cases, err = parseJSON(content, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	seen := map[string]bool{}
	for i := range cases {
		cases[i].Root, cases[i].File = root, name
		if seen[cases[i].ID] {
			return nil, fmt.Errorf("%s: two cases with the id %q", name, cases[i].ID)
		}
		seen[cases[i].ID] = true
	}
	return cases, nil
}

func parseLines(content []byte, name string) ([]Case, error) {
	var cases []Case
	lines := json.NewDecoder(bytes.NewReader(content))
	for {
		var raw json.RawMessage
		err := lines.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return cases, nil
		}
		if err != nil {
			return nil, fmt.Errorf("case %d: %w", len(cases)+1, err)
		}
		parsed, err := parseCase(raw, "id")
		if err != nil {
			return nil, fmt.Errorf("case %d: %w", len(cases)+1, err)
		}
		if parsed.ID == "" {
			return nil, fmt.Errorf("case %d has no id", len(cases)+1)
		}
		parsed.Theme = strings.TrimSuffix(name, ".jsonl")
		cases = append(cases, parsed)
	}
}

func parseJSON(content []byte, name string) ([]Case, error) {
	var file struct {
		Theme string            `json:"theme"`
		Cases []json.RawMessage `json:"cases"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, err
	}
	if file.Cases == nil {
		parsed, err := parseCase(content, "name")
		if err != nil {
			return nil, err
		}
		if parsed.ID == "" {
			parsed.ID = fileID(path.Base(name))
		}
		parsed.Theme = path.Dir(name)
		return []Case{parsed}, nil
	}
	if file.Theme == "" {
		file.Theme = strings.TrimSuffix(path.Base(name), ".json")
	}
	cases := make([]Case, 0, len(file.Cases))
	for i, raw := range file.Cases {
		parsed, err := parseCase(raw, "id")
		if err != nil {
			return nil, fmt.Errorf("case %d: %w", i+1, err)
		}
		if parsed.ID == "" {
			return nil, fmt.Errorf("case %d has no id", i+1)
		}
		parsed.Theme = path.Join(path.Dir(name), file.Theme)
		cases = append(cases, parsed)
	}
	return cases, nil
}

// fileID names a case after its file, or after the file that it describes.
func fileID(base string) string {
	if described, ok := strings.CutSuffix(base, summarySuffix); ok {
		return described
	}
	return strings.TrimSuffix(base, ".json")
}

func parseCase(raw []byte, idField string) (Case, error) {
	parsed := Case{Raw: raw}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&parsed.Fields); err != nil {
		return Case{}, err
	}
	parsed.ID, _ = parsed.Fields[idField].(string)
	return parsed, nil
}
