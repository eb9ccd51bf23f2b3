package main

import (
	"errors"
	"net"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// configuration is all that an operator sets of the process.
type configuration struct {
	// Listen is the address to serve at. Default 127.0.0.1:7463. One that others can reach needs AllowRemote.
	Listen string `yaml:"listen" env:"EVALFLEET_LISTEN"`
	// AllowRemote lets Listen be an address that is not loopback.
	AllowRemote bool `yaml:"allow_remote" env:"EVALFLEET_ALLOW_REMOTE"`
	// DataDir is the folder of the ledger of calls and of bodies. It must exist.
	DataDir string `yaml:"data_dir" env:"EVALFLEET_DATA_DIR"`
	// TokenFile holds the token that callers send; it is made where it is not there.
	TokenFile string `yaml:"token_file" env:"EVALFLEET_TOKEN_FILE"`
	// Log sets how the process logs.
	Log telemetry.Config `yaml:"log"`
	// Modelgw sets up the service.
	Modelgw modelgw.Config `yaml:"modelgw"`
}

// SetDefaults sets the default address.
func (c *configuration) SetDefaults() { c.Listen = "127.0.0.1:7463" }

// Validate names what is missing or not safe.
func (c *configuration) Validate() error {
	var faults []error
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		faults = append(faults, errors.New("listen: write host:port, such as 127.0.0.1:7463"))
	case !c.AllowRemote && host != "localhost" && !net.ParseIP(host).IsLoopback():
		faults = append(faults, errors.New("listen: "+c.Listen+" can be reached from outside; set allow_remote: true if that is meant"))
	}
	if c.DataDir == "" {
		faults = append(faults, errors.New("data_dir (EVALFLEET_DATA_DIR) is missing"))
	}
	if c.TokenFile == "" {
		faults = append(faults, errors.New("token_file (EVALFLEET_TOKEN_FILE) is missing"))
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
