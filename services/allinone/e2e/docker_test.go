package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/enginetest"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// docker is an engine with an image for sandboxes, once in a test run.
var docker containers

const dockerImage = "evalfleet/sandbox:e2e"

type containers struct {
	once   sync.Once
	engine *enginetest.Engine
	err    error
}

// env is the environment of a home whose sandboxes are containers. The image is built with the command for users.
func (d *containers) env(t *testing.T) []string {
	t.Helper()
	program := shipped.program(t)
	d.once.Do(func() {
		// Not bound to the first test that calls it.
		if d.engine, d.err = enginetest.Find(context.Background()); d.err != nil {
			return
		}
		c := exec.Command(program, "sandbox", "image", "--tag", dockerImage)
		c.Env = append(c.Environ(), "DOCKER_HOST="+d.engine.Host)
		if out, err := c.CombinedOutput(); err != nil {
			d.err = fmt.Errorf("evalfleet sandbox image: %w\n%s", err, out)
		}
	})
	require.NoError(t, d.err)
	return []string{"DOCKER_HOST=" + d.engine.Host, "EVALFLEET_SANDBOXD_DRIVER=docker", "EVALFLEET_SANDBOXD_DOCKER_IMAGE=" + dockerImage}
}

func (d *containers) stop() error {
	if d.engine == nil {
		return nil
	}
	return d.engine.Stop()
}

// build builds an image from a folder that has a Dockerfile, whose argument BASE is the image for sandboxes.
func (d *containers) build(t *testing.T, tag, folder string) {
	t.Helper()
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	require.NoError(t, w.AddFS(os.DirFS(folder)))
	require.NoError(t, w.Close())
	args := url.QueryEscape(text(t, object{"BASE": dockerImage}))
	resp := d.send(t, http.MethodPost, "/build?rm=1&t="+url.QueryEscape(tag)+"&buildargs="+args, &files)
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(said))
	require.NotContains(t, string(said), `"error"`)
}

// ask asks the engine, beside evalfleet.
func (d *containers) ask(t *testing.T, method, path string) *http.Response {
	t.Helper()
	return d.send(t, method, path, nil)
}

func (d *containers) send(t *testing.T, method, path string, body io.Reader) *http.Response {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(d.engine.Host, "unix://"))
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://engine"+path, body)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	return resp
}

// of counts the containers of a sandbox, running or not.
func (d *containers) of(t *testing.T, sandbox string) int {
	t.Helper()
	resp := d.ask(t, http.MethodGet, "/containers/json?all=1&filters="+url.QueryEscape(fmt.Sprintf(`{"label":["evalfleet.sandbox=%s"]}`, filepath.Base(sandbox))))
	defer resp.Body.Close()
	var list []any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&list))
	return len(list)
}

// switched is an engine behind a socket that may be removed and restored.
type switched struct {
	host   string
	engine string
	listen net.Listener
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	work   sync.WaitGroup
}

// on has the engine answer.
func (s *switched) on(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", strings.TrimPrefix(s.host, "unix://"))
	require.NoError(t, err)
	s.listen, s.open = l, map[net.Conn]struct{}{}
	s.work.Go(func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", strings.TrimPrefix(s.engine, "unix://"))
			if err != nil {
				_ = here.Close()
				continue
			}
			s.mu.Lock()
			s.open[here], s.open[there] = struct{}{}, struct{}{}
			s.mu.Unlock()
			for _, pair := range [][2]net.Conn{{here, there}, {there, here}} {
				s.work.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = errors.Join(pair[0].Close(), pair[1].Close()) // the engine ends no answer before its connection
				})
			}
		}
	})
}

// off removes the socket and cuts the connections.
func (s *switched) off() {
	_ = s.listen.Close()
	s.mu.Lock()
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Without an engine an evaluation is refused. Once the engine has been started, the same server creates it, from the
// image that the task names, although the default image is missing. While the engine is down, samples wait and report
// the reason; when it is back, they continue, and none has failed.
func TestAnEngineThatComesGoesAndComesBack(t *testing.T) {
	t.Parallel()
	env := docker.env(t)
	dir, err := os.MkdirTemp("", "engine-") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	engine := &switched{host: "unix://" + filepath.Join(dir, "d.sock"), engine: docker.engine.Host}
	h := newHome(t, &shipped, single, append(env, "DOCKER_HOST="+engine.host, "EVALFLEET_SANDBOXD_DOCKER_IMAGE=no/such:default")...)
	c := h.serve()
	spec := &agentv1.EvalSpec{
		Task:       "contained",
		Dataset:    questions(3),
		Models:     []*agentv1.ModelRef{scripted(t, object{"min_turn": 1, "output": "yes"})},
		Sandboxes:  map[string]*sandboxv1.SandboxSpec{"default": {Driver: "docker", Image: dockerImage}},
		Scorers:    []*agentv1.ScorerRef{{Name: "exec", ParamsJson: text(t, object{"language": "bash", "program": "sleep 0.5"})}},
		MaxSamples: new(int32(1)),
	}
	check := func() error {
		_, err := c.evals.CreateEval(within(t), &agentv1.CreateEvalRequest{Parent: project, Spec: spec, ValidateOnly: true})
		return err
	}
	err = check()
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE), "%v", err)
	engine.on(t)
	eventually(t, func() bool { return check() == nil }, "what was missing is looked for again")

	name := c.create(t, spec)
	c.until(t, name, func(e *agentv1.Event) bool { return e.GetSampleFinished() != nil })
	engine.off()
	var waits []*agentv1.EvalWait
	c.untilWatched(t, name, func(r *agentv1.WatchEvalResponse) bool {
		waits = r.GetProgress().GetProgress().GetWaits()
		return len(waits) > 0
	})
	assert.Equal(t, agentv1.WaitReason_WAIT_REASON_ENGINE, waits[0].GetReason())
	assert.Contains(t, waits[0].GetMessage(), engine.host)
	engine.on(t)
	t.Cleanup(engine.off)
	eval := c.await(t, name)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
	assert.EqualValues(t, 3, eval.GetProgress().GetSucceeded())
}

// The server is killed at each boundary of the creation of a container. The same request to the next server returns the
// same sandbox, with one container; after its deletion there is none.
func TestKillWhileAContainerIsMade(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"docker-folder", "docker-container", "docker-started", "after-create"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			once := filepath.Join(t.TempDir(), "once")
			h := newHome(t, &breakable, single, append(docker.env(t), "EVALFLEET_FAILPOINT=sandboxd/"+place, "EVALFLEET_FAILPOINT_ONCE="+once)...)
			req := &sandboxv1.CreateSandboxRequest{Parent: project, RequestId: "the only one", Spec: &sandboxv1.SandboxSpec{}}
			_, err := h.serve().sandboxes.CreateSandbox(within(t), req)
			require.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
			h.died()
			c := h.serve()
			box, err := c.sandboxes.CreateSandbox(within(t), req)
			require.NoError(t, err)
			done, err := c.sandboxes.Exec(within(t), &sandboxv1.ExecRequest{Sandbox: box.GetName(), Spec: &sandboxv1.ExecSpec{Argv: []string{"echo", "here"}}})
			require.NoError(t, err)
			assert.Equal(t, "here\n", string(done.GetResult().GetStdout()))
			assert.Equal(t, 1, docker.of(t, box.GetName()))
			_, err = c.sandboxes.DeleteSandbox(within(t), &sandboxv1.DeleteSandboxRequest{Name: box.GetName()})
			require.NoError(t, err)
			assert.Zero(t, docker.of(t, box.GetName()))
		})
	}
}

// A container and its processes outlive the server; the next server continues to use it.
func TestAContainerOutlivesTheServer(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single, docker.env(t)...)
	c := h.serve()
	box, err := c.sandboxes.CreateSandbox(within(t), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{Driver: "docker", Image: dockerImage}})
	require.NoError(t, err)
	command := &sandboxv1.ExecRequest{Sandbox: box.GetName(), RequestId: "long", Spec: &sandboxv1.ExecSpec{
		Argv: []string{"bash", "-c", "echo ran >> count; until [ -e go ]; do sleep 0.05; done; cat count"},
	}}
	cut := make(chan error, 1)
	go func() {
		_, err := c.sandboxes.Exec(context.Background(), command)
		cut <- err
	}()
	sh := func(script string) (string, error) {
		r, err := c.sandboxes.Exec(within(t), &sandboxv1.ExecRequest{Sandbox: box.GetName(), Spec: &sandboxv1.ExecSpec{Argv: []string{"bash", "-c", script}}})
		return string(r.GetResult().GetStdout()), err
	}
	_, err = sh("until [ -e count ]; do sleep 0.05; done")
	require.NoError(t, err)
	h.kill()
	require.Error(t, waittest.For(t, cut, "the end of the call whose server was killed"))
	c = h.serve()
	_, err = sh("touch go")
	require.NoError(t, err)
	done, err := c.sandboxes.Exec(within(t), command)
	require.NoError(t, err)
	assert.Equal(t, "ran\n", string(done.GetResult().GetStdout()))
}

// The creation of a sandbox reports which engine or image cannot be used.
func TestDockerThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single, docker.env(t)...)
	c := h.serve()
	_, err := c.sandboxes.CreateSandbox(within(t), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{Image: "no/such:image"}})
	assert.Equal(t, codes.FailedPrecondition, rpcerr.Code(err))
	require.ErrorContains(t, err, "no/such:image")
	require.ErrorContains(t, err, "docker pull no/such:image")
}
