package dialecttest

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

func responses(t *testing.T, h Harness) {
	for name, want := range outputs(h) {
		got := decode(t, h, encode(t, h, want))
		assert.Equal(t, h.saidBy(want), saidBy(got), name)
		assert.Equal(t, h.id(), got.GetResponseId(), name)
	}
}

func noChoices(t *testing.T, h Harness) {
	for _, output := range []*modelv1.ModelOutput{nil, {}, {Model: "m"}} {
		_, err := h.Codec.AppendResponse(nil, output, meta(h))
		require.ErrorIs(t, err, dialect.ErrNoChoices)
	}
}

func described(t *testing.T, h Harness) {
	if h.Nameless {
		return
	}
	output := outputs(h)["text"]
	output.ResponseId = new("own")
	for _, test := range []struct {
		meta      dialect.ResponseMeta
		id, model string
	}{{dialect.ResponseMeta{}, "own", "served"}, {dialect.ResponseMeta{ID: "given", Model: "alias"}, "given", "alias"}} {
		body, err := h.Codec.AppendResponse(nil, output, test.meta)
		require.NoError(t, err)
		got := decode(t, h, body)
		assert.Equal(t, []string{test.id, test.model}, []string{got.GetResponseId(), got.GetModel()})
	}
	output.ResponseId = nil
	seen := map[string]bool{}
	for range 2 {
		body, err := h.Codec.AppendResponse(nil, output, dialect.ResponseMeta{})
		require.NoError(t, err)
		id := decode(t, h, body).GetResponseId()
		assert.True(t, strings.HasPrefix(id, h.Codec.Format().IDPrefix), id)
		seen[id] = true
	}
	assert.Len(t, seen, 2, "ids that are made differ")
}

func malformed(t *testing.T, h Harness) {
	for _, body := range append(h.Malformed, ``, ` `, `null`, `{}`, `[]`, `7`, `"x"`, `{`, `<html>busy</html>`, "\xff\xfe", `data: {}`) {
		response, err := h.Codec.DecodeResponse([]byte(body))
		if err == nil {
			_, err = response.Output(nil)
		}
		requireMalformed(t, err, body)
	}
}

func errorForms(t *testing.T, h Harness) {
	for body, want := range h.Errors {
		got := h.Codec.DecodeError([]byte(body))
		require.NotNil(t, got)
		assert.Equal(t, want, *got, body)
	}
	for body, want := range map[string]string{"<html>busy</html>\n": "<html>busy</html>", "": "", "{}": "{}", "[1]": "[1]", "\xff": "\xff"} {
		assert.Equal(t, want, h.Codec.DecodeError([]byte(body)).Message, "%q", body)
	}
}

func errorsRoundTrip(t *testing.T, h Harness) {
	for _, status := range []int{400, 401, 403, 404, 413, 418, 429, 500, 502, 503, 529} {
		for _, cause := range []dialect.Cause{
			dialect.ByStatus, dialect.Wrong, dialect.Missing, dialect.Unsupported, dialect.NoThreads, dialect.UnknownModel, dialect.TooLong, dialect.QuotaSpent,
		} {
			f := dialect.Failure{Status: status, Cause: cause, Param: "messages", Message: hard, RequestID: "req_1"}
			body, ok := bytes.CutPrefix(h.Codec.AppendError([]byte("kept"), f), []byte("kept"))
			require.True(t, ok, "what is in dst stays")
			said := h.Codec.DecodeError(body)
			assert.Equal(t, hard, said.Message)
			assert.Equal(t, hard, said.Error())
			assert.NotEmpty(t, said.Type)
			_, err := h.Codec.DecodeResponse(body)
			inBody, ok := errors.AsType[*dialect.Error](err)
			require.True(t, ok, "an error in the place of an answer: %v", err)
			assert.Equal(t, said, inBody)
		}
	}
	for _, status := range []int{429, 529} {
		said := h.Codec.DecodeError(h.Codec.AppendError(nil, dialect.Failure{Status: status, Message: "m"}))
		if said.Status != 0 {
			assert.Equal(t, status, said.Status, "the words stand for their status")
		}
	}
}

func tooLong(t *testing.T, h Harness) {
	for _, words := range []string{"9,000 tokens > 8,000", "much too long"} {
		f := h.Codec.TooLong(words)
		assert.Equal(t, dialect.TooLong, f.Cause)
		assert.Equal(t, dialect.BadRequest, f.Status)
		output, ok := h.Codec.Stopped(f.Status, h.Codec.DecodeError(h.Codec.AppendError(nil, f)), "m")
		require.True(t, ok, "%s", f.Message)
		assert.Equal(t, modelv1.StopReason_STOP_REASON_MODEL_LENGTH, chat.StopReason(output))
		assert.Equal(t, "m", output.GetModel())
	}
	output, ok := h.Codec.Stopped(400, &dialect.Error{Message: "no such option"}, "m")
	assert.False(t, ok)
	assert.Nil(t, output)
}

func scans(t *testing.T, h Harness) {
	for name, output := range outputs(h) {
		body := encode(t, h, output)
		want := decode(t, h, body)
		var facts dialect.Facts
		h.Codec.ScanUsage(body, &facts)
		assert.Equal(t, want.GetResponseId(), facts.ID, name)
		assert.Equal(t, chat.StopReason(want), facts.StopReason, name)
		assert.True(t, proto.Equal(want.GetUsage(), facts.Usage), "%s: %v", name, facts.Usage)
		assert.False(t, facts.Failed, name)

		pieces, texts := deltas(output)
		events := scanned(t, h, stream(t, h, output, pieces))
		if h.WholeCalls {
			pieces = pieces[:texts]
		}
		assert.Equal(t, want.GetResponseId(), events.ID, name)
		assert.Equal(t, chat.StopReason(want), events.StopReason, name)
		assert.True(t, proto.Equal(want.GetUsage(), events.Usage), "%s: %v", name, events.Usage)
		assert.True(t, events.Ended && !events.Failed, name)
		assert.GreaterOrEqual(t, events.Pieces, int64(len(pieces)), "%s: pieces are about tokens", name)
	}
	var failed dialect.Facts
	h.Codec.ScanUsage(h.Codec.AppendError(nil, dialect.Failure{Status: 500, Message: "m"}), &failed)
	assert.True(t, failed.Failed)
}

// numbersOfTokens are the numbers of usage in an answer.
var numbersOfTokens = regexp.MustCompile(`("\w*(?i:tokens?)(?:Count|_count)?"):(\d+)`)

func wholeNumbers(t *testing.T, h Harness) {
	body := encode(t, h, outputs(h)["text"])
	want := decode(t, h, body).GetUsage()
	require.NotNil(t, want)
	for _, number := range []string{"${2}.0", "${2}e0", "${2}.00"} {
		written := numbersOfTokens.ReplaceAll(body, []byte("$1:"+number))
		require.NotEqual(t, body, written)
		assert.True(t, proto.Equal(want, decode(t, h, written).GetUsage()), "%s", written)
		var facts dialect.Facts
		h.Codec.ScanUsage(written, &facts)
		assert.True(t, proto.Equal(want, facts.Usage), "%s: %v", written, facts.Usage)
	}
	for _, number := range []string{"${2}.5", `"$2"`, "true", "1e300", "[$2]"} {
		written := numbersOfTokens.ReplaceAll(body, []byte("$1:"+number))
		_, err := h.Codec.DecodeResponse(written)
		requireMalformed(t, err, string(written))
	}
}

// scanned are the facts of a stream's events, each scanned by itself.
func scanned(t testing.TB, h Harness, events string) (facts dialect.Facts) {
	t.Helper()
	for event, err := range h.Codec.ReadEvents(strings.NewReader(events)) {
		require.NoError(t, err)
		h.Codec.ScanUsage(event.Data, &facts)
	}
	return facts
}

func longScans(t *testing.T, h Harness) {
	output := chat.MessageOutput("served", chat.Assistant(strings.Repeat(hard, 2000)), modelv1.StopReason_STOP_REASON_MAX_TOKENS)
	output.Usage = &modelv1.ModelUsage{InputTokens: 5, OutputTokens: 7, TotalTokens: 12}
	var facts dialect.Facts
	h.Codec.ScanUsage(encode(t, h, output), &facts)
	assert.Equal(t, h.id(), facts.ID)
	if !h.NoStopReasons {
		assert.Equal(t, modelv1.StopReason_STOP_REASON_MAX_TOKENS, facts.StopReason)
	}
	assert.Equal(t, []int64{5, 7}, []int64{facts.Usage.GetInputTokens(), facts.Usage.GetOutputTokens()})
}

func brokenScans(t *testing.T, h Harness) {
	for _, doc := range []string{"", "{", "null", "7", "[]", `"usage"`, `{"usage":`, `{"usage":null}`, `{"usage":7}`, "\xff", `<html>`} {
		var facts dialect.Facts
		h.Codec.ScanUsage([]byte(doc), &facts)
		assert.Empty(t, facts.ID, doc)
		assert.Nil(t, facts.Usage, doc)
		assert.False(t, facts.Ended, doc)
	}
}

func unchanged(t *testing.T, h Harness) {
	r := conversation()
	before := &modelv1.GenerateRequest{Messages: r.Messages, Tools: r.Tools, ToolChoice: r.Choice, Config: r.Config}
	kept := proto.Clone(before)
	body := appendRequest(t, h, r)
	assert.True(t, proto.Equal(kept, before), "the request")
	got, err := h.Codec.ParseRequest(body)
	require.NoError(t, err)
	parsed := &modelv1.GenerateRequest{Messages: got.Messages, Tools: got.Tools, ToolChoice: got.Choice, Config: got.Config}
	kept = proto.Clone(parsed)
	clear(body)
	assert.True(t, proto.Equal(kept, parsed), "a request does not share memory with its body")
	for name, output := range outputs(h) {
		kept := proto.Clone(output)
		body := encode(t, h, output)
		pieces, _ := deltas(output)
		events := stream(t, h, output, pieces)
		assert.True(t, proto.Equal(kept, output), "the output: %s", name)

		// An output does not share memory with the body that it was decoded from.
		got := decode(t, h, body)
		said := saidBy(got)
		clear(body)
		assert.Equal(t, said, saidBy(got), name)
		reused := []byte(events)
		s := h.Codec.NewStreamReader()
		for event, err := range h.Codec.ReadEvents(strings.NewReader(events)) {
			require.NoError(t, err)
			n := copy(reused, event.Data)
			_, err = s.Add(dialect.Event{Type: event.Type, Data: reused[:n]})
			require.NoError(t, err)
			clear(reused)
		}
		streamed, err := s.Response().Output([]*toolv1.ToolInfo{})
		require.NoError(t, err)
		assert.Equal(t, said, saidBy(streamed), name)
	}
}

func concurrent(t *testing.T, h Harness) {
	want := string(appendRequest(t, h, conversation()))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			body, err := h.Codec.AppendRequest(nil, conversation())
			assert.NoError(t, err)
			assert.Equal(t, want, string(body))
			_, err = h.Codec.ParseRequest(body)
			assert.NoError(t, err)
		})
	}
	all.Wait()
}
