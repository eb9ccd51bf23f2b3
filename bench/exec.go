package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"github.com/evalfleet/evalfleet/bench/internal/load"
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
	api, err := sandboxExec(ctx, e, &stop)
	if err != nil {
		return nil, err
	}
	bare, err := bareExec(&stop)
	if err != nil {
		return nil, err
	}
	table, err := e.measure(ctx, 25, load.Latency(api), load.Latency(bare))
	if err != nil {
		return nil, err
	}
	r := table.Ratio(0, 1, 1)
	return []report.Figure{{
		Name: "exec through sandboxd's API", Baseline: "bare fork and exec", Measured: table.Median(0), BaselineMeasured: table.Median(1), Unit: "µs", Ratio: r,
		Goals: []report.Goal{report.AtMost(r, 2)},
		Means: "What a tool or a scorer waits for a command that does nothing: two gRPC calls, one to sandboxd and one from there to the guest, and the fork.",
	}}, nil
}

// sandboxExec makes a sandbox and returns a command in it. Each call has a key of its own.
func sandboxExec(ctx context.Context, e *env, stop *cleanup) (load.Call, error) {
	server, err := e.serve(ctx, "sandboxd", settings{})
	if err != nil {
		return nil, err
	}
	stop.add(server.Stop)
	conn, err := e.dial(server.Address)
	if err != nil {
		return nil, err
	}
	stop.add(conn.Close)
	sandboxes := sandboxv1.NewSandboxServiceClient(conn)
	box, err := sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Parent: "projects/default", Spec: &sandboxv1.SandboxSpec{}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCannot, err)
	}
	stop.add(func() error {
		_, err := sandboxes.DeleteSandbox(context.WithoutCancel(ctx), &sandboxv1.DeleteSandboxRequest{Name: box.GetName()})
		return err
	})
	key := 0
	return func(ctx context.Context, _, _ int) error {
		key++
		done, err := sandboxes.Exec(ctx, &sandboxv1.ExecRequest{
			Sandbox: box.GetName(), RequestId: strconv.Itoa(key), Spec: &sandboxv1.ExecSpec{Argv: []string{truePath}},
		})
		if err == nil && done.GetResult().GetExitCode() != 0 {
			err = fmt.Errorf("%s in the sandbox: %s", truePath, done.GetResult())
		}
		return err
	}, nil
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
