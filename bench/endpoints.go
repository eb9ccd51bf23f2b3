package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/process"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/bench/internal/role"
	"github.com/evalfleet/evalfleet/bench/internal/vendor"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func endpointsBenchmark() benchmark {
	return benchmark{
		name:  "endpoints",
		title: "Models through the one address",
		how: "64 callers, each with a connection of its own and no HTTP library, ask the single binary at its one address for answers of 500 bytes; the vendor behind it is a server that answers from memory. " +
			"What counts is the processor time of the whole process for each request, or for each chunk of a stream. The baseline is `httputil.ReverseProxy` with pooled buffers, which reads nothing of what it " +
			"passes on. Each has one processor from its start, and the callers and the vendor have the others. Memory is that of a process that was started for the figure.",
		run: runEndpoints,
	}
}

// callers is the number of concurrent requests.
const callers = 64

// texts are what requests hold.
var texts = []struct {
	name, piece           string
	size                  int
	same, other, overGRPC float64 // goals, as multiples of the baseline; 0 is not measured
}{
	{"1 KB", "The quick brown fox jumps over the lazy dog. ", 1_000, 1.3, 2.0, 2.0},
	{"100 KB of prose", "The quick brown fox jumps over the lazy dog. ", 100_000, 1.2, 2.5, 2.5},
	{"100 KB of quoted JSON", `{"id": 17, "name": "x", "tags": ["a", "b"], "ok": true},`, 100_000, 1.2, 0, 0},
}

// streams are answers that come in chunks.
var streams = []struct {
	name, model string
	goal        float64
	means       string
}{
	{"a chunk of a stream, one every 10 ms", vendor.Paced, 1.1, "What a chunk costs when the model thinks between them: it goes out at once, and usage is looked for in it."},
	{"a chunk of a stream that comes at once", vendor.Burst, 0, "What a chunk costs when many have arrived: they go out together."},
}

func runEndpoints(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	if _, err := e.programs.build(ctx); err != nil { // Before processors are divided.
		return nil, err
	}
	first, restore, err := process.KeepOff()
	if err != nil {
		return nil, err
	}
	stop.add(restore)
	v, err := vendor.Start(ctx)
	if err != nil {
		return nil, err
	}
	stop.add(v.Stop)
	m := &middles{e: e, vendor: v, cpu: first}
	busy, err := m.processorTime(ctx)
	if err != nil {
		return nil, err
	}
	memory, err := m.memory(ctx)
	return append(busy, memory...), err
}

// processorTime measures what requests and chunks cost.
func (m *middles) processorTime(ctx context.Context) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	gateway, err := m.gateway(ctx, "endpoints")
	if err != nil {
		return nil, err
	}
	stop.add(gateway.Stop)
	proxy, err := m.proxy(ctx)
	if err != nil {
		return nil, err
	}
	stop.add(proxy.Stop)

	var samplers []paired.Sampler
	// add adds a sampler and returns its place.
	add := func(s paired.Sampler) int {
		samplers = append(samplers, s)
		return len(samplers) - 1
	}
	var compare []func(paired.Table) report.Figure
	figure := func(name, means string, subject, baseline int, goal float64) {
		compare = append(compare, func(t paired.Table) report.Figure {
			f := report.Figure{
				Name: name, Baseline: "bare proxy", Measured: t.Median(subject), BaselineMeasured: t.Median(baseline), Unit: "µs CPU", Ratio: t.Ratio(subject, baseline, 1), Means: means,
			}
			if goal > 0 {
				f.Goals = []report.Goal{report.AtMost(f.Ratio, goal)}
			}
			return f
		})
	}
	for _, text := range texts {
		said := strings.Repeat(text.piece, text.size/len(text.piece))
		baseline := add(proxy.posts(&stop, "/v1/chat/completions", chatBody(vendor.Plain, said), 1))
		same := add(gateway.posts(&stop, "/v1/chat/completions", chatBody("openai/"+vendor.Plain, said), 1))
		figure("same dialect, "+text.name, "What a call costs when its bytes are passed on: the credential, the scan, the budget, the slot, the metrics and the look at the answer's usage, which the bare proxy "+
			"does not have.", same, baseline, text.same)
		if text.other > 0 {
			other := add(gateway.posts(&stop, "/v1/messages", messagesBody("openai/"+vendor.Plain, said), 1))
			figure("other dialect, "+text.name, "What it costs to read a request in one vendor's format, send it in another's, and turn the answer back.", other, baseline, text.other)
		}
		if text.overGRPC > 0 {
			call, err := gateway.generates(said, &stop)
			if err != nil {
				return nil, err
			}
			overGRPC := add(load.CPU(callers, call, gateway.CPU))
			figure("gRPC, "+text.name, "What a call of the platform's own API costs through the gateway and the model gateway of one process.", overGRPC, baseline, text.overGRPC)
		}
	}
	for _, s := range streams {
		baseline := add(proxy.posts(&stop, "/v1/chat/completions", chatBody(s.model, "Hello"), vendor.Chunks))
		same := add(gateway.posts(&stop, "/v1/chat/completions", chatBody("openai/"+s.model, "Hello"), vendor.Chunks))
		figure(s.name, s.means, same, baseline, s.goal)
	}
	gone, goneBaseline := add(gateway.gone(chatBody("openai/"+vendor.Endless, "Hello"))), add(proxy.gone(chatBody(vendor.Endless, "Hello")))
	compare = append(compare, func(t paired.Table) report.Figure {
		f := report.Figure{
			Name: "a client has gone, 99 of 100", Baseline: "bare proxy", Measured: t.Median(gone), BaselineMeasured: t.Median(goneBaseline), Unit: "ms", Ratio: t.Ratio(gone, goneBaseline, 1),
			Means: "How long after a client has closed its connection in the midst of a stream the vendor sees its own closed, and stops.",
		}
		f.Goals = []report.Goal{report.Within(f.Measured, 50, f.Unit)}
		return f
	})
	table, err := m.e.measure(ctx, 5, samplers...)
	if err != nil {
		return nil, err
	}
	for _, f := range compare {
		figures = append(figures, f(table))
	}
	return figures, nil
}

// middles starts what is between the callers and the vendor, on one processor.
type middles struct {
	e      *env
	vendor *vendor.Vendor
	cpu    int
}

// middle is one of them.
type middle struct {
	*process.Child
	e      *env
	vendor *vendor.Vendor
	token  config.Secret
}

func (m *middles) start(name string, start func() (*process.Child, error)) (*middle, error) {
	own := &middle{e: m.e, vendor: m.vendor}
	err := process.On(m.cpu, func() (err error) {
		own.Child, err = start()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return own, nil
}

// gateway starts the single binary with its defaults and an account of the vendor.
func (m *middles) gateway(ctx context.Context, name string) (*middle, error) {
	var s settings
	s.Modelgw.OpenAI = map[string]string{"api_key": "a-key-of-the-vendor", "base_url": "http://" + m.vendor.Address + "/v1"}
	own, err := m.start(name, func() (*process.Child, error) { return m.e.serve(ctx, name, "", s) })
	if err != nil {
		return nil, err
	}
	own.token, err = m.e.token()
	return own, err
}

// proxy starts the bare proxy.
func (m *middles) proxy(ctx context.Context) (*middle, error) {
	return m.start(role.Proxy, func() (*process.Child, error) { return startRole(ctx, role.Proxy, "-to", m.vendor.Address) })
}

// generates is a call over gRPC, for an answer to a text.
func (m *middle) generates(said string, stop *cleanup) (load.Call, error) {
	conn, err := m.e.dial(m.Address)
	if err != nil {
		return nil, err
	}
	stop.add(conn.Close)
	models := modelv1.NewModelServiceClient(conn)
	r := &modelv1.GenerateRequest{
		Parent: "projects/default", Model: "openai/" + vendor.Plain, Messages: []*modelv1.ChatMessage{chat.User(said)},
		Config: &modelv1.GenerateConfig{MaxConnections: new(int32(callers)), MaxTokens: new(int64(100))},
	}
	return func(ctx context.Context, _, _ int) error {
		_, err := models.Generate(ctx, r)
		return err
	}, nil
}

func chatBody(model, said string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":` + quoted(said) + `}],"max_tokens":100` + streamed(model) + `}`
}

func messagesBody(model, said string) string {
	return `{"model":"` + model + `","max_tokens":100,"messages":[{"role":"user","content":` + quoted(said) + `}]}`
}

// streamed asks for a stream if the model streams.
func streamed(model string) string {
	switch strings.TrimPrefix(model, "openai/") {
	case vendor.Burst, vendor.Paced, vendor.Endless:
		return `,"stream":true`
	}
	return ""
}

// quoted is a text as JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text) // A text always can be.
	return string(b)
}
