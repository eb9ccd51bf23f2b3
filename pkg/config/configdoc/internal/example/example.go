// Package example is a configuration with a field of every kind, for the tests of configdoc.
package example

import (
	"log/slog"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// Config is an example.
type Config struct {
	// DataDir is a folder. Default: beside
	// the program.
	DataDir string `yaml:"data_dir" env:"X_DATA_DIR"`
	// Timeout bounds a call; it needs DataDir | nothing.
	Timeout time.Duration `yaml:"timeout"`
	// Key is secret.
	Key   config.Secret `yaml:"key" env:"X_KEY"`
	Level slog.Level    // Level is how much to log.
	// Max is a bound; leave it out for none.
	Max *int64 `yaml:"max"`
	// Hosts are names.
	Hosts []string `yaml:"hosts"`
	// Weights are by name.
	Weights map[string]float64 `yaml:"weights"`
	// Hidden is not read from a file.
	Hidden bool `yaml:"-"`
	Shared `yaml:",inline"`
	// Inner is a part.
	Inner Inner `yaml:"inner"`
	// Accounts are keys by name.
	Accounts map[string]Inner `yaml:"accounts"`

	private int
}

// Shared is a part whose keys stand beside the others.
type Shared struct {
	// On switches it.
	On bool `yaml:"on"`
}

// Inner is a part.
type Inner struct {
	// Name is a name.
	Name string `yaml:"name"`
}

// Undocumented lacks a comment.
type Undocumented struct {
	Field int `yaml:"field"`
}

// Private keeps the linter from missing a use.
func (c Config) Private() int { return c.private }
