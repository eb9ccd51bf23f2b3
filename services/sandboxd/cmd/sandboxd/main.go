// Command sandboxd runs the service sandboxd alone, for a fleet. It reads its configuration from a YAML file, which
// -config or EVALFLEET_CONFIG names, and from the environment.
package main

import (
	"os"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/services/sandboxd"
)

func main() {
	os.Exit(daemon.Main(daemon.Command{Args: os.Args[1:], Env: config.Env, Stderr: os.Stderr}, &configuration{}))
}

// configuration is the complete configuration of the process.
type configuration struct {
	daemon.Config `yaml:",inline"`
	// Sandboxd configures the service.
	Sandboxd sandboxd.Config `yaml:"sandboxd"`
}

// Validate returns an error that names the missing or invalid settings.
func (c *configuration) Validate() error { return c.Alone(sandboxd.Program(c.Sandboxd)) }

// Process implements daemon.Configuration.
func (c *configuration) Process() (daemon.Config, daemon.Program) {
	return c.Config, sandboxd.Program(c.Sandboxd)
}
