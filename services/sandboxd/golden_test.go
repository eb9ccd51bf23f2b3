package sandboxd_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// TestGoldenSandboxLocal plays the steps of each case in a sandbox of its own.
func TestGoldenSandboxLocal(t *testing.T) {
	in := install(t, nil)
	goldentest.Run(t, "sandbox-local", goldentest.Load(t, "core/sandbox-local.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		if c.Op() != "sandbox" {
			t.Skipf("no driver for %q", c.Op())
		}
		b, err := in.client.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{}})
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := in.client.DeleteSandbox(in.Context(), &sandboxv1.DeleteSandboxRequest{Name: b.GetName()})
			require.NoError(t, err)
		})
		p := &player{T: t, client: in.client, sessions: in.sessions, sandbox: b.GetName()}
		input, err := corpus.Expand(c.At("input", "steps"))
		require.NoError(t, err)
		var got []any
		for _, s := range input.([]any) {
			got = append(got, p.play(s.(map[string]any)))
		}
		expected, _ := c.At("expect").([]any)
		for i, want := range expected {
			if i < len(got) {
				got[i] = inForm(want, got[i])
			}
		}
		t.Equal(c.At("expect"), got)
	}, goldentest.Parallel())
}

type player struct {
	*goldentest.T
	client   sandboxv1.SandboxServiceClient
	sessions sandboxv1.SessionServiceClient
	sandbox  string
}

// play executes one step and returns its result in the recorded form.
func (p *player) play(step map[string]any) any {
	file, _ := step["file"].(string)
	switch step["do"] {
	case "exec":
		return p.exec(step)
	case "write":
		_, err := p.client.WriteFile(p.Context(), &sandboxv1.WriteFileRequest{Sandbox: p.sandbox, Path: file, Body: &sandboxv1.WriteFileRequest_Content{Content: p.content(step["contents"])}})
		return orError("ok", err)
	case "read":
		resp, err := p.client.ReadFile(p.Context(), &sandboxv1.ReadFileRequest{Sandbox: p.sandbox, Path: file})
		if step["text"] == false || step["binary"] == true {
			numbers := make([]int, len(resp.GetContent()))
			for i, b := range resp.GetContent() {
				numbers[i] = int(b)
			}
			return orError(map[string]any{"bytes": numbers}, err)
		}
		if err == nil && !utf8.Valid(resp.GetContent()) {
			return map[string]any{"error": "UnicodeDecodeError"}
		}
		return orError(map[string]any{"text": string(resp.GetContent())}, err)
	case "connection":
		_, err := p.sessions.OpenSession(p.Context(), &sandboxv1.OpenSessionRequest{Sandbox: p.sandbox, Session: &sandboxv1.Session{}})
		return orError("ok", err)
	case "named":
		name, _ := step["name"].(string)
		_, err := p.client.GetSandbox(p.Context(), &sandboxv1.GetSandboxRequest{Name: project + "/sandboxes/" + name})
		if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND) {
			return map[string]any{"error": "ValueError"}
		}
		return orError("ok", err)
	case "with":
		argv := []string{"test", "-r", file}
		if step["on_path"] == true {
			argv = []string{"bash", "-c", `type -P -- "$0"`, file}
		}
		resp, err := p.client.Exec(p.Context(), &sandboxv1.ExecRequest{Sandbox: p.sandbox, Spec: &sandboxv1.ExecSpec{Argv: argv}})
		require.NoError(p, err)
		if resp.GetResult().GetExitCode() == 0 {
			return "found"
		}
		return nil
	}
	p.Skipf("no driver for the step %q", step["do"])
	return nil
}

// content is a text, or bytes as their numbers.
func (p *player) content(recorded any) []byte {
	if text, ok := recorded.(string); ok {
		return []byte(text)
	}
	object, _ := recorded.(map[string]any)
	var data []byte
	for _, item := range list(object["bytes"]) {
		number, err := item.(json.Number).Int64()
		require.NoError(p, err)
		data = append(data, byte(number))
	}
	return data
}

// exec runs a command by its stream, which carries output of any size.
func (p *player) exec(step map[string]any) any {
	spec := &sandboxv1.ExecSpec{Env: map[string]string{}}
	for _, arg := range list(step["cmd"]) {
		spec.Argv = append(spec.Argv, arg.(string))
	}
	env, _ := step["env"].(map[string]any)
	for k, v := range env {
		spec.Env[k] = v.(string)
	}
	spec.Cwd, _ = step["cwd"].(string)
	spec.User, _ = step["user"].(string)
	if input, ok := step["input"].(string); ok {
		spec.Stdin = []byte(input)
	} else if step["input"] != nil {
		spec.Stdin = p.content(step["input"])
	}
	if n, ok := step["timeout"].(json.Number); ok {
		seconds, err := n.Float64()
		require.NoError(p, err)
		spec.Timeout = durationpb.New(time.Duration(seconds * float64(time.Second)))
	}
	stream, err := p.client.StreamExec(p.Context(), &sandboxv1.StreamExecRequest{Sandbox: p.sandbox, Spec: spec})
	require.NoError(p, err)
	var stdout, stderr strings.Builder
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			require.Fail(p, "the stream has no end")
		case err != nil:
			return orError(nil, err)
		case event.GetOutput().GetStream() == sandboxv1.ExecStream_EXEC_STREAM_STDOUT:
			stdout.Write(event.GetOutput().GetData())
		case event.GetOutput().GetStream() == sandboxv1.ExecStream_EXEC_STREAM_STDERR:
			stderr.Write(event.GetOutput().GetData())
		case event.GetEnded().GetTimedOut():
			return map[string]any{"error": "SandboxTimeoutError"}
		case event.GetEnded() != nil:
			code := event.GetEnded().GetExitCode()
			if signal := event.GetEnded().GetSignal(); signal > 0 {
				code = -signal // as this reference writes the end by a signal
			}
			return map[string]any{"success": code == 0, "returncode": code, "stdout": readable(stdout.String()), "stderr": readable(stderr.String())}
		}
	}
}

// readable writes output as the reference's callers read it: a byte that is no text is a replacement character.
func readable(output string) string { return string([]rune(output)) }

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// classes are the recorded names of errors.
var classes = map[errorsv1.ErrorReason]string{
	errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION:     "PermissionError",
	errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND:         "FileNotFoundError",
	errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY:         "IsADirectoryError",
	errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED: "SandboxUserUnsupportedError",
	errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT:           "OutputLimitExceededError",
}

func orError(result any, err error) any {
	switch {
	case err == nil:
		return result
	case rpcerr.Code(err) == codes.Unimplemented:
		return map[string]any{"error": "NotImplementedError"}
	case classes[rpcerr.Reason(err)] != "":
		return map[string]any{"error": classes[rpcerr.Reason(err)]}
	}
	return map[string]any{"error": err.Error()}
}

// inForm writes long output as the recorded result does: by its length and end.
func inForm(want, got any) any {
	w, ok1 := want.(map[string]any)
	g, ok2 := got.(map[string]any)
	if !ok1 || !ok2 {
		return got
	}
	for name, value := range w {
		form, ok := value.(map[string]any)
		text, isText := g[name].(string)
		if ends, hasEnds := form["ends"].(string); ok && isText && hasEnds {
			g[name] = map[string]any{"length": len(text), "ends": text[max(0, len(text)-len(ends)):]}
		}
	}
	return g
}
