package docker

import (
	"cmp"
	"fmt"
)

// Pull policies.
const (
	PullNever   = "never"
	PullMissing = "missing"
	PullAlways  = "always"
)

// Config configures the docker driver.
type Config struct {
	// Host is the address of the Docker Engine, on this machine. Default unix:///var/run/docker.sock.
	Host string `yaml:"host" env:"DOCKER_HOST"`
	// Image is the image of sandboxes that name none. Default evalfleet/sandbox:latest, which `evalfleet sandbox image`
	// builds.
	Image string `yaml:"image" env:"EVALFLEET_SANDBOXD_DOCKER_IMAGE"`
	// Pull is when an image is pulled from its registry: never, missing (if the engine lacks it) or always (when this
	// process first uses it). Default never.
	Pull string `yaml:"pull" env:"EVALFLEET_SANDBOXD_DOCKER_PULL"`
	// Runtime is the OCI runtime of containers, such as runsc, by the engine's name for it. Default: the engine's
	// default.
	Runtime string `yaml:"runtime" env:"EVALFLEET_SANDBOXD_DOCKER_RUNTIME"`
}

// DefaultHost is the default address of the engine.
const DefaultHost = "unix:///var/run/docker.sock"

// DefaultImage is the default tag of the image that `evalfleet sandbox image` builds.
const DefaultImage = "evalfleet/sandbox:latest"

// SetDefaults sets the defaults of unset fields.
func (c *Config) SetDefaults() {
	c.Host = cmp.Or(c.Host, DefaultHost)
	c.Image = cmp.Or(c.Image, DefaultImage)
	c.Pull = cmp.Or(c.Pull, PullNever)
}

// Validate rejects an unknown policy. It does not check the host, because a process that makes no containers can do
// without: the first creation reports the fault.
func (c *Config) Validate() error {
	switch c.Pull {
	case "", PullNever, PullMissing, PullAlways:
	default:
		return fmt.Errorf("pull: unknown policy %q; known: %s, %s, %s", c.Pull, PullNever, PullMissing, PullAlways)
	}
	return nil
}
