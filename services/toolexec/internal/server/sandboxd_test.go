package server_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/programtest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// sandboxd is the service in a separate process: services do not import one another.
type sandboxd struct {
	client sandboxv1.SandboxServiceClient
}

// built is the folder of the programs that tests start; TestMain removes it.
var built string

// build builds sandboxd and guestd, once.
var build = sync.OnceValue(func() (err error) {
	built, err = programtest.Build("", "./services/toolexec/internal/server/testdata/sandboxd", "./services/sandboxd/cmd/guestd")
	return err
})

// startSandboxd starts the service with the local driver, and stops it with the test.
func startSandboxd(t *testing.T) *sandboxd {
	t.Helper()
	require.NoError(t, build())
	dir, err := os.MkdirTemp("", "sbx") //nolint:usetesting // The path of a socket must be short.
	require.NoError(t, err)
	process := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(built, "sandboxd"), dir)
	process.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	var log bytes.Buffer
	process.Stderr = &log
	process.WaitDelay = time.Second // guests inherit its standard error
	require.NoError(t, process.Start())
	conn, err := grpcclient.New("unix:"+filepath.Join(dir, "sock"), grpcclient.Options{FailFast: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		require.NoError(t, process.Process.Signal(syscall.SIGTERM))
		var err error
		waittest.Return(t, func() { err = process.Wait() }, "sandboxd to end")
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			t.Errorf("sandboxd: %v\n%s", err, &log)
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	client := sandboxv1.NewSandboxServiceClient(conn)
	require.Eventually(t, func() bool {
		_, err := client.ListDrivers(t.Context(), &sandboxv1.ListDriversRequest{}, grpc.WaitForReady(true))
		return err == nil
	}, waittest.Bound, 20*time.Millisecond)
	return &sandboxd{client: client}
}

// open creates a sandbox that ends with its test or case.
func (s *sandboxd) open(t testing.TB) *box {
	made, err := s.client.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Parent: parent, Spec: &sandboxv1.SandboxSpec{AllowUnisolated: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.client.DeleteSandbox(context.WithoutCancel(t.Context()), &sandboxv1.DeleteSandboxRequest{Name: made.GetName()}); err != nil {
			t.Errorf("delete the sandbox: %v", err)
		}
	})
	return &box{client: s.client, name: made.GetName(), workdir: made.GetWorkdir()}
}

// box is one sandbox.
type box struct {
	client        sandboxv1.SandboxServiceClient
	name, workdir string
}

func (b *box) write(t testing.TB, name string, content []byte) {
	if _, err := b.client.WriteFile(waittest.Context(t), &sandboxv1.WriteFileRequest{Sandbox: b.name, Path: path.Join(b.workdir, name), Body: &sandboxv1.WriteFileRequest_Content{Content: content}}); err != nil {
		t.Fatal(err)
	}
}

func (b *box) read(t testing.TB, name string) (content string, exists bool) {
	response, err := b.client.ReadFile(waittest.Context(t), &sandboxv1.ReadFileRequest{Sandbox: b.name, Path: path.Join(b.workdir, name)})
	if err != nil {
		return "", false
	}
	return string(response.GetContent()), true
}

// shell runs a command outside of any tool and returns its output.
func (b *box) shell(t testing.TB, command string) string {
	response, err := b.client.Exec(t.Context(), &sandboxv1.ExecRequest{Sandbox: b.name, Spec: &sandboxv1.ExecSpec{Argv: []string{"bash", "-c", command}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(response.GetResult().GetStdout())
}
