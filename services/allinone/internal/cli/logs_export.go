package cli

import (
	"archive/zip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// exportFlags are the flags for what to export, and where to.
type exportFlags struct {
	all    bool
	format string
	out    string
	model  string
	force  bool
}

func (a *app) logsExportCommand() *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use:               "export EVAL | --all",
		ValidArgsFunction: a.completeFirst(offerEvals),
		Short:             "Write an evaluation as a log file that Inspect reads",
		Long: `Export writes the log of an evaluation: what is finished, with messages, events, scores and usage. inspect view and read_eval_log read it. An evaluation that has not ended can be exported too.

The file has the name that Inspect looks for, in this folder or in the one that -o names; a name with an extension, such as log.eval, is a file's. Folders that are not there are made.
-o - writes to the standard output. An evaluation of several models gives a file for each.

eval run and eval resume write this log by themselves. With --all the logs of all evaluations of the project are written into the folder that those write to, or the one that -o names; files that are up to date stay as they are.`,
		Example: `  evalfleet logs export EVAL
  evalfleet logs export EVAL -o logs/ && inspect view --log-dir logs
  evalfleet logs export EVAL --format json -o - | jq .results
  evalfleet logs export --all`,
		Args: func(c *cobra.Command, args []string) error {
			if f.all {
				return none(c, args)
			}
			return one("an evaluation; evalfleet eval list shows them")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.format != "eval" && f.format != "json" {
				return usage("--format %s: write eval or json", f.format)
			}
			if err := checkLocal("-o", f.out); err != nil {
				return err
			}
			if f.all {
				if f.out == "" {
					var err error
					if f.out, err = a.logDir(); err != nil {
						return err
					}
				}
				if f.out == "-" {
					return usage("-o -: --all writes a file for each log; name a folder")
				}
				if f.model != "" {
					return usage("--all and --model exclude each other")
				}
				return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.exportAll(ctx, f) })
			}
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				name, err := s.name(ctx, evals, args[0])
				if err != nil {
					return err
				}
				return s.exportEval(ctx, name, f)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.format, "format", "eval", "eval: an archive; json: one document")
	flags.StringVarP(&f.out, "output", "o", "", "file, or folder; - is the standard output")
	flags.StringVar(&f.model, "model", "", "of an evaluation of several models only this one, by its name or its place from 1")
	flags.BoolVar(&f.force, "force", false, "replace a file that exists")
	flags.BoolVar(&f.all, "all", false, "export every evaluation of the project into a folder")
	return c
}

// exportEval writes a log for each model that is asked for.
func (s *session) exportEval(ctx context.Context, name string, f exportFlags) error {
	eval, err := s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name, Content: true})
	if err != nil {
		return err
	}
	var places []int32
	var known, chosen []string
	for i, m := range eval.GetSpec().GetModels() {
		place := strconv.Itoa(i + 1)
		known = append(known, fmt.Sprintf("%s (%s)", place, m.GetModel()))
		if f.model == "" || f.model == m.GetModel() || f.model == place {
			places, chosen = append(places, int32(i+1)), append(chosen, known[i])
		}
	}
	switch {
	case len(places) == 0:
		return usage("--model %s: %s has %s", f.model, short(name), strings.Join(known, ", "))
	case len(places) > 1 && f.out != "" && !isFolder(f.out):
		return usage("-o %s: there is a log for each of %d models; name a folder, or one of them with --model: %s", f.out, len(places), strings.Join(chosen, ", "))
	}
	format, _ := enum.Parse[agentv1.LogFormat](f.format) // The flag was checked.
	for _, place := range places {
		req := &agentv1.ExportEvalRequest{Name: name, Format: format, Model: place}
		if f.out == "-" {
			if err := s.printLog(ctx, req); err != nil {
				return err
			}
			continue
		}
		log, err := s.saveLog(ctx, eval, req, f, s.telling())
		if err != nil {
			return err
		}
		if err := s.showLog(log); err != nil {
			return err
		}
	}
	return nil
}

// exportAll writes the logs of all evaluations of the project into a folder. A log that is up to date stays as it is.
// An evaluation whose log cannot be written does not keep the others from theirs.
func (s *session) exportAll(ctx context.Context, f exportFlags) error {
	if err := makeFolder(f.out); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.out)
	if err != nil {
		return err
	}
	evals, err := page(0, func(token string) ([]*agentv1.Eval, string, error) {
		r, err := s.evals.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: s.app.parent(), PageSize: 100, PageToken: token})
		return r.GetEvals(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	written, current := 0, 0
	var faults []error
	for i, eval := range evals {
		if !f.force && isCurrent(f.out, entries, f.format, eval) {
			current++
			continue
		}
		s.app.note("%d of %d: %s · %s · %s", i+1, len(evals), short(eval.GetName()), eval.GetSpec().GetTask(), evalState(eval))
		err := s.exportEval(ctx, eval.GetName(), exportFlags{format: f.format, out: f.out, force: true})
		switch {
		case ctx.Err() != nil:
			return err
		case rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND): // It was deleted meanwhile.
		case err != nil:
			faults = append(faults, fmt.Errorf("%s: %w", short(eval.GetName()), err))
		default:
			written++
		}
	}
	s.app.note("%d of %d evaluations written to %s; %d up to date", written, len(evals), f.out, current)
	return errors.Join(faults...)
}

// exported is what --json writes of a log.
type exported struct {
	File    string `json:"file"`
	Samples int32  `json:"samples"`
	Bytes   int64  `json:"bytes"`
}

func (s *session) showLog(log exported) error {
	if s.app.json {
		b, err := json.Marshal(log)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.app.Stdout, "%s\n", b)
		return err
	}
	s.app.print("%s", log.File)
	s.app.note("%d samples, %d KiB", log.Samples, (log.Bytes+1023)/1024)
	return nil
}

// printLog writes one log to the standard output.
func (s *session) printLog(ctx context.Context, req *agentv1.ExportEvalRequest) error {
	stream, err := s.evals.ExportEval(ctx, req)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	_, _, err = receiveLog(stream, first, s.app.Stdout, s.telling())
	return err
}

// saveLog writes one log as a file, which appears under its name only when it is complete. The file of an ended
// evaluation gets the time of its end, by which [isCurrent] recognizes it. If the evaluation ends while its log is
// written, the log is written again: another command may have written the final one in the meantime.
func (s *session) saveLog(ctx context.Context, eval *agentv1.Eval, req *agentv1.ExportEvalRequest, f exportFlags, tell tellFunc) (exported, error) {
	stream, err := s.evals.ExportEval(ctx, req)
	if err != nil {
		return exported{}, err
	}
	first, err := stream.Recv()
	if err != nil {
		return exported{}, err
	}
	path := f.out
	if path == "" || isFolder(path) {
		path = filepath.Join(path, filepath.Base(first.GetFileName()))
	}
	if _, err := os.Lstat(path); err == nil && !f.force {
		return exported{}, fmt.Errorf("%s exists; --force replaces it", path)
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return exported{}, err
	}
	file, err := createUnfinished(filepath.Dir(path))
	if err != nil {
		return exported{}, err
	}
	defer os.Remove(file.Name()) // It has another name by then, unless something failed.
	samples, size, err := receiveLog(stream, first, file, tell)
	if err := errors.Join(err, file.Close()); err != nil {
		return exported{}, err
	}
	if !ended(eval) {
		now, err := s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: eval.GetName(), Content: true})
		if err != nil {
			return exported{}, err
		}
		if ended(now) {
			return s.saveLog(ctx, now, req, f, tell)
		}
	}
	if at := eval.GetEndTime().AsTime(); ended(eval) && eval.GetEndTime() != nil {
		if err := os.Chtimes(file.Name(), at, at); err != nil {
			return exported{}, err
		}
	}
	return exported{File: path, Samples: samples, Bytes: size}, os.Rename(file.Name(), path)
}

const (
	// unfinished is how the names of files begin that logs are written to.
	unfinished = ".export-"
	// abandonedAfter is how long nothing is written to an unfinished file before it is taken for one of a command that
	// was killed.
	abandonedAfter = 24 * time.Hour
)

// createUnfinished makes the file that a log is written to, with the permissions that the umask leaves. It removes
// those that commands left behind which were killed.
func createUnfinished(dir string) (*os.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unfinished) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > abandonedAfter {
			_ = os.Remove(filepath.Join(dir, e.Name())) // Another command may have removed it, or will.
		}
	}
	path := filepath.Join(dir, unfinished+rand.Text())
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) //nolint:gosec // The umask decides who reads logs.
}

// tellFunc is called with the number of samples of a log that have been written.
type tellFunc func(done, total int32)

// telling returns a function that prints each tenth of a log that takes longer than a moment.
func (s *session) telling() tellFunc {
	began, told := time.Now(), int32(0)
	return func(done, total int32) {
		if tenths := done * 10 / max(1, total); tenths > told && time.Since(began) > waitingAfter {
			told = tenths
			s.app.note("%d of %d samples are in the log", done, total)
		}
	}
}

// receiveLog writes the chunks of a log.
func receiveLog(stream agentv1.EvalService_ExportEvalClient, first *agentv1.ExportEvalResponse, w io.Writer, tell tellFunc) (samples int32, size int64, err error) {
	for r := first; ; {
		n, err := w.Write(r.GetChunk())
		size += int64(n)
		if err != nil {
			return samples, size, err
		}
		samples = r.GetSamplesDone()
		if tell != nil {
			tell(samples, r.GetSamplesTotal())
		}
		if r, err = stream.Recv(); errors.Is(err, io.EOF) {
			return samples, size, nil
		} else if err != nil {
			return samples, size, err
		}
	}
}

// isCurrent reports whether a folder, whose entries these are, holds each log of an evaluation as it is: it has ended,
// and its logs are of that end or were changed after it. The names of logs end with the evaluation's id.
func isCurrent(dir string, entries []os.DirEntry, format string, eval *agentv1.Eval) bool {
	models := len(eval.GetSpec().GetModels())
	for i := range models {
		end := "_" + short(eval.GetName())
		if models > 1 {
			end += fmt.Sprintf("m%d", i+1)
		}
		at := slices.IndexFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), end+"."+format) })
		if at < 0 || !ended(eval) {
			return false
		}
		info, err := entries[at].Info()
		if err != nil || info.ModTime().Before(eval.GetEndTime().AsTime().Truncate(time.Microsecond)) || !isComplete(filepath.Join(dir, info.Name())) {
			return false
		}
	}
	return true
}

// isComplete reports whether a log is of an evaluation that had ended when it was written.
func isComplete(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var header io.Reader = file
	if filepath.Ext(path) == ".eval" {
		info, err := file.Stat()
		if err != nil {
			return false
		}
		archive, err := zip.NewReader(file, info.Size())
		if err != nil {
			return false
		}
		member, err := archive.Open("header.json")
		if err != nil {
			return false
		}
		defer member.Close()
		header = member
	}
	status, err := logStatus(header)
	return err == nil && status != "started"
}

// logStatus reads the status of a log, which is among the first members of its header. What follows may hold NaN, which
// is no JSON.
func logStatus(header io.Reader) (string, error) {
	d := json.NewDecoder(header)
	if _, err := d.Token(); err != nil { // The brace.
		return "", err
	}
	for {
		name, err := d.Token()
		if err != nil {
			return "", err
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return "", err
		}
		if status, ok := value.(string); ok && name == "status" {
			return status, nil
		}
	}
}

// isFolder reports whether a path names a folder: one that exists, or where nothing is, one that ends like a folder or
// has no extension.
func isFolder(path string) bool {
	if path == "-" {
		return false
	}
	if info, err := os.Stat(path); err == nil {
		return info.IsDir()
	}
	return filepath.Ext(path) == ""
}
