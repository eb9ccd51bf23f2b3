package dialect_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

func TestAnErrorHasTheWordOfItsStatus(t *testing.T) {
	t.Parallel()
	types := dialect.ErrorTypes{Client: "client", Server: "server", ByStatus: map[int]string{429: "slow", 500: "server", 529: "slow"}}
	for status, want := range map[int]string{429: "slow", 404: "client", 499: "client", 500: "server", 503: "server", 0: "server"} {
		assert.Equal(t, want, types.Of(status), status)
	}
	assert.Equal(t, 429, types.Status("slow"))
	assert.Zero(t, types.Status("client"), "it is the word of many")
}

func TestAChoiceIsReadByTheWordThatItIsWrittenWith(t *testing.T) {
	t.Parallel()
	words := dialect.ChoiceWords{Auto: "auto", Any: "required", None: "none"}
	for word, mode := range map[string]toolv1.ToolChoiceMode{
		"auto": toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, "required": toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY, "none": toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE,
	} {
		choice, ok := words.Choice(word)
		require.True(t, ok)
		assert.Equal(t, mode, choice.GetMode())
		assert.Equal(t, word, words.Word(choice))
	}
	_, ok := words.Choice("any")
	assert.False(t, ok)
	assert.Equal(t, "auto", words.Word(nil))
}

func TestAResultClosesTheFirstCallThatFits(t *testing.T) {
	t.Parallel()
	var open dialect.OpenCalls
	open.Open([]*toolv1.ToolCall{chat.Call("a", "f", "{}"), chat.Call("b", "g", "{}"), chat.Call("c", "f", "{}")})
	assert.Equal(t, "a", open.CloseName("f").GetId())
	assert.Equal(t, []string{"b", "c"}, open.IDs())
	assert.Nil(t, open.CloseID("b", "f"), "it is of another function")
	assert.Equal(t, "c", open.CloseName("f").GetId())
	assert.Nil(t, open.CloseName("f"))
	assert.Nil(t, open.CloseID("c", ""), "it is closed")
	assert.Equal(t, "b", open.CloseID("b", "").GetId())
	assert.Empty(t, open.IDs())
	open.Open([]*toolv1.ToolCall{chat.Call("a", "f", "{}"), chat.Call("a", "g", "{}")})
	assert.Equal(t, "g", open.CloseID("a", "g").GetFunction())
	assert.Equal(t, []string{"a"}, open.IDs())
}

func TestTheFirstRefusalIsTheErrorOfARequest(t *testing.T) {
	t.Parallel()
	e := dialect.NewEncoder(nil, &dialect.Request{Config: &modelv1.GenerateConfig{ExtraBodyJson: new("[]")}}, "the API")
	e.CheckCall(chat.Call("c", "f", ""))
	e.CheckTool(&toolv1.ToolInfo{Name: "f", ParametersJson: `{"type":"object"}`})
	body, err := e.Written()
	require.NoError(t, err)
	assert.Empty(t, body)

	e.CheckCall(chat.Call("c", "f", "[1]"))
	e.CheckTool(&toolv1.ToolInfo{Name: "f", ParametersJson: "true"})
	e.TakeExtraBody()
	body, err = e.Written()
	assert.Equal(t, &dialect.UnsupportedError{API: "the API", What: "a call whose arguments are no JSON object", Field: "messages"}, err)
	assert.Nil(t, body)
}

func TestFurtherMembersAreWrittenByTheirNames(t *testing.T) {
	t.Parallel()
	e := dialect.NewEncoder(nil, &dialect.Request{Members: []dialect.Member{{Name: "a", JSON: "1"}, {Name: "b", JSON: "2"}}}, "the API")
	e.Body.BeginObject()
	e.Further(func(name string) bool { return name == "b" })
	e.Body.EndObject()
	body, err := e.Written()
	require.NoError(t, err)
	assert.Equal(t, `{"b":2}`, string(body))
	assert.NotNil(t, e.Config)
}

func TestAnObjectIsWrittenUnlessAMemberReplacesIt(t *testing.T) {
	t.Parallel()
	e := dialect.NewEncoder(nil, &dialect.Request{Members: []dialect.Member{{Name: "taken", JSON: "1"}}}, "the API")
	e.Body.BeginObject()
	e.Object("taken", func() { e.Body.IntMember("a", 2) })
	e.Object("free", func() { e.Body.IntMember("a", 3) })
	e.Body.EndObject()
	body, err := e.Written()
	require.NoError(t, err)
	assert.JSONEq(t, `{"free":{"a":3}}`, string(body))
}

func TestAnEmptyTextBesideCallsIsNoPart(t *testing.T) {
	t.Parallel()
	call := chat.Call("c", "f", "{}")
	assert.Empty(t, dialect.AnswerParts(chat.Assistant("", call)))
	assert.Len(t, dialect.AnswerParts(chat.Assistant("")), 1)
	assert.Len(t, dialect.AnswerParts(chat.Assistant("said", call)), 1)
	listed := chat.Assistant("", call)
	listed.Content = chat.ListContent(chat.TextPart(""))
	assert.Len(t, dialect.AnswerParts(listed), 1)
}

func TestStopsThatAreNotGivenAreUnset(t *testing.T) {
	t.Parallel()
	assert.Nil(t, dialect.Stops(nil))
	assert.NotNil(t, dialect.Stops([]string{}))
	assert.Equal(t, []string{"a"}, dialect.Stops([]string{"a"}).GetValues())
}

func TestCachedTokensAreApartFromTheInput(t *testing.T) {
	t.Parallel()
	u := dialect.CacheApart(&modelv1.ModelUsage{InputTokens: 10, OutputTokens: 3, InputTokensCacheRead: new(int64(4)), InputTokensCacheWrite: new(int64(1))})
	assert.Equal(t, []int64{5, 3, 13}, []int64{u.GetInputTokens(), u.GetOutputTokens(), u.GetTotalTokens()})
	assert.Zero(t, dialect.CacheApart(&modelv1.ModelUsage{InputTokens: 1, InputTokensCacheRead: new(int64(4))}).GetInputTokens())
	assert.Nil(t, dialect.CacheApart(&modelv1.ModelUsage{InputTokens: -1}))
}

func TestACountIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	malformed := func(cause error) error { return &dialect.MalformedError{Answer: "count", Cause: cause} }
	tokens, err := dialect.DecodeCount(anthropic.Codec{}, dialect.AppendCount(nil, "n", 7), "n", malformed)
	require.NoError(t, err)
	assert.Equal(t, int64(7), tokens)
	tokens, err = dialect.DecodeCount(anthropic.Codec{}, []byte(`{"n":7.0}`), "n", malformed)
	require.NoError(t, err)
	assert.Equal(t, int64(7), tokens)
	for _, body := range []string{`{}`, `{"n":null}`, `{"n":"7"}`, `{"n":7.5}`, `[]`, `{`} {
		_, err := dialect.DecodeCount(anthropic.Codec{}, []byte(body), "n", malformed)
		_, ok := errors.AsType[*dialect.MalformedError](err)
		assert.True(t, ok, body)
	}
	_, err = dialect.DecodeCount(anthropic.Codec{}, []byte(`{"n":7,"error":{"type":"overloaded_error","message":"busy"}}`), "n", malformed)
	said, ok := errors.AsType[*dialect.Error](err)
	require.True(t, ok)
	assert.Equal(t, "busy", said.Message)
}

func TestWhatAServersToolDidIsStoredInOneForm(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `{"a":[{"b":1.0}],"z":"<x>"}`, dialect.StoredJSON([]byte(`{"z": "<x>", "y": null, "a": [{"c":null,"b":1.0}]}`), false))
	assert.Equal(t, "{\n  \"a\": 1\n}", dialect.StoredJSON([]byte(`{"a":1}`), true))
	assert.Equal(t, `no JSON`, dialect.StoredJSON([]byte(`no JSON`), true))
	assert.Equal(t, "[\n  \"<x>\"\n]", dialect.StoredValue([]string{"<x>"}))
}

func TestABlockIsKeptAsDataOfItsVendor(t *testing.T) {
	t.Parallel()
	kept := dialect.KeptBlocks{"summary": {Member: "m", Type: "vendor_summary"}}
	part := kept.Data("summary", []byte(`{"type":"summary","text":"x","none":null}`))
	assert.JSONEq(t, `{"m":{"type":"vendor_summary","text":"x"}}`, part.GetData().GetJson())
	kind, block := kept.Block(part)
	assert.Equal(t, "summary", kind)
	assert.JSONEq(t, `{"type":"summary","text":"x"}`, string(orderedjson.Append(nil, block)))
	nulls := kept.Data("summary", []byte(`{"a":null,"b":null,"type":"summary","text":"x"}`))
	assert.Equal(t, part.GetData().GetJson(), nulls.GetData().GetJson(), "nulls are left out, wherever they are")
	assert.Nil(t, kept.Data("other", []byte(`{}`)))
	assert.Nil(t, kept.Data("summary", []byte(`[]`)))
	_, block = dialect.KeptBlocks{"summary": {Member: "m", Type: "of another"}}.Block(part)
	assert.Nil(t, block)
}

// What Google's form of OpenAPI has in a way of its own means the same as a JSON Schema.
func TestASchemaOfOpenAPIBecomesAJSONSchema(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"OBJECT","properties":{"type":{"type":"STRING","enum":["A"]},"x":{"anyOf":[{"type":"ARRAY","items":{"type":"NUMBER"}}]}}}`: `{"type":"object","properties":{"type":{"type":"string","enum":["A"]},"x":{"anyOf":[{"type":"array","items":{"type":"number"}}]}}}`,
		`{"type": "object", "default": {"type": "X"}}`:                                                             `{"type": "object", "default": {"type": "X"}}`,
		`{"type":"INTEGER","nullable":true}`:                                                                       `{"type":["integer","null"]}`,
		`{"type": "STRING", "nullable": false}`:                                                                    `{"type":"string"}`,
		`{"type":"STRING","nullable":true,"enum":["a"]}`:                                                           `{"type":["string","null"],"enum":["a",null]}`,
		`{"nullable":true,"anyOf":[{"type":"STRING"}]}`:                                                            `{"anyOf":[{"type":"string"},{"type":"null"}]}`,
		`{"properties":{"nullable":{"type":"string"}}}`:                                                            `{"properties":{"nullable":{"type":"string"}}}`,
		`{"type":"array","minItems":"1","maxItems":3,"title":"1"}`:                                                 `{"type":"array","minItems":1,"maxItems":3,"title":"1"}`,
		`{"type":"object","properties":{"minItems":{"default":1}}}`:                                                `{"type":"object","properties":{"minItems":{"default":1}}}`,
		`{"properties":{"propertyOrdering":{"type":"string"}},"property_ordering":["a"],"propertyOrdering":["a"]}`: `{"properties":{"propertyOrdering":{"type":"string"}}}`,
		`no JSON`: `no JSON`,
	} {
		assert.Equal(t, want, dialect.FromOpenAPI(schema))
	}
}

func TestMediaIsAPartOfItsKind(t *testing.T) {
	t.Parallel()
	assert.NotNil(t, dialect.MediaPart("image/png", "u").GetImage())
	assert.Equal(t, contentv1.AudioFormat_AUDIO_FORMAT_MP3, dialect.MediaPart("audio/mpeg", "u").GetAudio().GetFormat())
	assert.Equal(t, contentv1.VideoFormat_VIDEO_FORMAT_MOV, dialect.MediaPart("video/quicktime", "u").GetVideo().GetFormat())
	document := dialect.MediaPart("application/pdf", "u").GetDocument()
	assert.Equal(t, "application/pdf", document.GetMimeType())
	assert.Equal(t, "u", document.GetMedia().GetUri())
}

func TestBase64IsBroughtToItsUsualAlphabet(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"-_8": "+/8=", "aGk": "aGk=", "aGk=": "aGk=", "no base64": "no base64", "": ""} {
		assert.Equal(t, want, dialect.StandardBase64(given))
	}
}

func TestAFaultOfAnItemHasItsPlace(t *testing.T) {
	t.Parallel()
	err := dialect.Each([]string{"a", ""}, "list.%d.", func(item *string) error {
		if *item == "" {
			return dialect.Required("name")
		}
		return nil
	})
	fault, ok := errors.AsType[*dialect.RequestError](err)
	require.True(t, ok)
	assert.Equal(t, "list.1.name", fault.Param)
}

// recorder writes what it is given to a list.
type recorder struct{ all []string }

func (r *recorder) WriteBegin()                  { r.all = append(r.all, "begin") }
func (r *recorder) WriteText(piece string)       { r.all = append(r.all, "text "+piece) }
func (r *recorder) WriteReasoning(piece string)  { r.all = append(r.all, "reasoning "+piece) }
func (r *recorder) WritePart(*contentv1.Content) { r.all = append(r.all, "part") }
func (r *recorder) WriteCall(piece *modelv1.ToolCallDelta) {
	r.all = append(r.all, "call "+piece.GetId()+piece.GetArguments())
}

func TestPiecesOfTheFirstChoiceAreWrittenAndTheRestIsKnown(t *testing.T) {
	t.Parallel()
	var said dialect.Said
	r := &recorder{}
	for _, piece := range []*modelv1.GenerateDelta{
		{Choice: 1, Piece: &modelv1.GenerateDelta_Text{Text: "other"}},
		dialect.ReasoningDelta("h"), dialect.TextDelta("a"), dialect.TextDelta("b"),
		dialect.PartDelta(chat.ImagePart("u")), dialect.CallDelta(&modelv1.ToolCallDelta{Id: "c1", Function: "f"}),
	} {
		said.Add(piece, r)
	}
	assert.Equal(t, []string{"begin", "reasoning h", "text a", "text b", "part", "call c1"}, r.all)

	var rest []dialect.Unsaid
	for _, missing := range said.Rest([]*contentv1.Content{chat.ReasoningPart("hm"), chat.TextPart("abc"), chat.TextPart("d"), chat.ImagePart("u")}, dialect.Readable) {
		rest = append(rest, missing)
	}
	assert.Equal(t, []dialect.Unsaid{{Text: "m", Begun: true}, {Text: "c", Begun: true}, {Text: "d"}}, rest, "the picture came whole")
	var calls []string
	for piece := range said.RestOfCalls([]*toolv1.ToolCall{chat.Call("c1", "f", `{"x":1}`), chat.Call("c2", "g", "")}) {
		calls = append(calls, piece.GetId()+piece.GetArguments())
	}
	assert.Equal(t, []string{`{"x":1}`, `c2{}`}, calls)
}

func TestPiecesAreTakenOnceWithTheirChoice(t *testing.T) {
	t.Parallel()
	var pieces dialect.Pieces
	assert.Nil(t, pieces.Take())
	pieces.Text("a")
	pieces.Text("")
	pieces.Choice = 1
	pieces.Reasoning("b")
	pieces.Reasoning("")
	assert.Equal(t, int32(0), pieces.Call("c1", "f", ""))
	assert.Equal(t, int32(1), pieces.Call("c2", "g", "{}"))
	pieces.Arguments(0, "{")
	pieces.Arguments(0, "")
	pieces.Part(chat.TextPart("d"))
	want := []*modelv1.GenerateDelta{
		dialect.TextDelta("a"), dialect.ReasoningDelta("b"),
		dialect.CallDelta(&modelv1.ToolCallDelta{Id: "c1", Function: "f"}),
		dialect.CallDelta(&modelv1.ToolCallDelta{Index: 1, Id: "c2", Function: "g", Arguments: "{}"}),
		dialect.CallDelta(&modelv1.ToolCallDelta{Arguments: "{"}), dialect.PartDelta(chat.TextPart("d")),
	}
	for _, piece := range want[1:] {
		piece.Choice = 1
	}
	assert.Empty(t, cmp.Diff(want, pieces.Take(), protocmp.Transform()))
	assert.Nil(t, pieces.Take())
}

func TestEventsAreWrittenTogetherAndNothingAfterAFailure(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	w := dialect.NewEventWriter(&wire)
	require.NoError(t, w.Flush())
	w.Event("a", func(w *jsonwrite.Writer) { w.TextMember("x", "1") })
	w.Event("", func(*jsonwrite.Writer) {})
	assert.Zero(t, wire.Len())
	require.NoError(t, w.Flush())
	assert.Equal(t, "event: a\ndata: {\"x\":\"1\"}\n\ndata: {}\n\n", wire.String())
	require.NoError(t, w.Ping())
	assert.Contains(t, wire.String(), "\n: waiting\n\n")

	broken := dialect.NewEventWriter(brokenPipe{})
	broken.Data("", []byte("1"))
	require.ErrorIs(t, broken.Flush(), errPipe)
	require.ErrorIs(t, broken.Flush(), errPipe, "with nothing to write too")
}

var errPipe = errors.New("broken pipe")

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errPipe }

// TestAMalformedAnswerIsNamedWithoutTypesOfGo: people who read it see the vendor's members alone.
func TestAMalformedAnswerIsNamedWithoutTypesOfGo(t *testing.T) {
	t.Parallel()
	var answer struct {
		Usage struct {
			Tokens int64 `json:"prompt_tokens"`
		} `json:"usage"`
	}
	for body, want := range map[string]string{
		`{"usage":{"prompt_tokens":"7"}}`: "the answer is no reply: usage.prompt_tokens must not be a string",
		`{"usage":[]}`:                    "the answer is no reply: usage must not be an array",
		`"text"`:                          "the answer is no reply: it must not be a string",
		`<html>`:                          "the answer is no reply: invalid character '<' looking for beginning of value",
	} {
		err := &dialect.MalformedError{Answer: "reply", Cause: json.Unmarshal([]byte(body), &answer)}
		assert.EqualError(t, err, want)
	}
	assert.EqualError(t, &dialect.MalformedError{Answer: "reply"}, "the answer is no reply")
}
