package main

import (
	"errors"
	"net"
	"path/filepath"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/sandboxd"
)

// configuration is all that an operator sets of the process.
type configuration struct {
	// Listen is the address to serve at. Default 127.0.0.1:7465. One that others can reach needs AllowRemote.
	Listen string `yaml:"listen" env:"EVALFLEET_LISTEN"`
	// AllowRemote lets Listen be an address that is not loopback.
	AllowRemote bool `yaml:"allow_remote" env:"EVALFLEET_ALLOW_REMOTE"`
	// DataDir is the folder of records and sandboxes. It must exist.
	DataDir string `yaml:"data_dir" env:"EVALFLEET_DATA_DIR"`
	// TokenFile holds the token that callers send; it is made where it is not there.
	TokenFile string `yaml:"token_file" env:"EVALFLEET_TOKEN_FILE"`
	// Log sets how the process logs.
	Log telemetry.Config `yaml:"log"`
	// Sandboxd sets up the service. Its folder is `sandboxes` in DataDir when it names none.
	Sandboxd sandboxd.Config `yaml:"sandboxd"`
}

// SetDefaults sets the default address.
func (c *configuration) SetDefaults() { c.Listen = "127.0.0.1:7465" }

// Validate names what is missing or not safe.
func (c *configuration) Validate() error {
	var faults []error
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		faults = append(faults, errors.New("listen: write host:port, such as 127.0.0.1:7465"))
	case !c.AllowRemote && host != "localhost" && !net.ParseIP(host).IsLoopback():
		faults = append(faults, errors.New("listen: "+c.Listen+" can be reached from outside; set allow_remote: true if that is meant"))
	}
	for _, required := range []struct{ name, value string }{
		{"data_dir (EVALFLEET_DATA_DIR)", c.DataDir},
		{"token_file (EVALFLEET_TOKEN_FILE)", c.TokenFile},
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
	if cfg.Sandboxd.Dir == "" {
		cfg.Sandboxd.Dir = filepath.Join(cfg.DataDir, "sandboxes")
	}
	return cfg, err
}
