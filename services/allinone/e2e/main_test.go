package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	err := docker.stop()
	for _, b := range []*build{&shipped, &breakable} {
		if b.dir != "" {
			_ = os.RemoveAll(b.dir)
		}
	}
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// build is the programs as `go build` makes them, guestd beside evalfleet, once in a test run.
type build struct {
	tags string

	once sync.Once
	dir  string
	err  error
}

var (
	// shipped is the program without failpoints. TestOneFileIsEnough builds it as users do, with guestd within it.
	shipped build
	// breakable ends itself at the places that EVALFLEET_FAILPOINT names.
	breakable = build{tags: "failpoint"}
)

// program returns the path of `evalfleet`, with `guestd` and the services' own binaries beside it.
func (b *build) program(t *testing.T) string {
	t.Helper()
	b.once.Do(func() {
		b.dir, b.err = os.MkdirTemp("", "evalfleet-bin-") //nolint:usetesting // it outlives the test that comes first
		if b.err != nil {
			return
		}
		// Not bound to the test that happens to come first: the others need the programs too.
		programs := []string{"build", "-tags", b.tags, "-o", b.dir + "/", "./services/allinone/cmd/evalfleet", "./services/sandboxd/cmd/guestd"}
		for _, service := range five.services() {
			programs = append(programs, "./services/"+service+"/cmd/"+service)
		}
		c := exec.Command("go", programs...)
		c.Dir = repository
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := c.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	require.NoError(t, b.err)
	return filepath.Join(b.dir, "evalfleet")
}

// repository is the root of the checkout.
const repository = "../../.."
