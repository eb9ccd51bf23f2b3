package modelgw_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// vendor is an upstream API that a test writes, and what it was asked.
type vendor struct {
	*httptest.Server
	asked chan *http.Request
	body  chan []byte
}

// vendorWith serves chat completions with a handler until the test ends.
func vendorWith(t *testing.T, answer http.HandlerFunc) *vendor {
	t.Helper()
	v := &vendor{asked: make(chan *http.Request, 64), body: make(chan []byte, 64)}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		v.asked <- r
		v.body <- body
		answer(w, r)
	}))
	t.Cleanup(v.Close)
	return v
}

// says is a handler that always answers the same.
func says(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// web is a gateway's endpoints at an address.
type web struct {
	*gateway
	url    string
	client *http.Client
}

// serveWeb serves the endpoints of a gateway whose provider openai is at a vendor's.
func serveWeb(t *testing.T, v *vendor, changes ...setup) *web {
	t.Helper()
	at := func(c *modelgw.Config, _ *modelgw.Deps) {
		if v != nil {
			c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret("vendor-key"), v.URL+"/v1"
		}
	}
	g := start(t, append([]setup{at}, changes...)...)
	server := httptest.NewServer(g.web)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return &web{gateway: g, url: server.URL, client: &http.Client{Transport: transport}}
}

// post sends a request with the right token, and more headers given as name, value.
func (w *web) post(t *testing.T, path, body string, headers ...string) *http.Response {
	t.Helper()
	return w.do(waittest.Context(t), t, http.MethodPost, path, body, headers...)
}

func (w *web) do(ctx context.Context, t *testing.T, method, path, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer right")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := w.client.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func read(t *testing.T, answer *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(body)
}

// failure reads an error in OpenAI's shape.
func failure(t *testing.T, answer *http.Response) (message, kind, code string) {
	t.Helper()
	var said struct {
		Error struct{ Message, Type, Code string }
	}
	body := read(t, answer)
	require.NoError(t, json.Unmarshal([]byte(body), &said), body)
	return said.Error.Message, said.Error.Type, said.Error.Code
}

const chatPath = "/v1/chat/completions"

// inFlight is how many calls hold a slot.
func (g *gateway) inFlight(t *testing.T) int {
	t.Helper()
	pools, err := g.limits.ListConnectionPools(context.Background(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/-/-"})
	if !assert.NoError(t, err) {
		return -1
	}
	n := 0
	for _, pool := range pools.GetConnectionPools() {
		n += int(pool.GetInFlight())
	}
	return n
}

// spent is what the project has spent, or -1 while a call still holds a reservation.
func (g *gateway) spent(t *testing.T) int64 {
	t.Helper()
	budgets, err := g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
	require.NoError(t, err)
	n := int64(0)
	for _, b := range budgets.GetBudgets() {
		if b.GetReservedTokens() != 0 {
			return -1
		}
		n += b.GetSpentTokens()
	}
	return n
}

const whole = `{ "usage" : {"prompt_tokens": 9, "completion_tokens":3,"total_tokens":12, "odd": 1e0},
  "choices":[{"message":{"role":"assistant","content":"\u00e9 \/ caf\u00e9"},"finish_reason":"stop","index":0}], "new_field":[1.0,  2], "id":"chatcmpl-9"}` + "\n"

// A client's request reaches the vendor byte for byte except the model's name, and so does the answer on its way back.
func TestBytesGoThroughUntouched(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Odd"] = []string{"a", "b"}
		w.Header().Set("X-Request-Id", "vendor-1")
		w.Header().Set("Set-Cookie", "session=of-the-account")
		says(http.StatusOK, "application/json; charset=odd", whole)(w, r)
	})
	g := serveWeb(t, v)
	for name, body := range map[string]string{
		"plain":       `{"model":"openai/gpt-4o","messages":[]}`,
		"order":       `{"zeta":1,"messages":[{"content":"x","role":"user"}],"model":"openai/gpt-4o","alpha":2}`,
		"blanks":      "{\n\t\"model\" :\r\n \"openai/gpt-4o\" ,\"messages\" : [ ]  }\n",
		"numbers":     `{"model":"openai/gpt-4o","a":1.0,"b":1e+02,"c":-0,"d":123456789012345678901234567890,"e":0.10}`,
		"escapes":     `{"model":"openai\/gpt\u002d4o","messages":[{"role":"user","content":"\u00e9\ud83d\ude00 \/ \"model\":\"no\" \\"}]}`,
		"key escaped": `{"mod\u0065l":"openai/gpt-4o","messages":[]}`,
		"unknown":     `{"model":"openai/gpt-4o","new":{"model":"inner","x":[{},[],null]},"x":1,"x":2}`,
		"not UTF-8":   "{\"model\":\"openai/gpt-4o\",\"x\":\"\xff\xfe\"}",
		"large":       `{"messages":[{"role":"user","content":"` + strings.Repeat(`\"a\\`, 200_000) + `"}],"model":"openai/gpt-4o"}`,
	} {
		answer := g.post(t, chatPath, body, "Openai-Beta", "x=1", "Openai-Organization", "org", "X-Secret", "mine", "Cookie", "c=1", "X-Stainless-Lang", "python")
		require.Equal(t, http.StatusOK, answer.StatusCode, name)
		assert.Equal(t, whole, read(t, answer), name)
		assert.Equal(t, "application/json; charset=odd", answer.Header.Get("Content-Type"))
		assert.Equal(t, []string{"a", "b"}, answer.Header["X-Odd"])
		assert.Equal(t, "vendor-1", answer.Header.Get("X-Request-Id"))
		assert.Empty(t, answer.Header.Get("Set-Cookie"), "the account's session is not the client's")

		want := body
		for _, value := range []string{`"openai/gpt-4o"`, `"openai\/gpt\u002d4o"`} {
			want = strings.Replace(want, value, `"gpt-4o"`, 1)
		}
		assert.True(t, bytes.Equal([]byte(want), waittest.For(t, v.body, "the body that reaches the vendor")), "%s: what reaches the vendor", name) // Not shown: one is large.
		asked := waittest.For(t, v.asked, "the request that reaches the vendor")
		assert.Equal(t, "/v1/chat/completions", asked.URL.Path)
		assert.Equal(t, "Bearer vendor-key", asked.Header.Get("Authorization"))
		assert.Equal(t, "x=1", asked.Header.Get("Openai-Beta"))
		assert.Equal(t, "org", asked.Header.Get("Openai-Organization"))
		for _, kept := range []string{"X-Secret", "Cookie", "X-Stainless-Lang"} {
			assert.Empty(t, asked.Header.Get(kept), kept)
		}
	}
	assert.Equal(t, int64(9*12), g.spent(t), "the usage of each answer was read on its way")
	assert.Zero(t, g.inFlight(t))
}

// Each event reaches the client as it comes, and the bytes of the stream are the vendor's.
func TestAStreamGoesThroughAsItComes(t *testing.T) {
	t.Parallel()
	events := []string{
		": hello\n\n", "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"delta\":{\"role\":\"assistant\"}}],\"usage\":null}\n\n",
		"data: {\"choices\":[{\"delta\":{\"content\":\"a \\\"usage\\\" b\"}}]}\r\n\r\n", "event: odd\ndata: {\"choices\":[{\"finish_reason\":\"length\"}]}\n\n",
		"data:{\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n", "data: [DONE]\n\n",
	}
	next := make(chan struct{})
	v := vendorWith(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range events {
			waittest.Hold(t, next)
			_, _ = io.WriteString(w, event)
			w.(http.Flusher).Flush()
		}
	})
	g := serveWeb(t, v)
	go func() {
		select {
		case next <- struct{}{}:
		case <-t.Context().Done():
		}
	}()
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","stream":true,"messages":[]}`)
	for i, event := range events {
		if i > 0 {
			select {
			case next <- struct{}{}: // The event before has been read by now.
			case <-time.After(waittest.Bound):
				require.FailNow(t, "the vendor does not go on")
			}
		}
		got := make([]byte, len(event))
		_, err := io.ReadFull(answer.Body, got)
		require.NoError(t, err)
		assert.Equal(t, event, string(got))
	}
	assert.Empty(t, read(t, answer))
	require.Eventually(t, func() bool { return g.inFlight(t) == 0 && g.spent(t) == 7 }, waitLimit, tick)
}

// Both lanes are measured alike.
func TestBothLanesAreMeasured(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	g := serveWeb(t, vendorWith(t, says(http.StatusOK, "application/json", whole)), func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
	for range 2 {
		read(t, g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`))
	}
	read(t, g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`))
	page := httptest.NewRecorder()
	telemetry.Page(registry).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`evalfleet_model_tokens_total{account="default",kind="input",model="gpt-4o",provider="openai"} 27`,
		`evalfleet_model_tokens_total{account="default",kind="output",model="gpt-4o",provider="openai"} 9`,
		`evalfleet_model_call_duration_seconds_count{account="default",model="gpt-4o",outcome="ok",provider="openai"} 3`,
	} {
		assert.Contains(t, page.Body.String(), line+"\n")
	}
}

// A client that does not ask for usage is charged what it took by an estimate.
func TestAStreamWithoutUsageIsEstimated(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "text/event-stream", strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", 10)+"data: [DONE]\n\n"))
	g := serveWeb(t, v)
	body := `{"model":"openai/gpt-4o","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 800) + `"}]}`
	read(t, g.post(t, chatPath, body))
	// The client has the whole answer before the call is settled.
	require.Eventually(t, func() bool { return g.inFlight(t) == 0 && g.spent(t) > 0 }, waitLimit, tick)
	assert.InDelta(t, 1000+10, g.spent(t), 50)
}

func TestAVendorsErrorGoesThroughUntouched(t *testing.T) {
	t.Parallel()
	const odd = `{"error" : {"message":"no such \u006dodel","type":"invalid_request_error","param":"x","code":"odd"}}`
	for _, status := range []int{400, 403, 404, 413, 422} {
		v := vendorWith(t, says(status, "application/json", odd))
		g := serveWeb(t, v)
		answer := g.post(t, chatPath, `{"model":"openai/gpt-9","messages":[]}`)
		assert.Equal(t, status, answer.StatusCode)
		assert.Equal(t, odd, read(t, answer))
		assert.Len(t, v.body, 1, "it is asked once")
		assert.Zero(t, g.inFlight(t))
		assert.Zero(t, g.spent(t))
	}
}

// A failure that may pass is tried again as long as nothing of the answer was sent; the last one is the vendor's own.
func TestRetriesEndWithTheVendorsWord(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After-Ms", "1")
		w.Header().Set("Retry-After", "0.001")
		if calls.Add(1)%3 != 0 {
			says(http.StatusServiceUnavailable, "text/plain", "later")(w, r)
			return
		}
		says(http.StatusOK, "application/json", whole)(w, r)
	})
	g := serveWeb(t, v)
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","messages":[]}`)
	assert.Equal(t, whole, read(t, answer))
	assert.Equal(t, int32(3), calls.Load())
	for range 3 {
		assert.Equal(t, `{"model":"gpt-4o","messages":[]}`, string(waittest.For(t, v.body, "the body that reaches the vendor")), "each attempt sends all of it")
	}

	g = serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxRetries = 1 })
	answer = g.post(t, chatPath, `{"model":"openai/gpt-4o","messages":[]}`)
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	assert.Equal(t, "later", read(t, answer))
	assert.Equal(t, "0.001", answer.Header.Get("Retry-After"))
	assert.Equal(t, int32(5), calls.Load())
}

// An answer that breaks off is not restarted, and the client can detect that it is incomplete.
func TestAnAnswerThatBreaksOffIsNotTakenForWhole(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	g := serveWeb(t, v)
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","stream":true,"messages":[]}`)
	_, err := io.ReadAll(answer.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Len(t, v.body, 1)
	require.Eventually(t, func() bool { return g.inFlight(t) == 0 }, waitLimit, tick)
}

func TestARefusedKeyIsTheOperatorsAffair(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusUnauthorized, "application/json", `{"error":{"message":"Incorrect API key: vendor-k**"}}`))
	g := serveWeb(t, v)
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","messages":[]}`)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	message, _, _ := failure(t, answer)
	assert.NotContains(t, message, "vendor-k")
	assert.Contains(t, message, "account")
}

// A client that followed a redirect would take its credential of this platform to a stranger.
func TestARedirectIsNotPassedOn(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://elsewhere.example/v1/chat/completions")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	for model, g := range map[string]*web{"openai/gpt-4o": serveWeb(t, v), "anthropic/claude-sonnet-4-5": serveMessages(t, v)} {
		for _, path := range []string{chatPath, messagesPath} {
			answer := g.post(t, path, `{"model":"`+model+`","max_tokens":5,`+user+`}`)
			assert.Equal(t, http.StatusBadGateway, answer.StatusCode, path)
			assert.Empty(t, answer.Header.Get("Location"))
			message, _, _ := failure(t, answer)
			assert.Contains(t, message, "base_url")
			waittest.For(t, v.body, "the body that reaches the vendor")
			assert.Empty(t, v.body, "it is asked once")
		}
	}
}

func TestAVendorThatIsAwayIsSaidSo(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL, c.Endpoints.MaxRetries = config.NewSecret("vendor-key"), "http://127.0.0.1:1/v1", 0
	})
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","messages":[]}`)
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	message, _, _ := failure(t, answer)
	assert.Contains(t, message, "openai")
}

func TestWhatIsRefusedHereHasTheVendorsShape(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxBodyBytes = 1000 })
	for name, tt := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		says               string
	}{
		"no token":           {http.MethodPost, chatPath, `{}`, []string{"Authorization", ""}, 401, "token"},
		"wrong token":        {http.MethodPost, chatPath, `{}`, []string{"X-Api-Key", "wrong"}, 401, "token"},
		"no JSON":            {http.MethodPost, chatPath, `{"model":`, nil, 400, "no JSON object"},
		"no model":           {http.MethodPost, chatPath, `{"messages":[]}`, nil, 400, "model"},
		"model is no text":   {http.MethodPost, chatPath, `{"model":5}`, nil, 400, "model"},
		"model twice":        {http.MethodPost, chatPath, `{"model":"a/b","model":"c/d"}`, nil, 400, "more than once"},
		"too deep":           {http.MethodPost, chatPath, `{"model":"openai/gpt-4o","x":` + strings.Repeat("[", 600), nil, 400, "512 levels"},
		"too large":          {http.MethodPost, chatPath, `{"x":"` + strings.Repeat("x", 1000) + `"}`, nil, 413, "1000"},
		"unknown provider":   {http.MethodPost, chatPath, `{"model":"nobody/x"}`, nil, 404, "GET /v1/models"},
		"bare name":          {http.MethodPost, chatPath, `{"model":"gpt-4o"}`, nil, 404, "`gpt-4o`"},
		"no key":             {http.MethodPost, chatPath, `{"model":"openai/gpt-4o"}`, nil, 400, "OPENAI_API_KEY"},
		"unknown account":    {http.MethodPost, chatPath, `{"model":"mockllm/m","messages":[]}`, []string{"Evalfleet-Account", "x"}, 400, "no account"},
		"bad project":        {http.MethodPost, chatPath, `{"model":"mockllm/m","messages":[]}`, []string{"Evalfleet-Project", "../x"}, 400, "project"},
		"bad request":        {http.MethodPost, chatPath, `{"model":"mockllm/m","messages":[{"role":"critic"}]}`, nil, 400, "messages[0]"},
		"bad cache":          {http.MethodPost, chatPath, `{"model":"mockllm/m","messages":[{"role":"user","content":"x"}]}`, []string{"Evalfleet-Cache", "soon"}, 400, "Evalfleet-Cache"},
		"other method":       {http.MethodGet, chatPath, "", nil, 405, "POST"},
		"other path":         {http.MethodPost, "/v1/embeddings", "{}", nil, 404, "/v1/embeddings"},
		"unknown model info": {http.MethodGet, "/v1/models/nobody/x", "", nil, 404, "nobody/x"},
	} {
		answer := g.do(t.Context(), t, tt.method, tt.path, tt.body, tt.headers...)
		assert.Equal(t, tt.status, answer.StatusCode, name)
		message, kind, _ := failure(t, answer)
		assert.Contains(t, message, tt.says, name)
		assert.NotEmpty(t, kind, name)
		assert.NotEmpty(t, answer.Header.Get("X-Request-Id"), name)
	}
}

// A client that reads the answer only after it has sent its whole body receives the answer, whether the body has a
// length or not. A client that sends an Expect header receives it at once.
func TestABodyThatIsRefusedIsAnsweredToWhoSendsItAll(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxBodyBytes = 1000 })
	const size = 100 << 20
	for name, tt := range map[string]struct {
		header, before, after string
		want                  int
	}{
		"with its length": {fmt.Sprintf("Content-Length: %d", size), "", "", http.StatusRequestEntityTooLarge},
		"in chunks":       {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n", size), "\r\n0\r\n\r\n", http.StatusRequestEntityTooLarge},
		"after asking":    {fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d", size), "", "", http.StatusRequestEntityTooLarge},
		"compressed":      {fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d", size), "", "", http.StatusUnsupportedMediaType},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(waittest.Bound)))
			_, err = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer right\r\n"+tt.header+"\r\n\r\n")
			require.NoError(t, err)
			if sent := 0; !strings.HasPrefix(tt.header, "Expect") {
				_, err = io.WriteString(conn, tt.before)
				require.NoError(t, err)
				for piece := make([]byte, 1<<20); sent < size; sent += len(piece) {
					_, err = conn.Write(piece)
					require.NoError(t, err)
				}
				_, err = io.WriteString(conn, tt.after)
				require.NoError(t, err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer answer.Body.Close()
			assert.Equal(t, tt.want, answer.StatusCode)
		})
	}
}

// Programs act on an error's code and param, so both are set.
func TestARefusalSaysWhichMemberAndWhy(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	for body, want := range map[string][2]string{
		`{"messages":[]}`:                    {"missing_required_parameter", "model"},
		`{"model":"nobody/x","messages":[]}`: {"model_not_found", "model"},
		`{"model":"mockllm/m"}`:              {"missing_required_parameter", "messages"},
		`{"model":"mockllm/m","messages":[{"role":"critic","content":"x"}]}`:   {"invalid_value", "messages[0].role"},
		`{"model":"mockllm/m","messages":[{"role":"user"}]}`:                   {"missing_required_parameter", "messages[0].content"},
		`{"model":"mockllm/m",` + user + `,"audio":{"voice":"a"}}`:             {"unsupported_parameter", "audio"},
		`{"model":"mockllm/m",` + user + `,"response_format":{"type":"json"}}`: {"invalid_value", "response_format.type"},
	} {
		answer := g.post(t, chatPath, body)
		assert.GreaterOrEqual(t, answer.StatusCode, http.StatusBadRequest, body)
		var said struct {
			Error struct{ Type, Code, Param string }
		}
		require.NoError(t, json.Unmarshal([]byte(read(t, answer)), &said), body)
		assert.Equal(t, want, [2]string{said.Error.Code, said.Error.Param}, body)
		assert.Equal(t, "invalid_request_error", said.Error.Type, body)
	}
}

// What a model's provider would pass over is refused, unless it asks for what is so anyway.
func TestWhatAProviderWouldIgnoreIsRefused(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"msg_1","content":[{"type":"text","text":"so"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`))
	g := serveMessages(t, v)
	for member, param := range map[string]string{
		`"n":2`: "n", `"logprobs":true`: "logprobs", `"temperature":0`: "temperature", `"top_p":0.5`: "top_p", `"frequency_penalty":0.5`: "frequency_penalty",
		`"logit_bias":{"5":1}`: "logit_bias", `"verbosity":"low"`: "verbosity",
		`"n":1,"logprobs":false,"temperature":1,"top_p":1,"frequency_penalty":0,"presence_penalty":0,"logit_bias":{},"seed":7,"verbosity":"medium","stop":["x"]`: "",
	} {
		answer := g.post(t, chatPath, `{"model":"anthropic/claude-sonnet-4-5",`+user+`,`+member+`}`)
		if param == "" {
			assert.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", member, read(t, answer))
			continue
		}
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode, member)
		message, _, code := failure(t, answer)
		assert.Equal(t, "unsupported_parameter", code, member)
		assert.Equal(t, param+": is not supported by anthropic/claude-sonnet-4-5; leave it out", message)
	}
	assert.Len(t, v.body, 1)
	leaving := serveMessages(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.LeaveOut = []string{"temperature", "logit_bias"} })
	answer := leaving.post(t, chatPath, `{"model":"anthropic/claude-sonnet-4-5",`+user+`,"temperature":0,"logit_bias":{"5":1}}`)
	assert.Equal(t, http.StatusOK, answer.StatusCode, "the operator lets these go: %s", read(t, answer))
	assert.Equal(t, "temperature, logit_bias", answer.Header.Get("Evalfleet-Unsent"))
	answer = leaving.post(t, chatPath, `{"model":"anthropic/claude-sonnet-4-5",`+user+`,"top_p":0.5}`)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	answer = g.post(t, chatPath, `{"model":"mockllm/model","n":2,`+user+`}`)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)

	v = vendorWith(t, says(http.StatusOK, "application/json", whole))
	g = serveWeb(t, v)
	answer = g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":5,"top_k":3,`+user+`}`)
	message, kind, _ := failure(t, answer)
	assert.Equal(t, [2]string{"invalid_request_error", "top_k: is not supported by openai/gpt-4o; leave it out"}, [2]string{kind, message})
	g = serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { c.OpenAI.ResponsesAPI = new(true) })
	for path, body := range map[string]string{
		chatPath: `"stop":["x"]`, messagesPath: `"max_tokens":5,"stop_sequences":["x"]`,
	} {
		message, _, _ = failure(t, g.post(t, path, `{"model":"openai/gpt-5",`+user+`,`+body+`}`))
		assert.Regexp(t, `^(stop|stop_sequences): is not supported by openai/gpt-5`, message, "the member has the client's name")
	}
	g = serveMessages(t, v)
	answer = g.post(t, "/v1beta/models/anthropic/claude-sonnet-4-5:generateContent",
		`{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{"responseModalities":["TEXT","IMAGE"]}}`)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	assert.Contains(t, read(t, answer), "responseModalities: is not supported by anthropic/claude-sonnet-4-5", "a picture is part of an answer")
	g = serveWeb(t, v)
	answer = g.post(t, chatPath, `{"model":"openai/gpt-4o","n":2,`+user+`}`)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
}

// A word that is no effort would be another one at each vendor.
func TestAnEffortThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveMessages(t, v)
	answer := g.post(t, chatPath, `{"model":"anthropic/claude-sonnet-4-5","reasoning_effort":"hard",`+user+`}`)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	message, _, code := failure(t, answer)
	assert.Equal(t, "invalid_value", code)
	assert.Equal(t, `reasoning_effort: "hard" is none of none, minimal, low, medium, high, xhigh, max`, message)
	answer = g.post(t, "/v1/responses", `{"model":"anthropic/claude-sonnet-4-5","input":"q","reasoning":{"effort":"hard"}}`)
	message, _, _ = failure(t, answer)
	assert.Contains(t, message, `reasoning.effort: "hard" is none of`)
	assert.Empty(t, v.body)
}

// How long a model thinks is a wish: a model that takes it only as a number of tokens below the bound of its answer
// gets such a number, or none.
func TestThinkingFitsTheBoundOfAnAnswer(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"msg_1","content":[{"type":"text","text":"so"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`))
	g := serveMessages(t, v)
	const sonnet, opus = "anthropic/claude-sonnet-4-5", "anthropic/claude-opus-4-8"
	chatBody := func(rest string) string { return `{"model":"` + sonnet + `",` + user + `,` + rest + `}` }
	gemini := func(rest string) string {
		return `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{` + rest + `}}`
	}
	for _, tt := range []struct{ path, body, thinking string }{
		{chatPath, chatBody(`"reasoning_effort":"high","max_tokens":30000`), `{"type":"enabled","budget_tokens":16000,"display":"summarized"}`},
		{chatPath, chatBody(`"reasoning_effort":"high"`), `{"type":"enabled","budget_tokens":16000,"display":"summarized"}`},
		{chatPath, chatBody(`"reasoning_effort":"high","max_tokens":4096`), `{"type":"enabled","budget_tokens":2048,"display":"summarized"}`},
		{chatPath, chatBody(`"reasoning_effort":"high","max_tokens":2000`), ``},
		{chatPath, chatBody(`"reasoning_effort":"none","max_tokens":2000`), ``},
		{"/v1beta/models/" + sonnet + ":generateContent", gemini(`"maxOutputTokens":4096,"thinkingConfig":{"thinkingBudget":8192}`), `{"type":"enabled","budget_tokens":2048,"display":"summarized"}`},
		{"/v1beta/models/" + sonnet + ":generateContent", gemini(`"thinkingConfig":{"thinkingBudget":8192}`), `{"type":"enabled","budget_tokens":8192,"display":"summarized"}`},
		{"/v1beta/models/" + sonnet + ":generateContent", gemini(`"thinkingConfig":{"thinkingBudget":0}`), ``},
		{"/v1beta/models/" + opus + ":generateContent", gemini(`"thinkingConfig":{"thinkingBudget":8192}`), ``},
		{"/v1beta/models/" + opus + ":generateContent", gemini(`"thinkingConfig":{"thinkingBudget":0}`), `{"type":"disabled"}`},
	} {
		answer := g.post(t, tt.path, tt.body)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", tt.body, read(t, answer))
		var sent struct{ Thinking json.RawMessage }
		require.NoError(t, json.Unmarshal(<-v.body, &sent))
		if tt.thinking == "" {
			assert.Empty(t, string(sent.Thinking), tt.body)
		} else {
			assert.JSONEq(t, tt.thinking, string(sent.Thinking), tt.body)
		}
	}
}

// Clients of Anthropic say an effort in a way of their own, and other vendors' models get it as their effort of
// reasoning. What is above `high` has no word that all of them know.
func TestAnEffortOfAnthropicsClientsReachesOtherModels(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v)
	for _, tt := range []struct{ model, options, want string }{
		{"openai/gpt-5", `"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}`, "low"},
		{"openai/gpt-5", `"output_config":{"effort":"max"}`, "high"},
		{"openai/gpt-5", `"thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"medium"}`, "medium"},
		{"openai/gpt-5", `"thinking":{"type":"enabled","budget_tokens":1024}`, ""},
		{"openai/gpt-4o", `"output_config":{"effort":"low"}`, ""},
	} {
		answer := g.post(t, messagesPath, `{"model":"`+tt.model+`","max_tokens":5000,`+user+`,`+tt.options+`}`)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", tt.options, read(t, answer))
		var sent struct {
			Effort string `json:"reasoning_effort"`
		}
		require.NoError(t, json.Unmarshal(<-v.body, &sent))
		assert.Equal(t, tt.want, sent.Effort, "%s %s", tt.model, tt.options)
	}
	answer := g.post(t, messagesPath, `{"model":"openai/gpt-5","max_tokens":5000,`+user+`,"output_config":{"effort":"hard"}}`)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	assert.Contains(t, read(t, answer), `output_config.effort: \"hard\" is none of`)
}

// Whatever a provider calls it, an answer names the model as the client did, streamed or not.
func TestAnAnswerNamesTheModelThatWasAskedFor(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, vendorWith(t, says(http.StatusOK, "application/json", whole)), withScript(t, "s", `{"default": {"text": "x", "model": "another"}}`))
	for _, name := range []string{"mockllm/model", "mockllm/s", "openai/gpt-4o"} {
		for _, path := range []string{chatPath, messagesPath} {
			for _, stream := range []string{"true", "false"} {
				if path == chatPath && name == "openai/gpt-4o" {
					continue // It goes through as bytes.
				}
				body := read(t, g.post(t, path, `{"model":"`+name+`","max_tokens":50,"stream":`+stream+`,`+user+`}`))
				found := regexp.MustCompile(`"model": ?"([^"]*)"`).FindAllStringSubmatch(body, -1)
				require.NotEmpty(t, found, body)
				for _, model := range found {
					assert.Equal(t, name, model[1], body)
				}
			}
		}
	}
}

// What is not spoken is said so, in the shape of who asks and with the next step; it is no unknown model.
func TestInterfacesThatAreNotSpokenAreSaidSo(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	for path, step := range map[string]string{
		"/v1/responses/resp_1": "/v1/responses", "/v1/completions": "/v1/chat/completions", "/v1/embeddings": "/v1/embeddings",
		"/v1/complete": "/v1/messages", "/v1/messages/batches": "/v1/messages", "/v1/files": "/v1/files",
		"/v1/chat/completions/": "/v1/chat/completions", "/v1/chat%2Fcompletions": "/v1/chat/completions",
	} {
		answer := g.post(t, path, `{"model":"mockllm/model"}`)
		assert.Equal(t, http.StatusNotFound, answer.StatusCode, path)
		message, kind, code := failure(t, answer)
		assert.Contains(t, message, "POST "+strings.ReplaceAll(path, "%2F", "/"), path)
		assert.Contains(t, message, step, path)
		assert.NotEqual(t, "model_not_found", code, path)
		assert.Contains(t, []string{"invalid_request_error", "not_found_error"}, kind, path)
	}
}

// What is wrong with a request is said in few words, and nothing of the server.
func TestRefusalsSayWhatIsWrongAndNoMore(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, func(c *modelgw.Config, d *modelgw.Deps) {
		c.OpenAIAPI.Services = map[string]provider.Account{"other": {KeyOptional: true, BaseURL: "http://127.0.0.1:1"}}
		d.Auth = auth.NewTokens("; it is in /srv/data/token", map[string]config.Secret{"tester": config.NewSecret("right")})
	})
	answer := g.post(t, chatPath, `{"model":"openai-api/other",`+user+`}`)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
	message, _, code := failure(t, answer)
	assert.Equal(t, "model_not_found", code)
	assert.Contains(t, message, "openai-api/<service>/<model>")

	answer = g.post(t, chatPath, `{"model":"`+strings.Repeat("long", 25_000)+`",`+user+`}`)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
	assert.Less(t, len(read(t, answer)), 1000)
	answer = g.post(t, chatPath, `{"model":"mockllm/model","max_tokens":`+strings.Repeat("9", 100_000)+`,`+user+`}`)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	assert.Less(t, len(read(t, answer)), 1000)

	for _, token := range []string{"", "Bearer wrong"} {
		answer = g.post(t, chatPath, `{}`, "Authorization", token)
		assert.Equal(t, http.StatusUnauthorized, answer.StatusCode)
		assert.NotContains(t, read(t, answer), "/srv/data")
	}
	for _, life := range []string{"-1h", "0s", "soon"} {
		answer = g.post(t, chatPath, `{"model":"mockllm/model",`+user+`}`, "Evalfleet-Cache", life)
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode, life)
		message, _, _ = failure(t, answer)
		assert.Contains(t, message, "Evalfleet-Cache", life)
	}
}

func TestModelsAreListed(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	var list struct {
		Data []struct{ ID string }
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, g.do(t.Context(), t, http.MethodGet, "/v1/models", ""))), &list))
	require.Len(t, list.Data, 1, "providers without an account are left out")
	assert.Equal(t, "mockllm/model", list.Data[0].ID)
	assert.JSONEq(t, `{"id":"mockllm/any","object":"model","created":0,"owned_by":"mockllm"}`, read(t, g.do(t.Context(), t, http.MethodGet, "/v1/models/mockllm/any", "", "Authorization", "", "X-Api-Key", "right")))
}

// A client that leaves frees the vendor's connection and the slot at once.
func TestAClientThatLeavesCancelsTheCall(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 1)
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	g := serveWeb(t, v)
	ctx, leave := context.WithCancel(t.Context())
	answer := g.do(ctx, t, http.MethodPost, chatPath, `{"model":"openai/gpt-4o","stream":true,"messages":[]}`)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	_, err := answer.Body.Read(make([]byte, 1))
	require.NoError(t, err)
	assert.Equal(t, 1, g.inFlight(t))
	leave()
	waittest.For(t, gone, "the end of the call at the vendor")
	require.Eventually(t, func() bool { return g.inFlight(t) == 0 }, waitLimit, tick)
}

// stubborn asks for a stream and never reads it.
func (w *web) stubborn(t *testing.T, path, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer right\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	require.NoError(t, err)
}

// A client that never reads its stream is cut off: the vendor is no longer read, and the slot is free.
func TestAClientThatNeverReadsIsCutOff(t *testing.T) {
	t.Parallel()
	quick := func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.WriteTimeout = 200 * time.Millisecond }
	t.Run("passed through", func(t *testing.T) {
		t.Parallel()
		sent, gone := atomic.Int64{}, make(chan struct{})
		v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			w.Header().Set("Content-Type", "text/event-stream")
			event := "data: " + strings.Repeat("x", 64<<10) + "\n\n"
			for r.Context().Err() == nil {
				n, err := io.WriteString(w, event)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
		g := serveWeb(t, v, quick)
		g.stubborn(t, chatPath, `{"model":"openai/gpt-4o","stream":true,"messages":[]}`)
		waittest.For(t, gone, "the end of the call at the vendor")
		require.Eventually(t, func() bool { return g.inFlight(t) == 0 }, waitLimit, tick)
		assert.Less(t, sent.Load(), int64(64<<20), "no more is taken from the vendor than the connections hold")
	})
	t.Run("converted", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("many words ", 200_000) // Well above what the connection holds, below the bound of an answer.
		g := serveWeb(t, nil, quick, withScript(t, "long", fmt.Sprintf(`{"default": {"text": %q}}`, long)))
		g.stubborn(t, chatPath, `{"model":"mockllm/long","stream":true,"messages":[{"role":"user","content":"q"}]}`)
		require.Eventually(t, func() bool { return len(g.calls(t)) == 1 && g.inFlight(t) == 0 }, waitLimit, tick)
	})
}

// withScript configures a script for the model mockllm/<name>.
func withScript(t *testing.T, name, script string) setup {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
	return func(c *modelgw.Config, _ *modelgw.Deps) {
		if c.Mockllm.Scripts == nil {
			c.Mockllm.Scripts = map[string]string{}
		}
		c.Mockllm.Scripts[name] = file
	}
}

const user = `"messages":[{"role":"user","content":"q"}]`

func TestAnyModelAnswersInTheClientsShape(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, withScript(t, "s", `{"default": {"text": "so", "reasoning": "hm", "tool_calls": [{"id": "c1", "function": "f", "arguments": {"x": 1}}], "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}}}`))
	answer := g.post(t, chatPath, `{"model":"mockllm/s",`+user+`,"tools":[{"type":"function","function":{"name":"f"}}]}`)
	body := read(t, answer)
	require.Equal(t, http.StatusOK, answer.StatusCode, body)
	var got struct {
		Object, Model string
		Choices       []struct {
			Message struct {
				Content, ReasoningContent string
				Reasoning                 string `json:"reasoning_content"`
				ToolCalls                 []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			FinishReason string `json:"finish_reason"`
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	assert.Equal(t, "chat.completion", got.Object)
	assert.Equal(t, "mockllm/s", got.Model)
	require.Len(t, got.Choices, 1)
	assert.Equal(t, "so", got.Choices[0].Message.Content)
	assert.Equal(t, "hm", got.Choices[0].Message.Reasoning)
	assert.Equal(t, `{"x": 1}`, got.Choices[0].Message.ToolCalls[0].Function.Arguments)
	assert.Equal(t, "tool_calls", got.Choices[0].FinishReason)
	assert.Equal(t, 3, got.Usage.PromptTokens)
	assert.Equal(t, int64(7), g.spent(t))
}

// A key makes a call happen once, streamed or not; without one each is a call.
func TestAKeyMakesACallHappenOnce(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	request := `{"model":"mockllm/model",` + user + `}`
	first := read(t, g.post(t, chatPath, request, "Idempotency-Key", "k"))
	assert.Equal(t, content(t, first), content(t, read(t, g.post(t, chatPath, request, "Idempotency-Key", "k"))))
	assert.Len(t, g.calls(t), 1)
	other := g.post(t, chatPath, `{"model":"mockllm/other",`+user+`}`, "Idempotency-Key", "k")
	assert.Equal(t, http.StatusConflict, other.StatusCode)
	read(t, g.post(t, chatPath, request))
	assert.Len(t, g.calls(t), 2)
}

func content(t *testing.T, body string) string {
	t.Helper()
	var got struct {
		Choices []struct{ Message struct{ Content string } }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got), body)
	require.Len(t, got.Choices, 1, body)
	return got.Choices[0].Message.Content
}

// With a cache policy even a vendor's own model goes through the canonical form, where the cache is.
func TestTheCacheAnswersForAVendor(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v)
	for _, status := range []string{"", "evalfleet; hit"} {
		answer := g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`, "Evalfleet-Cache", "1W")
		assert.Equal(t, status, answer.Header.Get("Cache-Status"))
		assert.Equal(t, "é / café", content(t, read(t, answer)))
	}
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","stream":true,`+user+`}`, "Evalfleet-Cache", "1W")
	assert.Equal(t, "evalfleet; hit", answer.Header.Get("Cache-Status"))
	assert.NotEmpty(t, eventsOf(t, answer))
	assert.Len(t, v.body, 1)
}

// events reads the data of a stream.
func eventsOf(t *testing.T, answer *http.Response) []string {
	t.Helper()
	assert.Equal(t, "text/event-stream; charset=utf-8", answer.Header.Get("Content-Type"))
	var all []string
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			all = append(all, string(data))
		}
	}
	return all
}

func TestAnyModelStreamsInTheClientsShape(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	events := eventsOf(t, g.post(t, chatPath, `{"model":"mockllm/model","stream":true,"stream_options":{"include_usage":true},`+user+`}`))
	require.Greater(t, len(events), 4)
	assert.Equal(t, "[DONE]", events[len(events)-1])
	assert.Contains(t, events[len(events)-2], `"usage"`)
	var text strings.Builder
	for _, event := range events[:len(events)-1] {
		var chunk struct {
			Object  string
			Choices []struct{ Delta struct{ Content string } }
		}
		require.NoError(t, json.Unmarshal([]byte(event), &chunk))
		assert.Equal(t, "chat.completion.chunk", chunk.Object)
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
	assert.Equal(t, "Default output from mockllm/model", text.String())
}

// A failure before the first piece has a status; a failure after it is an event that ends the stream, and the call is
// not restarted.
func TestAStreamThatFails(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, withScript(t, "early", `{"default": {"error": {"status": 429, "message": "slow down", "retry_after_s": 0.001}}}`),
		withScript(t, "late", `{"default": {"text": "one two three four five six seven", "error": {"status": 503, "message": "broken", "retry_after_s": 0.001, "after_chunks": 1, "times": 1}}}`))
	answer := g.post(t, chatPath, `{"model":"mockllm/early","stream":true,`+user+`}`)
	assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	assert.NotEmpty(t, answer.Header.Get("Retry-After"))
	_, kind, _ := failure(t, answer)
	assert.Equal(t, "rate_limit_error", kind)
	assert.Len(t, g.calls(t), 3, "two retries")

	events := eventsOf(t, g.post(t, chatPath, `{"model":"mockllm/late","stream":true,`+user+`}`))
	assert.Contains(t, events[len(events)-1], `"error"`)
	assert.Len(t, g.calls(t), 4, "no other attempt once the client has a piece")
	answer = g.post(t, chatPath, `{"model":"mockllm/late",`+user+`}`)
	assert.Equal(t, http.StatusOK, answer.StatusCode, "without a stream it is tried again")
}

func TestASpentBudgetIsSaidAndNotTriedAgain(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Budgets = map[string]modelgw.Budget{project: {MaxTokens: new(int64(10))}}
	})
	read(t, g.post(t, chatPath, `{"model":"openai/gpt-4o","messages":[]}`))
	for _, model := range []string{"openai/gpt-4o", "mockllm/model"} {
		answer := g.post(t, chatPath, `{"model":"`+model+`",`+user+`}`)
		assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
		assert.Equal(t, "false", answer.Header.Get("X-Should-Retry"))
		message, kind, _ := failure(t, answer)
		assert.Equal(t, "insufficient_quota", kind)
		assert.Contains(t, message, project)
	}
	assert.Len(t, v.body, 1)
}

// Calls wait for the account's slots in both lanes, and a full queue is reported.
func TestCallsThroughTheEndpointsTakeSlots(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		waittest.Hold(t, release)
		says(http.StatusOK, "application/json", whole)(w, r)
	})
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { c.MaxWaiting = 1 })
	const slots = 20 // Where an adaptive pool begins.
	status := make(chan int, slots+1)
	for range slots + 1 {
		go func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+chatPath, strings.NewReader(`{"model":"openai/gpt-4o","messages":[]}`))
			if err != nil {
				return
			}
			r.Header.Set("Authorization", "Bearer right")
			answer, err := g.client.Do(r)
			if err != nil {
				status <- 0
				return
			}
			_ = answer.Body.Close()
			status <- answer.StatusCode
		}()
	}
	waiting := func() bool {
		pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/-/-"})
		return err == nil && len(pools.GetConnectionPools()) == 1 && pools.GetConnectionPools()[0].GetWaiting() == 1
	}
	require.Eventually(t, waiting, waitLimit, tick)
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","messages":[]}`)
	assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	assert.NotEmpty(t, answer.Header.Get("Retry-After"))
	close(release)
	for range slots + 1 {
		assert.Equal(t, http.StatusOK, waittest.For(t, status, "the answer of a call that had a slot or waited"))
	}
}

// A picture that Google's model draws reaches a client that speaks chat completions.
func TestAPictureThatIsDrawnReachesTheClient(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json",
		`{"candidates":[{"finishReason":"STOP","content":{"role":"model","parts":[{"text":"A house."},{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}}]}}]}`))
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
	})
	answer := g.post(t, chatPath, `{"model":"google/gemini-2.5-flash-image","modalities":["image","text"],`+user+`}`)
	said := read(t, answer)
	require.Equal(t, http.StatusOK, answer.StatusCode, said)
	assert.Contains(t, said, `"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]`)
	assert.Contains(t, string(waittest.For(t, v.body, "the request")), `"responseModalities":["TEXT","IMAGE"]`)
}
