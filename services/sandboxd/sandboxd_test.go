package sandboxd_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/programtest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd"
)

const project = "projects/default"

var guestPath string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := programtest.Build("", "./services/sandboxd/cmd/guestd")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		guestPath = filepath.Join(dir, "guestd")
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// installation is a data directory and the process that serves it now.
type installation struct {
	*testing.T
	dir      string
	change   func(*sandboxd.Config)
	stop     func()
	blobs    *disk.Store
	client   sandboxv1.SandboxServiceClient
	sessions sandboxv1.SessionServiceClient
}

// install creates an installation and starts its first process.
func install(t testing.TB, change func(*sandboxd.Config)) *installation {
	t.Helper()
	in := &installation{dir: t.TempDir(), change: change}
	in.T, _ = t.(*testing.T)
	in.start(t)
	t.Cleanup(func() { // sandboxes live on with their processes, so they are deleted
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		list, err := in.client.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Parent: project, PageSize: 1000})
		assert.NoError(t, err)
		for _, b := range list.GetSandboxes() {
			_, err := in.client.DeleteSandbox(ctx, &sandboxv1.DeleteSandboxRequest{Name: b.GetName()})
			assert.NoError(t, err)
		}
		in.stop()
	})
	return in
}

// start starts a process over the installation, and stop ends it without touching the sandboxes.
func (in *installation) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	db, err := sqlite.Open(ctx, filepath.Join(in.dir, "sandboxd.db"), sqlite.Options{})
	require.NoError(t, err)
	ledger, err := effectsqlite.New(ctx, db, "sandboxd")
	require.NoError(t, err)
	cfg := sandboxd.Config{Dir: filepath.Join(in.dir, "boxes"), GuestPath: guestPath, SearchPath: os.Getenv("PATH")}
	if in.change != nil {
		in.change(&cfg)
	}
	log := slog.New(slog.DiscardHandler)
	in.blobs, err = disk.Open(disk.Config{Dir: filepath.Join(in.dir, "blobs")})
	require.NoError(t, err)
	service, err := sandboxd.New(cfg, sandboxd.Deps{DB: db, Ledger: ledger, Owner: rand.Text(), Blobs: in.blobs, Logger: log})
	require.NoError(t, err)
	server, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: authtest.Allow{Name: "test"}})
	require.NoError(t, err)
	service.Register(server)
	listener := inprocess.Listen()
	conn, err := grpcclient.Within(listener, grpcclient.Options{})
	require.NoError(t, err)
	in.client, in.sessions = sandboxv1.NewSandboxServiceClient(conn), sandboxv1.NewSessionServiceClient(conn)
	done := make(chan error, 2)
	go func() { done <- server.Serve(listener) }()
	go func() { done <- service.Run(ctx) }()
	in.stop = func() {
		assert.NoError(t, conn.Close())
		cancel()
		server.Stop()
		assert.NoError(t, errors.Join(waittest.For(t, done, "the server and the service to end"), waittest.For(t, done, "the server and the service to end")))
		assert.NoError(t, service.Close(context.Background()))
		assert.NoError(t, errors.Join(db.Close(), in.blobs.Close()))
	}
}

// TestAServerThatStartsOnAFullDiskMakesSandboxesLater starts one without space for the guest program, and then frees
// space.
func TestAServerThatStartsOnAFullDiskMakesSandboxesLater(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "small-") //nolint:usetesting // sockets lie in it, whose paths must be short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skip("SKIP: mounting a small disk is not allowed here: ", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	in := install(t, func(cfg *sandboxd.Config) { cfg.Dir = dir })
	_, err = in.client.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{}, RequestId: "one"})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=64m"))
	_, err = in.client.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{}, RequestId: "one"})
	require.NoError(t, err)
}

// restart ends the process and starts another one.
func (in *installation) restart() {
	in.Helper()
	in.stop()
	in.start(in.T)
}

func (in *installation) create(spec *sandboxv1.SandboxSpec) *sandboxv1.Sandbox {
	in.Helper()
	b, err := in.client.CreateSandbox(in.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: spec})
	require.NoError(in, err)
	return b
}

func (in *installation) exec(b *sandboxv1.Sandbox, key string, argv ...string) (*sandboxv1.ExecResult, error) {
	in.Helper()
	resp, err := in.client.Exec(in.Context(), &sandboxv1.ExecRequest{Sandbox: b.GetName(), RequestId: key, Spec: &sandboxv1.ExecSpec{Argv: argv}})
	return resp.GetResult(), err
}

// sh runs a script that must end well.
func (in *installation) sh(b *sandboxv1.Sandbox, script string) string {
	in.Helper()
	r, err := in.exec(b, "", "bash", "-c", script)
	require.NoError(in, err)
	require.Zero(in, r.GetExitCode(), "%s: %s%s", script, r.GetStdout(), r.GetStderr())
	return string(r.GetStdout())
}

func TestOneProcessHasTheSandboxesOfAFolder(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	b := in.create(&sandboxv1.SandboxSpec{})
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "other.db"), sqlite.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	ledger, err := effectsqlite.New(t.Context(), db, "sandboxd")
	require.NoError(t, err)
	folder := filepath.Join(in.dir, "boxes")
	_, err = sandboxd.New(sandboxd.Config{Dir: folder, GuestPath: guestPath}, sandboxd.Deps{DB: db, Ledger: ledger, Owner: "another installation"})
	require.ErrorContains(t, err, fmt.Sprintf("data directory %s is held by process %d", folder, os.Getpid()))
	require.ErrorContains(t, err, "EVALFLEET_SANDBOXD_DIR")
	assert.Equal(t, "fine\n", in.sh(b, "echo fine"))
}

func TestASandboxIsWhatItsSpecSays(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	b := in.create(&sandboxv1.SandboxSpec{
		Env: map[string]string{"TASK": "one", "PATH": "/usr/bin:/bin"}, Workdir: "/srv/work", Labels: map[string]string{"kind": "test"},
		Files: []*sandboxv1.FileToPlace{{Path: "a/b.txt", Body: &sandboxv1.FileToPlace_Text{Text: "placed"}}, {Path: "/tmp/run", Body: &sandboxv1.FileToPlace_Content{Content: []byte("#!/bin/sh\necho ran")}, Mode: 0o755}},
		Setup: "test -e a/b.txt && echo $TASK > made-by-setup && pwd > where",
	})
	assert.Equal(t, sandboxv1.SandboxState_SANDBOX_STATE_READY, b.GetState())
	assert.True(t, strings.HasPrefix(b.GetName(), project+"/sandboxes/"), b.GetName())
	assert.Equal(t, "/srv/work", b.GetWorkdir())
	assert.NotEmpty(t, b.GetGuestPath())
	assert.NotEmpty(t, b.GetIsolation().GetParts())
	assert.False(t, b.GetIsolation().GetUnisolated())
	assert.EqualValues(t, 2<<30, b.GetSpec().GetLimits().GetMemoryBytes(), "defaults are told")
	assert.EqualValues(t, min(2, runtime.NumCPU())*1000, b.GetSpec().GetLimits().GetCpuMillis())
	assert.Equal(t, sandboxv1.NetworkMode_NETWORK_MODE_NONE, b.GetSpec().GetNetwork().GetMode())
	assert.WithinDuration(t, time.Now().Add(10*time.Minute), b.GetLeaseExpireTime().AsTime(), time.Minute)
	assert.Equal(t, "placed one\n/srv/work\nran\n/usr/bin:/bin\n", in.sh(b, "echo $(cat a/b.txt) $(cat made-by-setup); cat where; /tmp/run; echo $PATH"))
	assert.Equal(t, "no\n", in.sh(b, "ls -A /tmp | grep -q setup && echo yes || echo no"), "the script is removed")

	got, err := in.client.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{Name: b.GetName()})
	require.NoError(t, err)
	assert.Nil(t, got.GetSpec().GetFiles()[0].GetBody(), "contents are not kept")
	assert.Equal(t, b.GetIsolation().GetParts(), got.GetIsolation().GetParts())

	r, err := in.client.Exec(t.Context(), &sandboxv1.ExecRequest{
		Sandbox: b.GetName(), Spec: &sandboxv1.ExecSpec{Argv: []string{b.GetGuestPath(), "text-editor"}, Stdin: []byte(`{"command":"view","path":"a/b.txt"}`)},
	})
	require.NoError(t, err)
	assert.Contains(t, string(r.GetResult().GetStdout()), "placed", "the guest program has the text editor")
	assert.EqualValues(t, 1, r.GetTiming().GetAttempts())
}

// A file of a sandbox may be a body of the project, of any size up to the limit of all files.
func TestAFileOfASandboxMayBeABlob(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	ref, err := in.blobs.Put(t.Context(), strings.TrimPrefix(project, "projects/"), strings.NewReader(strings.Repeat("x", 5<<20)), "")
	require.NoError(t, err)
	spec := &sandboxv1.SandboxSpec{Files: []*sandboxv1.FileToPlace{{Path: "a", Body: &sandboxv1.FileToPlace_Blob{Blob: &contentv1.BlobRef{Hash: ref.Hash}}}}}
	checked, err := in.client.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: spec, ValidateOnly: true})
	require.NoError(t, err)
	assert.Nil(t, checked.GetSpec().GetFiles()[0].GetBody(), "an answer has no contents, which may be too large for it")
	b := in.create(spec)
	assert.Equal(t, "5242880\n", in.sh(b, "wc -c < a"))
}

// A file of a check may be such a body too, of a command with an answer and of a stream.
func TestAFileOfACheckMayBeABlob(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	put := func(content string) *contentv1.BlobRef {
		ref, err := in.blobs.Put(t.Context(), strings.TrimPrefix(project, "projects/"), strings.NewReader(content), "")
		require.NoError(t, err)
		return &contentv1.BlobRef{Hash: ref.Hash}
	}
	b := in.create(&sandboxv1.SandboxSpec{})
	check := func(blobs ...*contentv1.BlobRef) *sandboxv1.ExecSpec {
		spec := &sandboxv1.ExecSpec{Argv: []string{"sh", "-c", `cat "$EVALFLEET_CHECK_DIR/0"`}, Check: &sandboxv1.ExecCheck{}}
		for i, ref := range blobs {
			spec.Check.Files = append(spec.Check.Files, &sandboxv1.FileToPlace{Path: strconv.Itoa(i), Body: &sandboxv1.FileToPlace_Blob{Blob: ref}})
		}
		return spec
	}
	for _, replayed := range []bool{false, true} {
		r, err := in.client.Exec(t.Context(), &sandboxv1.ExecRequest{Sandbox: b.GetName(), RequestId: "k", Spec: check(put("expected\n"))})
		require.NoError(t, err)
		assert.Equal(t, "expected\n", string(r.GetResult().GetStdout()))
		assert.Equal(t, replayed, r.GetResult().GetReplayed())
	}
	stream, err := in.client.StreamExec(t.Context(), &sandboxv1.StreamExecRequest{Sandbox: b.GetName(), Spec: check(put("streamed\n"))})
	require.NoError(t, err)
	var printed string
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		printed += string(event.GetOutput().GetData())
	}
	assert.Equal(t, "streamed\n", printed)

	_, err = in.client.Exec(t.Context(), &sandboxv1.ExecRequest{Sandbox: b.GetName(), Spec: check(put("x"), &contentv1.BlobRef{Hash: strings.Repeat("0", 64)})})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
	assert.ErrorContains(t, err, "spec.check.files[1].blob")
	_, err = in.client.Exec(t.Context(), &sandboxv1.ExecRequest{Sandbox: b.GetName(), Spec: check(put(strings.Repeat("x", 2<<20)), put(strings.Repeat("y", 2<<20)))})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	assert.ErrorContains(t, err, "spec.check.files")
}

func TestCreateFailsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	for name, tt := range map[string]struct {
		spec *sandboxv1.SandboxSpec
		code codes.Code
		says []string
	}{
		"file from a blob":       {&sandboxv1.SandboxSpec{Files: []*sandboxv1.FileToPlace{{Path: "a", Body: &sandboxv1.FileToPlace_Blob{Blob: &contentv1.BlobRef{Hash: strings.Repeat("0", 64)}}}}}, codes.InvalidArgument, []string{"spec.files[0].blob", "no body"}},
		"set-up that fails":      {&sandboxv1.SandboxSpec{Setup: "echo boom >&2; exit 3"}, codes.FailedPrecondition, []string{"boom", "3"}},
		"set-up without a word":  {&sandboxv1.SandboxSpec{Setup: "exit 3"}, codes.FailedPrecondition, []string{"exit code 3: it wrote nothing"}},
		"set-up that never ends": {&sandboxv1.SandboxSpec{Setup: "sleep 100", SetupTimeout: durationpb.New(300 * time.Millisecond)}, codes.FailedPrecondition, []string{"300ms"}},
		"file in the system":     {&sandboxv1.SandboxSpec{Files: []*sandboxv1.FileToPlace{{Path: "/usr/x"}}}, codes.PermissionDenied, []string{"/usr/x"}},
		"unknown driver":         {&sandboxv1.SandboxSpec{Driver: "dokcer"}, codes.InvalidArgument, []string{"dokcer", "local"}},
		"image":                  {&sandboxv1.SandboxSpec{Image: "x"}, codes.FailedPrecondition, []string{"spec.image"}},
		"configuration":          {&sandboxv1.SandboxSpec{DriverConfigJson: "{}"}, codes.FailedPrecondition, []string{"spec.driver_config_json"}},
		"network":                {&sandboxv1.SandboxSpec{Network: &sandboxv1.Network{Mode: sandboxv1.NetworkMode_NETWORK_MODE_ALLOW_LIST}}, codes.Unimplemented, []string{"allow-list"}},
		"lease too long":         {&sandboxv1.SandboxSpec{Lease: durationpb.New(48 * time.Hour)}, codes.InvalidArgument, []string{"spec.lease", "24h"}},
		"no memory":              {&sandboxv1.SandboxSpec{Limits: &sandboxv1.Limits{MemoryBytes: new(int64)}}, codes.InvalidArgument, []string{"memory_bytes"}},
		"too little memory":      {&sandboxv1.SandboxSpec{Limits: &sandboxv1.Limits{MemoryBytes: new(int64(100))}}, codes.InvalidArgument, []string{"memory_bytes", "64 MiB"}},
		"reserved label":         {&sandboxv1.SandboxSpec{Labels: map[string]string{"evalfleet.x": ""}}, codes.InvalidArgument, []string{"evalfleet.x"}},
		"unisolated":             {&sandboxv1.SandboxSpec{AllowUnisolated: true}, codes.PermissionDenied, []string{"--allow-unisolated"}},
		"workdir":                {&sandboxv1.SandboxSpec{Workdir: "here"}, codes.InvalidArgument, []string{"workdir"}},
		"unknown user":           {&sandboxv1.SandboxSpec{User: "nobody-knows"}, codes.InvalidArgument, []string{"nobody-knows"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := in.client.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: tt.spec})
			assert.Equal(t, tt.code, rpcerr.Code(err), "%v", err)
			for _, s := range tt.says {
				assert.ErrorContains(t, err, s)
			}
			if strings.HasPrefix(tt.says[0], "spec.") {
				e, _ := rpcerr.As(err)
				require.NotEmpty(t, e.Fields, "%v", err)
				assert.True(t, strings.HasPrefix(e.Fields[0].Path, tt.says[0]), "%v", e.Fields)
			}
			if tt.spec.GetSetup() != "" {
				assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_SETUP_FAILED, rpcerr.Reason(err))
				e, _ := rpcerr.As(err)
				assert.Equal(t, strconv.FormatBool(strings.Contains(name, "never")), e.Metadata["timedOut"])
				assert.NotEmpty(t, e.Metadata["exitCode"])
			}
		})
	}
	list, err := in.client.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Parent: project})
	require.NoError(t, err)
	assert.Empty(t, list.GetSandboxes())
	folders, err := filepath.Glob(filepath.Join(in.dir, "boxes", "local", "*", "box.json"))
	require.NoError(t, err)
	assert.Empty(t, folders)
}

func TestCreateWithAKeyHappensOnce(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	req := &sandboxv1.CreateSandboxRequest{Parent: project, RequestId: "run1/1", Spec: &sandboxv1.SandboxSpec{Setup: "echo x >> /tmp/count"}}
	first, err := in.client.CreateSandbox(t.Context(), req)
	require.NoError(t, err)
	again, err := in.client.CreateSandbox(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, first.GetName(), again.GetName())
	in.restart()
	again, err = in.client.CreateSandbox(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, first.GetName(), again.GetName())
	assert.Equal(t, "x\n", in.sh(first, "cat /tmp/count"))

	other := proto.CloneOf(req)
	other.Spec.Setup = "true"
	_, err = in.client.CreateSandbox(t.Context(), other)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)
	failing := &sandboxv1.CreateSandboxRequest{Parent: project, RequestId: "run1/2", Spec: &sandboxv1.SandboxSpec{Setup: "exit 1"}}
	for range 2 {
		_, err = in.client.CreateSandbox(t.Context(), failing)
		assert.Equal(t, codes.FailedPrecondition, rpcerr.Code(err), "a failure is kept with its kind: %v", err)
	}
}

func TestFullnessIsToldAndPasses(t *testing.T) {
	t.Parallel()
	in := install(t, func(c *sandboxd.Config) { c.MaxSandboxes = 1 })
	b := in.create(&sandboxv1.SandboxSpec{})
	req := &sandboxv1.CreateSandboxRequest{Parent: project, RequestId: "second", Spec: &sandboxv1.SandboxSpec{}}
	_, err := in.client.CreateSandbox(t.Context(), req)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)
	assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(err))
	assert.Positive(t, rpcerr.RetryAfter(err))
	_, err = in.client.DeleteSandbox(t.Context(), &sandboxv1.DeleteSandboxRequest{Name: b.GetName()})
	require.NoError(t, err)
	_, err = in.client.CreateSandbox(t.Context(), req)
	require.NoError(t, err, "the same key works once there is room")
}

func TestARestartLosesNothing(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	b := in.create(&sandboxv1.SandboxSpec{Env: map[string]string{"TASK": "one"}})
	in.sh(b, "setsid sleep 1000 >/dev/null 2>&1 & echo $! > sleeper")
	script := "echo ran >> count; until [ -e go ]; do sleep 0.01; done; echo $TASK"
	cut := make(chan error, 1)
	go func() {
		_, err := in.exec(b, "long", "bash", "-c", script)
		cut <- err
	}()
	require.Eventually(t, func() bool {
		r, err := in.exec(b, "", "test", "-e", "count")
		return err == nil && r.GetExitCode() == 0
	}, waittest.Bound, 10*time.Millisecond)
	in.restart()
	require.Error(t, waittest.For(t, cut, "the end of the call whose server was stopped"))

	got, err := in.client.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{Name: b.GetName()})
	require.NoError(t, err)
	assert.Equal(t, sandboxv1.SandboxState_SANDBOX_STATE_READY, got.GetState())
	in.sh(b, "kill -0 $(cat sleeper); touch go")
	r, err := in.exec(b, "long", "bash", "-c", script)
	require.NoError(t, err)
	assert.Equal(t, "one\n", string(r.GetStdout()), "the environment is the sandbox's as before")
	assert.Equal(t, "ran\n", in.sh(b, "cat count"))

	stream, err := in.client.StreamExec(waittest.Context(t), &sandboxv1.StreamExecRequest{Sandbox: b.GetName(), RequestId: "long", StdoutOffset: 1})
	require.NoError(t, err)
	out, ended := drain(t, stream)
	assert.Equal(t, "ne\n", out)
	assert.True(t, ended.GetReplayed())
	assert.Nil(t, ended.StdoutCutAt)
	_, err = in.client.ReleaseExec(t.Context(), &sandboxv1.ReleaseExecRequest{Sandbox: b.GetName(), RequestIds: []string{"long"}})
	require.NoError(t, err)
	stream, err = in.client.StreamExec(waittest.Context(t), &sandboxv1.StreamExecRequest{Sandbox: b.GetName(), RequestId: "long"})
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN), "%v", err)
}

func drain(t *testing.T, stream grpc.ServerStreamingClient[sandboxv1.StreamExecResponse]) (stdout string, ended *sandboxv1.ExecResult) {
	t.Helper()
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stdout, ended
		}
		require.NoError(t, err)
		if event.GetOutput().GetStream() == sandboxv1.ExecStream_EXEC_STREAM_STDOUT {
			stdout += string(event.GetOutput().GetData())
		}
		if event.GetEnded() != nil {
			ended = event.GetEnded()
		}
	}
}

func TestOrphansAreCollected(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	b := in.create(&sandboxv1.SandboxSpec{})
	kept := in.create(&sandboxv1.SandboxSpec{})
	folder := filepath.Join(in.dir, "boxes", "local", filepath.Base(b.GetName()))
	require.DirExists(t, folder)
	in.stop()
	db, err := sqlite.Open(t.Context(), filepath.Join(in.dir, "sandboxd.db"), sqlite.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Write(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec("DELETE FROM sandboxes WHERE id = ?", filepath.Base(b.GetName()))
		return err
	}))
	require.NoError(t, db.Close())
	halfway := filepath.Join(in.dir, "boxes", "local", "halfway") // a crash may leave a folder before its record
	require.NoError(t, os.Mkdir(halfway, 0o700))
	in.start(t)
	for _, path := range []string{folder, halfway} {
		require.Eventually(t, func() bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) }, waittest.Bound, 10*time.Millisecond)
	}
	assert.Equal(t, "fine\n", in.sh(kept, "echo fine"))
}

func TestDeletedAndLostSandboxesSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	deleted, lost := in.create(&sandboxv1.SandboxSpec{}), in.create(&sandboxv1.SandboxSpec{Labels: map[string]string{"a": "b"}})
	for range 2 {
		got, err := in.client.DeleteSandbox(t.Context(), &sandboxv1.DeleteSandboxRequest{Name: deleted.GetName()})
		require.NoError(t, err)
		assert.Equal(t, sandboxv1.SandboxState_SANDBOX_STATE_DELETED, got.GetState())
	}
	_, err := in.exec(deleted, "", "true")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED), "%v", err)

	in.killGuest(lost)
	_, err = in.exec(lost, "key", "true")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST), "%v", err)
	assert.Equal(t, codes.Unavailable, rpcerr.Code(err))
	got, err := in.client.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{Name: lost.GetName()})
	require.NoError(t, err)
	assert.Equal(t, sandboxv1.SandboxState_SANDBOX_STATE_LOST, got.GetState())
	assert.NotEmpty(t, got.GetStateReason())
	cancelled, err := in.client.CancelExec(t.Context(), &sandboxv1.CancelExecRequest{Sandbox: lost.GetName(), RequestId: "key"})
	require.NoError(t, err)
	assert.True(t, cancelled.GetAlreadyDone())

	for _, tt := range []struct {
		req  *sandboxv1.ListSandboxesRequest
		want int
	}{
		{&sandboxv1.ListSandboxesRequest{Parent: project}, 0},
		{&sandboxv1.ListSandboxesRequest{Parent: project, ShowDeleted: true}, 2},
		{&sandboxv1.ListSandboxesRequest{Parent: project, ShowDeleted: true, Labels: map[string]string{"a": "b"}}, 1},
		{&sandboxv1.ListSandboxesRequest{Parent: "projects/other", ShowDeleted: true}, 0},
	} {
		list, err := in.client.ListSandboxes(t.Context(), tt.req)
		require.NoError(t, err)
		assert.Len(t, list.GetSandboxes(), tt.want, "%v", tt.req)
	}
	_, err = in.client.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{Name: strings.Replace(lost.GetName(), "default", "other", 1)})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "projects do not meet: %v", err)
}

// killGuest kills the first process of a sandbox, as the kernel or an operator may.
func (in *installation) killGuest(b *sandboxv1.Sandbox) {
	in.Helper()
	records, err := filepath.Glob(filepath.Join(in.dir, "boxes", "*", "*"+filepath.Base(b.GetName())+"*", "box.json"))
	require.NoError(in, err)
	require.Len(in, records, 1)
	data, err := os.ReadFile(records[0])
	require.NoError(in, err)
	var first struct{ PID int }
	require.NoError(in, json.Unmarshal(data, &first))
	require.Positive(in, first.PID)
	require.NoError(in, syscall.Kill(first.PID, syscall.SIGKILL))
}

func TestPagesOfSandboxes(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	var names []string
	for range 3 {
		names = append([]string{in.create(&sandboxv1.SandboxSpec{}).GetName()}, names...)
	}
	var got []string
	req := &sandboxv1.ListSandboxesRequest{Parent: project, PageSize: 2}
	for {
		list, err := in.client.ListSandboxes(t.Context(), req)
		require.NoError(t, err)
		for _, b := range list.GetSandboxes() {
			got = append(got, b.GetName())
		}
		if req.PageToken = list.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	assert.Equal(t, names, got, "newest first")
	renewed, err := in.client.RenewLeases(t.Context(), &sandboxv1.RenewLeasesRequest{
		Parent: project, Sandboxes: append(names, project+"/sandboxes/none"), Lease: durationpb.New(2 * time.Hour),
	})
	require.NoError(t, err)
	assert.Equal(t, []string{project + "/sandboxes/none"}, renewed.GetMissing())
	assert.WithinDuration(t, time.Now().Add(2*time.Hour), renewed.GetLeaseExpireTime().AsTime(), time.Minute)
}

func TestFilesThroughTheService(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	b := in.create(&sandboxv1.SandboxSpec{})
	name := b.GetName()
	_, err := in.client.WriteFile(waittest.Context(t), &sandboxv1.WriteFileRequest{Sandbox: name, Path: "d/f", Body: &sandboxv1.WriteFileRequest_Content{Content: []byte("x\r\ny")}})
	require.NoError(t, err)
	read, err := in.client.ReadFile(waittest.Context(t), &sandboxv1.ReadFileRequest{Sandbox: name, Path: "d/f"})
	require.NoError(t, err)
	assert.Equal(t, "x\r\ny", string(read.GetContent()))
	assert.EqualValues(t, 4, read.GetInfo().GetSize())
	read, err = in.client.ReadFile(waittest.Context(t), &sandboxv1.ReadFileRequest{Sandbox: name, Path: "d/f", Offset: 1, Limit: 2})
	require.NoError(t, err)
	assert.Equal(t, "\r\n", string(read.GetContent()))
	_, err = in.client.WriteFile(waittest.Context(t), &sandboxv1.WriteFileRequest{Sandbox: name, Path: "/tmp/text", Body: &sandboxv1.WriteFileRequest_Text{Text: "test"}})
	require.NoError(t, err)
	assert.Equal(t, "test", in.sh(b, "cat /tmp/text"), "a text is no base64")
	_, err = in.client.ReadFile(waittest.Context(t), &sandboxv1.ReadFileRequest{Sandbox: name, Path: "d/f", User: "nobody-knows"})
	assert.True(t, rpcerr.Concerns("user", err), "%v", err)
	assert.ErrorContains(t, err, `user: the sandbox has no user "nobody-knows"`)

	up, err := in.client.UploadFile(waittest.Context(t))
	require.NoError(t, err)
	require.NoError(t, up.Send(&sandboxv1.UploadFileRequest{Sandbox: name, Path: "big"}))
	for range 5 {
		require.NoError(t, up.Send(&sandboxv1.UploadFileRequest{Chunk: make([]byte, 1<<20)}))
	}
	written, err := up.CloseAndRecv()
	require.NoError(t, err)
	assert.EqualValues(t, 5<<20, written.GetInfo().GetSize())
	_, err = in.client.ReadFile(waittest.Context(t), &sandboxv1.ReadFileRequest{Sandbox: name, Path: "big"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT), "%v", err)
	assert.ErrorContains(t, err, "3 MiB")
	part, err := in.client.ReadFile(waittest.Context(t), &sandboxv1.ReadFileRequest{Sandbox: name, Path: "big", Limit: 10})
	require.NoError(t, err)
	assert.Len(t, part.GetContent(), 10)

	for limit, want := range map[int64]bool{0: true, 1 << 20: false} {
		down, err := in.client.DownloadFile(waittest.Context(t), &sandboxv1.DownloadFileRequest{Sandbox: name, Path: "big", MaxBytes: limit})
		require.NoError(t, err)
		size := 0
		for err == nil {
			var piece *sandboxv1.DownloadFileResponse
			if piece, err = down.Recv(); err == nil {
				size += len(piece.GetChunk())
			}
		}
		if want {
			require.ErrorIs(t, err, io.EOF)
			assert.Equal(t, 5<<20, size)
		} else {
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT), "%v", err)
		}
	}
	for _, chunks := range [][]*sandboxv1.UploadFileRequest{
		{{Sandbox: name, Path: "chunk", Chunk: make([]byte, 1<<20+1)}},
		{{Sandbox: name, Path: "chunk"}, {Chunk: make([]byte, 1<<20+1)}},
	} {
		up, err = in.client.UploadFile(waittest.Context(t))
		require.NoError(t, err)
		for _, chunk := range chunks {
			require.NoError(t, up.Send(chunk))
		}
		_, err = up.CloseAndRecv()
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
		assert.ErrorContains(t, err, "chunk")
	}
	// An upload that breaks off leaves the old file.
	ctx, cancel := context.WithCancel(t.Context())
	up, err = in.client.UploadFile(ctx)
	require.NoError(t, err)
	require.NoError(t, up.Send(&sandboxv1.UploadFileRequest{Sandbox: name, Path: "d/f"}))
	require.NoError(t, up.Send(&sandboxv1.UploadFileRequest{Chunk: []byte("half")}))
	cancel()
	require.Eventually(t, func() bool { return in.sh(b, "ls -A d") == "f\n" }, waittest.Bound, 10*time.Millisecond)
	assert.Equal(t, "x\r\ny", in.sh(b, "cat d/f"))

	var paths []string
	req := &sandboxv1.ListFilesRequest{Sandbox: name, Path: ".", MaxDepth: 3, PageSize: 2}
	for {
		list, err := in.client.ListFiles(t.Context(), req)
		require.NoError(t, err)
		for _, f := range list.GetFiles() {
			paths = append(paths, f.GetPath())
		}
		if req.PageToken = list.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	assert.Equal(t, []string{"big", "d", "d/f"}, paths)
	_, err = in.client.RemoveFile(t.Context(), &sandboxv1.RemoveFileRequest{Sandbox: name, Path: "d", Recursive: true})
	require.NoError(t, err)
	_, err = in.client.ReadFile(waittest.Context(t), &sandboxv1.ReadFileRequest{Sandbox: name, Path: "d/f"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND), "%v", err)
}

func TestVariablesThatCannotBe(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	b := in.create(&sandboxv1.SandboxSpec{})
	for name, tt := range map[string]struct {
		env  map[string]string
		says string
	}{
		"a value in the name": {map[string]string{"A=B": "c"}, `write the name "A" and the value "B"`},
		"no name":             {map[string]string{"": "c"}, "a variable needs a name"},
		"a NUL":               {map[string]string{"A": "\x00"}, "NUL"},
	} {
		_, execErr := in.client.Exec(t.Context(), &sandboxv1.ExecRequest{Sandbox: b.GetName(), Spec: &sandboxv1.ExecSpec{Argv: []string{"true"}, Env: tt.env}})
		_, createErr := in.client.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{Env: tt.env}})
		for _, err := range []error{execErr, createErr} {
			e, ok := rpcerr.As(err)
			require.True(t, ok && len(e.Fields) == 1, "%s: %v", name, err)
			assert.Equal(t, "spec.env", e.Fields[0].Path, name)
			assert.ErrorContains(t, err, tt.says, name)
		}
	}
}

func TestWhatIsNotBuiltSaysSo(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	_, err := in.sessions.OpenSession(t.Context(), &sandboxv1.OpenSessionRequest{Sandbox: project + "/sandboxes/x", Session: &sandboxv1.Session{}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET), "%v", err)
}

func TestDriversTellWhatWasMeasured(t *testing.T) {
	t.Parallel()
	in := install(t, func(c *sandboxd.Config) { c.Docker.Host = "unix:///no/such/engine.sock" })
	list, err := in.client.ListDrivers(t.Context(), &sandboxv1.ListDriversRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetDrivers(), 2)
	page, err := in.client.ListDrivers(t.Context(), &sandboxv1.ListDriversRequest{PageSize: 1})
	require.NoError(t, err)
	page, err = in.client.ListDrivers(t.Context(), &sandboxv1.ListDriversRequest{PageSize: 1, PageToken: page.GetNextPageToken()})
	require.NoError(t, err)
	require.Len(t, page.GetDrivers(), 1)
	assert.Equal(t, "local", page.GetDrivers()[0].GetName())
	assert.Empty(t, page.GetNextPageToken())
	d := list.GetDrivers()[0]
	assert.Equal(t, "docker", d.GetName())
	assert.False(t, d.GetIsDefault() || d.GetAvailable())
	assert.Contains(t, d.GetProblem(), "/no/such/engine.sock")
	d = list.GetDrivers()[1]
	assert.Equal(t, "local", d.GetName())
	assert.True(t, d.GetIsDefault() && d.GetAvailable())
	assert.NotEmpty(t, d.GetIsolation().GetParts())

	absent := install(t, func(c *sandboxd.Config) { c.GuestPath = "/no/such/guestd" })
	list, err = absent.client.ListDrivers(t.Context(), &sandboxv1.ListDriversRequest{})
	require.NoError(t, err)
	assert.False(t, list.GetDrivers()[0].GetAvailable())
	assert.Contains(t, list.GetDrivers()[0].GetProblem(), "/no/such/guestd")
	_, err = absent.client.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "%v", err)
	assert.ErrorContains(t, err, "/no/such/guestd")
}
