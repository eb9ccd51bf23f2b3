package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/pkg/worker/workertest"
)

func TestRegistrationsThatAreRefused(t *testing.T) {
	t.Parallel()
	offer := func(change func(*workerv1.Offer)) *workerv1.Register {
		return lookup(func(r *workerv1.Register) { change(r.Offers[0]) })
	}
	for name, c := range map[string]struct {
		register *workerv1.Register
		says     []string
	}{
		"none":                   {nil, []string{"first frame"}},
		"nothing offered":        {&workerv1.Register{}, []string{"offers", "has to offer something"}},
		"a kind that nobody has": {offer(func(o *workerv1.Offer) { o.Kind = "wizard" }), []string{"offers[0]", `"wizard"`, "scorer, tool"}},
		"a bad name":             {offer(func(o *workerv1.Offer) { o.Name = "a b" }), []string{"a b"}},
		"no name":                {offer(func(o *workerv1.Offer) { o.Name = "" }), []string{"name"}},
		"a schema that is none":  {offer(func(o *workerv1.Offer) { o.ParametersJson = `{"type":"wizard"}` }), []string{"parameters_json of lookup", "not a JSON Schema"}},
		"a schema that is cut":   {offer(func(o *workerv1.Offer) { o.ParametersJson = `{"type":` }), []string{"parameters_json", "cannot be read"}},
		"a huge schema":          {offer(func(o *workerv1.Offer) { o.ParametersJson = `"` + strings.Repeat("x", 300<<10) + `"` }), []string{"larger than"}},
		"another word":           {offer(func(o *workerv1.Offer) { o.OnUnknown = "panic" }), []string{`"panic"`, "fail or retry"}},
		"a person's decision":    {offer(func(o *workerv1.Offer) { o.OnUnknown = "ask" }), []string{"on_unknown of lookup is ask", "not built yet"}},
		"no time at all":         {offer(func(o *workerv1.Offer) { o.Timeout = durationpb.New(0) }), []string{"timeout"}},
		"a store of its own":     {offer(func(o *workerv1.Offer) { o.StoreKeys = make([]string, 101) }), []string{"store keys"}},
		"the same twice":         {lookup(func(r *workerv1.Register) { r.Offers = append(r.Offers, r.Offers[0]) }), []string{"offers[1]", "twice"}},
		"too many offers":        {lookup(func(r *workerv1.Register) { r.Offers = slices.Repeat(r.Offers, 1001) }), []string{"1001"}},
		"too many in flight":     {lookup(inFlight(1001)), []string{"max_in_flight"}},
		"fewer than none":        {lookup(inFlight(-1)), []string{"max_in_flight"}},
		"too many unfinished":    {lookup(unfinished(make([]string, 10_001)...)), []string{"unfinished"}},
		"a project that is none": {lookup(func(r *workerv1.Register) { r.Project = "mine" }), []string{"project"}},
		"a name without end":     {lookup(func(r *workerv1.Register) { r.Worker = strings.Repeat("x", 129) }), []string{"128"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := newHost(t)
			w := workertest.Connect(t, h)
			frame := &workerv1.ConnectRequest{}
			if c.register != nil {
				frame.Frame = &workerv1.ConnectRequest_Register{Register: c.register}
			}
			w.Send(frame)
			err := w.Ended()
			require.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "%v", err)
			for _, text := range c.says {
				assert.Contains(t, err.Error(), text)
			}
		})
	}
}

func TestAnotherDefinitionUnderTheSameName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		first, second := workertest.Connect(t, h), workertest.Connect(t, h)
		first.Register(lookup())
		other := lookup(func(r *workerv1.Register) { r.Offers[0].ParametersJson = `{"type":"object"}` })
		second.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: other}})
		err := second.Ended()
		require.Equal(t, codes.AlreadyExists, rpcerr.Code(err))
		assert.Contains(t, err.Error(), `tool lookup is served by worker "ada" with another definition`)

		workertest.Connect(t, h).Register(lookup(func(r *workerv1.Register) { r.Offers[0].Version = "2" })) // versions are for people
		schema := func(text string) *workerv1.Register {
			return lookup(func(r *workerv1.Register) { r.Offers[0].Name, r.Offers[0].ParametersJson = "find", text })
		}
		workertest.Connect(t, h).Register(schema(`{"type":"object"}`))
		workertest.Connect(t, h).Register(schema("{\"type\": \"object\"}\n")) // languages differ in the blanks that they print
		assert.Equal(t, `{"type":"object"}`, h.Find("default", "tool", "find").GetParametersJson())
		synctest.Wait()
		h.Close()
		h, _ = newHost(t)
		first = workertest.Connect(t, h)
		first.Register(lookup())
		first.Break()
		synctest.Wait()
		workertest.Connect(t, h).Register(other)
		assert.JSONEq(t, `{"type":"object"}`, h.Find("default", "tool", "lookup").GetParametersJson(), "once the others have left it is the name's new meaning")
	})
}

func TestFramesThatBreakTheProtocol(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		frame *workerv1.ConnectRequest
		says  string
	}{
		"a second registration": {&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: lookup()}}, "registers once"},
		"an empty frame":        {&workerv1.ConnectRequest{}, "says nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := newHost(t)
			w := workertest.Connect(t, h)
			w.Register(lookup())
			w.Send(c.frame)
			err := w.Ended()
			require.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
			assert.ErrorContains(t, err, c.says)
		})
	}
}

// A worker that floods the host with unrequested frames, and one that sends and never reads, are cut off. Their frames
// are not stored.
func TestFloods(t *testing.T) {
	t.Parallel()
	t.Run("of results", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, _ := newHost(t)
			w := workertest.Connect(t, h)
			w.Register(lookup())
			ended := make(chan error, 1)
			go func() { ended <- w.Ended() }()
			sent := w.Flood(func(i int) *workerv1.ConnectRequest { return workertest.Result(fmt.Sprint("stray-", i), `{}`) })
			assert.Less(t, sent, 1100)
			assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(<-ended))
		})
	})
	t.Run("of progress", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, _ := newHost(t)
			w := workertest.Connect(t, h)
			w.Register(lookup())
			ended := make(chan error, 1)
			go func() { ended <- w.Ended() }()
			w.Flood(func(int) *workerv1.ConnectRequest {
				return &workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Progress{Progress: &workerv1.CallProgress{Key: "none"}}}
			})
			assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(<-ended))
		})
	})
	t.Run("by one that never reads", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, _ := newHost(t)
			w := workertest.Connect(t, h)
			w.Register(lookup())
			a := ask(t, t.Context(), h, call("k", retried))
			sent := w.Flood(func(i int) *workerv1.ConnectRequest { return workertest.Result(fmt.Sprint("stray-", i), `{}`) })
			assert.Less(t, sent, 300, "it is not read any further")
			err := w.Ended()
			assert.Equal(t, codes.Unavailable, rpcerr.Code(err), "and in the end it is cut off: %v", err)
			next := workertest.Connect(t, h)
			next.Register(lookup())
			next.Send(workertest.Result(next.Call().GetKey(), `{}`))
			_, err = a.wait()
			require.NoError(t, err)
		})
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, (&worker.Config{}).Validate())
	require.Error(t, (&worker.Config{Absence: -1}).Validate())
}
