package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/process"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/bench/internal/role"
	"github.com/evalfleet/evalfleet/pkg/config"
)

func endpointsBenchmark() benchmark {
	return benchmark{
		name:  "endpoints",
		title: "Model endpoints in vendors' shapes",
		how: "8 clients ask for answers of a vendor's model, with requests and answers of 1 KB or 100 KB of text; the vendor is a server that answers the same bytes at once. What counts is the " +
			"processor time of the process in the middle for each request: modelgw, or a program that is `httputil.ReverseProxy` and nothing else. In the same dialect the client speaks as the vendor does, " +
			"and the request goes through as bytes; in the other it speaks as another vendor does, and the request and the answer go through the canonical form.",
		run: runEndpoints,
	}
}

// texts are what requests and answers hold.
var texts = []struct {
	name, piece string
	size        int
}{
	{"1 KB", "The quick brown fox jumps over the lazy dog. ", 1_000},
	{"100 KB", "The quick brown fox jumps over the lazy dog. ", 100_000},
	{"100 KB of quoted JSON", `{"id":17,"name":"x","ok":true,"tags":["a","b"]},`, 100_000},
}

func runEndpoints(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	stop.add(func() error { transport.CloseIdleConnections(); return nil })
	var samplers []paired.Sampler
	for i, text := range texts {
		said := strings.Repeat(text.piece, text.size/len(text.piece))
		m, err := startMiddle(ctx, e, strconv.Itoa(i), said, &stop)
		if err != nil {
			return nil, err
		}
		samplers = append(samplers,
			m.sampler(transport, m.modelgw, "/v1/chat/completions", chatBody("openai/gpt-4o", said)),
			m.sampler(transport, m.modelgw, "/v1/messages", messagesBody("openai/gpt-4o", said)),
			m.sampler(transport, m.proxy, "/v1/chat/completions", chatBody("gpt-4o", said)))
	}
	table, err := e.measure(ctx, 5, samplers...)
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		same, other, bare := 3*i, 3*i+1, 3*i+2
		direct, converted := table.Ratio(same, bare, 1), table.Ratio(other, bare, 1)
		figures = append(figures, report.Figure{
			Name: "same dialect, " + text.name, Baseline: "bare proxy", Measured: table.Median(same), BaselineMeasured: table.Median(bare), Unit: "µs CPU", Ratio: direct,
			Goals: []report.Goal{report.AtMost(direct, passAims[text.size]).AsAim()},
			Means: "What a call costs modelgw when it passes the bytes on: the credential, the scan, the budget, the slot and the look at the answer's usage, which the bare proxy does not have.",
		}, report.Figure{
			Name: "other dialect, " + text.name, Baseline: "bare proxy", Measured: table.Median(other), BaselineMeasured: table.Median(bare), Unit: "µs CPU", Ratio: converted,
			Goals: []report.Goal{report.AtMost(converted, messageAims[text.size]).AsAim()},
			Means: "What it costs to read a request in one vendor's format, send it in another's, and turn the answer back.",
		})
	}
	return figures, nil
}

// middle is a modelgw and a bare proxy before the same vendor.
type middle struct {
	token          config.Secret
	modelgw, proxy *process.Child
}

func startMiddle(ctx context.Context, e *env, name, said string, stop *cleanup) (*middle, error) {
	file := filepath.Join(e.dir, name+".answer")
	answer := `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"model","choices":[{"index":0,"message":{"role":"assistant","content":` + quoted(said) +
		`},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}`
	if err := os.WriteFile(file, []byte(answer), 0o600); err != nil {
		return nil, err
	}
	vendor, err := startRole(ctx, role.Stub, "-body", file)
	if err != nil {
		return nil, err
	}
	stop.add(vendor.Stop)
	m := &middle{}
	if m.proxy, err = startRole(ctx, role.Proxy, "-to", vendor.Address); err != nil {
		return nil, err
	}
	stop.add(m.proxy.Stop)
	var s settings
	s.Modelgw.OpenAI = map[string]string{"api_key": "key", "base_url": "http://" + vendor.Address + "/v1"}
	if m.modelgw, err = e.serve(ctx, "modelgw-"+name, "modelgw", s); err != nil {
		return nil, err
	}
	stop.add(m.modelgw.Stop)
	m.token, err = e.token()
	return m, err
}

// sampler measures what a request costs the process that takes it.
func (m *middle) sampler(transport http.RoundTripper, to *process.Child, path, body string) paired.Sampler {
	return load.CPU(clients, func(ctx context.Context, _, _ int) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.Address+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+m.token.Reveal())
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			why, _ := io.ReadAll(answer.Body)
			return fmt.Errorf("%s: %s", answer.Status, why)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}, to.CPU)
}

func chatBody(model, said string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":` + quoted(said) + `}],"max_tokens":100}`
}

func messagesBody(model, said string) string {
	return `{"model":"` + model + `","max_tokens":100,"messages":[{"role":"user","content":` + quoted(said) + `}]}`
}

// quoted is a text as JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text) // A text always can be.
	return string(b)
}
