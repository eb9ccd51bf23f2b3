package lifecycle_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

func TestSandboxesThatCouldNotBeMadeAreLoggedSeldom(t *testing.T) {
	bubble(t, func(h *house) {
		refused := func(ctx context.Context, spec *sandboxv1.SandboxSpec) {
			_, err := h.boxes.Create(ctx, lifecycle.Creation{Project: "p", Spec: spec})
			require.Error(t, err)
		}
		h.lack = "no room on the disk"
		refused(h.Context(), lease(time.Minute))
		assert.Empty(t, h.log.String(), "want of room passes")
		h.lack = ""

		h.driver.absent = func() error {
			return rpcerr.ImageUnavailable("nothing:latest", "paper", "there is no image nothing:latest")
		}
		for range 100 {
			refused(h.Context(), lease(time.Minute))
		}
		assert.Equal(t, 1, strings.Count(h.log.String(), "\n"), h.log.String())
		for _, word := range []string{`msg="a sandbox could not be made"`, "driver=paper", "refused=1 ", "there is no image nothing:latest"} {
			assert.Contains(t, h.log.String(), word)
		}
		time.Sleep(11 * time.Second)
		h.driver.absent = nil
		h.driver.run = func(string) *sandboxv1.ExecResult {
			return &sandboxv1.ExecResult{ExitCode: new(int32(3)), Stderr: []byte("the password is x")}
		}
		refused(h.Context(), &sandboxv1.SandboxSpec{Setup: "exit 3"})
		assert.Contains(t, h.log.String(), "reason=SANDBOX_SETUP_FAILED refused=100")
		assert.NotContains(t, h.log.String(), "password")
	})
}
