package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// Values of [TraceConfig.Protocol].
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// TraceConfig sets where the traces of a process go. Without an endpoint there are none, and calls cost nothing more.
type TraceConfig struct {
	// Endpoint is the URL of a collector that takes OTLP, such as http://127.0.0.1:4318; the path /v1/traces is added
	// for HTTP. With https the connection is encrypted. Default: no traces.
	Endpoint string `yaml:"endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// Protocol is `http/protobuf` or `grpc`. Default http/protobuf.
	Protocol string `yaml:"protocol" env:"OTEL_EXPORTER_OTLP_PROTOCOL"`
	// Headers are sent with each export, such as a key: name=value, separated by commas, with %XX for special
	// characters in values.
	Headers config.Secret `yaml:"headers" env:"OTEL_EXPORTER_OTLP_HEADERS"`
	// Sampler selects the traces that are exported: `parentbased_traceidratio`, `parentbased_always_on`,
	// `parentbased_always_off`, `traceidratio`, `always_on` or `always_off`. With parentbased, a caller's own decision
	// counts for its trace. Default parentbased_traceidratio.
	Sampler string `yaml:"sampler" env:"OTEL_TRACES_SAMPLER"`
	// SamplerArg is the share of traces for the samplers by ratio, from 0 to 1. Default 1.
	SamplerArg string `yaml:"sampler_arg" env:"OTEL_TRACES_SAMPLER_ARG"`
	// ServiceName names the process in its traces. Default: the name of its service, or evalfleet.
	ServiceName string `yaml:"service_name" env:"OTEL_SERVICE_NAME"`
	// Content adds messages, arguments and results to spans, cut to 16 KiB each. Default false.
	Content bool `yaml:"content" env:"EVALFLEET_TELEMETRY_CONTENT"`
}

// Validate refuses what cannot be exported. Without an endpoint nothing is refused: the variables may be there for
// other programs.
func (c *TraceConfig) Validate() error {
	if c.Endpoint == "" {
		return nil
	}
	var faults []error
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		faults = append(faults, errors.New("endpoint: is no address; write http://host:port or https://host:port")) // Its text may hold a password.
	case u.User != nil || u.RawQuery != "":
		faults = append(faults, errors.New("endpoint: must have neither a user nor a query; put credentials into headers"))
	}
	if !slices.Contains([]string{"", protocolHTTP, protocolGRPC}, c.Protocol) {
		faults = append(faults, fmt.Errorf("protocol: %q is unknown; known are %s and %s", c.Protocol, protocolHTTP, protocolGRPC))
	}
	if _, err := c.headers(); err != nil {
		faults = append(faults, err)
	}
	if _, known := samplers[c.sampler()]; !known {
		faults = append(faults, fmt.Errorf("sampler: %q is unknown; known are %s", c.Sampler, strings.Join(samplerNames(), ", ")))
	}
	if _, err := c.ratio(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (c *TraceConfig) sampler() string { return cmp.Or(c.Sampler, "parentbased_traceidratio") }

// ratio is the share of traces that is exported.
func (c *TraceConfig) ratio() (float64, error) {
	if c.SamplerArg == "" {
		return 1, nil
	}
	ratio, err := strconv.ParseFloat(c.SamplerArg, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 0, errors.New("sampler_arg: want a number from 0 to 1")
	}
	return ratio, nil
}

// headers returns the headers by name. Its errors do not contain them.
func (c *TraceConfig) headers() (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(c.Headers.Reveal(), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if err != nil || !isToken(name) || strings.ContainsAny(value, "\r\n\x00") {
			return nil, errors.New("headers: want name=value, separated by commas")
		}
		all[strings.ToLower(name)] = value
	}
	return all, nil
}

// isToken reports whether a text can be the name of a header.
func isToken(name string) bool {
	return name != "" && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}
