package cli_test

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/allinone/internal/cli"
)

// A signal goes to the part of a command that waits for one; if none does, the process ends.
func TestASignalThatNoPartTakesEndsTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals, ended := make(chan os.Signal, 4), make(chan os.Signal, 4)
		defer close(signals)
		taken := cli.HandOver(signals, func(s os.Signal) { ended <- s })
		signals <- syscall.SIGTERM
		assert.Equal(t, syscall.SIGTERM, <-taken)
		assert.Empty(t, ended)
		signals <- syscall.SIGINT
		assert.Equal(t, syscall.SIGINT, <-ended)
	})
}
