package configdoc_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config/configdoc"
	"github.com/evalfleet/evalfleet/pkg/config/configdoc/internal/example"
)

func dir(importPath string) string {
	return filepath.Join("..", "..", "..", strings.TrimPrefix(importPath, "github.com/evalfleet/evalfleet/"))
}

func TestPage(t *testing.T) {
	t.Parallel()
	page, err := configdoc.Page(example.Config{}, dir)
	require.NoError(t, err)
	assert.Equal(t, "\n"+strings.Join([]string{
		"| key | value | variable | meaning |",
		"| --- | --- | --- | --- |",
		"| `data_dir` | text | `X_DATA_DIR` | `data_dir` is a folder. Default: beside the program. |",
		"| `timeout` | duration |  | `timeout` bounds a call; it needs `data_dir` \\| nothing. |",
		"| `key` | secret | `X_KEY` | `key` is secret. |",
		"| `level` | text |  | `level` is how much to log. |",
		"| `max` | number |  | `max` is a bound; leave it out for none. |",
		"| `hosts` | list of texts |  | `hosts` are names. |",
		"| `weights` | map of numbers |  | `weights` are by name. |",
		"| `on` | true or false |  | `on` switches it. |",
		"",
		"## inner",
		"",
		"`inner` is a part.",
		"",
		"| key | value | variable | meaning |",
		"| --- | --- | --- | --- |",
		"| `name` | text |  | `name` is a name. |",
		"",
		"## accounts.NAME",
		"",
		"`accounts` are keys by name.",
		"",
		"| key | value | variable | meaning |",
		"| --- | --- | --- | --- |",
		"| `name` | text |  | `name` is a name. |",
		"",
	}, "\n"), page)
}

func TestAFieldWithoutACommentIsAFault(t *testing.T) {
	t.Parallel()
	_, err := configdoc.Page(example.Undocumented{}, dir)
	assert.EqualError(t, err, "configdoc: example.Undocumented.Field has no doc comment")
}
