package eval

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// oneBody is a store with one body.
type oneBody struct {
	Blobs
	body string
}

func (b oneBody) Open(context.Context, string, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(b.body)), nil
}

// held is how many bytes of the heap are in use.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func readText(t testing.TB, text string) *Samples {
	t.Helper()
	file := &agentv1.DatasetFile{Format: agentv1.DatasetFormat_DATASET_FORMAT_JSONL, Blob: &contentv1.BlobRef{Hash: strings.Repeat("a", 64)}}
	spec := &agentv1.EvalSpec{Dataset: &agentv1.Dataset{Name: "d", Source: &agentv1.Dataset_File{File: file}}}
	samples, err := readSamples(t.Context(), oneBody{body: text}, "default", spec)
	require.NoError(t, err)
	return samples
}

func TestSamplesTakeLittleMoreThanTheirText(t *testing.T) { //nolint:paralleltest // It counts the memory of the whole program.
	for name, c := range map[string]struct {
		row   string
		count int
		most  float64
	}{
		"short rows":  {`{"input":"a"}` + "\n", 50_000, 8},
		"long rows":   {`{"input":"` + strings.Repeat("word ", 2000) + `","target":["x","y"]}` + "\n", 1000, 1.5},
		"many values": {`{"input":"a","metadata":{"k":[` + strings.Repeat("1,", 999) + `1]}}` + "\n", 300, 1.5},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat(c.row, c.count)
			readText(t, c.row) // Caches that a first reading fills do not count.
			before := held()
			samples := readText(t, text)
			took := held() - before
			assert.Less(t, float64(took), c.most*float64(len(text)), "%d bytes are held for %d", took, len(text))
			runtime.KeepAlive(samples)
			runtime.KeepAlive(text)
		})
	}
}

// A model is sent no file of this machine, and fetches no address: a sample that needs it is refused before anything runs.
func TestASampleWithMediaElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	read := func(d *agentv1.Dataset) error {
		_, err := readSamples(t.Context(), oneBody{body: `{"input":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","image":"cat.png"}]}]}`}, "default", &agentv1.EvalSpec{Dataset: d})
		return err
	}
	file := &agentv1.DatasetFile{Format: agentv1.DatasetFormat_DATASET_FORMAT_JSONL, Blob: &contentv1.BlobRef{Hash: strings.Repeat("a", 64)}}
	require.ErrorContains(t, read(&agentv1.Dataset{Name: "d", Source: &agentv1.Dataset_File{File: file}}),
		`sample 1: input: part 2 of message 1 is at "cat.png", which is not read: give it as a data URI`)

	of := func(uri string) *agentv1.Dataset {
		user := chat.User("")
		user.Content = chat.ListContent(chat.ImagePart(uri))
		return &agentv1.Dataset{Source: &agentv1.Dataset_Inline{Inline: &agentv1.SampleList{Samples: []*agentv1.Sample{{Input: []*modelv1.ChatMessage{user}}}}}}
	}
	require.ErrorContains(t, read(of("https://v.example/"+strings.Repeat("c", 500))), `spec.dataset.inline.samples[0].input: part 1 of message 1 is at "https://v.example/ccc`)
	require.NoError(t, read(of("data:image/png;base64,eA==")))
}

// What is stored is a SampleList, as it was before samples were packed.
func TestSamplesArePackedAsTheyAreStored(t *testing.T) {
	t.Parallel()
	given := []*agentv1.Sample{
		{Id: "a", Choices: []string{"x"}},
		{},
		{Id: "7", IntegerId: true, MetadataJson: `{"k":1}`},
		{Setup: strings.Repeat("x", chunkBytes-50)},
		{Setup: strings.Repeat("y", 2*chunkBytes)},
		{Id: "last"},
	}
	packed, err := PackSamples(given)
	require.NoError(t, err)
	whole, err := proto.MarshalOptions{Deterministic: true}.Marshal(&agentv1.SampleList{Samples: given})
	require.NoError(t, err)
	stored, err := io.ReadAll(packed.reader())
	require.NoError(t, err)
	assert.Equal(t, whole, stored)
	picked := packed.pick([]int{5, 0})
	assert.True(t, proto.Equal(given[5], picked.At(0)))
	assert.True(t, proto.Equal(given[0], picked.At(1)))
	read, err := unpack(whole)
	require.NoError(t, err)
	require.Equal(t, len(given), read.Len())
	for i, sample := range read.All() {
		assert.True(t, proto.Equal(given[i], sample), "%d: %v", i, sample)
	}
	for _, broken := range [][]byte{whole[:len(whole)-1], {0x12, 0}, {0x0a, 2, 0x0a, 9}} {
		_, err := unpack(broken)
		assert.Error(t, err, "%x", broken)
	}
}

// BenchmarkShortRows is what a short row of a data set costs until its sample is packed.
func BenchmarkShortRows(b *testing.B) {
	var text strings.Builder
	const rows = 10_000
	for i := range rows {
		fmt.Fprintf(&text, "{\"id\": %d, \"input\": \"question %d\", \"target\": \"yes\"}\n", i, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		require.Equal(b, rows, readText(b, text.String()).Len())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
}
