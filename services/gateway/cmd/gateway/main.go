// Command gateway runs the gateway alone, in front of a fleet. It is set up by a YAML file, which -config or
// EVALFLEET_CONFIG names, and by the environment.
package main

import (
	"os"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/services/gateway"
)

func main() {
	os.Exit(daemon.Main(daemon.Command{Args: os.Args[1:], Env: config.Env, Stderr: os.Stderr}, &configuration{}))
}

// configuration is the complete configuration of the process.
type configuration struct {
	daemon.Config `yaml:",inline"`
	// Gateway configures the service.
	Gateway gateway.Config `yaml:"gateway"`
}

// Validate returns an error that names the missing or invalid settings.
func (c *configuration) Validate() error { return c.Alone(gateway.Program(c.Gateway)) }

// Process implements daemon.Configuration.
func (c *configuration) Process() (daemon.Config, daemon.Program) {
	return c.Config, gateway.Program(c.Gateway)
}
