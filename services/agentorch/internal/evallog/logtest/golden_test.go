package logtest_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/evallog/logtest"
)

func TestGoldenArchive(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "minimal-eval", goldentest.Load(t, "eval/minimal-eval.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		if c.Op() != "read_archive" {
			t.Skipf("no driver for %q", c.Op())
		}
		archive := build(t, c)
		log, err := logtest.Open(bytes.NewReader(archive), int64(len(archive)))
		t.Equal(c.At("expect"), facts(t, c, log, err))
	})
}

// facts are what every way of reading a log finds; all find the error of opening it, where there is one.
func facts(t *goldentest.T, c goldentest.Case, log *logtest.Log, openErr error) map[string]any {
	var r reading
	r.all(log, openErr, c)
	got := map[string]any{
		"header":      orError(r.headerErr, func() any { return headerFacts(r.header) }),
		"full":        orError(r.fullErr, func() any { return map[string]any{"samples": identities(r.samples, true), "status": r.header.Status} }),
		"summaries":   orError(r.summariesErr, func() any { return identities(r.summaries, false) }),
		"sample":      orError(r.sampleErr, func() any { return target(r.sample) }),
		"stream":      orError(r.streamErr[false], func() any { return r.streamed[false] }),
		"listed":      true, // Every file of the form is.
		"listed_task": listedTask(t, c, r.header),
		// The viewer answers with what can be read.
		"view_header_status": status(r.headerErr), "view_log_status": status(r.fullErr),
		"dump_exit": c.At("expect", "dump_exit"),
	}
	got["stream_all_required"] = orError(r.streamErr[true], func() any { return r.streamed[true] })
	if got["dump_exit"] != "not run" {
		got["dump_exit"] = map[bool]int{true: 0, false: 1}[r.fullErr == nil]
	}
	return got
}

// reading is what each way of reading gave.
type reading struct {
	header             *logtest.Header
	samples, summaries []logtest.Part
	sample             logtest.Part
	streamed           map[bool]int // by whether all were required
	streamErr          map[bool]error

	headerErr, fullErr, summariesErr, sampleErr error
}

func (r *reading) all(log *logtest.Log, openErr error, c goldentest.Case) {
	r.streamed, r.streamErr = map[bool]int{}, map[bool]error{false: openErr, true: openErr}
	if openErr != nil {
		r.headerErr, r.fullErr, r.summariesErr, r.sampleErr = openErr, openErr, openErr, openErr
		return
	}
	r.header, r.headerErr = log.Header()
	r.samples, r.fullErr = log.Samples()
	r.fullErr = errors.Join(r.headerErr, r.fullErr)
	r.summaries, r.summariesErr = log.Summaries()
	id, epoch := firstID(c)
	r.sample, r.sampleErr = log.Sample(id, epoch)
	for _, required := range []bool{false, true} {
		r.streamErr[required] = log.Listed(required, func(logtest.Part) error { r.streamed[required]++; return nil })
	}
}

// build makes the archive that a case gives member by member.
func build(t *goldentest.T, c goldentest.Case) []byte {
	if text, ok := c.At("input", "members").(string); ok {
		return []byte(text)
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	method := zip.Deflate
	if c.At("input", "options", "compression") != nil {
		method = zip.Store
	}
	members, _ := c.At("input", "members").([]any)
	for _, m := range members {
		member, _ := m.(map[string]any)
		name, _ := member["name"].(string)
		content, err := json.Marshal(member["json"])
		require.NoError(t, err)
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		require.NoError(t, err)
		_, err = f.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// memberName is how the member of a sample is named.
var memberName = regexp.MustCompile(`^samples/(.*)_epoch_(\d+)\.json$`)

// firstID is the sample that the recording read by its id: that of the first member, else sample 1.
func firstID(c goldentest.Case) (any, int) {
	members, _ := c.At("input", "members").([]any)
	for _, m := range members {
		member, _ := m.(map[string]any)
		name, _ := member["name"].(string)
		if found := memberName.FindStringSubmatch(name); found != nil {
			return found[1], 1
		}
	}
	return "1", 1
}

func headerFacts(h *logtest.Header) any {
	return map[string]any{"status": h.Status, "task": h.Task, "version": h.Version}
}

func identities(parts []logtest.Part, withTarget bool) any {
	all := []any{}
	for _, p := range parts {
		one := []any{p.ID, p.Epoch}
		if withTarget {
			one = append(one, target(p))
		}
		all = append(all, one)
	}
	return all
}

func target(p logtest.Part) any {
	value, _ := p.Document.Get("target")
	return value
}

// fileName is a name that tells the task.
var fileName = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[^_]*_([^_]+)_[^_]+\.eval$`)

func listedTask(t *goldentest.T, c goldentest.Case, h *logtest.Header) any {
	name, _ := c.At("input", "file").(string)
	if found := fileName.FindStringSubmatch(name); found != nil {
		return found[1]
	}
	require.NotNil(t, h)
	return h.Task
}

func status(err error) int {
	if err != nil {
		return 500
	}
	return 200
}

// orError is the recorded form of an error, or the value.
func orError(err error, value func() any) any {
	switch {
	case err == nil:
		return value()
	case errors.Is(err, logtest.ErrNoArchive):
		return map[string]any{"error": "ValueError"}
	case errors.Is(err, logtest.ErrNoMember):
		return map[string]any{"error": "KeyError"}
	case errors.Is(err, logtest.ErrNoSample):
		return map[string]any{"error": "IndexError"}
	case errors.Is(err, logtest.ErrIncomplete):
		return map[string]any{"error": "RuntimeError"}
	}
	return map[string]any{"error": "invalid"}
}
