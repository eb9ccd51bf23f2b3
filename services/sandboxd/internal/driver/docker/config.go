package docker

import (
	"cmp"
	"fmt"
)

// Policies of fetching images.
const (
	PullNever   = "never"
	PullMissing = "missing"
	PullAlways  = "always"
)

// Config sets the docker driver up.
type Config struct {
	// Host is where the Docker Engine listens, on this machine. Default unix:///var/run/docker.sock.
	Host string `yaml:"host" env:"DOCKER_HOST"`
	// Image is what sandboxes are made from that name no image. Default evalfleet/sandbox:latest, which `evalfleet
	// sandbox image` builds.
	Image string `yaml:"image" env:"EVALFLEET_SANDBOXD_DOCKER_IMAGE"`
	// Pull says when an image is fetched from its registry: never, missing (when the engine lacks it) or always (when
	// this process first uses it). Default never.
	Pull string `yaml:"pull" env:"EVALFLEET_SANDBOXD_DOCKER_PULL"`
	// Runtime is the OCI runtime of containers, such as runsc, by the name that the engine knows. Default: the
	// engine's.
	Runtime string `yaml:"runtime" env:"EVALFLEET_SANDBOXD_DOCKER_RUNTIME"`
}

// DefaultHost is where an engine listens when nothing else is said.
const DefaultHost = "unix:///var/run/docker.sock"

// DefaultImage is the image that `evalfleet sandbox image` builds when nothing else is said.
const DefaultImage = "evalfleet/sandbox:latest"

// SetDefaults fills in what is not set.
func (c *Config) SetDefaults() {
	c.Host = cmp.Or(c.Host, DefaultHost)
	c.Image = cmp.Or(c.Image, DefaultImage)
	c.Pull = cmp.Or(c.Pull, PullNever)
}

// Validate refuses an unknown policy. A host that cannot be used is no fault of a process that makes no containers: the
// first one to be made says so.
func (c *Config) Validate() error {
	switch c.Pull {
	case "", PullNever, PullMissing, PullAlways:
	default:
		return fmt.Errorf("pull: unknown policy %q; known: %s, %s, %s", c.Pull, PullNever, PullMissing, PullAlways)
	}
	return nil
}
