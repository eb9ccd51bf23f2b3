package cli

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
)

const (
	// logEvery is the shortest time between two writes of a log of an evaluation at work.
	logEvery = 10 * time.Second
	// logRest is how many times as long as the last write took the next one waits, so that writing takes at most 2 % of
	// the time.
	logRest = 50
	// defaultLogDir is where logs are written unless a flag or the environment names another folder. Inspect has the
	// same.
	defaultLogDir = "logs"
)

// logDirFlags are the flags for the location of an evaluation's logs.
type logDirFlags struct {
	dir string
	off bool
}

func (f *logDirFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.dir, "log-dir", "", "folder of the log that Inspect reads (default: EVALFLEET_LOG_DIR, else INSPECT_LOG_DIR, else logs)")
	c.Flags().BoolVar(&f.off, "no-log", false, "write no log; evalfleet logs export writes one later")
}

// words are the flags that were given, for a shell.
func (f *logDirFlags) words(c *cobra.Command) []string {
	var words []string
	for _, name := range []string{"log-dir", "no-log"} {
		if flag := c.Flag(name); flag.Changed {
			words = append(words, written(flag)...)
		}
	}
	return words
}

// folder is the folder of logs; empty for none.
func (f *logDirFlags) folder(a *app) (string, error) {
	switch {
	case f.off && f.dir != "":
		return "", usage("--log-dir and --no-log exclude each other")
	case f.off:
		return "", nil
	case f.dir != "":
		return f.dir, checkLocal("--log-dir", f.dir)
	}
	return a.logDir()
}

// logDir is the folder of logs where no flag names one. INSPECT_LOG_DIR may be a URL, which only Inspect can write to.
func (a *app) logDir() (string, error) {
	if own, _ := a.Env("EVALFLEET_LOG_DIR"); own != "" {
		return own, checkLocal("EVALFLEET_LOG_DIR", own)
	}
	inspect, _ := a.Env("INSPECT_LOG_DIR")
	if isURL(inspect) {
		a.note("INSPECT_LOG_DIR is a URL, which evalfleet does not write to; logs are written to the folder %s", defaultLogDir)
		inspect = ""
	}
	return cmp.Or(inspect, defaultLogDir), nil
}

func isURL(path string) bool { return strings.Contains(path, "://") }

// checkLocal refuses a URL as the place of a log. What set it is named, not the URL, which may hold credentials.
func checkLocal(set, path string) error {
	if isURL(path) {
		return usage("%s is a URL; logs are written to folders of this machine", set)
	}
	return nil
}

// logKeeper writes the logs of an evaluation, one for each model, while a command follows the evaluation and when it
// has ended. A log that cannot be written is a warning: the evaluation does not depend on it.
type logKeeper struct {
	session *session
	dir     string
	name    string
	stop    context.CancelFunc
	stopped chan struct{}
	// files are the logs that were written last.
	files []string
}

// keepLogs begins to write the logs of an evaluation into dir. It returns nil where dir is empty or cannot be made. The
// caller must call finish or leave.
func (s *session) keepLogs(ctx context.Context, eval *agentv1.Eval, dir string) *logKeeper {
	if dir == "" {
		return nil
	}
	if err := makeFolder(dir); err != nil {
		s.app.note("warning: no log is written: %s", err)
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	k := &logKeeper{session: s, dir: dir, name: eval.GetName(), stop: stop, stopped: make(chan struct{})}
	go k.keep(ctx)
	return k
}

// keep writes the logs at intervals until ctx ends or the evaluation has ended. It prints nothing, because a live view
// uses the terminal: finish, with the last write, reports failures.
func (k *logKeeper) keep(ctx context.Context) {
	defer close(k.stopped)
	written := int32(-1) // samples
	for pause := time.Duration(0); retry.Sleep(ctx, pause) == nil; {
		began := time.Now()
		eval, err := k.session.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: k.name, Content: true})
		if err == nil && ended(eval) {
			return
		}
		if done := progress.Done(eval.GetProgress()); err == nil && done != written && k.write(ctx, eval, nil) == nil {
			written = done
		}
		pause = max(logEvery, logRest*time.Since(began))
	}
}

// leave ends the writing at intervals; the logs stay as they were written last.
func (k *logKeeper) leave() {
	if k != nil {
		k.stop()
		<-k.stopped
	}
}

// finish writes the logs of an evaluation that has ended and returns their names. An interrupt ends it.
func (k *logKeeper) finish(ctx context.Context, eval *agentv1.Eval) []string {
	if k == nil {
		return nil
	}
	k.leave()
	s := k.session
	ctx, stop := s.app.untilInterrupt(ctx)
	defer stop()
	if err := again(ctx, func() error { return k.write(ctx, eval, s.telling()) }); err != nil {
		if interrupted(ctx) {
			err = errInterrupted
		}
		s.app.note("warning: the log is not complete: %s; %s writes it", err, s.app.next("logs export %s -o %s --force", short(k.name), shellQuote(k.dir)))
	}
	return k.files
}

// write writes the log of each model.
func (k *logKeeper) write(ctx context.Context, eval *agentv1.Eval, tell tellFunc) error {
	var files []string
	for i := range eval.GetSpec().GetModels() {
		log, err := k.session.saveLog(ctx, eval, &agentv1.ExportEvalRequest{Name: k.name, Model: int32(i + 1)}, exportFlags{out: k.dir, force: true}, tell)
		if err != nil {
			return err
		}
		files = append(files, log.File)
	}
	k.files = files
	return nil
}

func makeFolder(dir string) error {
	return os.MkdirAll(dir, 0o755) //nolint:gosec // As the shell makes folders: logs are for others to read.
}

// showLogs names the logs and how to look at them.
func (a *app) showLogs(files []string) {
	for _, file := range files {
		a.print("          %s", file)
	}
	if len(files) > 0 {
		a.print("          inspect view --log-dir %s", shellQuote(filepath.Dir(files[0])))
	}
}
