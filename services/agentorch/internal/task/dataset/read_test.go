package dataset_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// write makes a file in a folder of its own and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func zipped(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func TestOpenTellsTheFormatFromTheEnding(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"a.jsonl": `{"input":"q","target":"t"}`, "a.JSON": `[{"input":"q","target":"t"}]`, "a.csv": "input,target\nq,t\n", "a.tsv": "input\ttarget\nq\tt\n",
		"a.TAB": "target\tinput\nt\tq", "a.jsonl.gz": zipped(t, `{"input":"q","target":"t"}`), "a.csv.GZ": zipped(t, "input,target\nq,t"),
		"a.json": "\ufeff{\"input\":\"q\",\"target\":\"t\"}",
	} {
		d, err := open(t, write(t, name, content), dataset.Options{})
		require.NoError(t, err, name)
		assert.Equal(t, "a", d.Name, name)
		require.Len(t, d.Samples, 1, name)
		assert.Equal(t, "q", d.Samples[0].Text, name)
		assert.Equal(t, []string{"t"}, d.Samples[0].Targets, name)
	}
}

func TestErrorsSayWhereAndWhatToDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, content, fields, want string }{
		{"no input", "a.jsonl", "{\"input\":\"q\"}\n{}\n", ``, `line 2, field input, column "input": there is no input`},
		{"no column of its name", "a.jsonl", `{"question":"q","gold":"x"}`, `{"target":"gold"}`, "line 1, field input, column \"input\": there is no such column, its columns are question, gold: name the one that holds the input, such as `fields: {input: question}`"},
		{"lacking column", "a.jsonl", `{"input":"q","answer":"x"}`, `{"target":"anser"}`, `line 1, field target, column "anser": there is no such column, its columns are input, answer: correct the mapping`},
		{"lacking column of CSV", "a.csv", "input,answer\n", `{"target":"anser"}`, `line 1, field target, column "anser": there is no such column, its columns are input, answer`},
		{"lacking metadata", "a.csv", "\ninput\nq\n", `{"metadata":["level"]}`, `line 2, field metadata, column "level"`},
		{"lacking in a template", "a.jsonl", `{"q":"x"}`, `{"input":{"template":"{q} {hint}"}}`, `line 1, field input, column "hint": there is no such column`},
		{"null in a template", "a.jsonl", `{"q":null}`, `{"input":{"template":"{q}"}}`, `line 1, field input, column "q": the value is null where text is wanted`},
		{"pattern finds nothing", "a.jsonl", `{"input":"q","answer":"none"}`, `{"target":{"column":"answer","pattern":"#### (.+)"}}`, `line 1, field target, column "answer": the pattern "#### (.+)" finds nothing in "none"`},
		{"pattern on a lacking column", "a.jsonl", `{"input":"q"}`, `{"target":{"column":"answer","pattern":"x"}}`, `field target, column "answer": there is no such column`},
		{"blank line", "a.jsonl", "{\"input\":\"q\"}\n\n", ``, "line 2: the line is blank"},
		{"no JSON", "a.jsonl", "{\"input\":\"q\"}\n{\"input\"", ``, "line 2: the line is no JSON object"},
		{"lines named json", "a.json", "{\"input\":\"q\"}\n{\"input\":\"r\"}", ``, "for one object a line name it .jsonl"},
		{"item of a list", "a.json", "[\n{\"input\":\"q\"},\n\n 5]", ``, "line 4: the item is no JSON object"},
		{"list with a fault", "a.json", "[\n{\"input\":\"q\"},\n{\"input\"}]", ``, "line 3: it is no JSON"},
		{"open list", "a.json", "[\n{\"input\":\"q\"}\n", ``, "line 3: the JSON list is not closed"},
		{"after the list", "a.json", "[]\n[]", ``, "there is text after the JSON list"},
		{"number input", "a.jsonl", `{"input":5}`, ``, "the input is a JSON number"},
		{"id", "a.jsonl", `{"input":"q","id":1.5}`, ``, `field id, column "id": the id 1.5 is no integer`},
		{"id beyond exact floats", "a.jsonl", `{"input":"q","id":1e20}`, ``, `field id, column "id": the id 1e20 is no integer`},
		{"metadata", "a.jsonl", `{"input":"q","metadata":"[1]"}`, ``, `field metadata, column "metadata": the value is a JSON array`},
		{"metadata text", "a.jsonl", `{"input":"q","metadata":"x"}`, ``, "the text is no JSON object"},
		{"files", "a.jsonl", `{"input":"q","files":{"a":1}}`, ``, `the content of file "a" is a JSON number`},
		{"sandbox", "a.jsonl", `{"input":"q","sandbox":"[1"}`, ``, "begins like a JSON list"},
		{"role", "a.jsonl", `{"input":[{"role":"user","content":"x"},{"role":"robot","content":"x"}]}`, ``, "message 2: role is missing or unknown"},
		{"ragged row", "a.csv", "input,target\nq,t\n\"a\nb\",c,d\n", ``, "line 3: the row has 3 cells where there are 2 columns (input, target)"},
		{"quote", "a.csv", "input,target\nq,t\nq,\"x\ny\n", ``, "line 3: a quote is opened and never closed"},
		{"twice", "a.csv", "input,x,x\n", ``, `line 1: two columns are named "x"`},
		{"not UTF-8", "a.jsonl", "{\"input\":\"q\"}\n{\"input\":\"\xff\"}", ``, "line 2: the line is not UTF-8"},
		{"CSV not UTF-8", "a.csv", "input\nq\n\xff\n", ``, "line 3: the line is not UTF-8"},
		{"cut gzip", "a.jsonl.gz", zipped(t, strings.Repeat(`{"input":"q"}`, 99))[:30], ``, "dataset a: its gzip is cut off or damaged (unexpected EOF): pack or fetch the file anew"},
		{"broken gzip", "a.jsonl.gz", "\x1f\x8bxx", ``, "dataset a: its gzip is cut off or damaged (unexpected EOF): pack or fetch the file anew"},
		{"damaged gzip", "a.jsonl.gz", zipped(t, `{"input":"q"}`)[:25] + "checksum", ``, "dataset a: its gzip is cut off or damaged (flate: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fields, err := dataset.ParseFields([]byte(c.fields))
			require.NoError(t, err)
			path := write(t, c.file, c.content)
			_, err = open(t, path, dataset.Options{Fields: fields})
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "dataset a")
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST))
		})
	}
}

func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	bomb := zipped(t, strings.Repeat(" ", 1<<20)+"\n")
	for _, format := range []dataset.Format{dataset.JSONLines, dataset.JSON, dataset.CSV} {
		_, err := read(t.Context(), strings.NewReader(bomb), dataset.Options{Format: format, MaxBytes: 1000, Name: "bomb"})
		require.ErrorContains(t, err, "dataset bomb: it is larger than 1000 bytes after decompression")
	}
	exact := `{"input":"q"}`
	_, err := read(t.Context(), strings.NewReader(exact), dataset.Options{Format: dataset.JSONLines, MaxBytes: int64(len(exact))})
	require.NoError(t, err)
}

func TestReadPassesOnFaultsOfTheStream(t *testing.T) {
	t.Parallel()
	for _, format := range []dataset.Format{dataset.JSONLines, dataset.JSON, dataset.CSV} {
		_, err := read(t.Context(), iotest.ErrReader(errors.New("disk gone")), dataset.Options{Format: format})
		require.ErrorContains(t, err, "disk gone")
	}
	_, err := read(t.Context(), strings.NewReader(""), dataset.Options{Format: "xml"})
	require.ErrorContains(t, err, "known: jsonl, json, csv")
	_, err = read(t.Context(), strings.NewReader("a"), dataset.Options{Format: dataset.CSV, Delimiter: "||"})
	require.ErrorContains(t, err, "is not one character")
}

func TestCSVKeepsWhatCellsHold(t *testing.T) {
	t.Parallel()
	text := "\ufeffinput,target,metadata,files,sandbox\r\n" +
		"\"a, \"\"b\"\"\r\nc\",x\"y,\"{\"\"k\"\": 1.0}\",,\r\n\r\n , ,,,\r\nlast,  t  ,,,docker"
	d, err := read(t.Context(), strings.NewReader(text), dataset.Options{Format: dataset.CSV})
	require.NoError(t, err)
	require.Len(t, d.Samples, 2, "blank lines and rows of blanks are none")
	assert.Equal(t, "a, \"b\"\nc", d.Samples[0].Text)
	assert.Equal(t, []string{`x"y`}, d.Samples[0].Targets)
	raw, err := d.Samples[0].Metadata.MarshalJSON()
	require.NoError(t, err)
	assert.Equal(t, `{"k":1.0}`, string(raw))
	assert.Nil(t, d.Samples[0].Files)
	assert.Equal(t, []string{"  t  "}, d.Samples[1].Targets)
	assert.Nil(t, d.Samples[1].Metadata)
	assert.Equal(t, &dataset.Sandbox{Type: "docker"}, d.Samples[1].Sandbox)
}

func TestNumbersBeyondJSON(t *testing.T) {
	t.Parallel()
	text := `{"input":"NaN \" Infinity","target":NaN,"id":12345678901234567890123,"choices":[NaN,-Infinity,1e3]}`
	for format, document := range map[dataset.Format]string{dataset.JSONLines: text, dataset.JSON: "[" + text + "]"} {
		d, err := read(t.Context(), strings.NewReader(document), dataset.Options{Format: format})
		require.NoError(t, err)
		s := d.Samples[0]
		assert.Equal(t, `NaN " Infinity`, s.Text, "texts stay as they are")
		assert.Equal(t, []string{""}, s.Targets)
		assert.Equal(t, "12345678901234567890123", s.ID.String())
		assert.Equal(t, []string{"None", "-inf", "1000.0"}, s.Choices)
	}
}

func TestFilesAreLookedForBelowTheDataset(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home := filepath.Join(dir, "data")
	require.NoError(t, os.MkdirAll(filepath.Join(home, "sub"), 0o750))
	for _, name := range []string{"data/setup.sh", "data/sub/x.png", "secret.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	read := func(row string) (dataset.Sample, error) {
		path := filepath.Join(home, "a.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(row), 0o600))
		d, err := open(t, path, dataset.Options{Fields: dataset.Fields{Metadata: &dataset.Metadata{All: true}}})
		if err != nil {
			return dataset.Sample{}, err
		}
		return d.Samples[0], nil
	}
	s, err := read(`{"input":[{"role":"user","content":[{"type":"image","image":"sub/x.png"}]}],"setup":"setup.sh","files":{"b":"sub","a":"none.txt","c":""},"sandbox":["docker","setup.sh"]}`)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(home, "setup.sh"), s.Setup.HostPath)
	assert.Equal(t, filepath.Join(home, "setup.sh"), s.Sandbox.Config.HostPath)
	assert.Equal(t, []dataset.File{
		{Path: "b", Content: dataset.Content{HostPath: filepath.Join(home, "sub")}},
		{Path: "a", Content: dataset.Content{Text: "none.txt"}},
		{Path: "c", Content: dataset.Content{}},
	}, s.Files, "in the order of the file")
	assert.Contains(t, string(s.Messages[0]), filepath.Join(home, "sub/x.png"))
	raw, err := s.Metadata.MarshalJSON()
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"image":"sub/x.png"`, "the row itself stays as it is")

	require.NoError(t, os.Symlink("../secret.txt", filepath.Join(home, "link")))
	for _, outside := range []string{"../secret.txt", filepath.Join(dir, "secret.txt"), "link", "sub/../../secret.txt"} {
		_, err = read(`{"input":"q","files":{"a":"` + outside + `"}}`)
		require.ErrorContains(t, err, `field files, column "files": file "a": "`+outside+`" is a file outside of the dataset's directory`)
	}
	for _, text := range []string{"../nosuch", "/no/such/file", "#!/bin/sh\\ntrue", "data:text/plain,x", strings.Repeat("x", 5000)} {
		s, err = read(`{"input":"q","setup":"` + text + `"}`)
		require.NoError(t, err)
		assert.Empty(t, s.Setup.HostPath, "all else is content")
	}
}

func TestReadWithoutADirectoryLooksForNoFiles(t *testing.T) {
	t.Parallel()
	d, err := read(t.Context(), strings.NewReader(`{"input":"q","setup":"/etc/passwd"}`), dataset.Options{Format: dataset.JSONLines})
	require.NoError(t, err)
	assert.Equal(t, "/etc/passwd", d.Samples[0].Setup.Text)
}

func TestMessagesKeepOnlyWhatAnInputMayHave(t *testing.T) {
	t.Parallel()
	read := func(message string) (string, error) {
		d, err := read(t.Context(), strings.NewReader(`{"input":[`+message+`]}`), dataset.Options{Format: dataset.JSONLines})
		if err != nil {
			return "", err
		}
		return string(d.Samples[0].Messages[0]), nil
	}
	for message, want := range map[string]string{
		`{"content":"x","role":"user","id":"7"}`: `{"role":"user","content":"x","source":"input"}`,
		`{"role":"assistant","content":"","tool_calls":[{"id":"c","function":"f","arguments":{"b":1.0,"a":2},"x":1}]}`:                  `{"role":"assistant","content":"","source":"input","tool_calls":[{"id":"c","function":"f","arguments":{"b":1.0,"a":2},"type":"function"}]}`,
		`{"role":"assistant","content":"","tool_calls":[{"id":"c","function":"f","arguments":{},"type":"custom","parse_error":"bad"}]}`: `{"role":"assistant","content":"","source":"input","tool_calls":[{"id":"c","function":"f","arguments":{},"type":"custom","parse_error":"bad"}]}`,
		`{"role":"user","content":[{"text":"a"},{"data":{"k":1}},{"image":"u","text":"b"}]}`:                                            `{"role":"user","content":[{"text":"a","type":"text"},{"data":{"k":1},"type":"data"},{"image":"u","text":"b","type":"text"}],"source":"input"}`,
		`{"role":"tool","content":"x","function":"f","error":{"type":"timeout","message":"m"}}`:                                         `{"role":"tool","content":"x","source":"input","function":"f","error":{"type":"timeout","message":"m"}}`,
	} {
		got, err := read(message)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, message := range []string{
		`5`, `{"role":"user"}`, `{"role":"user","content":5}`, `{"role":"user","content":["x"]}`, `{"role":"user","content":[{"type":"zzz"}]}`,
		`{"role":"user","content":[{"type":"text"}]}`, `{"role":"assistant","content":"","tool_calls":5}`, `{"role":"assistant","content":"","tool_calls":["x"]}`,
		`{"role":"assistant","content":"","tool_calls":[{"id":"c","function":"f"}]}`, `{"role":"tool","content":"x","function":5}`,
		`{"role":"tool","content":"x","error":"bad"}`, `{"role":"tool","content":"x","error":{"type":"t"}}`,
		`{"role":"tool","content":"x","error":{"type":"t","message":"m"}}`,
		`{"role":"assistant","content":"","tool_calls":[{"id":"c","function":"f","arguments":{},"type":"t"}]}`,
		`{"role":"assistant","content":"","tool_calls":[{"id":"c","function":"f","arguments":{},"parse_error":5}]}`,
		`{"role":"user","content":[{}]}`, `{"role":"user","content":[{"type":null,"text":"x"}]}`, `{"role":"user","content":[{"type":"text","text":null}]}`,
		`{"role":"user","content":[{"type":"data","data":5}]}`, `{"role":"user","content":[{"type":"audio","audio":"a"}]}`,
		`{"role":"user","content":[{"type":"video","video":"a","format":"avi"}]}`, `{"role":"user","content":[{"type":"image","image":"u","detail":null}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","name":"n"}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","tool_type":"t","id":"1","name":"n","arguments":"","result":""}]}`,
	} {
		_, err := read(message)
		require.ErrorContains(t, err, "message 1: ", message)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"{\"input\":\"q\",\"target\":[NaN,1],\"files\":{\"a\":\"b\"}}\n", "[{\"input\":[{\"role\":\"user\",\"content\":\"x\"}]}]", "input,target\n\"a\"\"b\",c\r\n",
		"\ufeffinput\n\"", "\x1f\x8b\x08\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, format := range []dataset.Format{dataset.JSONLines, dataset.JSON, dataset.CSV} {
			d, err := read(t.Context(), bytes.NewReader(content), dataset.Options{Format: format, MaxBytes: 1 << 16})
			if err != nil {
				_, known := errors.AsType[*dataset.Error](err)
				require.True(t, known, "%T: %v", err, err)
				continue
			}
			for _, s := range d.Samples {
				require.True(t, s.Text != "" || len(s.Messages) > 0, "every sample has an input")
			}
		}
	})
}

// stream is a text that repeats unit n times between before and after, without being held in memory.
func stream(before, unit string, n int, after string) io.Reader {
	return io.MultiReader(strings.NewReader(before), &repeated{unit: unit, left: n}, strings.NewReader(after))
}

type repeated struct {
	unit string
	at   int
	left int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) && r.left > 0 {
		copied := copy(p[n:], r.unit[r.at:])
		n += copied
		if r.at += copied; r.at == len(r.unit) {
			r.at, r.left = 0, r.left-1
		}
	}
	if r.left == 0 && n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// packed is a stream as gzip packs it.
func packed(t *testing.T, r io.Reader) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.Copy(w, r)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return &b
}

// What a data set takes is bounded, whatever it unpacks or unfolds to.
func TestADataSetThatStandsForTooMuchIsRefused(t *testing.T) {
	const mebi = 1 << 20
	for name, tt := range map[string]struct {
		format dataset.Format
		text   func(t *testing.T) io.Reader
		want   string
		// most is how many MiB may be in use.
		most uint64
		// values bounds the values of all rows, unless it is zero.
		values int
	}{
		"packed rows": {
			dataset.JSONLines, func(t *testing.T) io.Reader { return packed(t, stream("", "{\"input\":\"a\"}\n", 4_000_000, "")) },
			"line 1000001: there are more than 1000000 rows", 2000, 0,
		},
		"packed blanks": {
			dataset.JSON, func(t *testing.T) io.Reader { return packed(t, stream("[", " ", 64*mebi, "]")) },
			"its gzip unpacks to more than 100 times its size", 200, 0,
		},
		"one line": {
			dataset.JSONLines, func(*testing.T) io.Reader { return stream(`{"input":"`, "a", 250*mebi, `"}`) },
			"line 1: the row is longer than 16777216 bytes", 200, 0,
		},
		"one item": {
			dataset.JSON, func(*testing.T) io.Reader { return stream(`[{"input":"`, "a", 17*mebi, `"}]`) },
			"line 1: the row is longer than 16777216 bytes", 400, 0,
		},
		"one cell": {
			dataset.CSV, func(*testing.T) io.Reader { return stream("input\n\"", "a", 250*mebi, `"`) },
			"line 2: the row is longer than 16777216 bytes", 200, 0,
		},
		"many keys": {
			dataset.JSONLines, func(*testing.T) io.Reader { return stream(`{"input":"a"`, `,"k":1`, 1_000_000, `}`) },
			"line 1: the row has more than 100000 values", 200, 0,
		},
		"many cells": {
			dataset.CSV, func(*testing.T) io.Reader { return stream("input", ",", 1_000_000, "\n") },
			"line 1: the row has more than 50000 cells", 200, 0,
		},
		"many values of many rows": {
			dataset.JSONLines, func(*testing.T) io.Reader {
				return stream("", `{"input":"a","metadata":{"k":[`+strings.Repeat("1,", 9_000)+"1]}}\n", 100, "")
			},
			"line 12: the rows have too many values", 200, 100_000,
		},
		"deep": {
			dataset.JSONLines, func(*testing.T) io.Reader {
				return io.MultiReader(stream(`{"input":`, "[", 5_000, "1"), stream("", "]", 5_000, "}"))
			},
			"line 1: the row nests deeper than 1000 levels", 200, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := tt.text(t)
			most := peak(t)
			_, err := read(t.Context(), text, dataset.Options{Format: tt.format, MaxValues: tt.values})
			_, ofContent := errors.AsType[*dataset.Error](err)
			require.True(t, ofContent, "%v", err)
			require.ErrorContains(t, err, tt.want)
			assert.Less(t, most()/mebi, tt.most, "MiB in use")
		})
	}
}

// peak measures the memory that is in use from now on. The function that it returns ends that and returns the most in
// bytes.
func peak(t *testing.T) (most func() uint64) {
	t.Helper()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	ended, result := make(chan struct{}), make(chan uint64, 1)
	go func() {
		highest := uint64(0)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ended:
				tick.Stop()
				result <- highest
				return
			case <-tick.C:
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				highest = max(highest, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
			}
		}
	}()
	return func() uint64 {
		close(ended)
		return waittest.For(t, result, "the most memory that was in use")
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	const line = "{\"input\":\"a\"}\n"
	for format, text := range map[dataset.Format][2]string{
		dataset.JSONLines: {line, line}, dataset.JSON: {"[", line + ","}, dataset.CSV: {"input\n", "a\n"},
	} {
		start, unit := text[0], text[1]
		ctx, cancel := context.WithCancel(t.Context())
		endless := io.MultiReader(strings.NewReader(start), readerFunc(func(p []byte) (int, error) {
			cancel()
			return copy(p, unit), nil
		}))
		_, err := read(ctx, endless, dataset.Options{Format: format})
		require.ErrorIs(t, err, context.Canceled, format)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A template may name a long column often, in one row or in many.
func TestATemplateThatMakesTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	fields := func(times int) dataset.Fields {
		f, err := dataset.ParseFields([]byte(`{"input":{"template":"` + strings.Repeat("{input}", times) + `"}}`))
		require.NoError(t, err)
		return f
	}
	row := `{"input":"` + strings.Repeat("a", 1<<20) + "\"}\n"
	_, err := read(t.Context(), strings.NewReader(row), dataset.Options{Format: dataset.JSONLines, Fields: fields(17)})
	require.ErrorContains(t, err, "the template makes more than 16777216 bytes of one row")
	_, err = read(t.Context(), strings.NewReader(strings.Repeat(row, 20)), dataset.Options{Format: dataset.JSONLines, Fields: fields(15)})
	require.ErrorContains(t, err, "the template makes more than 268435456 bytes of all rows")
}
