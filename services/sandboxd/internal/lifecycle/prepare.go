package lifecycle

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/filebody"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

const (
	setupPath = "/tmp/.evalfleet-setup"
	// setupWords bounds what an error says of a set-up's output.
	setupWords = 4 << 10
)

// prepare places the files of a new sandbox and runs its set-up.
func prepare(ctx context.Context, c *client.Client, spec *sandboxv1.SandboxSpec) error {
	for _, f := range spec.GetFiles() {
		if err := c.WriteFile(ctx, f.GetPath(), f.GetMode(), filebody.Bytes(f)); err != nil {
			return rpcerr.Wrap(err, "place the file %s", f.GetPath())
		}
	}
	if spec.GetSetup() == "" {
		return nil
	}
	return setUp(ctx, c, spec)
}

// setUp runs the set-up script once. If it fails, the error has its output.
func setUp(ctx context.Context, c *client.Client, spec *sandboxv1.SandboxSpec) error {
	script := spec.GetSetup()
	if !strings.HasPrefix(script, "#!") {
		script = "#!/usr/bin/env bash\n" + script
	}
	if err := c.WriteFile(ctx, setupPath, 0o755, []byte(script)); err != nil {
		return rpcerr.Wrap(err, "place the set-up script")
	}
	var result *sandboxv1.ExecResult
	err := c.Once(ctx, func(api guestv1.GuestServiceClient) error {
		resp, err := api.Run(ctx, &guestv1.RunRequest{
			Spec:           &sandboxv1.ExecSpec{Argv: []string{setupPath}, Timeout: durationpb.New(spec.GetSetupTimeout().AsDuration())},
			MaxAnswerBytes: setupWords,
		})
		result = resp.GetResult()
		if err == nil {
			_, err = api.RemoveFile(ctx, &guestv1.RemoveFileRequest{Path: setupPath})
		}
		return err
	})
	switch {
	case err != nil:
		return rpcerr.Wrap(err, "run the set-up script")
	case result.GetTimedOut():
		return setupFailed("it did not end within "+spec.GetSetupTimeout().AsDuration().Round(time.Millisecond).String()+": ", result)
	case result.GetExitCode() != 0:
		return setupFailed(fmt.Sprintf("exit code %d: ", result.GetExitCode()), result)
	}
	return nil
}

func setupFailed(why string, r *sandboxv1.ExecResult) error {
	output := bytes.TrimSpace(append(append(r.GetStderr(), '\n'), r.GetStdout()...))
	if len(output) == 0 {
		output = []byte("it wrote nothing; set -x in it shows its steps")
	}
	return rpcerr.SandboxSetupFailed(int(r.GetExitCode()), r.GetTimedOut(), "the set-up script failed: %s%s", why, strings.ToValidUTF8(string(output), "\uFFFD"))
}
