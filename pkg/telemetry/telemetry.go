// Package telemetry makes the logger, the metrics and the traces of a process.
package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config sets how a process logs.
type Config struct {
	// LogLevel is `debug`, `info`, `warn` or `error`. Default info.
	LogLevel slog.Level `yaml:"log_level" env:"EVALFLEET_LOG_LEVEL"`
	// LogFormat is `text` or `json`. Default text.
	LogFormat string `yaml:"log_format" env:"EVALFLEET_LOG_FORMAT"`
}

// NewLogger logs to w. Line breaks and control bytes in texts are escaped by both formats.
func NewLogger(cfg Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	if strings.EqualFold(cfg.LogFormat, "json") {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// NewRegistry makes a registry with the metrics of the Go runtime and the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Page serves metrics in the form for scraping. It does not authenticate.
func Page(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{})
}
