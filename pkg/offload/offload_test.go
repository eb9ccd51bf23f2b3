package offload_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

const (
	room = 4 << 20
	most = 64 << 20
)

func store(t *testing.T) *disk.Store {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func here() (string, error) { return "here", nil }

// unread fails the test where anything is put or read.
type unread struct{ t *testing.T }

func (u unread) Put(context.Context, string, io.Reader, string) (blob.Ref, error) {
	u.t.Error("put")
	return blob.Ref{}, nil
}

func (u unread) Get(context.Context, string, string, int64, int64) (io.ReadCloser, blob.Ref, error) {
	u.t.Error("read")
	return nil, blob.Ref{}, blob.ErrNotFound
}

func large(letter string) string { return strings.Repeat(letter, offload.LargeBytes+1) }

func asks(text string) *modelv1.GenerateRequest {
	return &modelv1.GenerateRequest{Parent: "projects/here", Messages: []*modelv1.ChatMessage{chat.System("be brief"), chat.System(text)}}
}

func TestAMessageComesBackAsItWas(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		message proto.Message
		paths   []string
	}{
		"a text of a list": {asks(large("a")), []string{"messages[1].content.text"}},
		"the same twice": {
			&modelv1.GenerateResponse{Output: &modelv1.ModelOutput{Completion: large("a"), Choices: []*modelv1.Choice{{Message: chat.System(large("a"))}}}},
			[]string{"output.completion", "output.choices[0].message.content.text"},
		},
		"within another message": {
			&modelv1.StreamGenerateRequest{Request: asks(large("a"))},
			[]string{"messages[1].content.text"},
		},
		"the outermost lists": {
			&toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Result{Result: &toolv1.ToolResult{ArgumentsJson: large("a")}}},
			[]string{"result.arguments_json"},
		},
		"items and entries": {
			&agentv1.Run{Name: "projects/here/runs/1", Store: map[string]string{"a.b[\"c\"]": large("s")}, Spec: &agentv1.RunSpec{Choices: []string{"a", large("c")}}},
			[]string{"spec.choices[1]", `store["a.b[\"c\"]"]`},
		},
		"bytes": {
			&sandboxv1.CreateSandboxRequest{Spec: &sandboxv1.SandboxSpec{Files: []*sandboxv1.FileToPlace{{Body: &sandboxv1.FileToPlace_Content{Content: []byte("\xff" + large("x"))}}}}},
			[]string{"spec.files[0].content"},
		},
		"a call of a worker": {
			&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Call{Call: &workerv1.Call{PayloadJson: large("a")}}},
			[]string{"call.payload_json"},
		},
		"of events in a page": {
			&agentv1.ListRunEventsResponse{Events: []*agentv1.Event{{}, {Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: chat.System(large("a"))}}}}},
			[]string{"message_added.content.content.text"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, before := store(t), proto.Clone(tt.message)
			small, err := offload.Put(t.Context(), s, here, tt.message, offload.Limits{Value: offload.LargeBytes, Message: room})
			require.NoError(t, err)
			assert.True(t, proto.Equal(before, tt.message), "what is sent is not changed")
			assert.Less(t, proto.Size(small), 2<<10)
			assert.ElementsMatch(t, tt.paths, paths(small))

			require.NoError(t, offload.Take(t.Context(), s, here, small, most))
			assert.True(t, proto.Equal(before, small))
		})
	}
}

// paths are those of all references of a message.
func paths(m proto.Message) (all []string) {
	var lists [][]*contentv1.OffloadedField
	switch m := m.(type) {
	case *modelv1.StreamGenerateRequest:
		lists = append(lists, m.GetRequest().GetOffloaded())
	case *agentv1.ListRunEventsResponse:
		for _, e := range m.GetEvents() {
			lists = append(lists, e.GetOffloaded())
		}
	case *workerv1.ConnectResponse:
		for _, f := range m.GetOffloaded() {
			all = append(all, f.GetField())
		}
	case interface {
		GetOffloaded() []*contentv1.OffloadedField
	}:
		lists = append(lists, m.GetOffloaded())
	}
	for _, list := range lists {
		for _, f := range list {
			all = append(all, f.GetField())
		}
	}
	return all
}

func TestWhatIsSmallStays(t *testing.T) {
	t.Parallel()
	limits := offload.Limits{Value: offload.LargeBytes, Message: room}
	for _, m := range []proto.Message{
		asks("short"),
		asks(strings.Repeat("a", offload.LargeBytes)),
		&sandboxv1.DownloadFileResponse{Chunk: make([]byte, 5<<20)},
	} {
		got, err := offload.Put(t.Context(), unread{t}, here, m, limits)
		require.NoError(t, err)
		assert.Same(t, m, got)
		require.NoError(t, offload.Take(t.Context(), unread{t}, here, m, most))
	}
}

// An answer has its values in their places as far as it has room: the largest make it.
func TestTheLargestMakeRoom(t *testing.T) {
	t.Parallel()
	m := &agentv1.Run{Messages: []*modelv1.ChatMessage{
		chat.System(strings.Repeat("a", 1<<20)), chat.System(strings.Repeat("b", 3<<20)), chat.System(strings.Repeat("c", 2<<20)), chat.System(large("d")),
	}}
	s := store(t)
	small, err := offload.Put(t.Context(), s, here, m, offload.Limits{Message: room})
	require.NoError(t, err)
	assert.Equal(t, []string{"messages[1].content.text"}, paths(small))
	assert.LessOrEqual(t, proto.Size(small), room)
}

func TestManyTextsThatAreNotLargeMakeRoomToo(t *testing.T) {
	t.Parallel()
	m := asks("")
	for range 1000 {
		m.Messages = append(m.Messages, chat.System(strings.Repeat("a", 20<<10)))
	}
	small, err := offload.Put(t.Context(), store(t), here, m, offload.Limits{Value: offload.LargeBytes, Message: room})
	require.NoError(t, err)
	assert.LessOrEqual(t, proto.Size(small), room)
}

func TestProjectsDoNotMeet(t *testing.T) {
	t.Parallel()
	s := store(t)
	small, err := offload.Put(t.Context(), s, here, asks(large("a")), offload.Limits{Value: offload.LargeBytes, Message: room})
	require.NoError(t, err)
	err = offload.Take(t.Context(), s, func() (string, error) { return "there", nil }, small, most)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
}

func TestAReferenceThatLeadsNowhereIsRefused(t *testing.T) {
	t.Parallel()
	s := store(t)
	text, err := s.Put(t.Context(), "here", strings.NewReader("text"), "")
	require.NoError(t, err)
	raw, err := s.Put(t.Context(), "here", strings.NewReader("\xff"), "")
	require.NoError(t, err)
	for name, tt := range map[string]struct{ field, hash, says string }{
		"no field":           {"nothing", text.Hash, "offloaded[0].field"},
		"no field below":     {"messages[1].nothing", text.Hash, `no field "nothing"`},
		"no value":           {"messages[1].content", text.Hash, "no path to a text"},
		"a number":           {"timeout.seconds", text.Hash, "no path to a text"},
		"below a text":       {"parent.x", text.Hash, "nothing is below"},
		"no place":           {"messages.content.text", text.Hash, "in brackets"},
		"a place too far":    {"messages[7].content.text", text.Hash, "leads to nothing"},
		"no such place":      {"messages[-1].content.text", text.Hash, "no place"},
		"an open bracket":    {"messages[1", text.Hash, "bracket"},
		"nothing there":      {"raw.dialect", text.Hash, "leads to nothing"},
		"a value of its own": {"messages[0].content.text", text.Hash, "value of its own"},
		"no body":            {"messages[1].content.text", strings.Repeat("0", 64), "offloaded[0].blob"},
		"no hash":            {"messages[1].content.text", "../x", "offloaded[0].blob"},
		"no text":            {"messages[1].content.text", raw.Hash, "UTF-8"},
	} {
		m := asks("")
		m.Offloaded = []*contentv1.OffloadedField{{Field: tt.field, Blob: &contentv1.BlobRef{Hash: tt.hash}}}
		err := offload.Take(t.Context(), s, here, m, most)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", name, err)
		assert.ErrorContains(t, err, tt.says, name)
	}
}

// A request's names and settings are in the rows of what it creates, so they are no way around the bound of a message.
func TestInRequestsOnlyContentIsOffloaded(t *testing.T) {
	t.Parallel()
	s := store(t)
	text, err := s.Put(t.Context(), "here", strings.NewReader("text"), "")
	require.NoError(t, err)
	for field, refused := range map[string]bool{
		"spec.labels[\"a\"]": true, "spec.model.model": true, "spec.steps[0].name": true,
		"spec.prompt": false, "spec.store[\"a\"]": false, "spec.input[0].content.text": false, "spec.metadata_json": false,
		"spec.sandboxes[\"default\"].files[0].content": false,
	} {
		m := &agentv1.CreateRunRequest{Parent: "projects/here", Spec: &agentv1.RunSpec{
			Labels: map[string]string{"a": ""}, Store: map[string]string{"a": ""}, Model: &agentv1.ModelRef{}, Steps: []*agentv1.AgentRef{{}},
			Input:     []*modelv1.ChatMessage{chat.User("")},
			Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {Files: []*sandboxv1.FileToPlace{{Body: &sandboxv1.FileToPlace_Content{}}}}},
		}}
		m.Offloaded = []*contentv1.OffloadedField{{Field: field, Blob: &contentv1.BlobRef{Hash: text.Hash}}}
		err := offload.TakeRequest(t.Context(), s, here, m, most)
		assert.Equal(t, refused, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", field, err)
		if refused {
			assert.ErrorContains(t, err, "offloaded[0].field")
			assert.ErrorContains(t, err, "in its place")
		}
	}
	m := &agentv1.CreateRunRequest{Parent: "projects/here", Spec: &agentv1.RunSpec{Labels: map[string]string{"a": large("l")}, Prompt: large("p")}}
	small, err := offload.Put(t.Context(), s, here, m, offload.Limits{Value: offload.LargeBytes, Message: room, ContentOnly: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"spec.prompt"}, paths(small))
}

func TestWhatStandsApartIsBounded(t *testing.T) {
	t.Parallel()
	s := store(t)
	ref, err := s.Put(t.Context(), "here", strings.NewReader(strings.Repeat("a", 1000)), "")
	require.NoError(t, err)
	m := asks("")
	for _, field := range []string{"messages[1].content.text", "model"} { // A text that occurs twice counts twice.
		m.Offloaded = append(m.Offloaded, &contentv1.OffloadedField{Field: field, Blob: &contentv1.BlobRef{Hash: ref.Hash}})
	}
	err = offload.Take(t.Context(), s, here, proto.CloneOf(m), 1999)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	require.NoError(t, offload.Take(t.Context(), s, here, m, 2000))
	assert.Len(t, m.GetModel(), 1000)
}

func TestTheProjectOfARequest(t *testing.T) {
	t.Parallel()
	for want, requests := range map[string][]proto.Message{
		"p": {
			&modelv1.GenerateRequest{Parent: "projects/p"}, &modelv1.StreamGenerateRequest{Request: &modelv1.GenerateRequest{Parent: "projects/p"}},
			&agentv1.GetRunRequest{Name: "projects/p/runs/1"}, &sandboxv1.ExecRequest{Sandbox: "projects/p/sandboxes/1"},
			&agentv1.PostMessageRequest{Name: "projects/p/runs/1"},
			&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{Project: "projects/p"}}},
		},
		"default": {&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{}}}},
		"":        {&modelv1.GenerateRequest{Parent: "p"}, &modelv1.GenerateRequest{Parent: "projects/-"}, &workerv1.ConnectRequest{}},
	} {
		for _, r := range requests {
			got, err := offload.Project(r)()
			assert.Equal(t, want, got, "%v", r)
			assert.Equal(t, want == "", err != nil, "%v", err)
		}
	}
}

func BenchmarkASmallMessage(b *testing.B) {
	m := asks(strings.Repeat("a", 2<<10))
	for b.Loop() {
		if _, err := offload.Put(b.Context(), nil, here, m, offload.Limits{Value: offload.LargeBytes, Message: room}); err != nil {
			b.Fatal(err)
		}
		if err := offload.Take(b.Context(), nil, here, m, most); err != nil {
			b.Fatal(err)
		}
	}
}
