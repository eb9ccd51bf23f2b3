package engine_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/worker/workertest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// guide is the name under which a worker serves the function of a case.
const guide = "guide"

// guided connects a worker that returns the recorded values of a function in turn, and then repeats the last one. It
// counts its calls.
func (f *fleet) guided(t *goldentest.T, steps []any) *atomic.Int32 {
	hosted, err := workers.New(workers.Config{
		Ledger: &memory.Ledger{}, Owner: "test", Taken: func(string) bool { return false }, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	f.Workers = hosted
	t.Cleanup(func() { assert.NoError(t, hosted.Close(t.Context())) })
	var service served
	hosted.Register(&service)
	w := workertest.Connect(t, service)
	w.Register(&workerv1.Register{Project: "projects/p", Offers: []*workerv1.Offer{{Kind: workers.Continue, Name: guide}}})
	var all []*told
	for _, step := range steps {
		all = append(all, tell(t, step))
	}
	asked := &atomic.Int32{}
	go w.Serve(func(call *workerv1.Call) *workerv1.ConnectRequest {
		n := int(asked.Add(1))
		return all[min(n, len(all))-1].answer(call)
	})
	return asked
}

// served takes a service in place of a server.
type served struct{ workerv1.WorkerServiceServer }

// RegisterService implements [grpc.ServiceRegistrar].
func (s *served) RegisterService(_ *grpc.ServiceDesc, service any) {
	s.WorkerServiceServer, _ = service.(workerv1.WorkerServiceServer)
}

// told converts a recorded value of a function to a worker's result.
type told struct {
	// result is the answer; without a decision it is a conversation: the first keep of its messages, and those to
	// append.
	result workerv1.ContinueResultPayload
	keep   int
	append []*modelv1.ChatMessage
}

func tell(t *goldentest.T, step any) *told {
	said := &told{}
	switch step := step.(type) {
	case bool:
		said.result.Decision = &workerv1.ContinueResultPayload_Proceed{Proceed: step}
	case string:
		said.result.Decision = &workerv1.ContinueResultPayload_Message{Message: step}
	default:
		var changed struct {
			KeepFirst int             `json:"keep_first"`
			Append    json.RawMessage `json:"append"`
		}
		decode(t, step, &changed)
		said.keep, said.append = changed.KeepFirst, parsed(t, changed.Append)
	}
	return said
}

// answer is what the worker answers to a call.
func (s *told) answer(call *workerv1.Call) *workerv1.ConnectRequest {
	if s.result.GetDecision() != nil {
		return workertest.Result(call.GetKey(), protojson.Format(&s.result))
	}
	asked := &workerv1.ContinuePayload{}
	if err := protojson.Unmarshal([]byte(call.GetPayloadJson()), asked); err != nil {
		return workertest.Failure(call.GetKey(), &workerv1.CallError{Type: "unreadable", Message: err.Error()})
	}
	kept := asked.GetMessages()[:min(s.keep, len(asked.GetMessages()))]
	changed := &workerv1.Conversation{Messages: append(slices.Clip(kept), s.append...)}
	result := &workerv1.ContinueResultPayload{Decision: &workerv1.ContinueResultPayload_Conversation{Conversation: changed}}
	return workertest.Result(call.GetKey(), protojson.Format(result))
}
