package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/process"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/bench/internal/role"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func gatewayBenchmark() benchmark {
	return benchmark{
		name:  "gateway",
		title: "The gateway's processor time",
		how: "8 clients ask for answers of mockllm, with requests and answers of 1 KB or 100 KB of text. What counts is the processor time of the process in the middle for each request, not " +
			"the clock: the gateway, or a program that is `httputil.ReverseProxy` and nothing else. Over gRPC both stand before the same modelgw and pass the same frames. Over REST the " +
			"gateway turns JSON into gRPC and back; the proxy stands before a server that answers the same bytes at once.",
		run: runGateway,
	}
}

// clients is the number of concurrent requests.
const clients = 8

// sizes are those of requests and answers, in bytes of text.
var sizes = []int{1_000, 100_000}

// What the platform aims at (CPU per request against a bare proxy), by size: passing through, and by way of messages.
var (
	passAims    = map[int]float64{1_000: 1.3, 100_000: 1.15}
	messageAims = map[int]float64{1_000: 2.0, 100_000: 2.5}
)

func runGateway(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	f, err := startFront(ctx, e, &stop)
	if err != nil {
		return nil, err
	}
	var samplers []paired.Sampler
	for _, size := range sizes {
		passed, err := f.grpc(size, &stop)
		if err != nil {
			return nil, err
		}
		mapped, err := f.rest(ctx, size, &stop)
		if err != nil {
			return nil, err
		}
		samplers = append(append(samplers, passed...), mapped...)
	}
	through, err := f.generate(f.gateway.Address, sizes[0], &stop)
	if err != nil {
		return nil, err
	}
	direct, err := f.generate(f.modelgw.Address, sizes[0], &stop)
	if err != nil {
		return nil, err
	}
	at := len(samplers)
	table, err := e.measure(ctx, 5, append(samplers, load.Latency(through), load.Latency(direct))...)
	if err != nil {
		return nil, err
	}
	for i, size := range sizes {
		text := " of " + strconv.Itoa(size/1000) + " KB"
		pass, message := table.Ratio(4*i, 4*i+1, 1), table.Ratio(4*i+2, 4*i+3, 1)
		figures = append(figures, report.Figure{
			Name: "gRPC" + text + " through the gateway", Baseline: "bare proxy, HTTP/2", Measured: table.Median(4 * i), BaselineMeasured: table.Median(4*i + 1), Unit: "µs CPU", Ratio: pass,
			Goals: []report.Goal{report.AtMost(pass, passAims[size]).AsAim()},
			Means: "What a call costs the gateway when it passes the frames on unread. It checks the credential and counts the call, which the bare proxy does not.",
		}, report.Figure{
			Name: "REST" + text + " through the gateway", Baseline: "bare proxy, HTTP/1.1", Measured: table.Median(4*i + 2), BaselineMeasured: table.Median(4*i + 3), Unit: "µs CPU", Ratio: message,
			Goals: []report.Goal{report.AtMost(message, messageAims[size]).AsAim()},
			Means: "What it costs to turn a JSON request into a message, call the service, and write its answer as JSON. Model traffic of a program belongs on gRPC.",
		})
	}
	return append(figures, report.Figure{
		Name: "time of a gRPC call of 1 KB through the gateway", Baseline: "straight to modelgw", Measured: table.Median(at), BaselineMeasured: table.Median(at + 1), Unit: "µs", Ratio: table.Ratio(at, at+1, 1),
		Means: "What one client alone waits for an answer, by the clock: the way through the gateway is one more process to wake.",
	}), nil
}

// front is a gateway and a bare proxy before the same modelgw.
type front struct {
	e                       *env
	token                   config.Secret
	modelgw, gateway, proxy *process.Child
}

func startFront(ctx context.Context, e *env, stop *cleanup) (*front, error) {
	s, err := e.scripted(sizes...)
	if err != nil {
		return nil, err
	}
	f := &front{e: e}
	if f.modelgw, err = e.serve(ctx, "modelgw", "modelgw", s); err != nil {
		return nil, err
	}
	stop.add(f.modelgw.Stop)
	to := f.modelgw.Address
	// This benchmark does not call the other services.
	if f.gateway, err = e.serve(ctx, "gateway", "gateway", settings{Peers: map[string]string{"modelgw": to, "toolexec": to, "sandboxd": to, "agentorch": to}}); err != nil {
		return nil, err
	}
	stop.add(f.gateway.Stop)
	if f.proxy, err = startRole(ctx, role.Proxy, "-to", to); err != nil {
		return nil, err
	}
	stop.add(f.proxy.Stop)
	f.token, err = e.token()
	return f, err
}

// startRole starts this program as its own child.
func startRole(ctx context.Context, args ...string) (*process.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return process.Start(ctx, self, append([]string{role.Child}, args...)...)
}

// generate is a gRPC call at an address.
func (f *front) generate(address string, size int, stop *cleanup) (load.Call, error) {
	conn, err := f.e.dial(address)
	if err != nil {
		return nil, err
	}
	stop.add(conn.Close)
	models, r := modelv1.NewModelServiceClient(conn), request(size, clients)
	return func(ctx context.Context, _, _ int) error {
		_, err := models.Generate(ctx, r)
		return err
	}, nil
}

// grpc samples the gateway and the proxy, passing on gRPC.
func (f *front) grpc(size int, stop *cleanup) ([]paired.Sampler, error) {
	var samplers []paired.Sampler
	for _, child := range []*process.Child{f.gateway, f.proxy} {
		call, err := f.generate(child.Address, size, stop)
		if err != nil {
			return nil, err
		}
		samplers = append(samplers, load.CPU(clients, call, child.CPU))
	}
	return samplers, nil
}

// rest samples the gateway, and a proxy before a server that answers what the gateway does.
func (f *front) rest(ctx context.Context, size int, stop *cleanup) ([]paired.Sampler, error) {
	body, err := protojson.Marshal(request(size, clients))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	stop.add(func() error { transport.CloseIdleConnections(); return nil })
	answer, err := f.post(ctx, transport, f.gateway.Address, body)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(f.e.dir, strconv.Itoa(size)+".answer")
	if err := os.WriteFile(file, answer, 0o600); err != nil {
		return nil, err
	}
	stub, err := startRole(ctx, role.Stub, "-body", file)
	if err != nil {
		return nil, err
	}
	stop.add(stub.Stop)
	proxy, err := startRole(ctx, role.Proxy, "-to", stub.Address)
	if err != nil {
		return nil, err
	}
	stop.add(proxy.Stop)
	var samplers []paired.Sampler
	for _, child := range []*process.Child{f.gateway, proxy} {
		samplers = append(samplers, load.CPU(clients, func(ctx context.Context, _, _ int) error {
			_, err := f.post(ctx, transport, child.Address, body)
			return err
		}, child.CPU))
	}
	return samplers, nil
}

// post asks for an answer over REST.
func (f *front) post(ctx context.Context, transport http.RoundTripper, address string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/api/v1/projects/default/models:generate", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+f.token.Reveal())
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return answer, err
}
