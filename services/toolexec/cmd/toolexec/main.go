// Command toolexec runs the service toolexec alone, for a fleet. It is set up by a YAML file, which -config or
// EVALFLEET_CONFIG names, and by the environment.
package main

import (
	"os"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/services/toolexec"
)

func main() {
	os.Exit(daemon.Main(daemon.Command{Args: os.Args[1:], Env: config.Env, Stderr: os.Stderr}, &configuration{}))
}

// configuration is all that an operator sets of the process.
type configuration struct {
	daemon.Config `yaml:",inline"`
	// Toolexec sets up the service.
	Toolexec toolexec.Config `yaml:"toolexec"`
}

// Validate names what the process lacks.
func (c *configuration) Validate() error { return c.Alone(toolexec.Program(c.Toolexec)) }

// Process implements daemon.Configuration.
func (c *configuration) Process() (daemon.Config, daemon.Program) {
	return c.Config, toolexec.Program(c.Toolexec)
}
