package main

import (
	"errors"
	"net"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/agentorch"
)

// configuration is all that an operator sets of the process.
type configuration struct {
	// Listen is the address to serve at. Default 127.0.0.1:7462. One that others can reach needs AllowRemote.
	Listen string `yaml:"listen" env:"EVALFLEET_LISTEN"`
	// AllowRemote lets Listen be an address that is not loopback.
	AllowRemote bool `yaml:"allow_remote" env:"EVALFLEET_ALLOW_REMOTE"`
	// DataDir is the folder of journals and datasets. It must exist.
	DataDir string `yaml:"data_dir" env:"EVALFLEET_DATA_DIR"`
	// Replica is the name under which this process owns runs; it stays the same over restarts. Default `agentorch`.
	Replica string `yaml:"replica" env:"EVALFLEET_REPLICA"`
	// TokenFile holds the token that callers send and that is sent to other services; it is made where it is not there.
	TokenFile string `yaml:"token_file" env:"EVALFLEET_TOKEN_FILE"`
	// Modelgw is the address of the service modelgw.
	Modelgw string `yaml:"modelgw_address" env:"EVALFLEET_MODELGW_ADDRESS"`
	// Toolexec is the address of the service toolexec.
	Toolexec string `yaml:"toolexec_address" env:"EVALFLEET_TOOLEXEC_ADDRESS"`
	// Sandboxd is the address of the service sandboxd.
	Sandboxd string `yaml:"sandboxd_address" env:"EVALFLEET_SANDBOXD_ADDRESS"`
	// Log sets how the process logs.
	Log telemetry.Config `yaml:"log"`
	// Agentorch sets up the service.
	Agentorch agentorch.Config `yaml:"agentorch"`
}

// SetDefaults sets the default address and name.
func (c *configuration) SetDefaults() { c.Listen, c.Replica = "127.0.0.1:7462", "agentorch" }

// Validate names what is missing or not safe.
func (c *configuration) Validate() error {
	var faults []error
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		faults = append(faults, errors.New("listen: write host:port, such as 127.0.0.1:7462"))
	case !c.AllowRemote && host != "localhost" && !net.ParseIP(host).IsLoopback():
		faults = append(faults, errors.New("listen: "+c.Listen+" can be reached from outside; set allow_remote: true if that is meant"))
	}
	for _, required := range []struct{ name, value string }{
		{"data_dir (EVALFLEET_DATA_DIR)", c.DataDir},
		{"token_file (EVALFLEET_TOKEN_FILE)", c.TokenFile},
		{"modelgw_address (EVALFLEET_MODELGW_ADDRESS)", c.Modelgw},
		{"toolexec_address (EVALFLEET_TOOLEXEC_ADDRESS)", c.Toolexec},
		{"sandboxd_address (EVALFLEET_SANDBOXD_ADDRESS)", c.Sandboxd},
	} {
		if required.value == "" {
			faults = append(faults, errors.New(required.name+" is missing"))
		}
	}
	return errors.Join(faults...)
}

func load(file string, env func(string) (string, bool)) (configuration, error) {
	if named, ok := env("EVALFLEET_CONFIG"); ok && file == "" {
		file = named
	}
	var cfg configuration
	err := config.Load(&cfg, file, env)
	return cfg, err
}
