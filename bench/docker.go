package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/pkg/enginetest"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

func dockerBenchmark() benchmark {
	return benchmark{
		name:  "docker",
		title: "Commands in a container",
		how: "`/bin/true`, with a key and its result kept, through sandboxd's API in a warm sandbox of each driver, the image built from this machine's files. Beside it stands one `docker exec` of the same " +
			"program in the same container, by the calls of the Engine API that it takes: create, start with its output, inspect.",
		run: runDocker,
	}
}

// benchImage is built for the benchmark.
const benchImage = "evalfleet/sandbox:bench"

// manyCallers is how many wait for commands at once where that is measured.
const manyCallers = 64

func runDocker(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	engine, err := e.engine(ctx, &stop)
	if err != nil {
		return nil, err
	}
	s := settings{Sandboxd: map[string]any{"docker": map[string]string{"host": engine.Host, "image": benchImage}}}
	container, box, err := warmExec(ctx, e, &stop, "docker", s)
	if err != nil {
		return nil, err
	}
	local, _, err := warmExec(ctx, e, &stop, "local", s)
	if err != nil {
		return nil, err
	}
	api := engineAPI(engine.Host)
	stop.add(func() error { api.CloseIdleConnections(); return nil })
	byEngine := dockerExec(api, "evalfleet-"+path.Base(box))
	table, err := e.measure(ctx, 12,
		load.Latency(byEngine), load.Latency(container), load.Latency(local), load.Rate(1, byEngine), load.Rate(manyCallers, container), load.Rate(manyCallers, local))
	if err != nil {
		return nil, err
	}
	slower := func(against string, column int, means string) report.Figure {
		ratio := table.Ratio(0, column, 1)
		return report.Figure{
			Name: "one docker exec", Baseline: against, Measured: table.Median(0), BaselineMeasured: table.Median(column), Unit: "µs", Ratio: ratio,
			Goals: []report.Goal{report.AtLeast(ratio, 30)}, Means: means,
		}
	}
	many := func(name string, column int, means string) report.Figure {
		return report.Figure{
			Name: name, Baseline: "docker exec, one caller", Measured: table.Median(column), BaselineMeasured: table.Median(3), Unit: "/s", Ratio: table.Ratio(column, 3, 1),
			Goals: []report.Goal{report.Reaches(table.Median(column), 1000, "/s")}, Means: means,
		}
	}
	return []report.Figure{
		slower("exec in a docker sandbox", 1, "What a guest that stays in the container saves: the engine makes the container once and is not asked again. Here more is better."),
		slower("exec in a local sandbox", 2, "The same guest in a box without an engine: what is left is the guest's own work and a process."),
		many("exec in a docker sandbox, 64 callers", 4, "How many commands one container takes when many agents' tools, or one scorer's programs, come at once."),
		many("exec in a local sandbox, 64 callers", 5, "The same without an engine."),
	}, nil
}

// engine returns a Docker engine that has benchImage, which it builds.
func (e *env) engine(ctx context.Context, stop *cleanup) (*enginetest.Engine, error) {
	engine, err := enginetest.Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCannot, err)
	}
	stop.add(engine.Stop)
	evalfleet, err := e.programs.build(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, evalfleet, "sandbox", "image", "--tag", benchImage)
	cmd.Env = append(cmd.Environ(), "DOCKER_HOST="+engine.Host)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the image: %w: %s", err, said)
	}
	return engine, nil
}

// warmExec makes a sandbox of a driver and returns its name and a function that runs a command in it, which is safe for
// concurrent use.
func warmExec(ctx context.Context, e *env, stop *cleanup, driver string, s settings) (load.Call, string, error) {
	var b box
	server, err := e.serve(ctx, driver, "sandboxd", s)
	if err != nil {
		return nil, "", err
	}
	b.server = server
	if b.conn, err = e.dial(server.Address); err != nil {
		return nil, "", errors.Join(err, server.Stop())
	}
	b.api = sandboxv1.NewSandboxServiceClient(b.conn)
	made, err := b.api.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Parent: "projects/default", Spec: &sandboxv1.SandboxSpec{Driver: driver}})
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("%w: %w", errCannot, err), b.leave())
	}
	b.name = made.GetName()
	stop.add(func() error { return b.remove(context.WithoutCancel(ctx)) })
	var key atomic.Int64
	return func(ctx context.Context, _, _ int) error {
		done, err := b.api.Exec(ctx, &sandboxv1.ExecRequest{Sandbox: b.name, RequestId: strconv.FormatInt(key.Add(1), 10), Spec: &sandboxv1.ExecSpec{Argv: []string{truePath}}})
		return errors.Join(err, failed(done.GetResult()))
	}, b.name, nil
}

// engineAPI speaks HTTP to an engine's socket.
func engineAPI(host string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(host, "unix://"))
	}}}
}

// dockerExec is one command in a container by the engine, as `docker exec` has it.
func dockerExec(api *http.Client, container string) load.Call {
	call := func(ctx context.Context, method, at string, body, into any) error {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, method, "http://engine"+at, bytes.NewReader(text))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := api.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		said, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode >= http.StatusBadRequest {
			err = fmt.Errorf("%s: %s: %s", at, resp.Status, said)
		}
		if err != nil || into == nil {
			return err
		}
		return json.Unmarshal(said, into)
	}
	return func(ctx context.Context, _, _ int) error {
		var made struct{ ID string }
		err := call(ctx, http.MethodPost, "/containers/"+container+"/exec", map[string]any{"Cmd": []string{truePath}, "AttachStdout": true, "AttachStderr": true}, &made)
		if err != nil {
			return err
		}
		if err := call(ctx, http.MethodPost, "/exec/"+made.ID+"/start", map[string]any{"Detach": false, "Tty": false}, nil); err != nil {
			return err
		}
		var end struct{ ExitCode int }
		if err := call(ctx, http.MethodGet, "/exec/"+made.ID+"/json", nil, &end); err != nil {
			return err
		}
		if end.ExitCode != 0 {
			return fmt.Errorf("%s by the engine: exit code %d", truePath, end.ExitCode)
		}
		return nil
	}
}
