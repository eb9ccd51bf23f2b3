// Command agentorch runs the service agentorch alone, for a fleet. It is set up by a YAML file, which -config or
// EVALFLEET_CONFIG names, and by the environment.
package main

import (
	"os"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/services/agentorch"
)

func main() {
	os.Exit(daemon.Main(daemon.Command{Args: os.Args[1:], Env: config.Env, Stderr: os.Stderr}, &configuration{}))
}

// configuration is the operator's configuration of the process.
type configuration struct {
	daemon.Config `yaml:",inline"`
	// Agentorch sets up the service.
	Agentorch agentorch.Config `yaml:"agentorch"`
}

// Validate returns an error for each missing setting.
func (c *configuration) Validate() error { return c.Alone(agentorch.Program(c.Agentorch)) }

// Process implements daemon.Configuration.
func (c *configuration) Process() (daemon.Config, daemon.Program) {
	return c.Config, agentorch.Program(c.Agentorch)
}
