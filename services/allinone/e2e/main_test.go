package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/programtest"
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

// build is the programs from `go build`, guestd beside evalfleet, built once in a test run.
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
		programs := []string{"./services/allinone/cmd/evalfleet", "./services/sandboxd/cmd/guestd"}
		for _, service := range five.services() {
			programs = append(programs, "./services/"+service+"/cmd/"+service)
		}
		b.dir, b.err = programtest.Build(b.tags, programs...)
	})
	require.NoError(t, b.err)
	return filepath.Join(b.dir, "evalfleet")
}

// repository is the root of the checkout.
const repository = "../../.."
