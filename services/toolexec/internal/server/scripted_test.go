package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/execute"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/server"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/workertool"
)

// service is ToolService with tools that act by a script.
type service struct {
	*server.Tools
	timeline *timeline
	// kill simulates a crash of the service: claims stay open.
	kill func()
}

// newService returns the service with the scripted tools and further ones. sandboxes may be nil.
func newService(t testing.TB, sandboxes sandboxv1.SandboxServiceClient, further ...tool.Kind) *service {
	t.Helper()
	return serviceOver(t, &memory.Ledger{}, "test", sandboxes, further...)
}

// serviceOver is newService over a ledger that may outlive the service.
func serviceOver(t testing.TB, ledger effect.Ledger, owner string, sandboxes sandboxv1.SandboxServiceClient, further ...tool.Kind) *service {
	t.Helper()
	s := &service{timeline: &timeline{}}
	registry := &tool.Registry{}
	for _, kind := range append(scripted(s.timeline), further...) {
		require.NoError(t, registry.Register(kind))
	}
	runner, err := effectrpc.New(effectrpc.Config{Service: "toolexec", Ledger: ledger, Owner: owner})
	require.NoError(t, err)
	executor := execute.New(execute.Config{Effects: runner, Sandboxes: sandboxes, Logger: slog.New(slog.DiscardHandler)})
	s.kill = sync.OnceFunc(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = runner.Drain(ctx)
		executor.Close()
	})
	t.Cleanup(s.kill)
	s.Tools = server.NewTools(registry, executor, new(lastvalue.Map[worker.Offered, struct{}]))
	return s
}

// stream collects what ExecuteTools sends.
type stream struct {
	grpc.ServerStreamingServer[toolv1.ExecuteToolsResponse]

	ctx    context.Context
	events []*toolv1.ExecuteToolsResponse
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) Send(event *toolv1.ExecuteToolsResponse) error {
	s.events = append(s.events, event)
	return nil
}

// results returns the results of a stream, in the order of their arrival.
func (s *stream) results() []*toolv1.ToolResult {
	var results []*toolv1.ToolResult
	for _, event := range s.events {
		if result := event.GetResult(); result != nil {
			results = append(results, result)
		}
	}
	return results
}

// execute runs a request until it ends.
func (s *service) execute(ctx context.Context, request *toolv1.ExecuteToolsRequest) (*stream, error) {
	out := &stream{ctx: ctx}
	return out, s.ExecuteTools(request, out)
}

// timeline records what scripted tools did, in order.
type timeline struct {
	mu    sync.Mutex
	notes [][]string
}

func (l *timeline) note(what, tag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes, []string{what, tag})
}

// scriptedTool is a tool made of a function.
type scriptedTool struct {
	definition *tool.Definition
	call       func(ctx context.Context, call *tool.Call) (*tool.Result, error)
}

func (s *scriptedTool) Definition() *tool.Definition { return s.definition }

func (s *scriptedTool) Call(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	return s.call(ctx, call)
}

// simple returns a kind of tool without options, made of a function of its arguments. Further functions change the
// definition.
func simple[A any](name, parameters string, f func(ctx context.Context, arguments A) (*tool.Result, error), change ...func(*tool.Definition)) tool.Kind {
	definition := &tool.Definition{Public: &toolv1.ToolDefinition{
		Info:      &toolv1.ToolInfo{Name: name, Description: "A scripted tool.", ParametersJson: parameters},
		OnUnknown: toolv1.OnUnknown_ON_UNKNOWN_RETRY,
	}}
	for _, c := range change {
		c(definition)
	}
	made := &scriptedTool{definition: definition, call: func(ctx context.Context, call *tool.Call) (*tool.Result, error) {
		var arguments A
		if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
			return nil, err
		}
		return f(ctx, arguments)
	}}
	return tool.Kind{
		Name:    name,
		Options: json.RawMessage(`{"type":"object","additionalProperties":false}`),
		New:     func(json.RawMessage) (tool.Tool, error) { return made, nil },
	}
}

func parallel(d *tool.Definition) { d.Public.Parallel = true }

// scripted returns the tools that recorded cases name.
func scripted(l *timeline) []tool.Kind {
	type sum struct{ X, Y int }
	addition := func(_ context.Context, a sum) (*tool.Result, error) { return tool.Text(strconv.Itoa(a.X + a.Y)), nil }
	const two = `{"type":"object","properties":{"x":{"type":"integer","description":"X"},"y":{"type":"integer","description":"Y"}},"required":["x","y"],"additionalProperties":false}`
	const slowly = `{"type":"object","properties":{"tag":{"type":"string","description":"Tag"},"ms":{"type":"integer","description":"Time"},"raises":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"Error"}},"required":["tag","ms"],"additionalProperties":false}`
	return []tool.Kind{
		simple("add", two, addition, parallel),
		simple("second_add", two, func(context.Context, sum) (*tool.Result, error) { return tool.Text("of the second"), nil }, parallel),
		simple("note", `{"type":"object","properties":{"text":{"type":"string","description":"Text"}},"required":["text"],"additionalProperties":false}`,
			func(_ context.Context, a struct{ Text string }) (*tool.Result, error) {
				return tool.Text("noted: " + a.Text), nil
			}),
		simple("fail", `{"type":"object","properties":{"kind":{"type":"string","description":"Kind"},"text":{"type":"string","default":"went wrong","description":"Text"}},"required":["kind"],"additionalProperties":false}`,
			func(_ context.Context, a struct{ Kind, Text string }) (*tool.Result, error) {
				return nil, raise(a.Kind, a.Text)
			}),
		simple("give", `{"type":"object","properties":{"kind":{"type":"string","description":"Kind"}},"required":["kind"],"additionalProperties":false}`,
			func(_ context.Context, a struct{ Kind string }) (*tool.Result, error) { return give(a.Kind) }),
		simple("slow_parallel", slowly, l.slow, parallel),
		simple("slow_serial", slowly, l.slow),
		big(),
	}
}

type slowArguments struct {
	Tag    string
	Ms     int
	Raises string
}

func (l *timeline) slow(ctx context.Context, a slowArguments) (*tool.Result, error) {
	l.note("start", a.Tag)
	select {
	case <-time.After(time.Duration(a.Ms) * time.Millisecond):
	case <-ctx.Done():
		l.note("cancelled", a.Tag)
		return nil, ctx.Err()
	}
	l.note("end", a.Tag)
	if a.Raises != "" {
		return nil, raise(a.Raises, "went wrong")
	}
	return tool.Text(a.Tag), nil
}

// big returns a text of any size. Its option is a bound of its own.
func big() tool.Kind {
	return tool.Kind{
		Name:    "big",
		Options: json.RawMessage(`{"type":"object","properties":{"max_output":{"type":"integer"}},"additionalProperties":false}`),
		New: func(options json.RawMessage) (tool.Tool, error) {
			var set struct {
				MaxOutput *int64 `json:"max_output"`
			}
			definition := &tool.Definition{Public: &toolv1.ToolDefinition{
				Info: &toolv1.ToolInfo{
					Name:           "big",
					Description:    "A scripted tool.",
					ParametersJson: `{"type":"object","properties":{"count":{"type":"integer","description":"Count"},"unit":{"type":"string","description":"Unit"}},"required":["count","unit"],"additionalProperties":false}`,
				},
				OnUnknown: toolv1.OnUnknown_ON_UNKNOWN_RETRY,
			}}
			err := json.Unmarshal(options, &set)
			definition.Public.MaxOutputBytes = set.MaxOutput
			return &scriptedTool{definition: definition, call: func(_ context.Context, call *tool.Call) (*tool.Result, error) {
				var a struct {
					Count int
					Unit  string
				}
				err := json.Unmarshal(call.Arguments, &a)
				return tool.Text(strings.Repeat(a.Unit, a.Count)), err
			}}, err
		},
	}
}

// osError is an error of the operating system without a file.
type osError struct {
	text string
	kind error
}

func (e osError) Error() string { return e.text }
func (e osError) Unwrap() error { return e.kind }

// raise returns the error of a kind that the recorded cases name.
func raise(kind, text string) error {
	if limit, ok := strings.CutPrefix(kind, "limit_"); ok {
		return overLimit(limit, text)
	}
	file := func(err error) error { return &fs.PathError{Op: "open", Path: text, Err: err} }
	switch kind {
	case "tool_error":
		return tool.Errorf("%s", text)
	case "parsing":
		return tool.Parsingf("%s", text)
	case "timeout":
		return fmt.Errorf("too slow: %w", context.DeadlineExceeded)
	case "sandbox_timeout":
		return tool.Timeout(text)
	case "unicode":
		return undecodable("utf-8", "invalid start byte")
	case "permission":
		return file(syscall.EACCES)
	case "permission_plain":
		return osError{text, fs.ErrPermission}
	case "not_found":
		return file(syscall.ENOENT)
	case "not_found_plain":
		return osError{text, fs.ErrNotExist}
	case "is_directory":
		return file(syscall.EISDIR)
	case "is_directory_plain":
		return osError{text, syscall.EISDIR}
	case "not_a_directory":
		return file(syscall.ENOTDIR)
	case "null_byte":
		return tool.ErrNullByte
	case "output_limit":
		return tool.OverOutputLimit(10<<20, text)
	case "output_limit_empty":
		return tool.OverOutputLimit(10<<20, "")
	case "sandbox_unavailable":
		return tool.Unavailable(text)
	case "group":
		return errors.Join(errors.New("a member"), tool.Errorf("%s", text))
	case "nested_group":
		return errors.Join(errors.New("a member"), fmt.Errorf("inner: %w", errors.Join(file(syscall.ENOENT))))
	default: // of no kind that is shown to the model
		return errors.New(kind + ": " + text)
	}
}

var errUnknownResult = errors.New("no result of kind")

// give returns the result of a kind that the recorded cases name.
func give(kind string) (*tool.Result, error) {
	text := func(text string) *contentv1.Content {
		return &contentv1.Content{Part: &contentv1.Content_Text{Text: &contentv1.Text{Text: text}}}
	}
	media := func(uri string) *contentv1.Media { return &contentv1.Media{Source: &contentv1.Media_Uri{Uri: uri}} }
	switch kind {
	case "list of text parts":
		return tool.Parts(text("one"), text("two")), nil
	case "text part":
		return tool.Parts(text("one")), nil
	case "empty text part":
		return tool.Parts(text("")), nil
	case "empty list":
		return tool.Parts(), nil
	case "text part with citation":
		part := text("cited")
		part.GetText().Citations = []*contentv1.Citation{{
			Cited:  &contentv1.Citation_CitedText{CitedText: "c"},
			Title:  new("T"),
			Source: &contentv1.Citation_Url{Url: "https://example.org/"},
		}}
		return tool.Parts(part), nil
	case "image part":
		return tool.Parts(&contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{Media: media("data:image/png;base64,AAAA"), Detail: contentv1.ImageDetail_IMAGE_DETAIL_LOW}}}), nil
	case "audio part":
		return tool.Parts(&contentv1.Content{Part: &contentv1.Content_Audio{Audio: &contentv1.Audio{Media: media("data:audio/wav;base64,AAAA"), Format: contentv1.AudioFormat_AUDIO_FORMAT_WAV}}}), nil
	case "video part":
		return tool.Parts(&contentv1.Content{Part: &contentv1.Content_Video{Video: &contentv1.Video{Media: media("data:video/mp4;base64,AAAA"), Format: contentv1.VideoFormat_VIDEO_FORMAT_MP4}}}), nil
	case "nan", "inf", "-inf":
		return nil, fmt.Errorf("JSON has no number %s", kind)
	case "document part":
		return tool.Parts(&contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{Media: media("data:text/plain;base64,AAAA"), Filename: "a.txt", MimeType: "text/plain"}}}), nil
	case "reasoning part":
		return tool.Parts(&contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "r"}}}), nil
	}
	values := map[string]string{
		"text": `"plain"`, "empty text": `""`, "integer": `5`, "negative integer": `-5`, "big integer": `100000000000000000000`,
		"number": `2.5`, "whole number": `2.0`, "small number": `1e-07`, "true": `true`, "false": `false`, "null": `null`,
		"list of texts": `["a", "b"]`, "list of numbers": `[1, 2.5]`, "empty map": `{}`, "map": `{"a": 1, "b": [true, null, "x"]}`, "nested text quotes": `["it's", "say \"hi\""]`,
		"list of text part and text": `[{"type": "text", "text": "one"}, "two"]`, "tuple of parts": `[{"type": "text", "text": "one"}]`,
	}
	value, ok := values[kind]
	if !ok {
		return nil, fmt.Errorf("%w %q", errUnknownResult, kind)
	}
	return jsonResult(json.RawMessage(value))
}

// jsonResult returns the result of any JSON value, as of a worker that answers with it.
func jsonResult(document json.RawMessage) (*tool.Result, error) {
	return workertool.Read(`{"text": `+string(document)+`}`, tool.NewStore(nil, nil))
}

// overLimit returns the error of a resource limit that was reached inside the tool. kind is such as `token`; whole
// numbers are shown with thousands separators, others with two decimals as well.
func overLimit(kind, limit string) error {
	shown, err := grouped(limit)
	if err != nil {
		return err
	}
	return &tool.Error{
		Type:    toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT,
		Message: fmt.Sprintf("the %s limit of %s was reached", kind, shown),
	}
}

// grouped writes 1234567 as 1,234,567 and 2.5 as 2.50.
func grouped(number string) (string, error) {
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return "", err
	}
	decimals := 0
	if strings.Contains(number, ".") {
		decimals = 2
	}
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(value, 'f', decimals, 64), ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole, nil
}

// undecodable returns the error of bytes that are no text in an encoding.
func undecodable(encoding, reason string) *tool.Error {
	return &tool.Error{
		Type:    toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNICODE_DECODE,
		Message: fmt.Sprintf("the bytes are not %s text: %s", encoding, reason),
	}
}
