package logtest_test

import (
	"archive/zip"
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog/logtest"
)

func openArchive(t *testing.T, files map[string]string) *logtest.Log {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		require.NoError(t, err)
		_, err = f.Write([]byte(files[name]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	log, err := logtest.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	return log
}

func TestWhatIsNoHeader(t *testing.T) {
	t.Parallel()
	header := func(more string) string {
		return `{"eval":{"created":"2026-01-02T03:04:05Z","task":"t","model":"m","dataset":{},"config":{}}` + more + `}`
	}
	for _, test := range []struct{ document, fault string }{
		{header(``), ""},
		{header(`,"stats":{"started_at":"","model_usage":{"m":{"input_tokens":"3"}}},"error":null,"unknown":1`), ""},
		{header(`,"results":{"scores":[{"name":"a","scorer":"a","metrics":{"x":{"name":"x","value":NaN}}}]}`), ""},
		{header(`,"results":{"scores":[{"name":"a","scorer":"a","metrics":{"x":{"name":"x","value":null}}}]}`), "results scores 0 metrics x value must be a number"},
		{header(`,"stats":null`), "stats must be an object"},
		{header(`,"plan":{"steps":[{}]}`), "plan steps 0 solver is missing"},
		{header(`,"error":{"message":"m"}`), "is missing"},
		{header(`,"tags":["a",1]`), "tags 1 must be a text"},
		{header(`,"status":"paused"`), "status must be one of"},
		{`{"eval":{"created":"soon","task":"t","model":"m","dataset":{},"config":{}}}`, "eval created must be a time"},
		{`{"eval":{"created":"2026-01-02","task":"t","model":"m","dataset":{"sample_ids":[1.5]},"config":{}}}`, "eval dataset sample_ids 0 must be an integer"},
	} {
		_, err := openArchive(t, map[string]string{"header.json": test.document}).Header()
		if test.fault == "" {
			require.NoError(t, err, test.document)
			continue
		}
		require.ErrorIs(t, err, logtest.ErrInvalid, test.document)
		assert.ErrorContains(t, err, test.fault)
	}
}

func TestWhatIsNoSample(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ more, fault string }{
		{``, ""},
		{`,"events":[{"event":"info","data":1},{"event":"span_end","id":"s"}],"messages":[{"role":"user","content":[{"type":"text"}]}]`, ""},
		{`,"events":[{"event":"novelty"}]`, "events 0 is an event of an unknown kind"},
		{`,"events":[{"event":"span_begin","id":"s"}]`, "events 0 name is missing"},
		{`,"messages":[{"role":"robot","content":""}]`, "messages 0 role must be one of"},
		{`,"scores":{"match":{}}`, "scores match value is missing"},
		{`,"limit":{"type":"patience","limit":1}`, "limit type must be one of"},
		{`,"total_time":"long"`, "total_time must be a number"},
	} {
		log := openArchive(t, map[string]string{"samples/1_epoch_1.json": `{"id":1,"epoch":1,"input":"q","target":"t"` + test.more + `}`})
		_, err := log.Sample(1, 1)
		if test.fault == "" {
			require.NoError(t, err, test.more)
			continue
		}
		require.ErrorIs(t, err, logtest.ErrInvalid, test.more)
		assert.ErrorContains(t, err, test.fault)
	}
}
