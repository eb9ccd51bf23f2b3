package toolexec_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/pkg/worker/workertest"
	"github.com/evalfleet/evalfleet/services/toolexec"
)

// life is one incarnation of the service over a ledger.
type life struct {
	tools   toolv1.ToolServiceClient
	workers workerv1.WorkerServiceClient
	end     func()
}

// live serves toolexec in memory. Its end simulates a crash: claims stay open.
func live(t *testing.T, ledger effect.Ledger, owner string) *life {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	sandboxd, err := grpcclient.New("127.0.0.1:1", grpcclient.Options{FailFast: true})
	require.NoError(t, err)
	service, err := toolexec.New(toolexec.Config{}, toolexec.Deps{Sandboxes: sandboxd, Ledger: ledger, Owner: owner, Logger: log})
	require.NoError(t, err)
	server, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: authtest.Allow{Name: "test"}})
	require.NoError(t, err)
	service.Register(server)
	listener := inprocess.Listen()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpcclient.Within(listener, grpcclient.Options{})
	require.NoError(t, err)
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = service.Close(now)
		server.Stop()
		assert.NoError(t, waittest.For(t, served, "the server to end"))
		assert.NoError(t, conn.Close())
		assert.NoError(t, sandboxd.Close())
	}
	t.Cleanup(end)
	return &life{tools: toolv1.NewToolServiceClient(conn), workers: workerv1.NewWorkerServiceClient(conn), end: end}
}

const cityParameters = `{"type":"object","properties":{"city":{"type":"string","description":"A city."},"days":{"type":"integer","description":"Days.","default":1}},"required":["city"]}`

// weather is a registration that offers the tool `weather`.
func weather(change ...func(*workerv1.Register)) *workerv1.Register {
	r := &workerv1.Register{Offers: []*workerv1.Offer{{
		Kind: "tool", Name: "weather", Description: "Tells the weather.", ParametersJson: cityParameters, OnUnknown: "fail", StoreKeys: []string{"seen:*"},
	}}}
	for _, f := range change {
		f(r)
	}
	return r
}

func ask(id, arguments string) *toolv1.ExecuteToolsRequest {
	return &toolv1.ExecuteToolsRequest{
		Parent: "projects/default", RequestId: id, Tools: []*toolv1.ToolRef{{Name: "weather"}}, Store: map[string]string{"seen:a": `1`, "other": `2`},
		Calls: []*toolv1.ToolCall{{Id: "c", Function: "weather", ArgumentsJson: arguments}}, Attribution: &effectv1.Attribution{Run: "projects/default/runs/r"},
	}
}

// execute runs a request and returns its only result.
func execute(ctx context.Context, tools toolv1.ToolServiceClient, request *toolv1.ExecuteToolsRequest) (*toolv1.ToolResult, error) {
	stream, err := tools.ExecuteTools(ctx, request)
	if err != nil {
		return nil, err
	}
	var result *toolv1.ToolResult
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return result, nil
		}
		if err != nil {
			return nil, err
		}
		if event.GetResult() != nil {
			result = event.GetResult()
		}
	}
}

func TestAWorkersToolIsAToolLikeAnyOther(t *testing.T) {
	t.Parallel()
	l := live(t, &memory.Ledger{}, "one")
	w := workertest.Dial(t, l.workers)
	w.Register(weather())

	list, err := l.tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/default"})
	require.NoError(t, err)
	last := list.GetTools()[len(list.GetTools())-1]
	assert.Equal(t, "weather", last.GetInfo().GetName())
	assert.Equal(t, "weather", last.GetWorker())
	list, err = l.tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/other"})
	require.NoError(t, err)
	assert.Len(t, list.GetTools(), 4, "of its own project alone")

	refs := []*toolv1.ToolRef{{Name: "weather", Rename: "sky", ParameterDescriptions: map[string]string{"city": "Where."}}}
	resolved, err := l.tools.ResolveTools(t.Context(), &toolv1.ResolveToolsRequest{Parent: "projects/default", Tools: refs})
	require.NoError(t, err)
	assert.Equal(t, "sky", resolved.GetTools()[0].GetInfo().GetName())
	assert.Contains(t, resolved.GetTools()[0].GetInfo().GetParametersJson(), "Where.")

	review, err := l.tools.ReviewTools(t.Context(), &toolv1.ReviewToolsRequest{Parent: "projects/default", Tools: refs, Calls: []*toolv1.ToolCall{
		{Id: "1", Function: "sky", ArgumentsJson: `{"city":"Ulm","days":2.0}`}, {Id: "2", Function: "sky", ArgumentsJson: `{"days":"many"}`},
	}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"city":"Ulm","days":2}`, review.GetReviews()[0].GetCall().GetArgumentsJson())
	assert.Equal(t, toolv1.ReviewDecision_REVIEW_DECISION_REJECT, review.GetReviews()[1].GetDecision())

	for _, id := range []string{"", "r1"} { // without a key and with one
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			call := w.Call()
			sent := &workerv1.ToolPayload{}
			assert.NoError(t, protojson.Unmarshal([]byte(call.GetPayloadJson()), sent))
			assert.Equal(t, "c", sent.GetCallId())
			assert.JSONEq(t, `{"city":"Ulm","days":1}`, sent.GetArgumentsJson(), "checked, with defaults")
			assert.Equal(t, map[string]string{"seen:a": `1`}, sent.GetStore(), "what it declared")
			assert.Equal(t, "projects/default/runs/r", sent.GetAttribution().GetRun())
			w.Send(workertest.Result(call.GetKey(), `{"text":"rain","storeChanges":[{"key":"seen:b","valueJson":"true"}]}`))
			assert.Equal(t, call.GetKey(), w.Next().GetAccepted().GetKey(), "the result is durable")
		}()
		for range 2 {
			result, err := execute(waittest.Context(t), l.tools, ask(id, `{"city":"Ulm"}`))
			require.NoError(t, err)
			assert.Equal(t, "rain", result.GetContent().GetText())
			require.Len(t, result.GetStoreChanges(), 1)
			assert.Equal(t, "seen:b", result.GetStoreChanges()[0].GetKey())
			if id == "" {
				break
			}
		}
		waittest.For(t, answered, "the worker to have answered")
	}
}

func TestWhatAWorkerMayAnswer(t *testing.T) {
	t.Parallel()
	serve := func(timeout time.Duration) (*life, *workertest.Worker) {
		l := live(t, &memory.Ledger{}, "one")
		w := workertest.Dial(t, l.workers)
		w.Register(weather(func(r *workerv1.Register) { r.Worker, r.Offers[0].Timeout = "forecaster", durationpb.New(timeout) }))
		return l, w
	}
	talking, talker := serve(waittest.Bound)
	silent, silenced := serve(50 * time.Millisecond)
	for _, c := range []struct {
		name   string
		answer func(key string) *workerv1.ConnectRequest
		check  func(*testing.T, *toolv1.ToolResult)
	}{
		{"nothing", nil, isError(toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, "did not answer within 50ms")},
		{"no JSON", sent(`rain`), useless("it is not the JSON of ToolResultPayload")},
		{"a number that is none", sent(`{"text":NaN}`), useless("invalid value NaN")},
		{"a member twice", sent(`{"text":"a","text":"b"}`), useless(`duplicate field "text"`)},
		{"JSON of another form", sent(`{"parts":{"rain":true}}`), useless("it is not the JSON of ToolResultPayload")},
		{"a value in place of a text", sent(`{"text": {"rain": [true, 2.0]}}`), func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, `{"rain":[true,2.0]}`, r.GetContent().GetText())
		}},
		{"an unknown member", sent(`{"txt":"hm"}`), useless(`unknown field "txt"`)},
		{"an empty object", sent(`{}`), useless("it says nothing")},
		{"no parts", sent(`{"parts":[]}`), useless("it says nothing")},
		{"a part without kind", sent(`{"parts":[{"text":{"text":"a"}},{}]}`), useless("parts[1] is empty")},
		{"an image of what", sent(`{"parts":[{"image":{"data":"!!"}}]}`), useless(`unknown field "data"`)},
		{"an image that is nowhere", sent(`{"parts":[{"image":{"media":{}}}]}`), useless("parts[0].image.media: set one of uri, blob")},
		{"a sound of no format", sent(`{"parts":[{"audio":{"media":{"uri":"https://a.example/a"}}}]}`), useless("parts[0].audio.format: is required")},
		{"an image of a detail that is none", sent(`{"parts":[{"image":{"detail":9,"media":{"uri":"https://a.example/a"}}}]}`), useless("parts[0].image.detail: 9 is none of")},
		{"a tool that is none", sent(`{"parts":[{"toolUse":{"toolType":99}}]}`), useless("parts[0].toolUse.toolType: 99 is none of")},
		{"an image at no address", sent(`{"parts":[{"image":{"media":{"uri":"cat.png"}}}]}`), useless("parts[0].image.media: there is no image to be had")},
		{"an image that is no data", sent(`{"parts":[{"image":{"media":{"uri":"data:image/png;base64,!!"}}}]}`), useless("parts[0].image.media.uri")},
		{"an empty text", sent(`{"text":""}`), func(t *testing.T, r *toolv1.ToolResult) {
			assert.Empty(t, r.GetContent().GetText())
			assert.Nil(t, r.GetError())
		}},
		{"an image", sent(`{"parts":[{"image":{"media":{"uri":"data:image/png;base64,aaaa"}}}]}`), func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, "data:image/png;base64,aaaa", r.GetContent().GetList().GetParts()[0].GetImage().GetMedia().GetUri())
		}},
		{"an entry of the store that it did not declare", sent(`{"text":"x","storeChanges":[{"key":"seen:c","valueJson":"1"},{"key":"other","valueJson":"1"}]}`), isError(toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, `"other"`)},
		{"an entry that is no JSON", sent(`{"storeChanges":[{"key":"seen:c","valueJson":"{"}]}`), isError(toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, "no JSON")},
		{"a failure for the model", failed(&workerv1.CallError{Type: "permission", Message: "not there"}), isError(toolv1.ToolErrorType_TOOL_ERROR_TYPE_PERMISSION, "not there")},
		{"a failure of another kind", failed(&workerv1.CallError{Type: "rain", Message: "wet"}), isError(toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, "wet")},
		{"a failure for good", failed(&workerv1.CallError{Type: "BROKEN", Message: "gone", Fatal: true}), func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, "WORKER_FAILED", r.GetFailure().GetReason())
			assert.Contains(t, r.GetFailure().GetMessage(), "BROKEN: gone")
		}},
		{"parts", sent(`{"parts":[{"text":{"text":"sun"}}]}`), func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, "sun", r.GetContent().GetList().GetParts()[0].GetText().GetText())
		}},
	} {
		l, w := talking, talker
		if c.answer == nil {
			l, w = silent, silenced
		}
		answered, accepted := make(chan struct{}), make(chan *workerv1.ResultAccepted, 1)
		go func() {
			defer close(answered)
			call := w.Call()
			if c.answer == nil {
				accepted <- &workerv1.ResultAccepted{}
				assert.Equal(t, call.GetKey(), w.Next().GetCancel().GetKey())
				return
			}
			w.Send(c.answer(call.GetKey()))
			accepted <- w.Next().GetAccepted()
		}()
		result, err := execute(waittest.Context(t), l.tools, ask(c.name[:min(len(c.name), 20)], `{"city":"Ulm"}`))
		require.NoError(t, err, c.name)
		c.check(t, result)
		waittest.For(t, answered, "the worker to have answered")
		told := waittest.For(t, accepted, "what the worker heard of its result")
		require.NotNil(t, told, c.name)
		if told.GetProblem() == "" {
			assert.NotContains(t, result.GetError().GetMessage(), "of no use", "the worker hears of it: %s", c.name)
		} else {
			assert.Contains(t, result.GetError().GetMessage(), "the worker forecaster, which serves weather, answered what is of no use: "+told.GetProblem())
		}
	}
}

// useless expects that an answer is rejected for a reason.
func useless(why string) func(*testing.T, *toolv1.ToolResult) {
	return isError(toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, why)
}

func sent(payload string) func(string) *workerv1.ConnectRequest {
	return func(key string) *workerv1.ConnectRequest { return workertest.Result(key, payload) }
}

func failed(err *workerv1.CallError) func(string) *workerv1.ConnectRequest {
	return func(key string) *workerv1.ConnectRequest { return workertest.Failure(key, err) }
}

func isError(kind toolv1.ToolErrorType, says string) func(*testing.T, *toolv1.ToolResult) {
	return func(t *testing.T, r *toolv1.ToolResult) {
		t.Helper()
		assert.Equal(t, kind, r.GetError().GetType(), "%v", r)
		assert.Contains(t, r.GetError().GetMessage(), says)
		assert.Nil(t, r.GetFailure(), "the run goes on")
		assert.Empty(t, r.GetStoreChanges())
	}
}

func TestProgressReachesTheCaller(t *testing.T) {
	t.Parallel()
	l := live(t, &memory.Ledger{}, "one")
	w := workertest.Dial(t, l.workers)
	w.Register(weather())
	for _, id := range []string{"", "r1"} { // without a key and with one
		stream, err := l.tools.ExecuteTools(waittest.Context(t), ask(id, `{"city":"Ulm"}`))
		require.NoError(t, err)
		key := w.Call().GetKey()
		w.Send(workertest.Progress(key, "looking out of the window"))
		var progress *toolv1.ToolProgress
		for progress == nil {
			event, err := stream.Recv()
			require.NoError(t, err)
			progress = event.GetProgress()
		}
		assert.Equal(t, "c", progress.GetCallId())
		assert.Equal(t, "looking out of the window", progress.GetNote().GetMessage())
		assert.NotNil(t, progress.GetNote().GetTime())
		w.Send(workertest.Result(key, `{"text":"sun"}`))
		for {
			event, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			assert.Nil(t, event.GetProgress(), "it is told once")
		}
		assert.NotNil(t, w.Next().GetAccepted())
	}
}

func TestToolsOfWorkersAreWatched(t *testing.T) {
	t.Parallel()
	l := live(t, &memory.Ledger{}, "one")
	w := workertest.Dial(t, l.workers)
	w.Register(weather())
	for _, parent := range []string{"projects/-", "projects/default"} {
		stream, err := l.tools.WatchWorkers(waittest.Context(t), &toolv1.WatchWorkersRequest{Parent: parent})
		require.NoError(t, err)
		news, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, "projects/default", news.GetParent())
		assert.Equal(t, "weather", news.GetTool())
		assert.True(t, news.GetServed())
		w.Break()
		news, err = stream.Recv()
		require.NoError(t, err)
		assert.False(t, news.GetServed())
		w = workertest.Dial(t, l.workers)
		w.Register(weather())
		news, err = stream.Recv()
		require.NoError(t, err)
		assert.True(t, news.GetServed())
	}
	stream, err := l.tools.WatchWorkers(waittest.Context(t), &toolv1.WatchWorkersRequest{Parent: "default"})
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
}

func TestOffersThatAreNoTools(t *testing.T) {
	t.Parallel()
	l := live(t, &memory.Ledger{}, "one")
	for says, change := range map[string]func(*workerv1.Offer){
		"built in":                     func(o *workerv1.Offer) { o.Name = "bash" },
		"description is missing":       func(o *workerv1.Offer) { o.Description = "" },
		"description of parameter x":   func(o *workerv1.Offer) { o.ParametersJson = `{"type":"object","properties":{"x":{}}}` },
		`the schema's type is not "ob`: func(o *workerv1.Offer) { o.ParametersJson = `{"type":"string"}` },
		`"scorer" is not served here`:  func(o *workerv1.Offer) { o.Kind = "scorer" },
	} {
		w := workertest.Dial(t, l.workers)
		w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: weather(func(r *workerv1.Register) { change(r.Offers[0]) })}})
		err := w.Ended()
		assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
		assert.ErrorContains(t, err, says)
	}
}

func TestWithoutAWorker(t *testing.T) {
	t.Parallel()
	l := live(t, &memory.Ledger{}, "one")
	_, err := execute(waittest.Context(t), l.tools, ask("r", `{"city":"Ulm"}`))
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND), "%v", err)
	assert.ErrorContains(t, err, "a worker may serve it, and none that does is connected")

	pinned := ask("r", `{"city":"Ulm"}`)
	pinned.Tools[0].Definition = &toolv1.ToolDefinition{
		Info: &toolv1.ToolInfo{Name: "weather", Description: "Tells the weather.", ParametersJson: cityParameters}, Worker: "weather", StoreKeys: []string{"seen:*"},
	}
	_, err = execute(waittest.Context(t), l.tools, pinned)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_WORKER_UNAVAILABLE), "%v", err)
	assert.Positive(t, rpcerr.RetryAfter(err), "the run waits")
	assert.ErrorContains(t, err, "waiting for a worker of tool weather")

	w := workertest.Dial(t, l.workers)
	w.Register(weather())
	go func() { w.Send(workertest.Result(w.Call().GetKey(), `{"text":"sun"}`)) }()
	result, err := execute(waittest.Context(t), l.tools, pinned)
	require.NoError(t, err, "the same request, asked again, begins")
	assert.Equal(t, "sun", result.GetContent().GetText())
}

// The process ends while a worker has a call, whose tool allows no retry. The worker reconnects to the next process
// with the result, and the result is accepted.
func TestAProcessDiesDuringAWorkersCall(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	first := live(t, ledger, "one")
	w := workertest.Dial(t, first.workers)
	w.Register(weather())
	pinned := ask("r", `{"city":"Ulm"}`)
	resolved, err := first.tools.ResolveTools(t.Context(), &toolv1.ResolveToolsRequest{Parent: "projects/default", Tools: pinned.GetTools()})
	require.NoError(t, err)
	pinned.Tools[0].Definition = resolved.GetTools()[0]
	require.Equal(t, "weather", resolved.GetTools()[0].GetWorker())
	failed := make(chan error, 1)
	go func() {
		_, err := execute(context.WithoutCancel(t.Context()), first.tools, pinned)
		failed <- err
	}()
	key := w.Call().GetKey()
	first.end()
	require.Error(t, waittest.For(t, failed, "the end of the call whose process died"))

	second := live(t, ledger, "two")
	again := workertest.Dial(t, second.workers)
	assert.Empty(t, again.Register(weather(func(r *workerv1.Register) { r.Unfinished = []string{key} })).GetForget())
	again.Send(workertest.Result(key, `{"text":"rain"}`))
	result, err := execute(waittest.Context(t), second.tools, pinned)
	require.NoError(t, err)
	assert.Equal(t, "rain", result.GetContent().GetText())
	assert.True(t, result.GetTiming().GetReissued())
	assert.Equal(t, key, again.Next().GetAccepted().GetKey(), "and it was not called again")
}

func TestACancelReachesTheWorker(t *testing.T) {
	t.Parallel()
	l := live(t, &memory.Ledger{}, "one")
	w := workertest.Dial(t, l.workers)
	w.Register(weather())
	done := make(chan *toolv1.ToolResult, 1)
	go func() {
		result, err := execute(waittest.Context(t), l.tools, ask("r", `{"city":"Ulm"}`))
		assert.NoError(t, err)
		done <- result
	}()
	key := w.Call().GetKey()
	_, err := l.tools.CancelTools(t.Context(), &toolv1.CancelToolsRequest{Parent: "projects/default", RequestId: "r", Calls: []*toolv1.CallRef{{CallId: "c"}}})
	require.NoError(t, err)
	assert.Equal(t, key, w.Next().GetCancel().GetKey())
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, waittest.For(t, done, "the result of the call that was cancelled").GetError().GetType())
}
