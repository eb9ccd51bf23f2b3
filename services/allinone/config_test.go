package allinone_test

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/config/configdoc"
	"github.com/evalfleet/evalfleet/services/allinone"
)

var update = flag.Bool("update", false, "write docs/config.md")

const reference = "../../docs/config.md"

const head = `# Configuration

<!-- Written from the configuration structs; after a change run: go test ./services/allinone -run TestReference -update -->

` + "`evalfleet serve --config FILE`" + ` (or the variable ` + "`EVALFLEET_CONFIG`" + `) reads a YAML file with these keys; a key that is not known is an error. Then come the variables below, then flags. Without any of them
everything works on one machine. Durations are written like ` + "`30s`" + ` or ` + "`5m`" + `.

` + "`--model-cost-config FILE`" + ` reads prices alone, YAML or JSON, into a server that a command starts: an object of models with the keys of modelgw.prices below, which it replaces for these models. The
prices that are built in, with their source and date, are in services/modelgw/internal/modeldata/models.yaml; ` + "`evalfleet models MODEL`" + ` shows which hold.

The keys at the top:
`

// The reference page is generated from the structs.
func TestReferenceIsCurrent(t *testing.T) {
	t.Parallel()
	page, err := configdoc.Page(allinone.Config{}, func(importPath string) string {
		return filepath.Join("..", "..", strings.TrimPrefix(importPath, "github.com/evalfleet/evalfleet/"))
	})
	require.NoError(t, err)
	want := head + page
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(want), 0o644))
	}
	got, err := os.ReadFile(reference)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "run: go test ./services/allinone -run TestReference -update")
}

func load(t *testing.T, file string, env map[string]string) (allinone.Config, error) {
	t.Helper()
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	}
	var cfg allinone.Config
	err := config.Load(t.Context(), &cfg, path, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	return cfg, err
}

func TestConfigWorksWithoutAnything(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "", nil)
	require.NoError(t, err)
	assert.NoError(t, cfg.Validate())
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file string
		env  map[string]string
		want string
	}{
		"unknown key":    {file: "gateway: {listn: x}", want: "listn"},
		"unknown target": {file: "target: modelgate", want: `target: unknown service "modelgate"; known: modelgw, toolexec, sandboxd, agentorch, gateway`},
		"a peer missing": {env: map[string]string{"EVALFLEET_TARGET": "toolexec"}, want: "peers.sandboxd: toolexec calls it; set its address, or EVALFLEET_SANDBOXD_ADDRESS"},
		"open to all":    {env: map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:7460"}, want: "listen: 0.0.0.0:7460 can be reached from outside"},
	} {
		_, err := load(t, tt.file, tt.env)
		assert.ErrorContains(t, err, tt.want, name)
	}
}

// The program prints neither variables nor secrets of its configuration.
func TestTheTokenIsASecret(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "", map[string]string{"EVALFLEET_TOKEN": "hush"})
	require.NoError(t, err)
	assert.Equal(t, "hush", cfg.Token.Reveal())
	assert.Equal(t, "*****", cfg.Token.String())
}

// Every struct of the configuration sets defaults for zero values only, so that set values stay and a second call
// changes nothing.
func TestDefaultsFillWhatIsZero(t *testing.T) {
	t.Parallel()
	var once, twice, full, kept allinone.Config
	config.SetDefaults(&once)
	config.SetDefaults(&twice)
	config.SetDefaults(&twice)
	assert.Equal(t, once, twice)
	assert.NotEqual(t, allinone.Config{}, once)

	set(reflect.ValueOf(&full).Elem())
	set(reflect.ValueOf(&kept).Elem())
	config.SetDefaults(&kept)
	assert.Equal(t, full, kept)
}

// set sets every number and text that a configuration has.
func set(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				set(v.Field(i))
			}
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.String:
		v.SetString("set")
	default: // Lists, maps and switches have no defaults.
	}
}

// A fault is named once, with its whole path.
func TestAFaultOfANestedConfigIsNamedOnce(t *testing.T) {
	t.Parallel()
	_, err := load(t, "agentorch: {retention: {runs: -1s}, workers: {absence: -1s}, eval: {max_samples: -1}}\ntoolexec: {workers: {silence: -1s}}\nsandboxd: {max_sandboxes: -1}", nil)
	for _, fault := range []string{"agentorch.retention: runs:", "agentorch.workers: ", "agentorch.eval: max_samples:", "toolexec.workers: ", "sandboxd: max_sandboxes:"} {
		assert.ErrorContains(t, err, fault)
	}
	assert.Equal(t, 5, strings.Count(err.Error(), "must not be negative"), err)
}
