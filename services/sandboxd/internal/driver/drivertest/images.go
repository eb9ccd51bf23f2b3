package drivertest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// Dockerfile is the source of Harness.Image, over an image with bash and core utilities: all settings that an image may
// have, and a program that ends at once when it is started.
const Dockerfile = `
ENV COLOUR=blue PATH=/opt/tools:/usr/local/bin:/usr/bin:/bin
USER 4321:tty
WORKDIR /srv/work
ENTRYPOINT ["false"]
CMD ["--no-such-flag"]
HEALTHCHECK --interval=1s CMD touch /tmp/healthy
LABEL a=image
`

// images: which settings of its boxes an image decides, and which not.
func images(t *testing.T, h Harness) {
	if h.Image == "" {
		return
	}
	d := h.New(t, t.TempDir())
	t.Run("decide user, folder and environment", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Image, s.Labels = h.Image, map[string]string{"a": "box"} })
		assert.Equal(t, "/srv/work", b.report.Workdir)
		assert.Equal(t, "4321 5\n/srv/work\nblue\n", b.sh("echo $(id -u) $(id -g); pwd; echo $COLOUR"))
		assert.Equal(t, "/opt/tools:/usr/local/bin:/usr/bin:/bin\n", b.sh("echo $PATH"))
		assert.Equal(t, b.report.GuestPath, b.sh("tr '\\0' '\\n' < /proc/1/cmdline | head -1 | tr -d '\\n'"), "nothing of the image was started")
		list, err := d.List(t.Context(), owner)
		require.NoError(t, err)
		for _, o := range list {
			if o.ID == b.spec.ID {
				assert.Equal(t, map[string]string{"a": "box"}, o.Labels)
			}
		}
		b.fails("test -e /tmp/healthy")
	})
	t.Run("give way to what is asked for", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Image, s.User, s.Workdir = h.Image, "nobody", "/srv/deeper/work" })
		assert.Equal(t, "65534\n/srv/deeper/work\n65534\n", b.sh("id -u; pwd; stat -c %%u ."))
		b.sh("touch mine")
		r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "echo $COLOUR"}, Env: map[string]string{"COLOUR": "red"}})
		require.NoError(t, err)
		assert.Equal(t, "red\n", string(r.GetStdout()))
	})
	t.Run("a user that an image lacks is named", func(t *testing.T) {
		t.Parallel()
		spec := driver.Spec{ID: "no-user", Owner: owner, Image: h.Image, User: "no-such-user", Limits: small}
		t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), spec.ID)) })
		report, err := d.Create(t.Context(), spec)
		require.NoError(t, err)
		b := &box{T: t, driver: d, spec: spec, report: report}
		err = b.connect("").Once(t.Context(), func(guestv1.GuestServiceClient) error { return nil })
		require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
		require.ErrorContains(t, err, "no-such-user")
	})
}
