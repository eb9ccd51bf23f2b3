package transport_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

const key = "sk-live-0123456789abcdefghijklmnopqrstuvwxyz"

// answering is a transport that always answers the same.
type answering struct {
	status     int
	kind, body string
	header     http.Header
	slow       bool
}

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {a.kind}}
	for name, values := range a.header {
		header[name] = values
	}
	body := io.Reader(strings.NewReader(a.body))
	if a.slow {
		body = iotest.OneByteReader(body)
	}
	return &http.Response{StatusCode: a.status, Header: header, Body: io.NopCloser(body), ContentLength: int64(len(a.body))}, nil
}

// answer is what a client sees of an answer that came.
func (a answering) answer(t *testing.T, secrets ...config.Secret) (http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://vendor/", nil)
	require.NoError(t, err)
	answer, err := transport.RedactSecrets(&http.Client{Transport: a}, secrets...).Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	whole, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.Header, string(whole)
}

func TestTheKeyOfAnAccountIsInNothingThatFails(t *testing.T) {
	t.Parallel()
	const stream = "text/event-stream; charset=utf-8"
	hello := `data: {"choices":[{"delta":{"content":"hello"}}]}` + "\n\n"
	for name, a := range map[string]answering{
		"refused":                         {status: 400, kind: "application/json", body: `{"error":{"message":"no such key: %s"}}`},
		"refused by a gateway":            {status: 502, kind: "text/html", body: `<p>%s</p>`},
		"refused, in what could be words": {status: 400, kind: "application/json", body: `{"choices":[],"content":"%s"}`},
		"refused, as a stream":            {status: 500, kind: stream, body: hello + "data: %s\n\n"},
		"all of it":                       {status: 400, kind: "text/plain", body: "%s"},
		"twice":                           {status: 400, kind: "text/plain", body: "%[1]s%[1]s and %[1]s"},
		"an error with a good status":     {status: 200, kind: "application/json", body: `{"error":{"message":"%s"}}`},
		"a page with a good status":       {status: 200, kind: "text/html", body: `<html>%s`},
		"in the midst of a stream":        {status: 200, kind: stream, body: hello + `data: {"error":{"message":"%s"}}` + "\n\n" + hello},
		"and beside an empty choice":      {status: 200, kind: stream, body: hello + `data: {"error":{"message":"%s"},"choices":[{"delta":{}}]}` + "\n\n"},
		"as Anthropic does":               {status: 200, kind: stream, body: "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"%s\"}}\n\n"},
		"at the end of what breaks off":   {status: 200, kind: stream, body: hello + `data: {"error":{"message":"%s`},
	} {
		for _, slow := range []bool{false, true} {
			a := a
			a.slow = slow
			form := a.body
			a.body = fmt.Sprintf(form, key)
			_, got := a.answer(t, config.NewSecret(key))
			assert.Equal(t, fmt.Sprintf(form, strings.Repeat("*", len(key))), got, "%s, byte by byte: %v", name, slow)
		}
	}
}

func TestTheKeyOfAnAccountIsInNoHeader(t *testing.T) {
	t.Parallel()
	header, _ := answering{status: 307, header: http.Header{"X-Echo": {"Bearer " + key}}}.answer(t, config.NewSecret(key))
	assert.Equal(t, "Bearer "+strings.Repeat("*", len(key)), header.Get("X-Echo"))
}

func TestAnErrorThatCannotBeReadIsLeftOut(t *testing.T) {
	t.Parallel()
	header, body := answering{status: 400, kind: "application/json", body: "\x1f\x8b" + key, header: http.Header{"Content-Encoding": {"br"}}}.answer(t, config.NewSecret(key))
	assert.Empty(t, header.Get("Content-Encoding"))
	assert.Contains(t, body, "left out")
}

// Answers are the model's words, whatever they are.
func TestAnAnswerPassesAsItCame(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]answering{
		"OpenAI's":             {kind: "application/json", body: `{"id":"1","choices":[{"message":{"content":"an \"error\" with ` + key + `"}}]}`},
		"one without an error": {kind: "application/json", body: `{"id":"1","error": null,"choices":[{"message":{"content":"` + key + `"}}]}`},
		"Anthropic's":          {kind: "application/json", body: `{"id":"1","type":"message","content":[{"type":"text","text":"` + key + `"}]}`},
		"a stream": {kind: "text/event-stream", body: `data: {"error":null,"choices":[{"delta":{"content":"` + key + `"}}]}` + "\n\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + key + `"}}` + "\n\n"},
		"a long one": {kind: "application/json", body: `{"choices":[{"message":{"content":"` + strings.Repeat("long ", 50_000) + key + `"}}]}`},
	} {
		for _, slow := range []bool{false, true} {
			a := a
			a.status, a.slow = 200, slow
			_, got := a.answer(t, config.NewSecret(key))
			assert.Equal(t, a.body, got, name)
		}
	}
}

// Characters that distinguish keys may stay; those that help to guess one may not.
func TestPartsOfAKey(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"sk-live...wxyz":                      "sk-live...wxyz",
		"sk-live-0123456789 is wrong":         "****************** is wrong",
		"ends in opqrstuvwxyz":                "ends in ************",
		"ends in pqrstuvwxyz":                 "ends in pqrstuvwxyz",
		"sk-live-0123456789***qrstuvwxyz":     "*********************qrstuvwxyz",
		"the other: secret-of-17-char, EMPTY": "the other: *****************, EMPTY",
	} {
		for _, slow := range []bool{false, true} {
			_, got := answering{status: 403, kind: "text/plain", body: said, slow: slow}.answer(t, config.NewSecret(key), config.NewSecret("secret-of-17-char"), config.NewSecret("EMPTY"))
			assert.Equal(t, want, got)
		}
	}
	_, got := answering{status: 404, kind: "text/plain", body: "the store is EMPTY"}.answer(t, config.NewSecret("EMPTY"))
	assert.Equal(t, "the store is EMPTY", got, "no secret")
}
