package allinone

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/agentorch"
	"github.com/evalfleet/evalfleet/services/gateway"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/sandboxd"
	"github.com/evalfleet/evalfleet/services/toolexec"
)

// Targets are the services that a process can be told to run alone.
var Targets = []string{"modelgw", "toolexec", "sandboxd", "agentorch", "gateway"}

// Config is all that an operator sets of a process.
type Config struct {
	// DataDir is the folder of all data: database, bodies, sandboxes, token, lock. Default $XDG_DATA_HOME/evalfleet, or ~/.local/share/evalfleet.
	DataDir string `yaml:"data_dir" env:"EVALFLEET_DATA_DIR"`
	// Token is the admin token that clients send. Default: the one in TokenFile.
	Token config.Secret `yaml:"token" env:"EVALFLEET_TOKEN"`
	// TokenFile holds the admin token; it is made where it is not there. Default: token in DataDir. Services in processes of their own share one.
	TokenFile string `yaml:"token_file" env:"EVALFLEET_TOKEN_FILE"`
	// Target is the service to run alone: modelgw, toolexec, sandboxd, agentorch or gateway. Default: all of them. The others are then called at the addresses under peers.
	Target string `yaml:"target" env:"EVALFLEET_TARGET"`
	// Peers are the addresses of the services that run elsewhere.
	Peers Peers `yaml:"peers"`
	// Log sets how the process logs.
	Log telemetry.Config `yaml:"log"`
	// Gateway sets where the process listens. With a target it is where that service listens.
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

// Peers are addresses, host:port, of services in other processes.
type Peers struct {
	// Modelgw is where modelgw is. toolexec, agentorch and gateway call it.
	Modelgw string `yaml:"modelgw" env:"EVALFLEET_MODELGW_ADDRESS"`
	// Toolexec is where toolexec is. agentorch and gateway call it.
	Toolexec string `yaml:"toolexec" env:"EVALFLEET_TOOLEXEC_ADDRESS"`
	// Sandboxd is where sandboxd is. toolexec, agentorch and gateway call it.
	Sandboxd string `yaml:"sandboxd" env:"EVALFLEET_SANDBOXD_ADDRESS"`
	// Agentorch is where agentorch is. gateway calls it.
	Agentorch string `yaml:"agentorch" env:"EVALFLEET_AGENTORCH_ADDRESS"`
}

// calls is who calls whom.
var calls = map[string][]string{
	"toolexec":  {"sandboxd"},
	"agentorch": {"modelgw", "toolexec", "sandboxd"},
	"gateway":   {"modelgw", "toolexec", "sandboxd", "agentorch"},
}

// address returns where a peer is.
func (p Peers) address(name string) string {
	return map[string]string{"modelgw": p.Modelgw, "toolexec": p.Toolexec, "sandboxd": p.Sandboxd, "agentorch": p.Agentorch}[name]
}

// Validate refuses a target that is none, and one whose peers have no address.
func (c *Config) Validate() error {
	if c.Target == "" {
		return nil
	}
	if !slices.Contains(Targets, c.Target) {
		return fmt.Errorf("target: unknown service %q; known: %s", c.Target, strings.Join(Targets, ", "))
	}
	var faults []error
	for _, peer := range calls[c.Target] {
		if c.Peers.address(peer) == "" {
			faults = append(faults, fmt.Errorf("peers.%s: %s calls it; set its address, or EVALFLEET_%s_ADDRESS", peer, c.Target, strings.ToUpper(peer)))
		}
	}
	return errors.Join(faults...)
}

// runs reports whether the process has that service.
func (c *Config) runs(name string) bool { return c.Target == "" || c.Target == name }
