package taskfile_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/taskfile"
)

// docs/task-file.md names the keys that there are, at every level, and no others.
func TestTheDocumentationNamesEveryKey(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/task-file.md")
	require.NoError(t, err)
	sections := map[string]string{}
	for _, part := range strings.Split(string(b), "\n## ") {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] = text
	}
	for section, place := range map[string]string{"Keys": "?: 0", "Dataset": "dataset: {?: 0}", "Limits": "dataset: []\nlimits: {?: 0}", "Sandbox": "dataset: []\nsandbox: {?: 0}", "Model": "dataset: []\nmodel: {?: 0}"} {
		_, err := taskfile.Parse(t.Context(), "t.yaml", []byte(strings.ReplaceAll(place, "?", "zzzzzz")))
		require.Error(t, err, section)
		_, list, ok := strings.Cut(err.Error(), "known keys: ")
		require.True(t, ok, err.Error())
		known := strings.Split(strings.Split(list, "\n")[0], ", ")
		for _, key := range known {
			assert.Contains(t, sections[section], "`"+key+"`", "%s: the key %s is not documented", section, key)
		}
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_`, ]+)` \\|").FindAllStringSubmatch(sections[section], -1) {
			for _, key := range strings.Split(row[1], "`, `") {
				assert.Contains(t, known, key, "%s: the documented key %s is not known", section, key)
			}
		}
	}
}
