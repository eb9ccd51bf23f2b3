package batchapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// stored are lines with bodies of a size; read counts how many were read.
func stored(n, size int, read *int) (lines []provider.BatchLine) {
	for i := range n {
		lines = append(lines, provider.BatchLine{ID: fmt.Sprintf("b-%d", i), Size: int64(size), Body: func(context.Context) ([]byte, error) {
			*read++
			return []byte(`"` + strings.Repeat("x", size-2) + `"`), nil
		}})
	}
	return lines
}

// taker is a vendor that reads the body of a request piece by piece, and answers.
type taker struct {
	each   func(taken int64)
	answer string
}

func (v taker) RoundTrip(r *http.Request) (*http.Response, error) {
	taken, piece := int64(0), make([]byte, 1000)
	for {
		n, err := r.Body.Read(piece)
		taken += int64(n)
		v.each(taken)
		switch {
		case errors.Is(err, io.EOF) && taken != r.ContentLength:
			return nil, fmt.Errorf("%d bytes in place of %d", taken, r.ContentLength)
		case errors.Is(err, io.EOF):
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(v.answer)), Request: r}, nil
		case err != nil:
			return nil, err
		}
	}
}

// TestABatchIsReadAsItIsSent: however large it is, no more than one request of it is read before the vendor has taken
// those before.
func TestABatchIsReadAsItIsSent(t *testing.T) {
	t.Parallel()
	const requests, size = 200, 100 << 10
	read := 0
	most := int64(0)
	client := &http.Client{Transport: taker{func(taken int64) { most = max(most, int64(read)*size-taken) }, `{"id":"f"}`}}
	vendor := Client{Exchange: &exchange.Exchange{Provider: "v", HTTP: client}, Authorize: func(http.Header) {}}
	lines := stored(requests, size, &read)
	var file struct{ ID string }
	require.NoError(t, vendor.Upload(t.Context(), "http://v.example/files", nil, "n", &file, Lines(lines, "", func(id []byte) (string, string) { return fullLine(id, "/p") })))
	assert.Equal(t, requests, read)
	assert.LessOrEqual(t, most, int64(size))

	read, most = 0, 0
	require.NoError(t, vendor.Post(t.Context(), "http://v.example/batches", nil, &file, Lines(lines, ",", func(id []byte) (string, string) { return `{"id":` + string(id) + `,"r":`, "}" }).Within("[", "]")))
	assert.Equal(t, requests, read)
	assert.LessOrEqual(t, most, int64(size))
}

func TestContent(t *testing.T) {
	t.Parallel()
	around := func(id []byte) (string, string) { return "<" + string(id) + ":", ">" }
	read := 0
	for name, tt := range map[string]struct {
		content Content
		want    string
	}{
		"none":        {Content{}, ""},
		"document":    {Document([]byte("{}")), "{}"},
		"no lines":    {Lines(nil, ",", around).Within("[", "]"), "[]"},
		"one line":    {Lines(stored(1, 4, &read), ",", around).Within("[", "]"), `[<"b-0":"xx">]`},
		"two lines":   {Lines(stored(2, 3, &read), ",", around).Within("[", "]").Within("{", "}"), `{[<"b-0":"x">,<"b-1":"x">]}`},
		"line breaks": {Lines([]provider.BatchLine{{ID: "b", Size: 5, Body: func(context.Context) ([]byte, error) { return []byte("{\r\n }"), nil }}}, "", around), `<"b":{   }>`},
	} {
		for range 2 { // It can be sent again.
			got, err := io.ReadAll(tt.content.reader(t.Context()))
			require.NoError(t, err, name)
			assert.Equal(t, tt.want, string(got), name)
			assert.Len(t, got, int(tt.content.Size()), name)
		}
	}
}

// TestARequestThatCannotBeReadEndsTheUpload: the vendor must not take a part of a batch for the whole.
func TestARequestThatCannotBeReadEndsTheUpload(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for name, body := range map[string]func(context.Context) ([]byte, error){
		"lost":    func(context.Context) ([]byte, error) { return nil, gone },
		"changed": func(context.Context) ([]byte, error) { return []byte("{}"), nil },
	} {
		read := 0
		lines := append(stored(1, 10, &read), provider.BatchLine{ID: "b-1", Size: 10, Body: body})
		client := Client{Exchange: &exchange.Exchange{Provider: "v", HTTP: &http.Client{Transport: taker{func(int64) {}, `{}`}}}, Authorize: func(http.Header) {}}
		err := client.Post(t.Context(), "http://v.example", nil, &struct{}{}, Lines(lines, "", func([]byte) (string, string) { return "", "" }))
		require.Error(t, err, name)
		assert.Equal(t, provider.Transient, provider.ClassOfError(err), name)
	}
}
