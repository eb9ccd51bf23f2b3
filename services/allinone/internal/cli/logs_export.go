package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// exportFlags say what to export and where to.
type exportFlags struct {
	format string
	out    string
	model  string
	force  bool
}

func (a *app) logsExportCommand() *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use:               "export EVAL",
		ValidArgsFunction: a.completeFirst(offerEvals),
		Short:             "Write an evaluation as a log file that Inspect reads",
		Long: `Export writes the log of an evaluation: what is finished, with messages, events, scores and usage. inspect view and read_eval_log read it. An evaluation that goes on can be exported too.

The file has the name that Inspect looks for, in this folder or in the one that -o names; a name with an extension, such as log.eval, is a file's. Folders that are not there are made.
-o - writes to the standard output. An evaluation of several models gives a file for each.`,
		Example: `  evalfleet logs export EVAL
  evalfleet logs export EVAL -o logs/ && inspect view --log-dir logs
  evalfleet logs export EVAL --format json -o - | jq .results`,
		Args: one("an evaluation; evalfleet eval list shows them"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.format != "eval" && f.format != "json" {
				return usage("--format %s: write eval or json", f.format)
			}
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.exportEval(ctx, a.name("evals", args[0]), f) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.format, "format", "eval", "eval: an archive; json: one document")
	flags.StringVarP(&f.out, "output", "o", "", "file, or folder; - is the standard output")
	flags.StringVar(&f.model, "model", "", "of an evaluation of several models only this one, by its name or its place from 1")
	flags.BoolVar(&f.force, "force", false, "replace a file that exists")
	return c
}

// exportEval writes a log for each model that is asked for.
func (s *session) exportEval(ctx context.Context, name string, f exportFlags) error {
	eval, err := s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name})
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
	for _, place := range places {
		if err := s.exportLog(ctx, &agentv1.ExportEvalRequest{Name: name, Format: f.format, Model: place}, f); err != nil {
			return err
		}
	}
	return nil
}

// exported is what --json tells of a log.
type exported struct {
	File    string `json:"file"`
	Samples int32  `json:"samples"`
	Bytes   int64  `json:"bytes"`
}

// exportLog writes one log. A file appears under its name only when it is whole.
func (s *session) exportLog(ctx context.Context, req *agentv1.ExportEvalRequest, f exportFlags) error {
	stream, err := s.evals.ExportEval(ctx, req)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if f.out == "-" {
		_, _, err := s.receive(stream, first, s.app.Stdout)
		return err
	}
	path := f.out
	if path == "" || isFolder(path) {
		path = filepath.Join(path, filepath.Base(first.GetFileName()))
	}
	if _, err := os.Lstat(path); err == nil && !f.force {
		return fmt.Errorf("%s exists; --force replaces it", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // As the shell makes folders: logs are for others to read.
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".export-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // It has another name by then, unless something failed.
	samples, size, err := s.receive(stream, first, file)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	if s.app.json {
		b, err := json.Marshal(exported{File: path, Samples: samples, Bytes: size})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.app.Stdout, "%s\n", b)
		return err
	}
	s.app.print("%s", path)
	s.app.note("%d samples, %d KiB", samples, (size+1023)/1024)
	return nil
}

// receive writes the chunks of a log. At each tenth of a large one it tells a person so.
func (s *session) receive(stream agentv1.EvalService_ExportEvalClient, first *agentv1.ExportEvalResponse, w io.Writer) (samples int32, size int64, err error) {
	told := int32(0)
	for r := first; ; {
		n, err := w.Write(r.GetChunk())
		size += int64(n)
		if err != nil {
			return samples, size, err
		}
		samples = r.GetSamplesDone()
		if r, err = stream.Recv(); errors.Is(err, io.EOF) {
			return samples, size, nil
		} else if err != nil {
			return samples, size, err
		}
		if tenths := r.GetSamplesDone() * 10 / max(1, r.GetSamplesTotal()); tenths > told {
			told = tenths
			s.app.note("%d of %d samples", r.GetSamplesDone(), r.GetSamplesTotal())
		}
	}
}

// isFolder reports whether a path names a folder: one that exists, or where nothing is, one that ends like a folder or has no extension.
func isFolder(path string) bool {
	if path == "-" {
		return false
	}
	if info, err := os.Stat(path); err == nil {
		return info.IsDir()
	}
	return filepath.Ext(path) == ""
}
