package workerproxy_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/pkg/worker/workertest"
	"github.com/evalfleet/evalfleet/services/gateway/internal/workerproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves in memory until the test ends.
func serve(t *testing.T, register func(grpc.ServiceRegistrar)) workerv1.WorkerServiceClient {
	t.Helper()
	return workerv1.NewWorkerServiceClient(grpcservertest.Serve(t, "test", register))
}

// fleet is two hosts behind a proxy.
type fleet struct {
	tools, rest *worker.Host
	ledgers     map[*worker.Host]*memory.Ledger
	front       *workerproxy.Proxy
	client      workerv1.WorkerServiceClient
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{ledgers: map[*worker.Host]*memory.Ledger{}}
	host := func(kinds ...string) (*worker.Host, workerv1.WorkerServiceClient) {
		ledger := &memory.Ledger{}
		deps := worker.Deps{Ledger: ledger, Logger: slog.New(slog.DiscardHandler)}
		for _, kind := range kinds {
			deps.Kinds = append(deps.Kinds, worker.Kind{Name: kind})
		}
		h := worker.New(worker.Config{}, deps)
		f.ledgers[h] = ledger
		client := serve(t, h.Register)
		t.Cleanup(h.Close)
		return h, client
	}
	var tools, rest workerv1.WorkerServiceClient
	f.tools, tools = host("tool")
	f.rest, rest = host("scorer", "continue")
	f.front = workerproxy.New(workerproxy.Hosts{ByKind: map[string]workerv1.WorkerServiceClient{"tool": tools, "scorer": rest, "continue": rest}})
	f.client = serve(t, func(r grpc.ServiceRegistrar) { workerv1.RegisterWorkerServiceServer(r, f.front) })
	return f
}

func both(unfinished ...string) *workerv1.Register {
	return &workerv1.Register{Offers: []*workerv1.Offer{{Kind: "tool", Name: "lookup"}, {Kind: "scorer", Name: "polite"}}, Unfinished: unfinished}
}

type answered struct {
	worker.Answer
	err error
}

func ask(t *testing.T, h *worker.Host, kind, name, id string) chan answered {
	t.Helper()
	c := make(chan answered, 1)
	go func() {
		a, err := h.Do(t.Context(), worker.Call{Key: effect.Key{Project: "default", ID: id}, Kind: kind, Name: name, PayloadJSON: "{}"})
		c <- answered{a, err}
	}()
	return c
}

func TestOneConnectionServesAllKindsWithinItsBound(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := workertest.Dial(t, f.client)
	assert.NotEmpty(t, w.Register(both()).GetWorker())
	tool := ask(t, f.tools, "tool", "lookup", "t")
	assert.Equal(t, "t", w.Call().GetKey())
	scored := ask(t, f.rest, "scorer", "polite", "s")
	w.Send(workertest.Result("t", `{"text":"x"}`))
	got := waittest.For(t, tool, "the answer of the tool")
	require.NoError(t, got.err)
	assert.JSONEq(t, `{"text":"x"}`, got.PayloadJSON)
	assert.Equal(t, "s", w.Call().GetKey(), "one call at a time, though two services ask")
	w.Send(workertest.Result("s", `{}`))
	require.NoError(t, waittest.For(t, scored, "the answer of the scorer").err)
	f.rest.Accept(effect.Key{Project: "default", ID: "s"})
	assert.Equal(t, "s", w.Next().GetAccepted().GetKey())
	w.Send(workertest.Result("nobody's", `{}`))
	assert.Equal(t, "nobody's", w.Next().GetAccepted().GetKey())

	w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Draining{Draining: &workerv1.Draining{}}})
	f.tools.Accept(effect.Key{Project: "default", ID: "t"})
	require.NoError(t, w.Ended(), "a draining worker ends once nothing is left anywhere")
}

func TestAWorkerThatComesBackIsHeardByWhoeverAskedIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for h, id := range map[*worker.Host]string{f.tools: "t", f.rest: "s"} {
		_, _, err := f.ledgers[h].Claim(t.Context(), effect.Key{Project: "default", ID: id}, effect.Hash{}, "gone", 0)
		require.NoError(t, err)
	}
	w := workertest.Dial(t, f.client)
	assert.Equal(t, []string{"old"}, w.Register(both("t", "old", "s", "old", "old")).GetForget())
	w.Send(workertest.Result("s", `{"score":{}}`))
	w.Send(workertest.Result("t", `{"text":"t"}`))
	require.NoError(t, waittest.For(t, ask(t, f.rest, "scorer", "polite", "s"), "the kept result of the scorer").err)
	require.NoError(t, waittest.For(t, ask(t, f.tools, "tool", "lookup", "t"), "the kept result of the tool").err)
}

func TestKeptResultsMayFollowTheRegistrationAtOnce(t *testing.T) {
	t.Parallel()
	var kept []string
	for i := range 2_000 {
		kept = append(kept, fmt.Sprint("old-", i))
	}
	w := workertest.Dial(t, newFleet(t).client)
	w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: both(kept...)}})
	go func() {
		for _, key := range kept {
			w.Send(workertest.Result(key, `{}`))
		}
	}()
	require.Len(t, w.Next().GetRegistered().GetForget(), len(kept))
	for _, key := range kept {
		require.Equal(t, key, w.Next().GetAccepted().GetKey())
	}
}

// An invalid offer is named by its index in the worker's registration, whichever service finds it.
func TestAFaultOfAnOfferIsNamedByItsPlace(t *testing.T) {
	t.Parallel()
	r := both()
	r.Offers = append(r.Offers, &workerv1.Offer{Kind: "scorer", Name: "kind", OnUnknown: "panic"})
	w := workertest.Dial(t, newFleet(t).client)
	w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: r}})
	err := w.Ended()
	require.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
	require.ErrorContains(t, err, "register.offers[2].on_unknown: on_unknown of kind")
	fault, ok := rpcerr.As(err)
	require.True(t, ok)
	require.Len(t, fault.Fields, 1)
	assert.Equal(t, "register.offers[2].on_unknown", fault.Fields[0].Path)
}

func TestWhatEndsAConnection(t *testing.T) {
	t.Parallel()
	t.Run("a kind that nobody serves", func(t *testing.T) {
		t.Parallel()
		w := workertest.Dial(t, newFleet(t).client)
		w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{Offers: []*workerv1.Offer{{Kind: "wizard", Name: "merlin"}}}}})
		err := w.Ended()
		require.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
		assert.ErrorContains(t, err, `"wizard" is not served here; served are: continue, scorer, tool`)
	})
	t.Run("no offer", func(t *testing.T) {
		t.Parallel()
		w := workertest.Dial(t, newFleet(t).client)
		w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{}}})
		assert.Equal(t, codes.InvalidArgument, rpcerr.Code(w.Ended()))
	})
	t.Run("nothing said at all", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		host := serve(t, f.tools.Register)
		for _, client := range []workerv1.WorkerServiceClient{f.client, host} {
			stream, err := client.Connect(waittest.Context(t))
			require.NoError(t, err)
			require.NoError(t, stream.CloseSend())
			_, err = stream.Recv()
			assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "%v", err)
		}
	})
	t.Run("a host that goes", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		w := workertest.Dial(t, f.client)
		w.Register(both())
		f.rest.Close()
		assert.Equal(t, codes.Unavailable, rpcerr.Code(w.Ended()))
		require.Eventually(t, func() bool {
			_, err := f.tools.Do(t.Context(), worker.Call{Key: effect.Key{Project: "default", ID: "t"}, Kind: "tool", Name: "lookup", OnUnknown: toolv1.OnUnknown_ON_UNKNOWN_RETRY})
			return effect.IsNotStarted(err)
		}, time.Minute, time.Millisecond, "the other host has lost the worker too")
	})
	t.Run("a stop", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		w := workertest.Dial(t, f.client)
		w.Register(both())
		f.front.Close()
		assert.Equal(t, codes.Unavailable, rpcerr.Code(w.Ended()))
		_, err := f.client.Connect(context.Background())
		require.NoError(t, err)
	})
	t.Run("a flood", func(t *testing.T) {
		t.Parallel()
		w := workertest.Dial(t, newFleet(t).client)
		w.Register(both())
		ended := make(chan error, 1)
		go func() { ended <- w.Ended() }()
		w.Flood(func(int) *workerv1.ConnectRequest { return workertest.Result("stray", `{}`) })
		assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(waittest.For(t, ended, "the end of the worker that floods")))
	})
}
