package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/evalfleet/evalfleet/bench/internal/process"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/bench/internal/turns"
)

func inspectExecBenchmark() benchmark {
	return benchmark{
		name:  "inspect-exec",
		title: "Commands from inspect_ai",
		how: "64 callers in one process of inspect_ai run `true` in one container by `sandbox().exec`, through the provider of clients/inspect and a single binary, or through Inspect's own provider of " +
			"docker, which starts `docker compose exec` for each command. Engine, image and time are the same.",
		run: runInspectExec,
	}
}

func inspectModelBenchmark() benchmark {
	return benchmark{
		name:  "inspect-model",
		title: "Calls of models from inspect_ai",
		how: "8 callers in one Python process ask a single binary for answers of mockllm, with 1 KB of text. What counts is the processor time of the Python process for each call: through Inspect's model API " +
			"of clients/inspect, or through the openai SDK and the endpoint in OpenAI's format.",
		run: runInspectModel,
	}
}

// inspectExecs is the goal of the rate of commands, as a multiple of that of Inspect's own provider.
const inspectExecs = 10

// inspectModelCPU is the goal of the processor time of a call, as a multiple of the SDK's.
const inspectModelCPU = 1.5

func runInspectExec(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	if err := exec.CommandContext(ctx, "docker", "compose", "version").Run(); err != nil {
		return nil, fmt.Errorf("%w: Inspect's provider needs docker compose: %w", errCannot, err)
	}
	engine, err := e.engine(ctx, &stop)
	if err != nil {
		return nil, err
	}
	compose := filepath.Join(e.dir, "compose.yaml")
	text := "services:\n  default:\n    image: " + benchImage + "\n    x-local: true\n    init: true\n    command: sleep infinity\n    network_mode: none\n"
	if err := os.WriteFile(compose, []byte(text), 0o600); err != nil {
		return nil, err
	}
	server, err := e.serve(ctx, "inspect", "", settings{Sandboxd: map[string]any{"docker": map[string]string{"host": engine.Host}}})
	if err != nil {
		return nil, err
	}
	stop.add(server.Stop)
	var programs [2]*turns.Program
	for i, provider := range []string{"evalfleet", "docker"} {
		programs[i], err = e.python(ctx, server, "inspect", []string{"DOCKER_HOST=" + engine.Host}, "sandboxes.py", provider, compose)
		if err != nil {
			return nil, err
		}
		stop.add(programs[i].Stop)
	}
	table, err := e.measure(ctx, 5, programs[0].Rate(), programs[1].Rate())
	if err != nil {
		return nil, err
	}
	ratio := table.Ratio(0, 1, 1)
	return []report.Figure{{
		Name: "commands from one process of Inspect, 64 callers", Baseline: "Inspect's provider of docker", Measured: table.Median(0), BaselineMeasured: table.Median(1), Unit: "/s", Ratio: ratio,
		Goals: []report.Goal{report.AtLeast(ratio, inspectExecs)},
		Means: "How much sooner the commands of many samples, or of a scorer, are through when none of them starts a process on the machine of Inspect.",
	}}, nil
}

func runInspectModel(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	server, err := e.serve(ctx, "inspect", "", settings{})
	if err != nil {
		return nil, err
	}
	stop.add(server.Stop)
	ours, err := e.python(ctx, server, "inspect", nil, "models.py")
	if err != nil {
		return nil, err
	}
	stop.add(ours.Stop)
	token, err := e.token()
	if err != nil {
		return nil, err
	}
	sdk, err := e.python(ctx, server, "sdk", []string{"OPENAI_BASE_URL=http://" + server.Address + "/v1", "OPENAI_API_KEY=" + token.Reveal()}, "sdk.py")
	if err != nil {
		return nil, err
	}
	stop.add(sdk.Stop)
	table, err := e.measure(ctx, 9, ours.CPU(), sdk.CPU())
	if err != nil {
		return nil, err
	}
	ratio := table.Ratio(0, 1, 1)
	return []report.Figure{{
		Name: "call of a model from Inspect", Baseline: "openai SDK", Measured: table.Median(0), BaselineMeasured: table.Median(1), Unit: "µs CPU", Ratio: ratio,
		Goals: []report.Goal{report.AtMost(ratio, inspectModelCPU)},
		Means: "What the one process of an evaluation spends on a call, and so how many samples it can have at work.",
	}}, nil
}

// python starts a program of clients/inspect/bench with the environment of that name (.tools/venv-NAME), which finds
// the packages of the repository and the server.
func (e *env) python(ctx context.Context, server *process.Child, venv string, variables []string, args ...string) (*turns.Program, error) {
	interpreter := filepath.Join(e.root, ".tools/venv-"+venv+"/bin/python")
	if _, err := os.Stat(interpreter); err != nil {
		return nil, fmt.Errorf("%w: %w; make setup installs it", errCannot, err)
	}
	clients := filepath.Join(e.root, "clients")
	args[0] = filepath.Join(clients, "inspect/bench", args[0])
	cmd := exec.CommandContext(context.WithoutCancel(ctx), interpreter, args...)
	cmd.Dir = e.dir
	cmd.Env = append(cmd.Environ(), append(variables, "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONPATH="+filepath.Join(clients, "python/src")+":"+filepath.Join(clients, "inspect/src"), "EVALFLEET_SERVER="+server.Address, "EVALFLEET_TOKEN_FILE="+e.tokenFile())...)
	p, err := turns.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(args[0]), err)
	}
	return p, nil
}
