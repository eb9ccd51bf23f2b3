package grok

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if err := m.Check(r.Config); err != nil {
		return nil, err
	}
	request, err := m.request(r)
	if err != nil {
		if _, invalid := rpcerr.As(err); invalid {
			return nil, err
		}
		return nil, transport.Unsupported(Name, err)
	}
	further, err := headers(r.Config.GetExtraHeaders().GetValues())
	if err != nil {
		return nil, err
	}
	if id := r.Conversation(); id != "" && len(further.Get(xai.ConversationHeader)) == 0 {
		further.Set(xai.ConversationHeader, id)
	}
	if r.Carrier != nil {
		request.ServiceTier = xai.ServiceTier_SERVICE_TIER_UNSPECIFIED
	}
	a := &attempt{model: m, request: r, sent: request, asked: &asked{name: m.name, tools: r.Tools, sent: request.GetTools()}}
	run := a.whole
	if r.Streams(m.args.Streaming.Always) {
		run = a.stream
	}
	if len(further) > 0 {
		ctx = metadata.NewOutgoingContext(ctx, further)
	}
	return transport.Attempt(r, func() []byte { return document(request) }, func() (*modelv1.ModelOutput, []byte, error) { return run(ctx) })
}

// document is a message as a record has it: it is read back before it is kept, so that its blanks do not matter.
func document(m proto.Message) []byte {
	text, err := protojson.Marshal(m)
	if err != nil {
		return []byte(`{}`) // A text that is not UTF-8 could not have been sent either.
	}
	return text
}

// attempt is one attempt.
type attempt struct {
	*model
	request *provider.Request
	sent    *xai.GetCompletionsRequest
	asked   *asked
	trailer metadata.MD
	// stopped means that an error within the stream represents an output.
	stopped bool
}

// options bound the answer.
func (a *attempt) options() []grpc.CallOption {
	return []grpc.CallOption{grpc.MaxCallRecvMsgSize(int(min(a.request.AnswerBound(), math.MaxInt32))), grpc.Trailer(&a.trailer)}
}

// whole asks for the answer when it is complete.
func (a *attempt) whole(ctx context.Context) (*modelv1.ModelOutput, []byte, error) {
	response, err := a.complete(ctx)
	// A failure of the carrier is none of the server's. One of ours, as that of a deferred call, could be read as a
	// status.
	_, ours := rpcerr.As(err)
	if _, said := status.FromError(err); err != nil && (ours || !said) {
		return nil, nil, err
	}
	if err != nil {
		output, err := a.meaning(ctx, err, a.trailer, false)
		return output, a.refusal(output, err), err
	}
	if a.request.Progress != nil {
		a.request.Progress()
	}
	output, err := a.asked.output(response)
	if err != nil {
		err = invalid(err)
	}
	return output, a.kept(response, err), err
}

// complete asks for the answer as the attempt wants it. The server's refusals are statuses of gRPC.
func (a *attempt) complete(ctx context.Context) (*xai.GetChatCompletionResponse, error) {
	if a.request.Carrier != nil {
		return a.carried(ctx)
	}
	return a.client.GetCompletion(ctx, a.sent, a.options()...)
}

// invalid is the failure of an answer that has no meaning.
func invalid(err error) error {
	return &provider.Error{Provider: Name, Invalid: true, Status: http.StatusOK, Cause: err}
}

// kept is an answer, if it is to be recorded.
func (a *attempt) kept(answer proto.Message, err error) []byte {
	if !a.request.Record.Of(err) {
		return nil
	}
	return document(answer)
}

// refusal is what the server said in place of an answer, if it is to be recorded.
func (a *attempt) refusal(output *modelv1.ModelOutput, err error) []byte {
	failure, refused := provider.As(err)
	if !a.request.Record.Of(err) || !refused && output == nil {
		return nil
	}
	said := output.GetCompletion()
	if refused {
		said = failure.Message
	}
	text, _ := json.Marshal(map[string]any{"error": map[string]string{"message": said}}) // Texts have JSON.
	return text
}

// stream asks for the answer in pieces.
func (a *attempt) stream(ctx context.Context) (output *modelv1.ModelOutput, raw []byte, err error) {
	within, end := context.WithCancel(ctx)
	defer end()
	r, c := a.request, &collected{asked: a.asked}
	events, pieces, left := transport.NewEvents(r.Record != provider.RecordNone), int64(0), r.AnswerBound()
	stream, err := a.client.GetCompletionChunk(within, a.sent, a.options()...)
	defer func() {
		if c.started && !a.stopped && (err != nil || !c.complete) && r.Unfinished != nil {
			r.Unfinished(usageOf(c.whole.GetUsage()), pieces)
		}
	}()
	for err == nil {
		var chunk *xai.GetChatCompletionChunk
		if chunk, err = stream.Recv(); err != nil {
			break
		}
		if left -= int64(proto.Size(chunk)); left < 0 {
			return nil, events.Document(), transport.Broken(ctx, Name, transport.ErrAnswerTooLarge)
		}
		if r.Progress != nil {
			r.Progress()
		}
		if events != nil {
			events.Add(document(chunk))
		}
		deltas := c.add(chunk)
		pieces += int64(len(deltas))
		if err := r.HoldSaid(ctx, deltas...); err != nil {
			return nil, events.Document(), transport.Broken(ctx, Name, err)
		}
		if r.Stream != nil {
			for _, delta := range deltas {
				r.Stream(delta)
			}
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		output, err = a.meaning(ctx, err, a.trailer, c.started)
		if a.stopped = output != nil; a.stopped {
			output.Usage = usageOf(c.whole.GetUsage())
		}
		if !c.started {
			return output, a.refusal(output, err), err
		}
		return output, events.Document(), err
	case !c.started:
		return nil, nil, &provider.Error{Provider: Name, Class: provider.Transient, Status: http.StatusOK, Message: "the stream ended before anything came"}
	}
	if output, err = a.asked.output(c.response()); err != nil {
		err = invalid(err)
	}
	return output, events.Document(), err
}
