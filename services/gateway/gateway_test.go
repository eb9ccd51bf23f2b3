package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runs is a RunService that counts its calls and records their metadata.
type runs struct {
	agentv1.UnimplementedRunServiceServer
	created chan *agentv1.CreateRunRequest
	// flooded is closed when a watch of the run "flood", which sends without end, has ended.
	flooded chan struct{}
	// waiting gets a value for each wait that has begun.
	waiting chan struct{}
}

func (r *runs) CreateRun(_ context.Context, req *agentv1.CreateRunRequest) (*agentv1.Run, error) {
	r.created <- req
	return &agentv1.Run{Name: req.GetParent() + "/runs/r1", State: agentv1.RunState_RUN_STATE_PENDING}, nil
}

func (r *runs) GetRun(_ context.Context, req *agentv1.GetRunRequest) (*agentv1.Run, error) {
	return nil, rpcerr.ResourceNotFound(req.GetName())
}

// WaitRun waits until the caller leaves.
func (r *runs) WaitRun(ctx context.Context, _ *agentv1.WaitRunRequest) (*agentv1.Run, error) {
	r.waiting <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// WatchRun sends the events after the cursor, up to the third, then a heartbeat.
func (r *runs) WatchRun(req *agentv1.WatchRunRequest, s agentv1.RunService_WatchRunServer) error {
	if strings.HasSuffix(req.GetName(), "/flood") {
		defer close(r.flooded)
		for {
			if err := s.Send(&agentv1.WatchRunResponse{Cursor: strings.Repeat("c", 64<<10), Update: &agentv1.WatchRunResponse_Event{Event: &agentv1.Event{Seq: 1}}}); err != nil {
				return err
			}
		}
	}
	if strings.HasSuffix(req.GetName(), "/endless") {
		event := &agentv1.WatchRunResponse_Event{Event: &agentv1.Event{Seq: 1}}
		err := s.Send(&agentv1.WatchRunResponse{Cursor: "c1", Update: event})
		<-s.Context().Done()
		return errors.Join(err, s.Context().Err())
	}
	from := 0
	_, _ = fmt.Sscanf(req.GetCursor(), "c%d", &from)
	for seq := from + 1; seq <= 3; seq++ {
		if err := s.Send(&agentv1.WatchRunResponse{Cursor: fmt.Sprintf("c%d", seq), Update: &agentv1.WatchRunResponse_Event{Event: &agentv1.Event{Seq: int64(seq)}}}); err != nil {
			return err
		}
	}
	return s.Send(&agentv1.WatchRunResponse{})
}

// start serves a gateway in front of one fake backend and returns the gateway's address.
func start(t *testing.T, backend *runs) string {
	t.Helper()
	return startWith(t, backend, gateway.Config{}, "")
}

// startWith is start with a configuration, and modelgw's endpoints at an address.
func startWith(t *testing.T, backend *runs, cfg gateway.Config, vendor string) string {
	t.Helper()
	return startServing(t, func(r grpc.ServiceRegistrar) { agentv1.RegisterRunServiceServer(r, backend) }, cfg, vendor)
}

// startServing serves a gateway in front of one connection to the services that register registers.
func startServing(t *testing.T, register func(grpc.ServiceRegistrar), cfg gateway.Config, vendor string) string {
	t.Helper()
	addr, _ := startBefore(t, serveBehind(t, register), cfg, vendor)
	return addr
}

// serveBehind serves the services that register registers, and returns the connection to them.
func serveBehind(t *testing.T, register func(grpc.ServiceRegistrar)) grpc.ClientConnInterface {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	tokens := auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")})
	behind, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: tokens})
	require.NoError(t, err)
	register(behind)
	memory := inprocess.Listen()
	served := make(chan error, 1)
	go func() { served <- behind.Serve(memory) }()
	conn, err := grpcclient.Within(memory, grpcclient.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		within, cancel := context.WithTimeout(context.Background(), waittest.Bound)
		defer cancel()
		assert.NoError(t, conn.Close())
		behind.Drain(within)
		stopped(t, served)
	})
	return conn
}

// startBefore serves a gateway in front of one connection for all services, until stop is called or the test ends.
func startBefore(t *testing.T, conn grpc.ClientConnInterface, cfg gateway.Config, vendor string) (addr string, stop func()) {
	t.Helper()
	g, err := gateway.New(t.Context(), cfg, gateway.Deps{
		VendorAddress: vendor, Models: conn, Tools: conn, Sandboxes: conn, Orchestrator: conn,
		Auth: auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")}), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	stop = sync.OnceFunc(func() {
		within, cancel := context.WithTimeout(context.Background(), waittest.Bound)
		defer cancel()
		assert.NoError(t, g.Stop(within))
		stopped(t, served)
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// stopped waits until a server has ended.
func stopped(t *testing.T, served <-chan error) {
	t.Helper()
	if err := waittest.For(t, served, "the server to end"); !errors.Is(err, grpc.ErrServerStopped) { // Stopped before it began, where nothing was asked of it.
		assert.NoError(t, err)
	}
}

// call sends a REST request with a valid token and returns the answer and its body.
func call(t *testing.T, method, url, body string, headers map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(waittest.Context(t), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer right")
	for k, v := range headers {
		if k == "Host" {
			req.Host = v
		}
		req.Header.Set(k, v)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(b)
}

func TestRESTCreatesWithItsIdempotencyKey(t *testing.T) {
	t.Parallel()
	backend := &runs{created: make(chan *agentv1.CreateRunRequest, 1)}
	addr := start(t, backend)
	resp, body := call(t, http.MethodPost, "http://"+addr+"/api/v1/projects/default/runs", `{"spec": {"steps": [{"name": "generate"}]}}`, map[string]string{"Idempotency-Key": "k1"})
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	var run struct{ Name, State string }
	require.NoError(t, json.Unmarshal([]byte(body), &run))
	assert.Equal(t, "projects/default/runs/r1", run.Name)
	assert.Equal(t, "RUN_STATE_PENDING", run.State)
	got := waittest.For(t, backend.created, "the call that creates the run")
	assert.Equal(t, "k1", got.GetRequestId())
	assert.Equal(t, "projects/default", got.GetParent())
}

func TestAHeaderThatACallDoesNotTakeIsRefused(t *testing.T) {
	t.Parallel()
	url := "http://" + start(t, &runs{}) + "/api/v1/projects/default/runs/r1"
	for header, say := range map[string]string{"Idempotency-Key": "takes no key", "If-Match": "looks at no etag"} {
		for _, path := range []string{"", ":watch"} {
			resp, body := call(t, http.MethodGet, url+path, "", map[string]string{header: "k"})
			assert.Equal(t, http.StatusBadRequest, resp.StatusCode, body)
			assert.Contains(t, body, say)
			assert.Contains(t, body, `"INVALID_REQUEST"`)
		}
	}
}

func TestRESTErrorsKeepTheirReason(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	resp, body := call(t, http.MethodGet, "http://"+addr+"/api/v1/projects/default/runs/none", "", nil)
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	assert.Contains(t, body, `"RESOURCE_NOT_FOUND"`)

	resp, body = call(t, http.MethodPost, "http://"+addr+"/api/v1/projects/default/runs", `{"spec": {"stepps": []}}`, nil)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Contains(t, body, "stepps")

	resp, _ = call(t, http.MethodGet, "http://"+addr+"/api/v1/projects/default/runs/none", "", map[string]string{"Authorization": "Bearer wrong"})
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}

func TestAStreamIsServerSentEventsThatResume(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	for name, tt := range map[string]struct {
		headers map[string]string
		ids     []string
	}{
		"from the beginning": {map[string]string{"Accept": "text/event-stream"}, []string{"c1", "c2", "c3"}},
		"after the second":   {map[string]string{"Accept": "text/event-stream", "Last-Event-ID": "c2"}, []string{"c3"}},
	} {
		resp, body := call(t, http.MethodGet, "http://"+addr+"/api/v1/projects/default/runs/r1:watch", "", tt.headers)
		require.Equal(t, http.StatusOK, resp.StatusCode, name)
		assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"), name)
		var ids []string
		lines := bufio.NewScanner(strings.NewReader(body))
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				ids = append(ids, id)
				require.True(t, lines.Scan())
				assert.Regexp(t, `^data: \{.*"seq":\s*"\d"`, lines.Text(), name)
			}
		}
		assert.Equal(t, tt.ids, ids, name)
		assert.Contains(t, body, ": nothing new", name)
	}
}

// A watch does not end by itself, and a wait ends late: a stop that waited for them would take all of its time. It ends
// both at once, with an error after which clients repeat them.
func TestAStopEndsWatchesAndWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	const run, api = "projects/default/runs/endless", "/api/v1/projects/default/runs/endless:"
	backend := &runs{waiting: make(chan struct{}, 2)}
	behind := serveBehind(t, func(r grpc.ServiceRegistrar) { agentv1.RegisterRunServiceServer(r, backend) })
	addr, stop := startBefore(t, behind, gateway.Config{}, "")
	conn, err := grpcclient.New(addr, grpcclient.Options{Token: config.NewSecret("right")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	client, ctx := agentv1.NewRunServiceClient(conn), waittest.Context(t)
	watch, err := client.WatchRun(ctx, &agentv1.WatchRunRequest{Name: run})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	waited := make(chan error, 1)
	go func() {
		_, err := client.WaitRun(ctx, &agentv1.WaitRunRequest{Name: run})
		waited <- err
	}()
	answers := make(chan string, 3)
	for _, asked := range []struct{ accept, path string }{
		{"text/event-stream", "watch"}, {"application/json", "watch"}, {"application/json", "wait"},
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+api+asked.path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer right")
		req.Header.Set("Accept", asked.accept)
		begun := make(chan struct{})
		go func() { answers <- answerOf(req, begun) }()
		if asked.path == "watch" {
			waittest.For(t, begun, "the head of the answer")
		}
	}
	for range 2 {
		waittest.For(t, backend.waiting, "a wait")
	}

	stop()
	_, err = watch.Recv()
	for _, err := range []error{err, waittest.For(t, waited, "the end of the wait")} {
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE), "%v", err)
		assert.ErrorContains(t, err, "gateway is stopping; wait again")
	}
	for range cap(answers) {
		answer := waittest.For(t, answers, "an answer")
		assert.Contains(t, answer, "SERVICE_UNAVAILABLE")
		assert.Contains(t, answer, "gateway is stopping; wait again")
	}
}

// answerOf returns the body of an answer, or the error, and closes begun when the header is there.
func answerOf(req *http.Request, begun chan<- struct{}) string {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	close(begun)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

func TestGRPCIsPassedOnWithReflectionErrorsAndStreams(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	conn, err := grpcclient.New(addr, grpcclient.Options{Token: config.NewSecret("right")})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	client := agentv1.NewRunServiceClient(conn)

	_, err = client.GetRun(t.Context(), &agentv1.GetRunRequest{Name: "projects/default/runs/none"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)

	watch, err := client.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: "projects/default/runs/r1"})
	require.NoError(t, err)
	for seq := range 3 {
		got, err := watch.Recv()
		require.NoError(t, err)
		assert.EqualValues(t, seq+1, got.GetEvent().GetSeq())
	}
	_, err = watch.Recv()
	require.NoError(t, err)
	_, err = watch.Recv()
	require.ErrorIs(t, err, io.EOF)

	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(waittest.Context(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}))
	list, err := stream.Recv()
	require.NoError(t, err)
	var names []string
	for _, s := range list.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	assert.Contains(t, names, "evalfleet.agent.v1.RunService")
	assert.Contains(t, names, "evalfleet.sandbox.v1.SandboxService")
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

func TestGRPCWithAWrongTokenOrAnUnknownService(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	for token, want := range map[string]codes.Code{"wrong": codes.Unauthenticated, "right": codes.Unimplemented} {
		conn, err := grpcclient.New(addr, grpcclient.Options{Token: config.NewSecret(token)})
		require.NoError(t, err)
		err = conn.Invoke(t.Context(), "/evalfleet.none.v1.NoneService/None", &agentv1.GetRunRequest{}, &agentv1.Run{}, grpc.WaitForReady(true))
		assert.Equal(t, want, rpcerr.Code(err), "%v", err)
		require.NoError(t, conn.Close())
	}
}

func TestAForeignHostOrOriginIsRefused(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	for name, headers := range map[string]map[string]string{"host": {"Host": "evil.example"}, "origin": {"Origin": "https://evil.example"}} {
		resp, body := call(t, http.MethodGet, "http://"+addr+"/openapi.json", "", headers)
		assert.Equal(t, http.StatusForbidden, resp.StatusCode, name)
		assert.Contains(t, body, "allowed_hosts", name)
	}
	resp, body := call(t, http.MethodGet, "http://"+addr+"/openapi.json", "", map[string]string{"Origin": "http://localhost:3000"})
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, "/api/v1/")
	assert.Regexp(t, `"title": "evalfleet",\s+"description": "[^"]+",\s+"version": "v1"`, body)
}

// A fleet's gateway forwards requests to the vendor-shaped endpoints to modelgw unchanged, with the caller's own
// credential, and returns the answers unchanged.
func TestVendorShapesArePassedOn(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer mine", r.Header.Get("Authorization"))
		assert.Equal(t, "/v1/messages?beta=true", r.URL.String())
		_, _ = io.Copy(w, r.Body)
		w.(http.Flusher).Flush()
		waittest.Hold(t, next)
		_, _ = io.WriteString(w, " and more")
	}))
	defer behind.Close()
	addr := startWith(t, &runs{}, gateway.Config{}, strings.TrimPrefix(behind.URL, "http://"))
	req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodPost, "http://"+addr+"/v1/messages?beta=true", strings.NewReader("body"))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer mine")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	first := make([]byte, len("body"))
	_, err = io.ReadFull(answer.Body, first)
	require.NoError(t, err)
	assert.Equal(t, "body", string(first))
	close(next)
	rest, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Equal(t, " and more", string(rest))
}

// Gemini's clients ask below paths of their own, and may have the token in a header of their own or in the address.
func TestGeminisPathsArePassedOn(t *testing.T) {
	t.Parallel()
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.String()+" "+r.Header.Get("X-Goog-Api-Key"))
	}))
	defer behind.Close()
	addr := startWith(t, &runs{}, gateway.Config{}, strings.TrimPrefix(behind.URL, "http://"))
	for _, path := range []string{"/v1beta/models/a/b:generateContent?alt=sse", "/models/a/b:generateContent?key=mine"} {
		resp, body := call(t, http.MethodPost, "http://"+addr+path, "{}", map[string]string{"X-Goog-Api-Key": "mine"})
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, path+" mine", body)
	}
}

func TestAClientThatNeverReadsFreesModelgw(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 64<<10)); err != nil {
				return
			}
		}
	}))
	defer behind.Close()
	addr := startWith(t, &runs{}, gateway.Config{WriteTimeout: 100 * time.Millisecond}, strings.TrimPrefix(behind.URL, "http://"))
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	waittest.For(t, gone, "the end of the request at modelgw")
}

func TestAModelgwThatIsAwayIsSaidInVendorsShapes(t *testing.T) {
	t.Parallel()
	addr := startWith(t, &runs{}, gateway.Config{}, "127.0.0.1:1")
	resp, body := call(t, http.MethodPost, "http://"+addr+"/v1/chat/completions", "{}", nil)
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.Contains(t, body, `"error":{"type":"api_error","message":"modelgw`)
}
