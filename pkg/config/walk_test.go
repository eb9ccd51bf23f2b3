package config_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/config"
)

type credential struct {
	Key config.Secret `yaml:"key"`
	At  string        `yaml:"at"`
}

type walked struct {
	Inner struct {
		Size int           `yaml:"size"`
		Key  config.Secret `yaml:"key"`
	} `yaml:"inner"`
	Embedded `yaml:",inline"`
	Named    map[string]Embedded `yaml:"named"`
	Name     *string             `yaml:"name"`
	hidden   int
}

// Embedded has its keys among those of its struct.
type Embedded struct {
	Keys []credential `yaml:"keys"`
}

func TestDifferencesAreNamedByTheirKeys(t *testing.T) {
	t.Parallel()
	a, b := walked{hidden: 1}, walked{hidden: 2}
	assert.Empty(t, config.Differences(&a, &b))
	b.Inner.Key, b.Name = config.NewSecret("other"), new("n")
	b.Keys = []credential{{At: "x"}}
	b.Named = map[string]Embedded{"a": {}}
	assert.Equal(t, []string{"inner.key", "keys", "named", "name"}, config.Differences(&a, &b))
	assert.Equal(t, []string{"inner.key", "keys", "named", "name"}, config.Differences(&b, &a))
	c := b
	c.Name = new("n")
	assert.Empty(t, config.Differences(&b, &c), "equal values at other places are equal")
}

func TestAllFindsValuesWhereverTheyAre(t *testing.T) {
	t.Parallel()
	c := walked{Embedded: Embedded{Keys: []credential{{At: "own"}}}, Named: map[string]Embedded{"b": {Keys: []credential{{At: "b0"}, {At: "b1"}}}, "a": {}}}
	found := maps.Collect(config.All[credential](&c))
	paths := slices.Sorted(maps.Keys(found))
	assert.Equal(t, []string{"keys[0]", "named.b.keys[0]", "named.b.keys[1]"}, paths)
	assert.Equal(t, "b1", found["named.b.keys[1]"].At)
}
