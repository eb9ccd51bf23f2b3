package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type composeFile struct {
	Services map[string]composeService
	Networks map[string]struct{ Internal bool }
	Volumes  map[string]any
	Secrets  map[string]any
}

type composeService struct {
	Image       string
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	SecurityOpt []string `yaml:"security_opt"`
	Environment map[string]string
	Secrets     []string
	Networks    []string
	Ports       []string
	Volumes     []string
	Healthcheck struct{ Test []string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Build       struct {
		Dockerfile, Target string
		Args               map[string]string
	}
	Deploy struct {
		Resources struct {
			Limits struct {
				CPUs, Memory string
				Pids         int
			}
		}
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	files := documents[composeFile](t, "../docker-compose.yaml")
	require.Len(t, files, 1)
	file := files[0]
	require.Len(t, file.Services, len(calls))

	for name, s := range file.Services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, name, s.Build.Args["SERVICE"])
			assert.Equal(t, "deploy/docker/Dockerfile", s.Build.Dockerfile)
			assert.True(t, strings.HasPrefix(s.Image, "evalfleet/"+name+":"), s.Image)

			assert.True(t, s.ReadOnly, "the root file system is read-only")
			assert.Equal(t, []string{"ALL"}, s.CapDrop)
			if name == "sandboxd" {
				assert.Equal(t, "sandboxd", s.Build.Target)
				assert.NotContains(t, s.CapAdd, "ALL")
			} else {
				assert.Equal(t, "service", s.Build.Target, "the image that runs as a user of its own")
				assert.Empty(t, s.User)
				assert.Empty(t, s.CapAdd)
				assert.Contains(t, s.SecurityOpt, "no-new-privileges:true")
			}
			assert.Equal(t, []string{"CMD", "/usr/local/bin/probe", "127.0.0.1:7460"}, s.Healthcheck.Test)
			limits := s.Deploy.Resources.Limits
			assert.NotEmpty(t, limits.CPUs)
			assert.NotEmpty(t, limits.Memory)
			assert.Positive(t, limits.Pids)

			assert.Equal(t, calls[name], callees(t, s.Environment))
			for dependency, d := range s.DependsOn {
				assert.Contains(t, file.Services, dependency)
				assert.Equal(t, "service_healthy", d.Condition)
			}
			for _, v := range s.Volumes {
				volume, _, _ := strings.Cut(v, ":")
				assert.Contains(t, file.Volumes, volume, "data is in named volumes")
			}
			for _, secret := range s.Secrets {
				assert.Contains(t, file.Secrets, secret)
			}
		})
	}
}

// Only the gateway is published, and to this host alone; only modelgw can leave it.
func TestComposeNetworks(t *testing.T) {
	t.Parallel()
	file := documents[composeFile](t, "../docker-compose.yaml")[0]
	for name, s := range file.Services {
		outside := slices.ContainsFunc(s.Networks, func(n string) bool { return !file.Networks[n].Internal })
		assert.Equal(t, name == "gateway" || name == "modelgw", outside, name)
		assert.Equal(t, name == "gateway", len(s.Ports) > 0, name)
		for _, port := range s.Ports {
			assert.True(t, strings.HasPrefix(port, "127.0.0.1:"), port)
		}
	}
}
