package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/process"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

func execBenchmark() benchmark {
	return benchmark{
		name:  "exec",
		title: "Commands in a sandbox",
		how: "`/bin/true`, with a key and its result kept, in a warm sandbox of the driver `local`: one caller, one command after another, median time of a command. The " +
			"baseline is one fork and exec of the same program from a Go process without a sandbox, its input and outputs `/dev/null`.",
		run: runExec,
	}
}

const truePath = "/bin/true"

func runExec(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	guest, err := guestExec(ctx, e, &stop)
	if err != nil {
		return nil, err
	}
	api, err := sandboxExec(ctx, e, &stop)
	if err != nil {
		return nil, err
	}
	bare, err := bareExec(&stop)
	if err != nil {
		return nil, err
	}
	table, err := e.measure(ctx, 25, load.Latency(guest), load.Latency(api), load.Latency(bare))
	if err != nil {
		return nil, err
	}
	atGuest, atAPI := table.Ratio(0, 2, 1), table.Ratio(1, 2, 1)
	return []report.Figure{
		{
			Name: "exec at guestd's socket", Baseline: "bare fork and exec", Measured: table.Median(0), BaselineMeasured: table.Median(2), Unit: "µs", Ratio: atGuest,
			Means: "What isolation and exactly-once cost where they are: one gRPC call over the guest's socket, the claim, a process in its own cgroup and session, its pipes, the kept result.",
		},
		{
			Name: "exec through sandboxd's API", Baseline: "bare fork and exec", Measured: table.Median(1), BaselineMeasured: table.Median(2), Unit: "µs", Ratio: atAPI,
			Means: "What a tool or a scorer waits for a command that does nothing: one more gRPC call, over TCP, with its credential, its log line and its check of the request.",
		},
	}, nil
}

// box is a sandbox and the server that made it.
type box struct {
	server *process.Child
	conn   *grpc.ClientConn
	api    sandboxv1.SandboxServiceClient
	name   string
}

// connect starts sandboxd over the data of that name.
func connect(ctx context.Context, e *env, name string) (b box, err error) {
	if b.server, err = e.serve(ctx, name, "sandboxd", settings{}); err != nil {
		return b, err
	}
	if b.conn, err = e.dial(b.server.Address); err != nil {
		return b, errors.Join(err, b.server.Stop())
	}
	b.api = sandboxv1.NewSandboxServiceClient(b.conn)
	return b, nil
}

// leave ends the server; the sandbox lives on.
func (b box) leave() error { return errors.Join(b.conn.Close(), b.server.Stop()) }

// remove removes the sandbox and ends the server.
func (b box) remove(ctx context.Context) error {
	_, err := b.api.DeleteSandbox(ctx, &sandboxv1.DeleteSandboxRequest{Name: b.name})
	return errors.Join(err, b.leave())
}

// makeBox starts sandboxd and makes a sandbox.
func makeBox(ctx context.Context, e *env, name string) (box, error) {
	b, err := connect(ctx, e, name)
	if err != nil {
		return b, err
	}
	made, err := b.api.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Parent: "projects/default", Spec: &sandboxv1.SandboxSpec{}})
	if err != nil {
		return b, errors.Join(fmt.Errorf("%w: %w", errCannot, err), b.leave())
	}
	b.name = made.GetName()
	return b, nil
}

// sandboxExec is a command in a sandbox by way of sandboxd. Each call has a key of its own.
func sandboxExec(ctx context.Context, e *env, stop *cleanup) (load.Call, error) {
	b, err := makeBox(ctx, e, "sandboxd")
	if err != nil {
		return nil, err
	}
	stop.add(func() error { return b.remove(context.WithoutCancel(ctx)) })
	key := 0
	return func(ctx context.Context, _, _ int) error {
		key++
		done, err := b.api.Exec(ctx, &sandboxv1.ExecRequest{Sandbox: b.name, RequestId: strconv.Itoa(key), Spec: &sandboxv1.ExecSpec{Argv: []string{truePath}}})
		return errors.Join(err, failed(done.GetResult()))
	}, nil
}

// failed is an error when a command did not do what it should.
func failed(r *sandboxv1.ExecResult) error {
	if r.GetExitCode() == 0 {
		return nil
	}
	return fmt.Errorf("%s in the sandbox: exit code %d: %s", truePath, r.GetExitCode(), r.GetStderr())
}

// bareExec is a fork and an exec and the wait for the end, as cheap as Go can have them.
func bareExec(stop *cleanup) (load.Call, error) {
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	stop.add(func() error { return syscall.Close(null) })
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null)}
	return func(context.Context, int, int) error {
		pid, err := syscall.ForkExec(truePath, []string{truePath}, &syscall.ProcAttr{Files: files})
		if err != nil {
			return err
		}
		var status syscall.WaitStatus
		for {
			if _, err = syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if err == nil && status.ExitStatus() != 0 {
			err = fmt.Errorf("%s: status %d", truePath, status)
		}
		return err
	}, nil
}
