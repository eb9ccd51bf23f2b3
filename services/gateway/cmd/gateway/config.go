package main

import (
	"errors"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/gateway"
)

// configuration is all that an operator sets of the process.
type configuration struct {
	// Token is the token that clients send. Default: the one in TokenFile.
	Token config.Secret `yaml:"token" env:"EVALFLEET_TOKEN"`
	// TokenFile holds the token; it is made where it is not there.
	TokenFile string `yaml:"token_file" env:"EVALFLEET_TOKEN_FILE"`
	// Peers are the addresses, host:port, of the services behind the gateway.
	Peers peers `yaml:"peers"`
	// Log sets how the process logs.
	Log telemetry.Config `yaml:"log"`
	// Gateway sets up the service.
	Gateway gateway.Config `yaml:"gateway"`
}

type peers struct {
	// Modelgw is where modelgw is.
	Modelgw string `yaml:"modelgw" env:"EVALFLEET_MODELGW_ADDRESS"`
	// Toolexec is where toolexec is.
	Toolexec string `yaml:"toolexec" env:"EVALFLEET_TOOLEXEC_ADDRESS"`
	// Sandboxd is where sandboxd is.
	Sandboxd string `yaml:"sandboxd" env:"EVALFLEET_SANDBOXD_ADDRESS"`
	// Agentorch is where agentorch is.
	Agentorch string `yaml:"agentorch" env:"EVALFLEET_AGENTORCH_ADDRESS"`
}

// Validate names what is missing.
func (c *configuration) Validate() error {
	var faults []error
	if c.Token.IsZero() && c.TokenFile == "" {
		faults = append(faults, errors.New("token_file (EVALFLEET_TOKEN_FILE) is missing, and token (EVALFLEET_TOKEN) too; give one of them"))
	}
	for _, peer := range []struct{ name, address string }{
		{"peers.modelgw (EVALFLEET_MODELGW_ADDRESS)", c.Peers.Modelgw},
		{"peers.toolexec (EVALFLEET_TOOLEXEC_ADDRESS)", c.Peers.Toolexec},
		{"peers.sandboxd (EVALFLEET_SANDBOXD_ADDRESS)", c.Peers.Sandboxd},
		{"peers.agentorch (EVALFLEET_AGENTORCH_ADDRESS)", c.Peers.Agentorch},
	} {
		if peer.address == "" {
			faults = append(faults, errors.New(peer.name+" is missing"))
		}
	}
	return errors.Join(faults...)
}

// token is the one that clients send.
func (c *configuration) token() (config.Secret, error) {
	if !c.Token.IsZero() {
		return c.Token, nil
	}
	return auth.TokenFile(c.TokenFile)
}

func load(file string, env func(string) (string, bool)) (configuration, error) {
	if named, ok := env("EVALFLEET_CONFIG"); ok && file == "" {
		file = named
	}
	var cfg configuration
	err := config.Load(&cfg, file, env)
	return cfg, err
}
