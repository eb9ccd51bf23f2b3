// Package dialecttest is the suite that every dialect.Codec passes, and the fuzz targets for bytes of others.
//
// The suite uses the canonical form alone: a codec must decode in one direction what it encodes in the other. The
// harness supplies what only the vendor sends, such as streams and errors.
package dialecttest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Harness describes a codec to test, with bytes as its vendor and the vendor's clients send them.
type Harness struct {
	Codec dialect.Codec
	// Requests are bodies that clients send.
	Requests []string
	// Responses are bodies that the vendor sends.
	Responses []string
	// Streams are answers that the vendor sends both ways, by a name.
	Streams map[string]Stream
	// Errors maps bodies of errors to their decoded form.
	Errors map[string]dialect.Error
	// Malformed are JSON documents that are no answer.
	Malformed []string
	// MalformedEvents are data of events that belong to no stream, each the first one.
	MalformedEvents []string
	// NoReasoning means that the format has no place for a model's visible reasoning.
	NoReasoning bool
	// NoCacheWrites means that the format does not count what was written to a cache separately.
	NoCacheWrites bool
	// NoReasoningTokens means that the format does not count the tokens of reasoning separately.
	NoReasoningTokens bool
	// NoStopReasons means that the format has no place for the reason why an answer ended, except that it has calls.
	NoStopReasons bool
	// NoNamedChoice means that the format has no place for a choice of one tool: a request offers that tool alone, and
	// asks for a call of any.
	NoNamedChoice bool
	// WholeCalls means that calls are never in pieces.
	WholeCalls bool
	// NoStopSequences means that the format has no place for texts that end an answer.
	NoStopSequences bool
	// NoLastEvent means that the format has no event that ends a stream.
	NoLastEvent bool
	// Nameless means that answers have neither an id nor the model's name.
	Nameless bool
	// NoneLeavesToolsOut means that the format cannot forbid calls but by leaving the tools out.
	NoneLeavesToolsOut bool
	// Extend returns a stream with each event's JSON object extended; nil is for server-sent events.
	Extend func(events string, extended func(object string) string) string
}

// id is the id of an answer that was written with meta.
func (h Harness) id() string {
	if h.Nameless {
		return ""
	}
	return meta(h).ID
}

// Stream is an answer as events, and the equivalent body.
type Stream struct{ Events, Body string }

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Harness){
		"the format has a name":                                named,
		"a request says what was asked":                        requests,
		"equal requests are equal bytes":                       stable,
		"members replace those of the same name":               members,
		"a request needs no configuration":                     unconfigured,
		"what the format cannot express is refused":            unsupported,
		"an answer that is JSON without a schema":              anyJSON,
		"members that are not known are ignored":               unknownMembers,
		"a client's request that is none is refused":           badRequests,
		"a response says what was answered":                    responses,
		"an output without choices is no response":             noChoices,
		"a response has an id and a model":                     described,
		"bytes that are no answer are malformed":               malformed,
		"a stream says what the response says":                 streams,
		"a part that came whole is in a stream once":           wholeParts,
		"a stream is read the same however it is cut":          splits,
		"a stream of the vendor says what its body says":       vendorStreams,
		"a stream that breaks off gives what came":             truncated,
		"events that belong to no stream are malformed":        malformedEvents,
		"a ping says nothing":                                  pings,
		"a stream that fails says why":                         failures,
		"a writer that has failed is not used again":           brokenWriters,
		"errors are read in any form":                          errorForms,
		"an error is read as it was written":                   errorsRoundTrip,
		"a conversation that is too long is an output":         tooLong,
		"a whole number of tokens may have a fraction":         wholeNumbers,
		"a scan sees what reading sees":                        scans,
		"a scan of a long answer sees its ends":                longScans,
		"what a scan cannot read it leaves out":                brokenScans,
		"nothing that is given is changed":                     unchanged,
		"a codec's value is ready and may be used at any time": concurrent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h)
		})
	}
	if counter, counts := h.Codec.(dialect.TokenCounter); counts {
		t.Run("tokens that are counted are read as they were", func(t *testing.T) {
			t.Parallel()
			counted(t, h, counter)
		})
	}
	if compactor, compacts := h.Codec.(dialect.Compactor); compacts {
		t.Run("what stands for a conversation is read as its summary", func(t *testing.T) {
			t.Parallel()
			compactions(t, h, compactor)
		})
	}
}

func named(t *testing.T, h Harness) {
	f := h.Codec.Format()
	assert.Regexp(t, `^[a-z][a-z0-9-]*$`, f.Name)
	assert.NotEmpty(t, f.OutputBounds)
	assert.Equal(t, f, h.Codec.Format(), "it is the same each time")
	options := (&modelv1.GenerateConfig{}).ProtoReflect().Descriptor().Fields()
	for name := range f.Options {
		assert.NotNil(t, options.ByTextName(name), "no option of a configuration: %s", name)
	}
	for option, c := range map[string]*modelv1.GenerateConfig{
		"stop_seqs": {StopSeqs: &modelv1.StringList{Values: []string{"stop here"}}}, "num_choices": {NumChoices: new(int32(7))}, "top_p": {TopP: new(0.25)},
	} {
		request := func(c *modelv1.GenerateConfig) string {
			body, err := h.Codec.AppendRequest(nil, &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: c})
			require.NoError(t, err)
			return string(body)
		}
		path := cmp.Or(f.Options[option], option)
		member := `"` + path[strings.LastIndex(path, ".")+1:] + `":`
		if body := request(c); body != request(&modelv1.GenerateConfig{}) {
			assert.Contains(t, body, member, "%s has another name", option)
		}
	}
}

// hard is a text that a careless reader would take for something else.
const hard = "Größe \"quoted\" \\ \n\ndata: [DONE]\r\n\"usage\":{\"id\":\"x\"} \u2028 \x00 🎈 </think> \"finish_reason\": \"length\""

// meta is the metadata of the suite's answers.
func meta(h Harness) dialect.ResponseMeta {
	return dialect.ResponseMeta{ID: h.Codec.Format().IDPrefix + "1", Model: "served", Created: 1_700_000_000, IncludeUsage: true}
}

// outputs are answers of all kinds, by a name.
func outputs(h Harness) map[string]*modelv1.ModelOutput {
	const stop = modelv1.StopReason_STOP_REASON_STOP
	all := map[string]*modelv1.ModelOutput{
		"text":     chat.MessageOutput("served", chat.Assistant("Yes."), stop),
		"hard":     chat.MessageOutput("served", chat.Assistant(hard), stop),
		"long":     chat.MessageOutput("served", chat.Assistant(strings.Repeat("long ", 50)), modelv1.StopReason_STOP_REASON_MAX_TOKENS),
		"filtered": chat.MessageOutput("served", chat.Assistant("No."), modelv1.StopReason_STOP_REASON_CONTENT_FILTER),
		"calls": chat.MessageOutput("served", chat.Assistant("Let me see.",
			chat.Call("c1", "add", `{"z": 1.0, "a": 123456789012345678901234567890}`), chat.Call("c2", "ping", "{}")), modelv1.StopReason_STOP_REASON_TOOL_CALLS),
	}
	if !h.NoReasoning {
		m := chat.Assistant("")
		m.Content = chat.ListContent(chat.ReasoningPart("Hm, \"so\"."), chat.TextPart("So."))
		all["reasoning"] = chat.MessageOutput("served", m, stop)
	}
	for _, output := range all {
		output.Usage = &modelv1.ModelUsage{
			InputTokens: 5, OutputTokens: 7, TotalTokens: 17, InputTokensCacheRead: new(int64(3)), InputTokensCacheWrite: new(int64(2)), ReasoningTokens: new(int64(1)),
		}
		if h.NoCacheWrites {
			output.Usage.InputTokensCacheWrite = nil
		}
		if h.NoReasoningTokens {
			output.Usage.ReasoningTokens = nil
		}
		if choice := output.Choices[0]; h.NoStopReasons && choice.GetStopReason() != modelv1.StopReason_STOP_REASON_TOOL_CALLS {
			choice.StopReason = stop
		}
	}
	return all
}

// said is an output reduced to what every format can express, for comparison.
type said struct {
	Model           string
	Text, Reasoning []string
	Calls           [][3]string
	Stops           []modelv1.StopReason
	Input, Output   int64
	Read, Write     int64
	Thought         int64
}

// saidBy reduces an output to what this format can express.
func (h Harness) saidBy(output *modelv1.ModelOutput) said {
	s := saidBy(output)
	if h.Nameless {
		s.Model = ""
	}
	if h.NoReasoningTokens {
		s.Thought = 0
	}
	return s
}

func saidBy(output *modelv1.ModelOutput) said {
	u := output.GetUsage()
	s := said{
		Model: output.GetModel(), Input: u.GetInputTokens(), Output: u.GetOutputTokens(), Read: u.GetInputTokensCacheRead(), Write: u.GetInputTokensCacheWrite(),
		Thought: u.GetReasoningTokens(),
	}
	for _, choice := range output.GetChoices() {
		m := choice.GetMessage()
		s.Text, s.Reasoning, s.Stops = append(s.Text, chat.Text(m)), append(s.Reasoning, reasoning(m)), append(s.Stops, choice.GetStopReason())
		for _, call := range m.GetToolCalls() {
			s.Calls = append(s.Calls, [3]string{call.GetId(), call.GetFunction(), call.GetArgumentsJson()})
		}
	}
	return s
}

// reasoning is the readable text of a message's reasoning.
func reasoning(m *modelv1.ChatMessage) string {
	var all strings.Builder
	for _, part := range chat.Parts(m.GetContent()) {
		if r := part.GetReasoning(); r.GetRedacted() {
			all.WriteString(r.GetSummary())
		} else {
			all.WriteString(r.GetReasoning())
		}
	}
	return all.String()
}

// encode returns an output as a body.
func encode(t testing.TB, h Harness, output *modelv1.ModelOutput) []byte {
	t.Helper()
	body, err := h.Codec.AppendResponse([]byte("kept"), output, meta(h))
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(body, []byte("kept")), "what is in dst stays")
	require.True(t, json.Valid(body[4:]), "%s", body)
	return body[4:]
}

// decode returns the decoded body.
func decode(t testing.TB, h Harness, body []byte) *modelv1.ModelOutput {
	t.Helper()
	response, err := h.Codec.DecodeResponse(body)
	require.NoError(t, err, "%s", body)
	output, err := response.Output(nil)
	require.NoError(t, err, "%s", body)
	for _, choice := range output.GetChoices() {
		assert.NotEmpty(t, choice.GetMessage().GetId())
		assert.Equal(t, modelv1.Role_ROLE_ASSISTANT, choice.GetMessage().GetRole())
		assert.Equal(t, modelv1.MessageSource_MESSAGE_SOURCE_GENERATE, choice.GetMessage().GetSource())
	}
	return output
}

// stream writes an output as events, after so many of its pieces.
func stream(t testing.TB, h Harness, output *modelv1.ModelOutput, pieces []*modelv1.GenerateDelta) string {
	t.Helper()
	var wire bytes.Buffer
	w := h.Codec.NewStreamWriter(&wire, meta(h))
	require.Zero(t, wire.Len(), "nothing is written before it is asked for")
	for _, piece := range pieces {
		require.NoError(t, w.Write(piece))
	}
	require.NoError(t, w.Close(output))
	return wire.String()
}

// read reads a stream to its end, or to its failure, and returns the pieces.
func read(h Harness, r io.Reader) (s dialect.StreamReader, pieces []*modelv1.GenerateDelta, err error) {
	s = h.Codec.NewStreamReader()
	for event, err := range h.Codec.ReadEvents(r) {
		if err != nil {
			return s, pieces, err
		}
		more, err := s.Add(event)
		if err != nil {
			return s, pieces, err
		}
		pieces = append(pieces, more...)
		if s.Done() {
			break
		}
	}
	return s, pieces, nil
}

// whole reads a stream that is whole.
func whole(t testing.TB, h Harness, r io.Reader) (*modelv1.ModelOutput, []*modelv1.GenerateDelta) {
	t.Helper()
	s, pieces, err := read(h, r)
	require.NoError(t, err)
	require.True(t, s.Started() && s.Complete() && (h.NoLastEvent || s.Done()), "started, complete and done")
	output, err := s.Response().Output(nil)
	require.NoError(t, err)
	return output, pieces
}

// cut are readers of a text that split it at each byte, and one that returns single bytes.
func cut(text string) func(yield func(string, io.Reader) bool) {
	return func(yield func(string, io.Reader) bool) {
		if !yield("byte by byte", iotest.OneByteReader(strings.NewReader(text))) {
			return
		}
		for at := range len(text) {
			if !yield(fmt.Sprintf("at byte %d", at), io.MultiReader(strings.NewReader(text[:at]), strings.NewReader(text[at:]))) {
				return
			}
		}
	}
}

// deltas splits an output into pieces of a few bytes, and returns the number of those that belong to no call.
func deltas(output *modelv1.ModelOutput) (all []*modelv1.GenerateDelta, texts int) {
	each := func(text string, piece func(string) *modelv1.GenerateDelta) {
		for _, c := range text {
			all = append(all, piece(string(c)))
		}
	}
	for i, choice := range output.GetChoices() {
		for _, part := range chat.Parts(choice.GetMessage().GetContent()) {
			each(part.GetReasoning().GetReasoning(), func(s string) *modelv1.GenerateDelta {
				return &modelv1.GenerateDelta{Choice: int32(i), Piece: &modelv1.GenerateDelta_Reasoning{Reasoning: s}}
			})
			each(part.GetText().GetText(), func(s string) *modelv1.GenerateDelta {
				return &modelv1.GenerateDelta{Choice: int32(i), Piece: &modelv1.GenerateDelta_Text{Text: s}}
			})
		}
	}
	texts = len(all)
	for i, choice := range output.GetChoices() {
		for j, call := range choice.GetMessage().GetToolCalls() {
			of := func(piece *modelv1.ToolCallDelta) *modelv1.GenerateDelta {
				piece.Index = int32(j)
				return &modelv1.GenerateDelta{Choice: int32(i), Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: piece}}
			}
			all = append(all, of(&modelv1.ToolCallDelta{Id: call.GetId(), Function: call.GetFunction()}))
			each(call.GetArgumentsJson(), func(s string) *modelv1.GenerateDelta { return of(&modelv1.ToolCallDelta{Arguments: s}) })
		}
	}
	return all, texts
}

// requireMalformed requires a *dialect.MalformedError.
func requireMalformed(t testing.TB, err error, of string) {
	t.Helper()
	if _, ok := errors.AsType[*dialect.MalformedError](err); !ok {
		require.Fail(t, "no *dialect.MalformedError", "%v, of %s", err, of)
	}
}

// isAnswerError reports whether an error is one that reading an answer may return.
func isAnswerError(err error) bool {
	_, malformed := errors.AsType[*dialect.MalformedError](err)
	_, vendor := errors.AsType[*dialect.Error](err)
	return malformed || vendor
}

var picture = &contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{
	Media: &contentv1.Media{Source: &contentv1.Media_Uri{Uri: "data:image/png;base64,aGk="}},
}}}
