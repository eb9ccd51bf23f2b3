package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/enginetest"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// docker is an engine with an image for sandboxes, once in a test run.
var docker containers

const dockerImage = "evalfleet/sandbox:e2e"

type containers struct {
	once   sync.Once
	engine *enginetest.Engine
	err    error
}

// env is what a home needs for its sandboxes to be containers. The image is built as a person builds it.
func (d *containers) env(t *testing.T) []string {
	t.Helper()
	program := shipped.program(t)
	d.once.Do(func() {
		// Not bound to the test that happens to come first.
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

// ask asks the engine, beside evalfleet.
func (d *containers) ask(t *testing.T, method, path string) *http.Response {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(d.engine.Host, "unix://"))
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://engine"+path, nil)
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

// The server is killed at each boundary of the making of a container. The same request to the next server is the same sandbox, which
// has one container; when it is deleted there is none.
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

// A container outlives the server, with what runs in it; the next one goes on with it.
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
	require.Error(t, <-cut)
	c = h.serve()
	_, err = sh("touch go")
	require.NoError(t, err)
	done, err := c.sandboxes.Exec(within(t), command)
	require.NoError(t, err)
	assert.Equal(t, "ran\n", string(done.GetResult().GetStdout()))
}

// What cannot be used is said to whoever makes a sandbox.
func TestDockerThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single, docker.env(t)...)
	c := h.serve()
	_, err := c.sandboxes.CreateSandbox(within(t), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{Image: "no/such:image"}})
	assert.Equal(t, codes.FailedPrecondition, rpcerr.Code(err))
	require.ErrorContains(t, err, "no/such:image")
	require.ErrorContains(t, err, "docker pull no/such:image")
}
