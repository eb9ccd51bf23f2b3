package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// SIGTERM ends a command that waits for input, or reads without end.
func TestSIGTERMEndsACommandThatReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, task, rows := filepath.Join(dir, "token"), filepath.Join(dir, "task.yaml"), filepath.Join(dir, "rows.jsonl")
	require.NoError(t, os.WriteFile(token, []byte("t"), 0o600))
	require.NoError(t, os.WriteFile(task, []byte("dataset: rows.jsonl\nmodel: mockllm/m\n"), 0o600))
	require.NoError(t, os.WriteFile(rows, nil, 0o600))
	require.NoError(t, os.Truncate(rows, 1<<40)) // It has no blocks, and takes minutes to read.
	waits := "/proc/kmsg"                        // It appears to be a regular file, and the kernel generates its content during the read.
	asks := filepath.Join(dir, "asks.yaml")
	require.NoError(t, os.WriteFile(asks, []byte("dataset: {file: "+waits+", format: jsonl}\nmodel: mockllm/m\n"), 0o600))
	for name, args := range map[string][]string{
		"a prompt":            {"run", "-m", "mockllm/m", "-"},
		"input of a command":  {"sandbox", "exec", "-i", "box", "--server", "127.0.0.1:1", "--token-file", token, "--", "cat"},
		"a file of a dataset": {"eval", "run", task},
		"a file that waits":   {"eval", "run", asks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := rows
			if name == "a file that waits" {
				file = waits
				f, err := os.Open(file)
				if err != nil {
					t.Skip("this user may not read it: ", err)
				}
				require.NoError(t, f.Close())
			}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			program, err := os.Executable()
			require.NoError(t, err)
			c := exec.CommandContext(ctx, program)
			c.Args = append([]string{"evalfleet", "--data-dir", filepath.Join(dir, name)}, args...)
			c.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
			var said bytes.Buffer
			c.Stdout, c.Stderr = &said, &said
			input, err := c.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			if strings.HasPrefix(name, "a file") {
				awaitReading(t, c.Process.Pid, file)
			} else {
				_, err = io.WriteString(input, strings.Repeat("x", 128<<10)) // More than a pipe's buffer: it returns once the command reads.
				require.NoError(t, err)
			}
			require.NoError(t, c.Process.Signal(syscall.SIGTERM))
			err = c.Wait()
			require.NoError(t, ctx.Err(), "the command goes on after SIGTERM: %s", &said)
			assert.Equal(t, 130, c.ProcessState.ExitCode(), "%v: %s", err, &said)
		})
	}
}

// awaitReading waits until a process has a file open.
func awaitReading(t *testing.T, pid int, file string) {
	t.Helper()
	for start := time.Now(); time.Since(start) < deadline; time.Sleep(time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
		for _, name := range files {
			if to, err := os.Readlink(name); err == nil && to == file {
				return
			}
		}
	}
	require.Fail(t, "the command does not open "+file)
}
