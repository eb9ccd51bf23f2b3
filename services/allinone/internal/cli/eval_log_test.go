package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// logName is the name under which the fake server exports the log of its evaluation.
const logName = "2026-01-02T03-04-05-00-00_sums_e1.eval"

// exports makes a server export logs whose text is the state of the evaluation. It sends each text on the channel that
// it returns.
func exports(s *server) <-chan string {
	exported := make(chan string, 8)
	s.export = func(_ *agentv1.ExportEvalRequest, stream agentv1.EvalService_ExportEvalServer) error {
		text := s.become(nil).GetState().String()
		if err := stream.Send(&agentv1.ExportEvalResponse{FileName: logName, Chunk: []byte(text), SamplesDone: 4, SamplesTotal: 4}); err != nil {
			return err
		}
		exported <- text
		return nil
	}
	return exported
}

// after is a watch that reports the end once a log of the running evaluation has been exported.
func after(s *server, exported <-chan string, state agentv1.EvalState) func(int, *agentv1.WatchEvalRequest, agentv1.EvalService_WatchEvalServer) error {
	end := finishes(s, state)
	return func(n int, req *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
		select {
		case text := <-exported:
			if text != running.String() {
				return errors.New("the first log is of an evaluation that is " + text)
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		return end(n, req, stream)
	}
}

func TestEvalRunWritesItsLogWhileItRunsAndAtItsEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state agentv1.EvalState
		code  int
	}{"succeeded": {succeeded, 0}, "failed": {failed, 1}, "cancelled by another": {cancelled, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{eval: at(running, 0)}
			s.watch = after(s, exports(s), test.state)
			folder := filepath.Join(t.TempDir(), "deep", "log's")
			c := begin(t, append(serve(t, s), "eval", "run", task(t, 1), "--log-dir", folder)...)
			assert.Equal(t, test.code, c.end(t), c.stderr.String())
			log := filepath.Join(folder, logName)
			text, err := os.ReadFile(log)
			require.NoError(t, err)
			assert.Equal(t, test.state.String(), string(text))
			assert.Contains(t, c.stdout.String(), "\n          "+log+"\n")
			quoted := "'" + strings.ReplaceAll(folder, "'", `'\''`) + "'"
			assert.Contains(t, c.stdout.String(), "\n          inspect view --log-dir "+quoted+"\n")
			if test.code != 0 {
				assert.Contains(t, c.stdout.String(), "\ngo on     evalfleet eval resume e1 --log-dir "+quoted+" --server ")
			}
			entries, err := os.ReadDir(folder)
			require.NoError(t, err)
			assert.Len(t, entries, 1, "nothing half-written is left")
		})
	}
}

func TestAnInterruptedEvaluationHasItsLog(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	exported := exports(s)
	watching := make(chan bool, 1)
	s.watch = func(n int, req *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
		if n == 0 {
			watching <- true
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		return finishes(s, cancelled)(n, req, stream)
	}
	folder := t.TempDir()
	c := begin(t, append(serve(t, s), "eval", "run", task(t, 1), "--log-dir", folder, "--json")...)
	assert.Equal(t, running.String(), waittest.For(t, exported, "a log of the running evaluation"))
	waittest.For(t, watching, "the watch of the evaluation") // One that an interrupt forestalled would be the next.
	c.signals <- syscall.SIGINT
	assert.Equal(t, 130, c.end(t), c.stderr.String())
	text, err := os.ReadFile(filepath.Join(folder, logName))
	require.NoError(t, err)
	assert.Equal(t, cancelled.String(), string(text))
	assert.Contains(t, c.stdout.String(), `"logs":["`+filepath.Join(folder, logName)+`"]`)
}

func TestALogThatCannotBeWrittenIsAWarning(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		export func(*agentv1.ExportEvalRequest, agentv1.EvalService_ExportEvalServer) error
		folder string
		says   string
	}{
		"no folder": {nil, "file/logs", "warning: no log is written: mkdir "},
		"no export": {func(*agentv1.ExportEvalRequest, agentv1.EvalService_ExportEvalServer) error {
			return status.Error(codes.Internal, "no room")
		}, "logs", "warning: the log is not complete: "},
		"cut off": {func(_ *agentv1.ExportEvalRequest, stream agentv1.EvalService_ExportEvalServer) error {
			return errors.Join(stream.Send(&agentv1.ExportEvalResponse{FileName: logName, Chunk: []byte("half")}), status.Error(codes.Internal, "no room"))
		}, "logs", "warning: the log is not complete: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{eval: at(running, 0), export: test.export}
			s.watch = finishes(s, succeeded)
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
			folder := filepath.Join(dir, test.folder)
			c := begin(t, append(serve(t, s), "eval", "run", task(t, 1), "--log-dir", folder)...)
			assert.Equal(t, 0, c.end(t), c.stderr.String())
			assert.Contains(t, c.stderr.String(), test.says)
			assert.Contains(t, c.stdout.String(), "ACCURACY")
			assert.NotContains(t, c.stdout.String(), "inspect view")
			entries, _ := os.ReadDir(folder)
			assert.Empty(t, entries, "nothing half-written is left")
		})
	}
}

// The log of the end, which another command may have written meanwhile, is not replaced by an older one.
func TestALogOfAnEvaluationThatEndsMeanwhileIsOfItsEnd(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	exports(s)
	export := s.export
	s.export = func(req *agentv1.ExportEvalRequest, stream agentv1.EvalService_ExportEvalServer) error {
		defer s.become(at(succeeded, 4))
		return export(req, stream)
	}
	folder := t.TempDir()
	abandoned, other := filepath.Join(folder, ".export-OLD"), filepath.Join(folder, ".export-NEW")
	for _, path := range []string{abandoned, other} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	old := time.Now().Add(-48 * time.Hour)
	require.NoError(t, os.Chtimes(abandoned, old, old))
	c := begin(t, append(serve(t, s), "logs", "export", "e1", "-o", folder)...)
	assert.Equal(t, 0, c.end(t), c.stderr.String())
	text, err := os.ReadFile(filepath.Join(folder, logName))
	require.NoError(t, err)
	assert.Equal(t, succeeded.String(), string(text))
	assert.NoFileExists(t, abandoned, "what a killed command left is removed")
	assert.FileExists(t, other, "another command writes it")
}

func TestNoLogWritesNone(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	s.watch = finishes(s, succeeded)
	c := begin(t, append(serve(t, s), "eval", "run", task(t, 1), "--no-log")...)
	assert.Equal(t, 0, c.end(t), c.stderr.String())
	assert.NotContains(t, c.stderr.String(), "warning")
	assert.NotContains(t, c.stdout.String(), "inspect view")

	c = begin(t, append(serve(t, s), "eval", "run", task(t, 1), "--no-log", "--log-dir", "x")...)
	assert.Equal(t, 2, c.end(t))
}
