package config_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/config"
)

type inner struct {
	Size  int           `yaml:"size" env:"T_SIZE"`
	Wait  time.Duration `yaml:"wait" env:"T_WAIT"`
	Hosts []string      `yaml:"hosts" env:"T_HOSTS"`
	Key   config.Secret `yaml:"key" env:"T_KEY"`
}

func (c *inner) SetDefaults() {
	c.Size = cmp.Or(c.Size, 3)
	c.Wait = cmp.Or(c.Wait, time.Second)
}

func (c *inner) Validate() error {
	if c.Size < 0 {
		return errors.New("size: must not be negative")
	}
	return nil
}

type outer struct {
	Name  string `yaml:"name"`
	Inner inner  `yaml:"inner"`
}

func load(t *testing.T, file string, env map[string]string) (outer, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	var c outer
	err := config.Load(t.Context(), &c, path, func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	return c, err
}

func TestLaterLayersWin(t *testing.T) {
	t.Parallel()
	c, err := load(t, "name: n\ninner: {wait: 2s}", map[string]string{"T_HOSTS": "a, b", "T_KEY": "sk"})
	require.NoError(t, err)
	assert.Equal(t, "n", c.Name)
	assert.Equal(t, 3, c.Inner.Size)
	assert.Equal(t, 2*time.Second, c.Inner.Wait)
	assert.Equal(t, []string{"a", "b"}, c.Inner.Hosts)
	assert.Equal(t, "sk", c.Inner.Key.Reveal())
}

// byName are values by name, of which a variable T_<NAME> adds or replaces one.
type byName map[string]string

func (b *byName) ReadEnv(env config.Variables) {
	for _, name := range env.Names() {
		if short, ok := strings.CutPrefix(name, "T_NAMED_"); ok {
			if *b == nil {
				*b = byName{}
			}
			(*b)[short] = env.Get("T_FIRST_"+short, name)
		}
	}
}

// A type reads variables whose names it knows, as far as the caller of Load shows them.
func TestATypeReadsItsOwnVariables(t *testing.T) {
	for name, value := range map[string]string{"T_NAMED_a": "1", "T_NAMED_b": "2", "T_NAMED_hidden": "3", "T_FIRST_a": "", "T_FIRST_b": "4"} {
		t.Setenv(name, value)
	}
	var c struct {
		Within struct {
			Values byName `yaml:"values"`
		} `yaml:"within"`
	}
	require.NoError(t, config.Load(t.Context(), &c, "", func(name string) (string, bool) {
		if name == "T_NAMED_hidden" {
			return "", false
		}
		return config.Env(name)
	}))
	assert.Equal(t, byName{"a": "1", "b": "4"}, c.Within.Values)
}

func TestFaultsNameTheirPlace(t *testing.T) {
	t.Parallel()
	_, err := load(t, "inner: {sise: 2}", nil)
	assert.ErrorContains(t, err, "line 1: unknown key inner.sise; known here: size, wait, hosts, key")
	assert.NotContains(t, err.Error(), "config_test.", "a reader of the file knows no types of Go")
	_, err = load(t, "name: x\nnam: y\ninner:\n  sise: 2", nil)
	assert.ErrorContains(t, err, "line 2: unknown key nam; known here: name, inner\nline 4: unknown key inner.sise")
	_, err = load(t, "inner: {size: -2}", nil)
	assert.ErrorContains(t, err, "inner: size")
	_, err = load(t, "", map[string]string{"T_WAIT": "soon"})
	assert.ErrorContains(t, err, "T_WAIT")
	assert.ErrorContains(t, err, "soon")
	assert.Error(t, config.Load(t.Context(), new(outer), "/nowhere/c.yaml", config.Env))
}

// A value of another kind is named by its line and its key, with what belongs there, in the words of the file; what it
// is is not repeated, as it may be a secret in the wrong place.
func TestAValueOfTheWrongKindIsNamed(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"inner: {size: hunter2}":                 "line 1: inner.size must be an integer, not a text",
		"inner: {size: 1.5}":                     "line 1: inner.size must be an integer, not a number with a fraction",
		"inner: {size: 99999999999999999999}":    "line 1: inner.size must be an integer, not one that is too large",
		"inner: {size: 9223372036854775808}":     "line 1: inner.size must be an integer, not one that is too large",
		"inner: {size: -1e300}":                  "line 1: inner.size must be an integer, not one that is too large",
		"inner: {size: 9.223372036854775808e18}": "line 1: inner.size must be an integer, not one that is too large",
		"inner: {size: -.inf}":                   "line 1: inner.size must be an integer, not one that is too large",
		"inner:\n  wait: 30":                     "line 2: inner.wait must be a duration such as 30s or 5m, not an integer",
		"inner: {wait: hunter2}":                 "line 1: inner.wait must be a duration such as 30s or 5m, not another text",
		"inner: {key: [hunter2]}":                "line 1: inner.key must be a text, not a list",
		"inner: {key: {hunter2: x}}":             "line 1: inner.key must be a text, not a map",
		"inner: {hosts: hunter2}":                "line 1: inner.hosts must be a list, not a text",
		"inner: {hosts: [a, [hunter2]]}":         "line 1: inner.hosts[1] must be a text, not a list",
		"inner: hunter2":                         "line 1: inner must be a map, not a text",
		"- hunter2":                              "line 1: the configuration must be a map, not a list",
		"on: hunter2":                            "line 1: on must be true or false, not a text",
		"level: hunter2":                         "line 1: level must be debug, info, warn or error, not another text",
		"share: hunter2":                         "line 1: share must be a number, not a text",
		"named: {a: {size: hunter2}}":            "line 1: named.a.size must be an integer, not a text",
		"level: hunter2\ninner: {size: [1]}":     "line 2: inner.size must be an integer, not a list",
		"on: true\non: hunter2":                  "line 2: on is already set in line 1; keep one",
		"named:\n  a: {}\n  a: {}":               "line 3: named.a is already set in line 2; keep one",
	} {
		c := struct {
			Inner inner            `yaml:"inner"`
			On    bool             `yaml:"on"`
			Share float64          `yaml:"share"`
			Level slog.Level       `yaml:"level"`
			Named map[string]inner `yaml:"named"`
		}{}
		err := config.Decode(&c, []byte(file))
		require.ErrorContains(t, err, want, file)
		for _, other := range []string{"hunter2", "unmarshal", "config.", "!!"} {
			assert.NotContains(t, err.Error(), other, file)
		}
	}
	for _, file := range []string{"inner:", "inner: {size: , wait: ~}", "inner: &a {size: 1}\nname: x", "inner: {size: 3, wait: 1m30s, hosts: [a, 1], key: 12}", "base: ~\ninner: {<<: {size: 1}, size: 2}"} {
		c := struct {
			Outer outer  `yaml:",inline"`
			Base  *inner `yaml:"base"`
		}{}
		require.NoError(t, config.Decode(&c, []byte(file)), file)
	}
	var c struct {
		Level slog.Level `env:"T_LEVEL"`
	}
	err := config.Load(t.Context(), &c, "", func(string) (string, bool) { return "verbose", true })
	assert.EqualError(t, err, `T_LEVEL: "verbose" is none of debug, info, warn, error`)
}

func TestASecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := inner{Key: config.NewSecret("hunter2")}
	asJSON, err := json.Marshal(s)
	require.NoError(t, err)
	asYAML, err := yaml.Marshal(s)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v", s), fmt.Sprintf("%#v", s), s.Key.String(), string(asJSON), string(asYAML), s.Key.LogValue().String()} {
		assert.NotContains(t, text, "hunter2")
	}
}

func TestAConfigurationFileIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, long, bomb := filepath.Join(dir, "pipe"), filepath.Join(dir, "long"), filepath.Join(dir, "bomb")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.WriteFile(long, make([]byte, 1<<20+1), 0o600))
	require.NoError(t, os.WriteFile(bomb, []byte("inner: &a {<<: {<<: *a}}"), 0o600))
	for file, want := range map[string]string{
		pipe: "is a pipe", long: "is larger than 1048576 bytes", "/dev/zero": "is a device",
		bomb: "bomb: line 1: *a: the value contains itself",
	} {
		err := config.Load(t.Context(), &outer{}, file, func(string) (string, bool) { return "", false })
		assert.ErrorContains(t, err, want)
	}
}
