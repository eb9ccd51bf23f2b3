package allinone

import (
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/services/agentorch"
	"github.com/evalfleet/evalfleet/services/gateway"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/sandboxd"
	"github.com/evalfleet/evalfleet/services/toolexec"
)

// Targets are the services that a process can run alone.
var Targets = []string{"modelgw", "toolexec", "sandboxd", "agentorch", "gateway"}

// Config is all that an operator sets of a process.
type Config struct {
	daemon.Config `yaml:",inline"`
	// Target is the service to run alone: modelgw, toolexec, sandboxd, agentorch or gateway. Default: all of them. The
	// others are then called at the addresses under peers.
	Target string `yaml:"target" env:"EVALFLEET_TARGET"`
	// Gateway sets whom the gateway serves.
	Gateway gateway.Config `yaml:"gateway"`
	// Modelgw sets up the model gateway: accounts, budgets, cache.
	Modelgw modelgw.Config `yaml:"modelgw"`
	// Toolexec sets up the tools.
	Toolexec toolexec.Config `yaml:"toolexec"`
	// Sandboxd sets up the sandboxes.
	Sandboxd sandboxd.Config `yaml:"sandboxd"`
	// Agentorch sets up runs and evaluations.
	Agentorch agentorch.Config `yaml:"agentorch"`
}

// Validate refuses a target that is none, and one whose peers have no address.
func (c *Config) Validate() error {
	if c.Target == "" {
		return nil
	}
	program, ok := c.Program(c.Target)
	if !ok {
		return fmt.Errorf("target: unknown service %q; known: %s", c.Target, strings.Join(Targets, ", "))
	}
	return c.RequirePeers(program)
}

// Program returns a service as it is configured, by its name.
func (c *Config) Program(name string) (daemon.Program, bool) {
	for _, program := range c.programs() {
		if program.Name == name {
			return program, true
		}
	}
	return daemon.Program{}, false
}

// Reloads are the keys that a process takes while it runs, with all below them.
func (c *Config) Reloads() []string { return daemon.Takes(c.programs()...) }

// programs are the services, callees first.
func (c *Config) programs() []daemon.Program {
	return []daemon.Program{
		modelgw.Program(c.Modelgw), sandboxd.Program(c.Sandboxd), toolexec.Program(c.Toolexec), agentorch.Program(c.Agentorch), gateway.Program(c.Gateway),
	}
}
