// Package outcome stores the outcome of each case in a folder of reports, one file for each test process, and makes the
// table of all themes from it.
package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
)

// Result is the outcome of a case.
type Result string

// The results, in the order of precedence when several drivers report one case, the lowest first.
const (
	// NoDriver: nothing executes the case.
	NoDriver Result = "no driver"
	// Passed: the platform produces the recorded result.
	Passed Result = "passed"
	// Known: it does not, and the list of known differences has the case.
	Known Result = "known difference"
	// Failed: it does not, or it does although the list names the case as different.
	Failed Result = "failed"
)

// Record is the outcome of one case.
type Record struct {
	Theme  string `json:"theme"`
	File   string `json:"file"`
	ID     string `json:"id"`
	Result Result `json:"outcome"`
	// Kind and Reason are those of the known difference.
	Kind   known.Kind `json:"kind,omitempty"`
	Reason string     `json:"reason,omitempty"`
	// Detail describes the failure of the case.
	Detail string `json:"detail,omitempty"`
}

// Folder is a folder of reports that one process adds to. It makes its file with the first record. A nil Folder drops
// records. It is safe for concurrent use.
type Folder struct {
	path string
	mu   sync.Mutex
	file *os.File
}

// NewFolder returns the folder at path, which is created with the first record.
func NewFolder(path string) *Folder { return &Folder{path: path} }

// maxDetail bounds the detail of one record, in bytes.
const maxDetail = 4 << 10

// Add appends a record as one line.
func (f *Folder) Add(record Record) error {
	if f == nil {
		return nil
	}
	if len(record.Detail) > maxDetail {
		record.Detail = record.Detail[:maxDetail] + "…"
	}
	line, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		if err := os.MkdirAll(f.path, 0o750); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if f.file, err = os.CreateTemp(f.path, "golden-*.jsonl"); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if _, err := f.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Read returns the records of every process. A folder without reports is an error: nothing ran.
func Read(path string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(path, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no reports", path)
	}
	var records []Record
	for _, file := range files {
		found, err := readRecords(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		records = append(records, found...)
	}
	return records, nil
}

func readRecords(file string) ([]Record, error) {
	content, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	var records []Record
	for lines := json.NewDecoder(content); ; {
		var record Record
		switch err := lines.Decode(&record); {
		case errors.Is(err, io.EOF):
			return records, nil
		case err != nil:
			return nil, err
		}
		records = append(records, record)
	}
}
