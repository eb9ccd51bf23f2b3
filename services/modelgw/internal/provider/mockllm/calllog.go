package mockllm

import (
	"encoding/json"
	"os"
	"sync"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// callLog counts calls such that a crash loses none: a line is on disk before its call is answered. A nil log does
// nothing.
type callLog struct {
	mu   sync.Mutex
	file *os.File
}

// logLine is one line of the log.
type logLine struct {
	Project   string `json:"project"`
	Run       string `json:"run"`
	Sample    string `json:"sample"`
	Epoch     int32  `json:"epoch"`
	Turn      int32  `json:"turn"`
	RequestID string `json:"request_id"`
	Attempt   int    `json:"attempt"`
	Reissued  bool   `json:"reissued"`
}

func openCallLog(path string) (*callLog, error) {
	if path == "" {
		return nil, nil // no log is wanted
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &callLog{file: file}, nil
}

// Close closes the file.
func (l *callLog) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

func (l *callLog) append(r *provider.Request, c call) error {
	if l == nil {
		return nil
	}
	line, err := json.Marshal(logLine{
		Project: r.Origin.Project, Run: r.Origin.Attribution.GetRun(), Sample: c.sample, Epoch: c.epoch, Turn: c.turn,
		RequestID: r.Origin.RequestID, Attempt: r.Attempt, Reissued: r.Origin.Reissued,
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return err
	}
	return l.file.Sync()
}
