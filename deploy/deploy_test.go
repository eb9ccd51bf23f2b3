// Package deploy_test checks the form of what installs the platform: that each service is there, bounded and
// unprivileged, and that addresses and network policies follow the call graph. Nothing is started.
package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// calls is who calls whom at run time; see ARCHITECTURE.md.
var calls = map[string][]string{
	"modelgw":   nil,
	"sandboxd":  nil,
	"toolexec":  {"modelgw", "sandboxd"},
	"agentorch": {"modelgw", "sandboxd", "toolexec"},
	"gateway":   {"agentorch", "modelgw", "sandboxd", "toolexec"},
}

func services() []string { return slices.Sorted(maps.Keys(calls)) }

// callers of a service, sorted.
func callers(service string) []string {
	var names []string
	for _, s := range services() {
		if slices.Contains(calls[s], service) {
			names = append(names, s)
		}
	}
	return names
}

// callees reads the services out of variables of the form EVALFLEET_<SERVICE>_ADDRESS.
func callees(t *testing.T, env map[string]string) []string {
	t.Helper()
	var names []string
	for name, value := range env {
		if service, ok := strings.CutSuffix(strings.TrimPrefix(name, "EVALFLEET_"), "_ADDRESS"); ok {
			service = strings.ToLower(service)
			assert.Equal(t, service+":7460", value, name)
			names = append(names, service)
		}
	}
	slices.Sort(names)
	return names
}

// documents decodes each document of a YAML file into a T.
func documents[T any](t *testing.T, path string) []T {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var docs []T
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc T
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs
		}
		require.NoError(t, err, path)
		docs = append(docs, doc)
	}
}

func TestEveryFileIsYAML(t *testing.T) {
	t.Parallel()
	files := []string{"../docker-compose.yaml"}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			files = append(files, path)
		}
		return err
	}))
	for _, file := range files {
		assert.NotEmpty(t, documents[any](t, file), file)
	}
}

// What the Dockerfile copies is there and not left out of the build's context.
func TestDockerfileCopiesWhatExists(t *testing.T) {
	t.Parallel()
	dockerfile, err := os.ReadFile("docker/Dockerfile")
	require.NoError(t, err)
	ignore, err := os.ReadFile("../.dockerignore")
	require.NoError(t, err)

	copied := regexp.MustCompile(`(?m)^COPY ([a-z].*) \S+$`).FindAllStringSubmatch(string(dockerfile), -1)
	require.NotEmpty(t, copied)
	for _, m := range copied {
		for path := range strings.FieldsSeq(m[1]) {
			assert.Contains(t, string(ignore), "\n!"+path+"\n")
			_, err := os.Stat(filepath.Join("..", path))
			assert.NoError(t, err)
		}
	}
}
