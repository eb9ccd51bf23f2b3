// Command modelgw runs the service modelgw alone, for a fleet. It is set up by a YAML file, which -config or
// EVALFLEET_CONFIG names, and by the environment.
package main

import (
	"os"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

func main() {
	os.Exit(daemon.Main(daemon.Command{Args: os.Args[1:], Env: config.Env, Stderr: os.Stderr}, &configuration{}))
}

// configuration is all that an operator sets of the process.
type configuration struct {
	daemon.Config `yaml:",inline"`
	// Modelgw sets up the service.
	Modelgw modelgw.Config `yaml:"modelgw"`
}

// Validate returns the missing settings of the process.
func (c *configuration) Validate() error { return c.Alone(modelgw.Program(c.Modelgw)) }

// Process implements daemon.Configuration.
func (c *configuration) Process() (daemon.Config, daemon.Program) {
	return c.Config, modelgw.Program(c.Modelgw)
}
