package deploy_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
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
	Labels      map[string]string
	Networks    []string
	ExtraHosts  []string `yaml:"extra_hosts"`
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
			assert.Regexp(t, `^\$\{(SERVICE|SANDBOXD)_CPUS:-[12]\}$`, limits.CPUs, "docker refuses more CPUs than a machine has")
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
				assert.Contains(t, s.Labels["evalfleet.modelgw-config"], "MODELGW_CONFIG_HASH", "a changed file makes the container anew")
			}
		})
	}
}

// Only the gateway is published, and to this host alone; only modelgw can leave it, and knows the host's own model
// servers by name.
func TestComposeNetworks(t *testing.T) {
	t.Parallel()
	file := documents[composeFile](t, "../docker-compose.yaml")[0]
	for name, s := range file.Services {
		outside := slices.ContainsFunc(s.Networks, func(n string) bool { return !file.Networks[n].Internal })
		assert.Equal(t, name == "gateway" || name == "modelgw", outside, name)
		assert.Equal(t, name == "gateway", len(s.Ports) > 0, name)
		assert.Equal(t, name == "modelgw", slices.Contains(s.ExtraHosts, "host.docker.internal:host-gateway"), "%s names this machine", name)
		for _, port := range s.Ports {
			assert.True(t, strings.HasPrefix(port, "127.0.0.1:"), port)
		}
	}
}

// `make up` takes a key file of mode 600: the services get a copy that their user can read, where no other user of the
// machine can. The hash of the file is handed on, so that a changed one is noticed. When it fails, it shows what the
// services that are not healthy said. `make down` removes the copy once the containers, which read it, are removed.
func TestUpHandsTheKeysOver(t *testing.T) {
	t.Parallel()
	checkout, tools := t.TempDir(), t.TempDir()
	write(t, filepath.Join(tools, "docker"), 0o755, `#!/bin/sh
case "$*" in
"compose version") ;;
"compose up"*) echo "$MODELGW_CONFIG $MODELGW_CONFIG_HASH"; [ ! -e "$STUCK" ] ;;
"compose ps"*) echo "sandboxd healthy"; [ ! -e "$STUCK" ] || printf '%s\n' "modelgw starting" "toolexec " ;;
"compose logs"*) echo "$*" ;;
"compose down") [ ! -e "$STUCK" ] ;;
*) exit 1 ;;
esac`)
	script, err := os.ReadFile("../scripts/compose.sh")
	require.NoError(t, err)
	write(t, filepath.Join(checkout, "scripts/compose.sh"), 0o755, string(script))
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	stuck := filepath.Join(t.TempDir(), "stuck")
	compose := func(verb string) (string, error) {
		c := exec.CommandContext(t.Context(), filepath.Join(checkout, "scripts/compose.sh"), verb)
		c.Env = []string{"PATH=" + tools + ":/usr/bin:/bin", "MODELGW_CONFIG=" + keys, "STUCK=" + stuck}
		out, err := c.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	mode := func(file string) fs.FileMode {
		info, err := os.Stat(file)
		require.NoError(t, err)
		return info.Mode().Perm()
	}

	out, err := compose("up")
	require.Error(t, err)
	assert.Contains(t, out, "cannot read MODELGW_CONFIG="+keys)
	require.NoError(t, os.Mkdir(keys, 0o700))
	out, err = compose("up")
	require.Error(t, err)
	assert.Contains(t, out, "cannot read MODELGW_CONFIG="+keys, "a folder")
	require.NoError(t, os.Remove(keys))
	write(t, keys, 0o600, "one")
	out, err = compose("up")
	require.NoError(t, err, out)
	copied, first, _ := strings.Cut(out, " ")
	text, err := os.ReadFile(copied)
	require.NoError(t, err)
	assert.Equal(t, "one", string(text))
	assert.Equal(t, fs.FileMode(0o644), mode(copied), "user 65532 reads it")
	assert.Equal(t, fs.FileMode(0o700), mode(filepath.Dir(copied)), "no other user of the machine does")
	assert.Len(t, first, 64)

	write(t, keys, 0o600, "two")
	out, err = compose("up")
	require.NoError(t, err, out)
	assert.NotContains(t, out, first)
	assert.NotContains(t, out, "logs")

	write(t, stuck, 0o600, "")
	out, err = compose("up")
	require.Error(t, err)
	assert.Contains(t, out, "compose logs --tail 3 modelgw toolexec", "not of services that are healthy")
	_, err = compose("down")
	require.Error(t, err)
	assert.FileExists(t, copied, "containers that could not be removed still read it")
	require.NoError(t, os.Remove(stuck))
	out, err = compose("down")
	require.NoError(t, err, out)
	assert.NoFileExists(t, copied)
	assert.FileExists(t, keys)
	_, err = compose("down")
	require.NoError(t, err, "there is nothing to remove")

	write(t, filepath.Join(tools, "docker"), 0o755, "#!/bin/sh\nexit 125")
	out, err = compose("up")
	require.Error(t, err)
	assert.Contains(t, out, "docker-compose-plugin")
}

func write(t *testing.T, path string, mode fs.FileMode, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
}

// The example of modelgw's configuration is one that modelgw takes.
func TestTheExampleConfigurationIsTaken(t *testing.T) {
	t.Parallel()
	var cfg struct{ Modelgw modelgw.Config }
	require.NoError(t, config.Load(t.Context(), &cfg, "docker/modelgw.example.yaml", func(string) (string, bool) { return "", false }))
	assert.Equal(t, "sk-REPLACE-ME", cfg.Modelgw.OpenAI.APIKey.Reveal())
	assert.NotEmpty(t, cfg.Modelgw.Prices)
}
